package gather

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"github.com/parquet-go/parquet-go"
)

// Rows returns the rows of Parquet files, one file after the other, in bounded
// memory. T is briefing.Row, or a struct with some of its columns: only those
// are read. A damaged file ends the sequence with an error that names it.
func Rows[T any](paths ...string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, path := range paths {
			if !fileRows(path, yield) {
				return
			}
		}
	}
}

// DirRows returns the rows of all parts in dir.
func DirRows[T any](dir string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		paths, err := Parts(dir)
		if err != nil {
			var zero T
			yield(zero, err)
			return
		}
		Rows[T](paths...)(yield)
	}
}

const readRows = 256

// fileRows yields the rows of one file and reports whether to go on.
func fileRows[T any](path string, yield func(T, error) bool) (goOn bool) {
	var zero T
	fail := func(err error) bool {
		yield(zero, fmt.Errorf("read %s: %w", filepath.Base(path), err))
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return fail(err)
	}
	defer f.Close() // opened for reading: nothing to lose
	info, err := f.Stat()
	if err != nil {
		return fail(err)
	}
	file, err := parquet.OpenFile(f, info.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return fail(err)
	}
	if err := checkColumns(file, parquet.SchemaOf(zero)); err != nil {
		return fail(err)
	}
	r := parquet.NewGenericReader[T](file)
	defer r.Close()
	rows := make([]T, readRows)
	for {
		clear(rows)
		n, err := r.Read(rows)
		for _, row := range rows[:n] {
			if !yield(row, nil) {
				return false
			}
		}
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			return fail(err)
		}
	}
}

// checkColumns refuses a file that lacks a column: the reader would fill it
// with zeros.
func checkColumns(file *parquet.File, want *parquet.Schema) error {
	var missing []error
	for _, path := range want.Columns() {
		if _, ok := file.Schema().Lookup(path...); !ok {
			missing = append(missing, fmt.Errorf("it has no column %s", path[0]))
		}
	}
	return errors.Join(missing...)
}
