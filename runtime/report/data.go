// Package report draws the page a run leaves beside its data: one
// self-contained HTML file with counts, time line, throughput, token
// histograms, failures and sample briefings.
package report

import (
	"time"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

// Data is what a run knows about itself when it writes its report. Every field
// may be zero: what is not known is left out of the page.
type Data struct {
	RunID     string
	Title     string // what ran, for example "examples/users.csv"
	Model     string // name and quantization
	Started   time.Time
	Finished  time.Time
	Host      string // CPU model, threads, engine variant, in one line
	Parallel  int    // sequences decoded together
	BatchSize int    // records per batch

	// Command is the command line that made the run, quoted for a shell. The
	// page shows it, and builds the next steps from it; the password of a URL in
	// it is masked.
	Command string
	// OutDir is the folder the run wrote to, as the user named it. Next steps
	// name files in it.
	OutDir string

	// Records are the rows of the input that became a record; Rejected rows are
	// not among them. Records that are neither OK nor Failed are shown as
	// unfinished: the run was interrupted.
	Records  int64
	OK       int64
	Failed   int64
	Rejected int64 // input rows that could not become a record
	Mailed   int64 // by the last session
	// MailedBefore had their mail from an earlier session.
	MailedBefore int64
	NoMail       int64 // ok rows without an address, or mail switched off

	PromptTokens     int64
	CachedTokens     int64 // of PromptTokens: served from the shared prefix
	CompletionTokens int64

	LoadSec    float64 // loading the model
	PrefillSec float64 // of DecodeSec: wall time in prefill, as far as it can be told apart
	DecodeSec  float64 // wall time in llama.cpp, prefill included
	EngineSec  float64 // wall time of the engine, its own work included

	Timeline      []Point        // progress over time, in order; thinned for the picture
	PromptHist    []Bin          // prompt tokens per record
	OutputHist    []Bin          // completion tokens per record
	FailuresBy    []Count        // failed and rejected by code, most frequent first
	FinishReasons []Count        // ok rows by finish reason
	Samples       []briefing.Row // at most ten are shown
	Files         []File         // what the run left, relative to the report
}

// Point is the state of a run at a moment.
type Point struct {
	Sec    float64 `json:"sec"`    // since the start
	Rows   int64   `json:"rows"`   // rows finished so far
	Tokens int64   `json:"tokens"` // completion tokens so far
}

// Bin counts the values in [From, To).
type Bin struct {
	From, To int
	N        int64
}

// Count is a label and how often it occurred.
type Count struct {
	Label string
	N     int64
	// About says what the label means and what to do. It may be empty for the
	// codes of package briefing and its finish reasons, which the page explains.
	About string
}

// File is something a run left, named relative to the report.
type File struct {
	Path  string
	Bytes int64
	About string
}
