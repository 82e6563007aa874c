package gather

import "github.com/briefing-swarm/briefing-swarm/runtime/briefing"

// Sink takes finished rows. ParquetDir keeps them in a folder, a
// FirehoseSession hands them to Amazon Data Firehose.
type Sink interface {
	// Write takes rows. They are kept for sure once Flush has returned nil.
	Write(rows ...briefing.Row) error
	// FlushDue passes on rows that have waited long enough, for callers whose
	// rows come slowly.
	FlushDue() error
	// Flush passes on all rows taken so far.
	Flush() error
	// Pending returns how many rows a crash would cost now.
	Pending() int
}

var (
	_ Sink = (*ParquetDir)(nil)
	_ Sink = (*FirehoseSession)(nil)
)
