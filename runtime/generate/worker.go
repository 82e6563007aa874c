package generate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
	"github.com/briefing-swarm/briefing-swarm/runtime/recipe"
)

// Worker generates for the records of one invocation after the other, with one
// model. It is safe for concurrent use; invocations then wait for each other.
type Worker struct {
	model  *Model
	opt    engine.Options
	mu     sync.Mutex
	recipe recipe.Recipe
	eng    *engine.Engine
	told   bool // the load time was reported
}

// NewWorker returns a worker. Where r names no model, rows have the model's own
// name.
func NewWorker(model *Model, r recipe.Recipe, opt engine.Options) *Worker {
	return &Worker{model: model, recipe: r, opt: opt}
}

// Item is one record of a batch, or why it can't be read.
type Item struct {
	Record briefing.Record
	Err    *briefing.RowError
}

// ParseItem reads an item.
func ParseItem(text []byte) Item {
	rec, err := briefing.ParseRecord(text)
	var rowErr *briefing.RowError
	if errors.As(err, &rowErr) {
		return Item{Err: rowErr}
	}
	return Item{Record: rec}
}

// Usage is what a batch took.
type Usage struct {
	PromptTokens, CachedTokens, CompletionTokens int64
	// FirstToken are the times to the first token of those who got one.
	FirstToken []time.Duration
	// TokensPerSec is generated tokens by the time the model worked,
	// PrefillTokensPerSec the speed of steps that read prompts only, 0 where
	// there was none.
	TokensPerSec, PrefillTokensPerSec float64
	// ModelLoad is set for the first batch after a cold start.
	ModelLoad time.Duration
	Model     string
	Variant   string
}

// How an invocation's time is divided. The rest is for rows that are still to
// be sent.
const (
	flushShare = 10 // of the time, at most maxFlush
	maxFlush   = 10 * time.Second
	// Before a first text has shown how long one takes, so much of the time is
	// kept for finishing what was begun.
	firstShare = 4
)

// Run generates for the items whose places are given and calls emit with the row
// of each, in the order in which they finish, from one goroutine at a time. A
// record that cannot be read, rendered or generated gets a failed row.
//
// As ctx's deadline nears, no more items are begun; those that got no row are
// left to the caller. At least one item gets a row wherever Run returns without
// an error and there was one to do: a text that takes a whole invocation alone
// fails with recipe.CodeDeadline.
//
// The error is that of ctx where it was cancelled, of the model, or of emit.
func (w *Worker) Run(ctx context.Context, runID string, items []Item, places []int, emit func(place int, row briefing.Row) error) (Usage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	start := time.Now()
	until := time.Time{}
	if deadline, ok := ctx.Deadline(); ok {
		until = deadline.Add(-min(maxFlush, time.Until(deadline)/flushShare))
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	u, before, err := w.prepare(ctx)
	if err != nil {
		return u, err
	}
	j := &job{w: w, runID: runID, items: items, emit: emit, done: map[int]bool{}, usage: &u, start: time.Now(), until: until}
	err = j.run(ctx, places)
	u.measure(before, w.eng.Stats())
	if err == nil && ctx.Err() != nil && len(j.done) == 0 && len(places) > 0 {
		if errors.Is(ctx.Err(), context.Canceled) {
			return u, ctx.Err()
		}
		if u.ModelLoad > 0 {
			// Most of the time went into loading; the next try has all of it.
			return u, &LoadingError{Waited: time.Since(start)}
		}
		place := places[0]
		err = j.settle(place, w.recipe.FailedRow(runID, items[place].Record, &recipe.DeadlineError{After: time.Since(start)}))
	}
	return u, err
}

// prepare waits for the model and makes the engine.
func (w *Worker) prepare(ctx context.Context) (Usage, engine.Stats, error) {
	backend, err := w.model.Wait(ctx)
	if err != nil {
		return Usage{}, engine.Stats{}, err
	}
	if w.recipe.Model == "" {
		w.recipe.Model = backend.Info().Model
	}
	u := Usage{Model: w.recipe.Model, Variant: backend.Host().Variant}
	if !w.told {
		u.ModelLoad, w.told = w.model.LoadTime(), true
	}
	if w.eng == nil {
		if w.eng, err = engine.New(backend, w.opt); err != nil {
			return u, engine.Stats{}, err
		}
		if err := w.recipe.Check(w.eng, backend); err != nil {
			return u, engine.Stats{}, err
		}
	}
	return u, w.eng.Stats(), nil
}

// measure fills in what the engine did between two of its accounts.
func (u *Usage) measure(before, after engine.Stats) {
	if wall := (after.Wall - before.Wall).Seconds(); wall > 0 {
		u.TokensPerSec = float64(after.CompletionTokens-before.CompletionTokens) / wall
	}
	if t := (after.PurePrefill.Time - before.PurePrefill.Time).Seconds(); t > 0 {
		u.PrefillTokensPerSec = float64(after.PurePrefill.Tokens-before.PurePrefill.Tokens) / t
	}
}

// job is one Run.
type job struct {
	w       *Worker
	runID   string
	items   []Item
	emit    func(int, briefing.Row) error
	done    map[int]bool
	usage   *Usage
	start   time.Time
	until   time.Time    // when generating must end, zero for never
	longest atomic.Int64 // of the texts so far, in nanoseconds
	emitErr error
}

func (j *job) settle(place int, row briefing.Row) error {
	j.done[place] = true
	j.emitErr = j.emit(place, row)
	return nil
}

func (j *job) run(ctx context.Context, places []int) error {
	stop := j.drainInTime()
	err := j.generate(ctx, places)
	if drained := stop(); drained {
		// A drained engine stays so, and what it holds is of no use to a new one.
		closeErr := j.w.eng.Close()
		j.w.eng = nil
		backend, waitErr := j.w.model.Wait(ctx)
		if waitErr == nil {
			j.w.eng, waitErr = engine.New(backend, j.w.opt)
		}
		if fault := errors.Join(closeErr, waitErr); fault != nil {
			return fault
		}
	}
	switch {
	case j.emitErr != nil:
		return j.emitErr
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		return nil // the rest is the caller's
	case ctx.Err() != nil:
		return err
	}
	return j.alone(ctx, places, err)
}

// drainInTime makes the engine begin nothing more once the time left is what
// the texts so far have taken. The function it returns ends the watch and tells
// whether it came to that.
func (j *job) drainInTime() (stop func() bool) {
	if j.until.IsZero() {
		return func() bool { return false }
	}
	eng := j.w.eng
	var drained atomic.Bool
	ended, quit := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				if time.Until(j.until) < j.reserve() {
					drained.Store(true)
					eng.Drain()
					return
				}
			}
		}
	}()
	return func() bool { close(quit); <-ended; return drained.Load() }
}

// reserve is how long the texts that run may still need: half more than the
// longest so far, and never more than half of the time.
func (j *job) reserve() time.Duration {
	all := j.until.Sub(j.start)
	longest := time.Duration(j.longest.Load())
	if longest == 0 {
		return all / firstShare
	}
	return min(longest+longest/2, all/2)
}

// request is what the engine carries along for us.
type request struct {
	place  int
	record briefing.Record
}

func (j *job) generate(ctx context.Context, places []int) error {
	return j.w.eng.Generate(ctx, j.requests(places), func(res engine.Result) error {
		r := res.Ref.(request)
		if !res.Shared && res.Total > 0 {
			j.longest.Store(max(j.longest.Load(), int64(res.Total)))
		}
		u := j.usage
		u.PromptTokens += int64(res.PromptTokens)
		u.CachedTokens += int64(res.CachedTokens)
		u.CompletionTokens += int64(res.CompletionTokens)
		if res.FirstToken > 0 {
			u.FirstToken = append(u.FirstToken, res.FirstToken)
		}
		return j.settle(r.place, j.w.recipe.Row(j.runID, r.record, res))
	})
}

// requests yields what can be asked. Items of which nothing can be asked get
// their rows at once.
func (j *job) requests(places []int) iter.Seq[engine.Request] {
	return func(yield func(engine.Request) bool) {
		for _, place := range places {
			if j.done[place] {
				continue
			}
			item := j.items[place]
			if item.Err != nil {
				if j.settle(place, j.w.recipe.RejectedRow(j.runID, item.Err)) != nil {
					return
				}
				continue
			}
			req, err := j.w.recipe.Request(item.Record)
			if err != nil {
				if j.settle(place, j.w.recipe.FailedRow(j.runID, item.Record, err)) != nil {
					return
				}
				continue
			}
			req.Ref = request{place, item.Record}
			if !yield(req) {
				return
			}
		}
	}
}

// brokenAfter is how many records in a row must fail alone, without a single
// success, to say that not they are at fault but the model.
const brokenAfter = 3

// alone takes the records that have no row one by one, after the model has
// failed with all of them: the one that it fails with gets a failed row.
func (j *job) alone(ctx context.Context, places []int, cause error) error {
	failed := 0
	for _, place := range places {
		if j.done[place] {
			continue
		}
		if !j.until.IsZero() && time.Until(j.until) < j.reserve() {
			return nil
		}
		err := j.generate(ctx, []int{place})
		switch {
		case j.emitErr != nil:
			return j.emitErr
		case err == nil:
			failed = 0
		case ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded):
			return nil
		case ctx.Err() != nil:
			return err
		default:
			if failed++; failed == brokenAfter {
				return fmt.Errorf("the model fails with every record: %w", errors.Join(err, cause))
			}
			if err := j.settle(place, j.w.recipe.FailedRow(j.runID, j.items[place].Record, err)); err != nil {
				return err
			}
		}
	}
	return nil
}
