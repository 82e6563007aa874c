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

// FileRows returns the rows of one Parquet file of size bytes, as Rows does.
// name stands for the file in errors. Reads of r are of readBytes or more, but
// for the file's footer, so that each can be a request over a network.
func FileRows[T any](name string, r io.ReaderAt, size int64) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) { readRows(name, r, size, yield) }
}

const (
	rowsAtOnce = 256
	// readBytes is how much of a column is read at once.
	readBytes = 256 << 10
)

// fileRows yields the rows of the file at path and reports whether to go on.
func fileRows[T any](path string, yield func(T, error) bool) (goOn bool) {
	fail := func(err error) bool {
		var zero T
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
	return readRows(filepath.Base(path), f, info.Size(), yield)
}

func readRows[T any](name string, source io.ReaderAt, size int64, yield func(T, error) bool) (goOn bool) {
	var zero T
	fail := func(err error) bool {
		yield(zero, fmt.Errorf("read %s: %w", name, err))
		return false
	}
	file, err := parquet.OpenFile(source, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(readBytes))
	if err != nil {
		return fail(err)
	}
	if err := checkColumns(file, parquet.SchemaOf(zero)); err != nil {
		return fail(err)
	}
	r := parquet.NewGenericReader[T](file)
	defer r.Close()
	rows := make([]T, rowsAtOnce)
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
