package local

import (
	"context"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/deliver"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
)

// Options say what to run. Input, Out, Template and Model are required.
type Options struct {
	// Input is a CSV or JSON Lines file, gzip or not.
	Input  string
	Format briefing.Format
	// Limit stops after that many accepted records; 0 runs all.
	Limit int64
	// Out is the folder the run writes to. A folder that holds this very run is
	// gone on with; one that holds another is refused.
	Out string
	// Restart removes the run that Out holds and begins anew.
	Restart bool

	Model    Model
	Engine   engine.Options
	Template *briefing.Template

	// BatchSize is how many records one call of the engine takes, as one Lambda
	// invocation does. At the end of a batch sequences run empty, so larger ones
	// waste less. Default 512.
	BatchSize int
	MaxTokens int // default 96
	Sampling  engine.Sampling
	Stop      []string
	Grammar   string

	// Mail is nil where nothing is sent.
	Mail *Mail

	// Parquet tunes the output; its zero value is right but for tests.
	Parquet gather.ParquetOptions

	// RerunOf is the id of the run whose failed users this one takes again.
	RerunOf string

	// Command is the command line that the report shows for doing it again, or "".
	Command string

	// OnProgress is told how far the run is, from one goroutine at a time.
	OnProgress func(Progress)
}

// Defaults of Options.
const (
	DefaultBatchSize = 512
	DefaultMaxTokens = 96
)

// Model is the model of a run: what it is, and how to open it.
type Model struct {
	// Name is what rows and the manifest call it, with the quantization.
	Name string
	// Path is the file, or "" where there is none.
	Path string
	// Open loads it. It is called only where there is something to generate.
	Open func(context.Context) (engine.Backend, error)
}

// Mail says how briefings are sent.
type Mail struct {
	Composer *deliver.Composer
	// Sender sends the mails; Folder instead writes them as .eml files into a
	// folder of this name in Out.
	Sender deliver.Sender
	Folder string
	// RatePerSec bounds the mails per second; 0 is no bound.
	RatePerSec float64
}

// Stages of a run, in order.
const (
	StageNormalise = "normalise"
	StageLoad      = "load"
	StageGenerate  = "generate"
	StageDeliver   = "deliver"
	StageReconcile = "reconcile"
)

// Progress is how far a run is.
type Progress struct {
	Stage string
	// Done of Total records; Total is 0 where it is not known.
	Done, Total int64
	// Failed of Done.
	Failed int64
	// Tokens generated in this session.
	Tokens int64
}
