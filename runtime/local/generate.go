package local

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
)

// flushEvery is how often the sink looks whether rows are due.
const flushEvery = time.Second

// queued bounds the records that are rendered but not taken by the engine, and
// the rows that are finished but not taken by the sink.
const queued = 1024

// generate runs the loaded model over the records that have no row: one goroutine
// reads and renders, one generates, one writes. When ctx ends, the users in
// flight are finished and written.
func (r *run) generate(ctx context.Context, left int64) error {
	eng := r.engine
	r.progress.Total, r.progress.Done = left, 0
	r.OnProgress(r.progress)
	r.times.start()

	// Reading stops with ctx; generating and writing must not, or finished
	// texts would be lost.
	group, failed := errgroup.WithContext(context.WithoutCancel(ctx))
	reading, stopReading := context.WithCancel(failed)
	defer context.AfterFunc(ctx, func() { stopReading(); eng.Drain() })()
	defer stopReading()
	requests := make(chan engine.Request, queued)
	rows := make(chan briefing.Row, queued)
	group.Go(func() error {
		defer close(requests)
		if err := r.prepare(reading, requests, rows); err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		defer close(rows)
		err := r.generateBatches(failed, eng, requests, rows)
		// Whatever the reason, the reader must not wait for a taker.
		stopReading()
		for range requests {
		}
		return err
	})
	group.Go(func() error { return r.write(failed, rows) })
	err := group.Wait()
	r.times.stop()
	r.account(eng)
	if err = errors.Join(err, r.unload()); err != nil {
		return err // even if it was interrupted too: this needs looking at
	}
	return ctx.Err()
}

// load opens the model, and tries what would otherwise fail every single record.
func (r *run) load(ctx context.Context) (err error) {
	if r.backend, err = r.Model.Open(ctx); err != nil {
		return err
	}
	if r.engine, err = r.newEngine(); err != nil {
		return errors.Join(err, r.backend.Close())
	}
	return nil
}

// unload closes what load has opened.
func (r *run) unload() error { return errors.Join(r.engine.Close(), r.backend.Close()) }

func (r *run) newEngine() (*engine.Engine, error) {
	eng, err := engine.New(r.backend, r.Engine)
	if err != nil {
		return nil, err
	}
	if err := r.recipe.Check(eng, r.backend); err != nil {
		return nil, err
	}
	return eng, nil
}

// prepare renders the records that have no row. One that has no prompt goes
// straight to the rows, as failed.
func (r *run) prepare(ctx context.Context, requests chan<- engine.Request, rows chan<- briefing.Row) error {
	return r.records(func(rec briefing.Record) error {
		if r.done.has(rec.UserID) {
			return ctx.Err()
		}
		req, err := r.recipe.Request(rec)
		if err != nil {
			select {
			case rows <- r.recipe.FailedRow(r.manifest.RunID, rec, err):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		select {
		case requests <- req:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// generateBatches calls the engine batch by batch until there are no more
// records.
func (r *run) generateBatches(ctx context.Context, eng *engine.Engine, requests <-chan engine.Request, rows chan<- briefing.Row) error {
	for {
		first, ok := <-requests
		if !ok {
			return nil
		}
		emit := func(res engine.Result) error {
			rec := res.Ref.(briefing.Record)
			select {
			case rows <- r.recipe.Row(r.manifest.RunID, rec, res):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := eng.Generate(ctx, r.batch(first, requests), emit); err != nil {
			return fmt.Errorf("generate: %w", err)
		}
	}
}

// batch yields first and what follows it, up to the batch size.
func (r *run) batch(first engine.Request, requests <-chan engine.Request) iter.Seq[engine.Request] {
	return func(yield func(engine.Request) bool) {
		req, ok := first, true
		for n := 1; ok && yield(req) && n < r.BatchSize; n++ {
			req, ok = <-requests
		}
	}
}

// write takes rows until there are no more, and flushes when they are due.
func (r *run) write(ctx context.Context, rows <-chan briefing.Row) error {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case row, ok := <-rows:
			if !ok {
				return r.sink.Flush()
			}
			if err := r.sink.Write(row); err != nil {
				return err
			}
			r.rows++
			r.progress.Done++
			r.progress.Tokens += int64(row.CompletionTokens)
			if row.Status != briefing.StatusOK {
				r.progress.Failed++
			}
			r.times.add(r.progress)
			r.OnProgress(r.progress)
		case <-tick.C:
			if err := r.sink.FlushDue(); err != nil {
				return err
			}
		case <-ctx.Done():
			// Generating failed: keep what came before.
			for row := range rows {
				if err := r.sink.Write(row); err != nil {
					return err
				}
			}
			return r.sink.Flush()
		}
	}
}
