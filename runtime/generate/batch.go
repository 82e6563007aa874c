package generate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
	"github.com/briefing-swarm/briefing-swarm/runtime/span"
	"github.com/briefing-swarm/briefing-swarm/runtime/telemetry"
)

// Batch is the handler of the Distributed Map's children.
type Batch struct {
	Worker *Worker
	// Sink returns where the rows of one invocation go.
	Sink  func(ctx context.Context) gather.Sink
	Meter *telemetry.Meter
	Log   *slog.Logger
}

// ThrottledError says that no row could be kept because the stream has no
// throughput left. A state machine retries it with a longer wait.
type ThrottledError struct {
	Err error
}

func (e *ThrottledError) Error() string {
	return fmt.Sprintf("no briefing could be kept: %v", e.Err)
}

func (e *ThrottledError) Unwrap() error { return e.Err }

// Handle generates for the items of an event. What could not be finished, or not
// be kept, is in the receipt's Remaining. An error means that nothing was kept,
// and that the whole event may be tried again.
func (b *Batch) Handle(ctx context.Context, event BatchEvent) (Receipt, error) {
	start := time.Now()
	if event.Input.RunID == "" {
		event.Input.RunID = "invoke-" + telemetry.RequestID(ctx)
	}
	items := make([]Item, len(event.Items))
	for _, place := range event.Places {
		items[place] = ParseItem(event.Items[place])
	}
	s := &storing{sink: b.Sink(ctx)}
	usage, err := s.run(ctx, b.Worker, event, items)
	receipt := Receipt{
		RunID: event.Input.RunID, Items: len(event.Items), OK: s.ok, Failed: s.failed,
		PromptTokens: usage.PromptTokens, CachedTokens: usage.CachedTokens, CompletionTokens: usage.CompletionTokens,
		Seconds: round(time.Since(start).Seconds()), LoadSeconds: round(usage.ModelLoad.Seconds()),
		TokensPerSec: round(usage.TokensPerSec), Model: short(usage.Model),
	}
	kept := s.kept()
	remaining := slices.DeleteFunc(slices.Clone(event.Places), func(place int) bool { return kept[place] })
	receipt.RemainingItems = len(remaining)
	receipt.Remaining = span.Of(remaining, maxRanges)

	log := b.Log.With("run_id", receipt.RunID)
	if usage.ModelLoad > 0 {
		log.InfoContext(ctx, "model loaded", "load_sec", receipt.LoadSeconds, "variant", usage.Variant, "model", usage.Model)
	}
	meterErr := b.Meter.Write(telemetry.Batch{
		Model: usage.Model, FirstToken: usage.FirstToken, TokensPerSec: usage.TokensPerSec, PrefillTokensPerSec: usage.PrefillTokensPerSec,
		ModelLoad: usage.ModelLoad, Briefings: s.ok, Failed: s.failed,
		Properties: map[string]any{"run_id": receipt.RunID, "requestId": telemetry.RequestID(ctx), "items": receipt.Items, "remaining": receipt.RemainingItems},
	})
	if err != nil {
		log.WarnContext(ctx, "batch is not complete", "error", err.Error(), "kept", len(kept), "remaining", receipt.RemainingItems)
		if len(kept) == 0 {
			var undelivered *gather.UndeliveredError
			if errors.As(err, &undelivered) && undelivered.Throttled {
				return Receipt{}, &ThrottledError{err}
			}
			return Receipt{}, err
		}
	}
	log.InfoContext(ctx, "batch", "items", receipt.Items, "ok", receipt.OK, "failed", receipt.Failed, "remaining", receipt.RemainingItems,
		"sec", receipt.Seconds, "tokens_per_sec", receipt.TokensPerSec)
	return receipt, meterErr
}

func round(v float64) float64 { return math.Round(v*1000) / 1000 }

// storing passes rows on while the model works, and keeps the books.
type storing struct {
	sink   gather.Sink
	places []int // of the rows written, in order
	good   []bool
	lost   map[int]bool // rows that were not taken
	ok     int          // rows kept, counted at the end
	failed int
}

// queuedRows bounds the rows between the model and the sink.
const queuedRows = 1024

// flushEvery is how often the sink looks whether rows are due.
const flushEvery = 250 * time.Millisecond

type placedRow struct {
	place int
	row   briefing.Row
}

// run generates and stores side by side: the model does not wait for the
// network, unless there are too many rows on the way.
func (s *storing) run(ctx context.Context, w *Worker, event BatchEvent, items []Item) (Usage, error) {
	var usage Usage
	rows := make(chan placedRow, queuedRows)
	group, failed := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		defer close(rows)
		usage, err = w.Run(failed, event.Input.RunID, items, event.Places, func(place int, row briefing.Row) error {
			select {
			case rows <- placedRow{place, row}:
				return nil
			case <-failed.Done():
				return failed.Err()
			}
		})
		return err
	})
	group.Go(func() error { return s.store(rows) })
	err := group.Wait()
	s.count()
	return usage, err
}

// store takes rows until there are no more and flushes. What the sink has not
// taken is noted in lost.
func (s *storing) store(rows <-chan placedRow) error {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		var err error
		select {
		case r, ok := <-rows:
			if !ok {
				return s.note(s.sink.Flush())
			}
			s.places = append(s.places, r.place)
			s.good = append(s.good, r.row.Status == briefing.StatusOK)
			err = s.sink.Write(r.row)
		case <-tick.C:
			err = s.sink.FlushDue()
		}
		if err != nil {
			return s.note(err)
		}
	}
}

// note remembers which rows an error is about; all of them where it does not
// say.
func (s *storing) note(err error) error {
	if err == nil {
		return nil
	}
	s.lost = map[int]bool{}
	var undelivered *gather.UndeliveredError
	if errors.As(err, &undelivered) {
		for _, n := range undelivered.Rows {
			s.lost[n] = true
		}
		return err
	}
	for n := range s.places {
		s.lost[n] = true
	}
	return err
}

// count adds up the rows that were kept.
func (s *storing) count() {
	for n, good := range s.good {
		switch {
		case s.lost[n]:
		case good:
			s.ok++
		default:
			s.failed++
		}
	}
}

// kept returns the places whose rows were taken.
func (s *storing) kept() map[int]bool {
	kept := map[int]bool{}
	for n, place := range s.places {
		if !s.lost[n] {
			kept[place] = true
		}
	}
	return kept
}
