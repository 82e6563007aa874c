package gather

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

// mailColumns are those that a mail needs, as a ParquetDir writes them.
type mailColumns struct {
	RunID       string    `parquet:"run_id"`
	UserID      string    `parquet:"user_id"`
	Email       string    `parquet:"email"`
	Name        string    `parquet:"name"`
	Locale      string    `parquet:"locale"`
	Status      string    `parquet:"status"`
	Subject     string    `parquet:"subject"`
	Briefing    string    `parquet:"briefing"`
	GeneratedAt time.Time `parquet:"generated_at,timestamp(millisecond)"`
}

// convertedColumns are the same as Firehose's record format conversion writes
// them: all may be null, and timestamps have Impala's old form.
type convertedColumns struct {
	RunID       string           `parquet:"run_id,optional"`
	UserID      string           `parquet:"user_id,optional"`
	Email       string           `parquet:"email,optional"`
	Name        string           `parquet:"name,optional"`
	Locale      string           `parquet:"locale,optional"`
	Status      string           `parquet:"status,optional"`
	Subject     string           `parquet:"subject,optional"`
	Briefing    string           `parquet:"briefing,optional"`
	GeneratedAt deprecated.Int96 `parquet:"generated_at,optional"`
}

// MailRows returns the rows of Parquet files as far as a mail needs them, in
// bounded memory: those that a ParquetDir wrote, and those that come from
// Firehose.
func MailRows(paths ...string) iter.Seq2[briefing.Row, error] {
	return func(yield func(briefing.Row, error) bool) {
		for _, path := range paths {
			converted, err := isConverted(path)
			if err != nil {
				yield(briefing.Row{}, fmt.Errorf("read %s: %w", filepath.Base(path), err))
				return
			}
			goOn := true
			if converted {
				fileRows(path, func(c convertedColumns, err error) bool {
					goOn = yield(briefing.Row{
						RunID: c.RunID, UserID: c.UserID, Email: c.Email, Name: c.Name, Locale: c.Locale, Status: c.Status,
						Subject: c.Subject, Briefing: c.Briefing, GeneratedAt: impalaTime(c.GeneratedAt),
					}, err) && err == nil
					return goOn
				})
			} else {
				fileRows(path, func(c mailColumns, err error) bool {
					goOn = yield(briefing.Row{
						RunID: c.RunID, UserID: c.UserID, Email: c.Email, Name: c.Name, Locale: c.Locale, Status: c.Status,
						Subject: c.Subject, Briefing: c.Briefing, GeneratedAt: c.GeneratedAt,
					}, err) && err == nil
					return goOn
				})
			}
			if !goOn {
				return
			}
		}
	}
}

// CountRows returns how many rows the Parquet files have, by their footers.
func CountRows(paths ...string) (int64, error) {
	var n int64
	for _, path := range paths {
		err := openFile(path, func(file *parquet.File) { n += file.NumRows() })
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", filepath.Base(path), err)
		}
	}
	return n, nil
}

// isConverted tells whether the file's timestamps are in Impala's form.
func isConverted(path string) (converted bool, err error) {
	err = openFile(path, func(file *parquet.File) {
		column, ok := file.Schema().Lookup("generated_at")
		converted = ok && column.Node.Type().Kind() == parquet.Int96
	})
	return converted, err
}

// openFile shows a file's footer.
func openFile(path string, show func(*parquet.File)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() // opened for reading: nothing to lose
	info, err := f.Stat()
	if err != nil {
		return err
	}
	file, err := parquet.OpenFile(f, info.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return err
	}
	show(file)
	return nil
}

// impalaTime reads nanoseconds of a day and a Julian day; the zero value is the
// zero time.
func impalaTime(v deprecated.Int96) time.Time {
	const unixEpoch = 2440588
	if v == (deprecated.Int96{}) {
		return time.Time{}
	}
	nanos := int64(v[0]) | int64(v[1])<<32
	return time.Unix((int64(v[2])-unixEpoch)*86400, nanos).UTC()
}
