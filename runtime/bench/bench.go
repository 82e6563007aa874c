// Package bench measures what a machine does with a model: prefill and decode
// throughput, and whole workloads against the loops that people write first.
package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/briefing-swarm/briefing-swarm/plan"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
)

// Options say what to measure.
type Options struct {
	// Backend runs the engine, and the loops too unless Naive is set.
	Backend engine.Backend
	// Naive runs the one-at-a-time loops, with other weights than Backend.
	Naive engine.Backend
	// Loops says whether to run them at all.
	Loops bool
	// Engine tunes the engine; Parallel is the workload's.
	Engine    engine.Options
	Sequences []int // K of the decode figures
	Workloads []Workload
	// Repeat is how often each figure is taken; the median counts.
	Repeat int
	// Users of one engine measurement of a workload, in multiples of K.
	Rounds int
	// Note is told what is being measured.
	Note func(string)
}

// Report is what was measured.
type Report struct {
	Calibration plan.Calibration `json:"calibration"`
	// Comparisons has one entry for each workload.
	Comparisons []Comparison `json:"comparisons"`
	// OwnShare is the part of the engine's wall time that it spent outside the
	// library's decode call, over all workloads.
	OwnShare float64 `json:"own_share"`
}

// Comparison of one workload; seconds per user, medians of Repeat
// measurements in turn. Ratios are medians of the ratios of each turn. What the
// shared prefix costs once is in none of the figures but ClearSec, which pays it
// for every user.
type Comparison struct {
	Workload
	EngineSec  float64 `json:"engine_sec"`
	ClearSec   float64 `json:"clear_sec,omitempty"`  // cache cleared for every user
	PrefixSec  float64 `json:"prefix_sec,omitempty"` // common prefix kept, one user at a time
	OverClear  float64 `json:"over_clear,omitempty"`
	OverPrefix float64 `json:"over_prefix,omitempty"`
}

// seed makes the made-up prompts the same in every run.
const seed = 20261130

// Run measures.
func Run(ctx context.Context, opt Options) (*Report, error) {
	if opt.Repeat < 1 {
		opt.Repeat = 3
	}
	if opt.Rounds < 1 {
		opt.Rounds = 2
	}
	if opt.Note == nil {
		opt.Note = func(string) {}
	}
	if opt.Naive == nil {
		opt.Naive = opt.Backend
	}
	b := &bench{Options: opt, rng: rand.New(rand.NewPCG(seed, 1))}
	h, info := opt.Backend.Host(), opt.Backend.Info()
	r := &Report{Calibration: plan.Calibration{
		Schema: plan.CalibrationSchema, MeasuredAt: time.Now().UTC().Truncate(time.Second), Source: "swarm bench", Confidence: "measured",
		Machine: plan.CalibrationMachine{CPU: h.CPU, Arch: h.Arch, Features: h.Features, Variant: h.Variant, Threads: h.Threads, CPUs: h.CPUs, LambdaMemoryMib: h.LambdaMemoryMib},
		Model: plan.CalibrationModel{
			Name: info.Model, Quantization: h.Quantization, Parameters: h.Parameters, WeightBytes: h.WeightBytes,
			Layers: h.Layers, KVBytesToken: h.KVBytesToken, RandomWeight: h.Random,
		},
		LoadSec: h.LoadTime.Seconds(),
	}}
	c := &r.Calibration
	var err error
	if c.PrefillTokensPerSec, err = b.prefill(ctx); err != nil {
		return nil, err
	}
	for _, k := range opt.Sequences {
		rate, err := b.decode(ctx, k)
		if err != nil {
			return nil, err
		}
		c.Decode = append(c.Decode, plan.DecodeRate{Parallel: k, TokensPerSec: rate})
	}
	for _, w := range opt.Workloads {
		cmp, err := b.compare(ctx, w)
		if err != nil {
			return nil, err
		}
		r.Comparisons = append(r.Comparisons, cmp)
		c.Workloads = append(c.Workloads, plan.Workload{
			Name: w.Name, PrefixTokens: w.PrefixTokens, OwnTokens: w.OwnTokens, OutputTokens: w.OutputTokens, Parallel: w.Parallel,
			SecPerUser: cmp.EngineSec, NaiveSecPerUser: cmp.ClearSec, PrefixSecPerUser: cmp.PrefixSec, Users: w.Parallel * opt.Rounds,
		})
	}
	if b.wall > 0 {
		r.OwnShare = 1 - float64(b.inDecode)/float64(b.wall)
	}
	if opt.Naive == opt.Backend {
		c.PeakMemoryBytes = peakMemory() // two models at a time say nothing about one
	}
	return r, nil
}

type bench struct {
	Options
	rng            *rand.Rand
	wall, inDecode time.Duration
}

// tokens returns n made-up tokens. Their values do not change the work.
func (b *bench) tokens(n int) []engine.Token {
	vocab := min(b.Backend.Info().Vocab, b.Naive.Info().Vocab)
	t := make([]engine.Token, n)
	for i := range t {
		t[i] = engine.Token(b.rng.IntN(vocab))
	}
	return t
}

// users returns n prompts with a common prefix.
func (b *bench) users(n, prefix, own int) [][]engine.Token {
	head := b.tokens(prefix)
	prompts := make([][]engine.Token, n)
	for i := range prompts {
		prompts[i] = slices.Concat(head, b.tokens(own))
	}
	return prompts
}

// generate runs prompts through a fresh engine and returns the time and the
// statistics of that. The first warm tokens of the prompts are put into the
// shared prefix before: in a run of many users they cost nothing.
func (b *bench) generate(ctx context.Context, k int, prompts [][]engine.Token, warm, output int) (time.Duration, engine.Stats, error) {
	opt := b.Engine
	opt.Parallel = k
	e, err := engine.New(b.Backend, opt)
	if err != nil {
		return 0, engine.Stats{}, err
	}
	if warm > 0 {
		if err := run(ctx, e, b.share(prompts[0][:warm]), 1); err != nil {
			return 0, engine.Stats{}, err
		}
	}
	before, start := e.Stats(), time.Now()
	if err := run(ctx, e, prompts, output); err != nil {
		return 0, engine.Stats{}, err
	}
	took, after := time.Since(start), e.Stats()
	after.Wall -= before.Wall
	after.Decode -= before.Decode
	return took, after, e.Close()
}

// share returns two prompts that have nothing but head in common.
func (b *bench) share(head []engine.Token) [][]engine.Token {
	return [][]engine.Token{slices.Concat(head, []engine.Token{1}), slices.Concat(head, []engine.Token{2})}
}

func run(ctx context.Context, e *engine.Engine, prompts [][]engine.Token, output int) error {
	return e.Generate(ctx, func(yield func(engine.Request) bool) {
		for _, p := range prompts {
			if !yield(engine.Request{Tokens: p, MaxTokens: output, IgnoreEnd: true}) {
				return
			}
		}
	}, func(r engine.Result) error { return r.Err })
}

// PrefillTokens is the length of the prompt that prefill is measured with: long
// enough to fill a step, and short enough for attention not to matter.
const PrefillTokens = 256

func (b *bench) prefill(ctx context.Context) (float64, error) {
	b.Note("prefill")
	var rates []float64
	for range b.Repeat + 1 {
		_, s, err := b.generate(ctx, 1, [][]engine.Token{b.tokens(PrefillTokens)}, 0, 1)
		if err != nil {
			return 0, err
		}
		rates = append(rates, s.PurePrefill.TokensPerSec())
	}
	return median(rates[1:]), nil // the first one warms up
}

// decodeSteps of each decode figure.
const decodeSteps = 16

func (b *bench) decode(ctx context.Context, k int) (float64, error) {
	b.Note(fmt.Sprintf("decode, K %d", k))
	var rates []float64
	for range b.Repeat {
		_, s, err := b.generate(ctx, k, b.users(k, 0, 16), 0, decodeSteps+1)
		if err != nil {
			return 0, err
		}
		rates = append(rates, s.PureDecode.TokensPerSec())
	}
	return median(rates), nil
}

// naiveUsers of one measurement of a loop. Each user is as much work as the
// next, so few do.
const naiveUsers = 2

func (b *bench) compare(ctx context.Context, w Workload) (Comparison, error) {
	c := Comparison{Workload: w}
	var ours, clear, prefix, overClear, overPrefix []float64
	for turn := range b.Repeat {
		b.Note(fmt.Sprintf("workload %s, turn %d of %d", w.Name, turn+1, b.Repeat))
		prompts := b.users(w.Parallel*b.Rounds, w.PrefixTokens, w.OwnTokens)
		took, s, err := b.generate(ctx, w.Parallel, prompts, w.PrefixTokens, w.OutputTokens)
		if err != nil {
			return c, err
		}
		ours = append(ours, took.Seconds()/float64(len(prompts)))
		b.wall += s.Wall
		b.inDecode += s.Decode
		if !b.Loops {
			continue
		}
		sec, err := oneAtATime(ctx, b.Naive, prompts[:naiveUsers], 0, w.OutputTokens)
		if err != nil {
			return c, err
		}
		clear = append(clear, sec)
		overClear = append(overClear, sec/ours[turn])
		if sec, err = oneAtATime(ctx, b.Naive, prompts[:naiveUsers], w.PrefixTokens, w.OutputTokens); err != nil {
			return c, err
		}
		prefix = append(prefix, sec)
		overPrefix = append(overPrefix, sec/ours[turn])
	}
	c.EngineSec, c.ClearSec, c.PrefixSec = median(ours), median(clear), median(prefix)
	c.OverClear, c.OverPrefix = median(overClear), median(overPrefix)
	return c, nil
}

// median returns the middle value, 0 of none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}
