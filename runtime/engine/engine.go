package engine

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Options tune an Engine. The zero value of a field takes its default.
type Options struct {
	// Parallel is K, how many sequences decode together. Default 16, at most
	// Info.MaxSeqs-1.
	Parallel int
	// PrefillChunk is how many prompt tokens a step takes along beside running
	// sequences. A small one keeps the time between two tokens of a sequence
	// short; the default is as many as a step holds, which was fastest.
	PrefillChunk int
	// NoPrefix switches the shared prefix off, and OneAtATime clears the cache
	// between users: the loops that a bench compares with.
	NoPrefix bool
}

// DefaultParallel is the default of Options.Parallel.
const DefaultParallel = 16

// Request is one prompt and what may be generated for it.
type Request struct {
	// Ref comes back in the Result; the engine does not look at it.
	Ref any
	// Messages end with the one to answer. Their contents are text: no control
	// token can be written in them.
	Messages []Message
	// Tokens are the prompt itself, where it is tokenized already; Messages are
	// then not looked at.
	Tokens []Token
	// MaxTokens bounds the generated tokens. It must be at least 1.
	MaxTokens int
	Sampling  Sampling
	// Stop strings end the text where they begin; they are not part of it.
	Stop []string
	// Grammar is a GBNF grammar that the text must follow, or empty.
	Grammar string
	// Deadline ends this generation with finish reason "deadline"; zero is none.
	Deadline time.Time
	// IgnoreEnd goes on past the model's own end of text, to MaxTokens. It
	// exists for measuring.
	IgnoreEnd bool
	// OnText receives text as soon as it can be let out, in whole characters.
	OnText func(string)
}

// Finish reasons of a Result. They are those of the record contract.
const (
	FinishStop     = "stop"
	FinishLength   = "length"
	FinishDeadline = "deadline"
)

// Result is what became of one Request.
type Result struct {
	Ref  any
	Text string
	// Err is set where nothing was generated, for example *PromptTooLongError.
	Err error
	// FinishReason is FinishStop, FinishLength or FinishDeadline.
	FinishReason string
	// PromptTokens of the prompt, CachedTokens of them served from the shared
	// prefix or from an identical prompt.
	PromptTokens, CachedTokens int
	// CompletionTokens generated, a final end token included.
	CompletionTokens int
	// Shared is true where an identical prompt of the same call was generated
	// instead.
	Shared bool
	// FirstToken and Total are the times since the request was admitted.
	FirstToken, Total time.Duration
}

// Stats add up what an Engine has done since New.
type Stats struct {
	Requests         int64
	Steps            int64 // calls of Backend.Decode
	PrefillTokens    int64 // prompt tokens computed, the shared prefix included
	CachedTokens     int64 // prompt tokens that needed no computing
	CompletionTokens int64
	// Decode is the time spent inside the Backend's Decode; Wall is the time spent
	// in Generate less the time waiting in the caller's iterator and emit
	// function. What lies between them is the engine's own.
	Decode, Wall time.Duration
	// PurePrefill are the steps that held prompt tokens only, PureDecode those
	// that held one token of each running sequence only.
	PurePrefill, PureDecode Phase
}

// Phase adds up steps of one kind.
type Phase struct {
	Steps, Tokens int64
	Time          time.Duration
}

// TokensPerSec returns the phase's throughput, 0 where it has none.
func (p Phase) TokensPerSec() float64 {
	if p.Time <= 0 {
		return 0
	}
	return float64(p.Tokens) / p.Time.Seconds()
}

func (p *Phase) add(tokens int, took time.Duration) {
	p.Steps++
	p.Tokens += int64(tokens)
	p.Time += took
}

// Engine generates text for many requests at a time. It is not safe for
// concurrent use.
type Engine struct {
	backend   Backend
	opt       Options
	info      Info
	tokenizer tokenizer
	prefix    []Token // what sequence prefixSeq holds
	slots     []*slot
	batch     Batch
	sampleBuf sampleBuffers

	compiled     Grammar // the last grammar, in its start state
	compiledFrom string

	stats    Stats
	clock    func() time.Time
	draining atomic.Bool
}

// New returns an engine on top of backend, which stays the caller's to close.
func New(backend Backend, opt Options) (*Engine, error) {
	info := backend.Info()
	if opt.Parallel == 0 {
		opt.Parallel = min(DefaultParallel, info.MaxSeqs-1)
	}
	if opt.PrefillChunk == 0 {
		opt.PrefillChunk = info.MaxBatch
	}
	if opt.Parallel < 1 || opt.Parallel > info.MaxSeqs-1 {
		return nil, &OptionError{Field: "parallel", Value: opt.Parallel, Want: fmt.Sprintf("1 to %d, the sequences of the context less one for the shared prefix", info.MaxSeqs-1)}
	}
	if opt.PrefillChunk < 1 || opt.PrefillChunk > info.MaxBatch {
		return nil, &OptionError{Field: "prefill chunk", Value: opt.PrefillChunk, Want: fmt.Sprintf("1 to %d", info.MaxBatch)}
	}
	e := &Engine{backend: backend, opt: opt, info: info, tokenizer: tokenizer{backend: backend}, clock: time.Now}
	for i := range opt.Parallel {
		e.slots = append(e.slots, &slot{seq: Seq(i + 1)})
	}
	return e, nil
}

// Drain makes the running Generate finish the sequences that it has begun and
// return; requests that still wait get no Result. Later calls return at once.
// It may be called from any goroutine.
func (e *Engine) Drain() { e.draining.Store(true) }

// Close frees what the engine holds in the backend, which stays open.
func (e *Engine) Close() error {
	if e.compiled != nil {
		e.compiled.Close()
		e.compiled = nil
	}
	return errors.Join(e.reset(), e.dropPrefix(0))
}

// Info describes the model and its context.
func (e *Engine) Info() Info { return e.info }

// Stats returns what the engine has done so far.
func (e *Engine) Stats() Stats { return e.stats }

// CountTokens returns how many tokens the prompt of messages has.
func (e *Engine) CountTokens(messages []Message) (int, error) {
	tokens, err := e.tokenizer.appendPrompt(nil, messages)
	return len(tokens), err
}
