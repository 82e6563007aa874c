package local

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
)

// Codes of failed rows that arise here. Those of templates and of rejected
// input are in package briefing.
const (
	CodePromptTooLong = "prompt_too_long"
	CodeEngine        = "engine_error"
	CodeEmpty         = "empty_text"
)

// flushEvery is how often the sink looks whether rows are due.
const flushEvery = time.Second

// queued bounds the records that are rendered but not taken by the engine, and
// the rows that are finished but not taken by the sink.
const queued = 1024

// prepared is a record with its prompt.
type prepared struct {
	record briefing.Record
	prompt briefing.Prompt
}

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
	records := make(chan prepared, queued)
	rows := make(chan briefing.Row, queued)
	group.Go(func() error {
		defer close(records)
		if err := r.prepare(reading, records, rows); err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		defer close(rows)
		err := r.generateBatches(failed, eng, records, rows)
		// Whatever the reason, the reader must not wait for a taker.
		stopReading()
		for range records {
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
	if _, err := eng.CountTokens(messages(briefing.Prompt{System: r.Template.System(), User: "x"})); err != nil {
		return nil, err
	}
	if r.Grammar != "" {
		g, err := r.backend.NewGrammar(r.Grammar)
		if err != nil {
			return nil, err
		}
		g.Close()
	}
	return eng, nil
}

// prepare renders the records that have no row. One that has no prompt goes
// straight to the rows, as failed.
func (r *run) prepare(ctx context.Context, records chan<- prepared, rows chan<- briefing.Row) error {
	return r.records(func(rec briefing.Record) error {
		if r.done.has(rec.UserID) {
			return ctx.Err()
		}
		prompt, err := r.Template.Render(rec)
		if err != nil {
			row := r.row(rec)
			row.Status, row.ErrorCode, row.ErrorMessage = briefing.StatusFailed, CodeEngine, err.Error()
			var te *briefing.TemplateError
			if errors.As(err, &te) {
				row.ErrorCode = te.Code
			}
			select {
			case rows <- row:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		select {
		case records <- prepared{rec, prompt}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// generateBatches calls the engine batch by batch until there are no more
// records.
func (r *run) generateBatches(ctx context.Context, eng *engine.Engine, records <-chan prepared, rows chan<- briefing.Row) error {
	for {
		first, ok := <-records
		if !ok {
			return nil
		}
		emit := func(res engine.Result) error {
			rec := res.Ref.(briefing.Record)
			select {
			case rows <- r.resultRow(rec, res):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := eng.Generate(ctx, r.batch(first, records), emit); err != nil {
			return fmt.Errorf("generate: %w", err)
		}
	}
}

// batch yields first and what follows it, up to the batch size.
func (r *run) batch(first prepared, records <-chan prepared) iter.Seq[engine.Request] {
	return func(yield func(engine.Request) bool) {
		p, ok := first, true
		for n := 1; ok && yield(r.request(p)) && n < r.BatchSize; n++ {
			p, ok = <-records
		}
	}
}

func messages(p briefing.Prompt) []engine.Message {
	user := engine.Message{Role: engine.RoleUser, Content: p.User}
	if p.System == "" {
		return []engine.Message{user}
	}
	return []engine.Message{{Role: engine.RoleSystem, Content: p.System}, user}
}

func (r *run) request(p prepared) engine.Request {
	sampling := r.Sampling
	// A seed of the user's own: the text then does not depend on the order of
	// the input, nor on which session of the run made it.
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", sampling.Seed, p.record.UserID)
	sampling.Seed = h.Sum64()
	return engine.Request{
		Ref: p.record, Messages: messages(p.prompt), MaxTokens: r.MaxTokens,
		Sampling: sampling, Stop: r.Stop, Grammar: r.Grammar,
	}
}

// row returns what every row of rec begins with.
func (r *run) row(rec briefing.Record) briefing.Row {
	return briefing.Row{
		RunID: r.manifest.RunID, UserID: rec.UserID, Email: rec.Email, Name: rec.Name, Locale: rec.Locale,
		Model: r.Model.Name, Attributes: rec.Attributes(), GeneratedAt: now(),
	}
}

func (r *run) resultRow(rec briefing.Record, res engine.Result) briefing.Row {
	row := r.row(rec)
	row.PromptTokens, row.CachedTokens, row.CompletionTokens = int32(res.PromptTokens), int32(res.CachedTokens), int32(res.CompletionTokens)
	row.FinishReason = res.FinishReason
	full := res.Text
	if res.FinishReason == engine.FinishLength && r.Grammar == "" {
		full = briefing.TrimUnfinished(full)
	}
	subject, text := briefing.SplitSubject(full)
	if subject == "" {
		subject = briefing.Subject(rec)
	}
	var tooLong *engine.PromptTooLongError
	switch {
	case errors.As(res.Err, &tooLong):
		row.Status, row.ErrorCode, row.ErrorMessage = briefing.StatusFailed, CodePromptTooLong, res.Err.Error()
	case res.Err != nil:
		row.Status, row.ErrorCode, row.ErrorMessage = briefing.StatusFailed, CodeEngine, res.Err.Error()
	case isBlank(text):
		row.Status, row.ErrorCode, row.ErrorMessage = briefing.StatusFailed, CodeEmpty, "the model ended its text without a word: try another model, or a temperature above 0"
	default:
		row.Status, row.Subject, row.Briefing = briefing.StatusOK, subject, text
	}
	return row
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
