package gather

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

// Defaults of ParquetOptions.
const (
	// DefaultFlushRows keeps a row group near 64 MB at the usual 1 KB a row, far
	// below the 256 MB that Step Functions' Parquet reader takes.
	DefaultFlushRows = 50_000
	// DefaultFlushAfter is how much work a power cut may cost.
	DefaultFlushAfter = 15 * time.Second
)

// ParquetOptions tune a ParquetDir. The zero value of a field takes its
// default.
type ParquetOptions struct {
	FlushRows  int           // rows of one file, default DefaultFlushRows
	FlushAfter time.Duration // age at which rows are written, default DefaultFlushAfter
}

// ParquetDir writes rows to part-00001.parquet and so on in one folder. A part
// appears whole or not at all, whatever happens to the process: it is written
// under another name, synced and renamed. It is not safe for concurrent use.
type ParquetDir struct {
	dir    string
	opt    ParquetOptions
	rows   []briefing.Row
	oldest time.Time // when the first of rows came
	next   int
	writer *parquet.GenericWriter[briefing.Row]
}

const (
	partPrefix = "part-"
	partSuffix = ".parquet"
	tempSuffix = ".tmp"
)

// OpenParquetDir opens dir for writing, after the parts that are there, and
// removes what an earlier process left unfinished.
func OpenParquetDir(dir string, opt ParquetOptions) (*ParquetDir, error) {
	if opt.FlushRows <= 0 {
		opt.FlushRows = DefaultFlushRows
	}
	if opt.FlushAfter <= 0 {
		opt.FlushAfter = DefaultFlushAfter
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make briefings folder: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open briefings folder: %w", err)
	}
	d := &ParquetDir{dir: dir, opt: opt, next: 1}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), partSuffix+tempSuffix) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, fmt.Errorf("remove unfinished part: %w", err)
			}
		}
		if n, ok := partNumber(e.Name()); ok {
			d.next = max(d.next, n+1)
		}
	}
	return d, nil
}

func partNumber(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, partPrefix)
	if !ok {
		return 0, false
	}
	digits, ok = strings.CutSuffix(digits, partSuffix)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil
}

// Write takes rows. They are on disk once Flush has returned, or earlier.
func (d *ParquetDir) Write(rows ...briefing.Row) error {
	for len(rows) > 0 {
		if len(d.rows) == 0 {
			d.oldest = time.Now()
		}
		n := min(len(rows), d.opt.FlushRows-len(d.rows))
		d.rows = append(d.rows, rows[:n]...)
		rows = rows[n:]
		if len(d.rows) >= d.opt.FlushRows {
			if err := d.Flush(); err != nil {
				return err
			}
		}
		if err := d.FlushDue(); err != nil {
			return err
		}
	}
	return nil
}

// FlushDue flushes where the oldest row has reached FlushAfter, for callers
// whose rows come slowly.
func (d *ParquetDir) FlushDue() error {
	if len(d.rows) == 0 || time.Since(d.oldest) < d.opt.FlushAfter {
		return nil
	}
	return d.Flush()
}

// Pending returns how many rows a crash would cost now.
func (d *ParquetDir) Pending() int { return len(d.rows) }

// Flush writes the rows taken so far as one part. Without rows it does nothing.
func (d *ParquetDir) Flush() error {
	if len(d.rows) == 0 {
		return nil
	}
	final := filepath.Join(d.dir, fmt.Sprintf("%s%05d%s", partPrefix, d.next, partSuffix))
	if err := d.writePart(final + tempSuffix); err != nil {
		return errors.Join(fmt.Errorf("write part: %w", err), removeIfThere(final+tempSuffix))
	}
	if err := os.Rename(final+tempSuffix, final); err != nil {
		return fmt.Errorf("write part: %w", err)
	}
	if err := syncDir(d.dir); err != nil {
		return fmt.Errorf("write part: %w", err)
	}
	d.next++
	clear(d.rows)
	d.rows = d.rows[:0]
	return nil
}

func (d *ParquetDir) writePart(path string) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if d.writer == nil {
		d.writer = parquet.NewGenericWriter[briefing.Row](f, parquet.CreatedBy("briefing-swarm", "1", ""))
	} else {
		d.writer.Reset(f)
	}
	if _, err := d.writer.Write(d.rows); err != nil {
		return err
	}
	if err := d.writer.Close(); err != nil {
		return err
	}
	return f.Sync()
}

// Close flushes.
func (d *ParquetDir) Close() error { return d.Flush() }

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncDir makes a rename in dir durable.
func syncDir(dir string) (err error) {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return f.Sync()
}

// Parts returns the finished parts of dir in the order in which they were
// written; none where dir does not exist.
func Parts(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open briefings folder: %w", err)
	}
	type part struct {
		n    int
		path string
	}
	var parts []part
	for _, e := range entries {
		if n, ok := partNumber(e.Name()); ok && !e.IsDir() {
			parts = append(parts, part{n, filepath.Join(dir, e.Name())})
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return a.n - b.n })
	paths := make([]string, len(parts))
	for i, p := range parts {
		paths[i] = p.path
	}
	return paths, nil
}
