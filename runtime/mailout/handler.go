package mailout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/deliver"
	"github.com/briefing-swarm/briefing-swarm/runtime/span"
	"github.com/briefing-swarm/briefing-swarm/runtime/telemetry"
)

// Handler plans deliveries and mails batches.
type Handler struct {
	dynamo   *dynamodb.Client
	ses      *sesv2.Client
	settings Settings
	composer *deliver.Composer
	account  *account
	meter    *telemetry.Meter
	log      *slog.Logger
	now      func() time.Time
	retry    time.Duration // wait before a second attempt, 0 for deliver's default
}

// New returns a handler.
func New(dynamo *dynamodb.Client, ses *sesv2.Client, settings Settings, meter *telemetry.Meter, log *slog.Logger) (*Handler, error) {
	composer, err := deliver.NewComposer(settings.Mail)
	if err != nil {
		return nil, err
	}
	return &Handler{
		dynamo: dynamo, ses: ses, settings: settings, composer: composer, account: &account{ses: ses, settings: settings, log: log},
		meter: meter, log: log, now: time.Now,
	}, nil
}

// ThrottledError says that nothing could be sent for the moment. A state machine
// retries it with a longer wait.
type ThrottledError struct {
	Err error
}

func (e *ThrottledError) Error() string { return fmt.Sprintf("no mail could be sent: %v", e.Err) }

func (e *ThrottledError) Unwrap() error { return e.Err }

// StoppedError says that no mail will get through until somebody does something
// about it. A state machine fails at once.
type StoppedError struct {
	Err error
}

func (e *StoppedError) Error() string { return fmt.Sprintf("delivery is stopped: %v", e.Err) }

func (e *StoppedError) Unwrap() error { return e.Err }

// Handle answers either kind of event, with a Plan or a Receipt.
func (h *Handler) Handle(ctx context.Context, event Event) (any, error) {
	if event.Schedule != nil {
		return h.schedule(ctx, event)
	}
	return h.batch(ctx, event)
}

// Plan says when and how fast a file is mailed.
type Plan struct {
	// WaitUntil is when the delivery begins, UTC; it may be now.
	WaitUntil string `json:"wait_until"`
	// Workers is the concurrency of the map, RatePerSec that of all workers
	// together, BatchSize the items that one worker sends in about a minute.
	Workers    int     `json:"workers"`
	RatePerSec float64 `json:"rate_per_sec"`
	BatchSize  int     `json:"batch_size"`
}

// Bounds of a batch. A hundred rows are what 256 KiB of an event hold in most
// cases; the map's own limit in bytes makes sure of it.
const (
	batchTime    = time.Minute
	maxBatchSize = 100
)

// schedule plans the delivery of a file.
func (h *Handler) schedule(ctx context.Context, event Event) (Plan, error) {
	rate, err := h.account.read(ctx)
	if err != nil {
		return Plan{}, h.stopped(ctx, err)
	}
	now := h.now()
	at := now
	if h.settings.At != nil {
		at = h.settings.At.Next(now, h.settings.Location)
	}
	size := int(rate / float64(h.settings.Workers) * batchTime.Seconds())
	plan := Plan{
		WaitUntil: at.UTC().Format(time.RFC3339), Workers: h.settings.Workers, RatePerSec: round(rate), BatchSize: max(1, min(size, maxBatchSize)),
	}
	h.log.InfoContext(ctx, "delivery is planned", "bucket", event.Schedule.Bucket, "key", event.Schedule.Key, "wait_until", plan.WaitUntil,
		"workers", plan.Workers, "rate_per_sec", plan.RatePerSec, "batch_size", plan.BatchSize)
	return plan, nil
}

// stopped makes of an error one that a state machine knows.
func (h *Handler) stopped(ctx context.Context, err error) error {
	var failure *deliver.SendError
	var all *deliver.AllFailedError
	if errors.As(err, &failure) && failure.Kind == deliver.Fatal || errors.As(err, &all) {
		h.log.ErrorContext(ctx, "delivery is stopped", "error", err.Error())
		if err := h.meter.Count(map[string]int{telemetry.MailStopped: 1}, map[string]any{"requestId": telemetry.RequestID(ctx)}); err != nil {
			h.log.ErrorContext(ctx, "metrics are lost", "error", err.Error())
		}
		// As it is, not joined with others: Lambda names an error by its type.
		return &StoppedError{err}
	}
	return &ThrottledError{err}
}

// reserve is what a batch leaves of its invocation's time: enough for the mails
// under way to end and for the ledger.
const reserve = 40 * time.Second

// withReserve returns ctx with an earlier deadline.
func withReserve(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(reserve, time.Until(deadline)/2)))
}

// batch mails the items of an event. What there was no time for is in the
// receipt's Remaining. An error means that the whole event may be tried again:
// nobody gets two mails by that.
func (h *Handler) batch(ctx context.Context, event Event) (Receipt, error) {
	start := time.Now()
	pace, rate, err := h.account.worker(ctx)
	if err != nil {
		return Receipt{}, h.stopped(ctx, err)
	}
	b := &batch{ended: map[int]bool{}, failed: map[string]int{}}
	rows, places := b.read(event)
	optOuts, err := h.optOuts(ctx, rows)
	if err != nil {
		return Receipt{}, &ThrottledError{err}
	}

	inner, cancel := withReserve(ctx)
	defer cancel()
	options := deliver.Options{
		Composer: h.composer, Ledger: deliver.NewDynamoLedger(h.dynamo, h.settings.LedgerTable, h.settings.KeepFor), Retake: event.Input.RetryUnknown,
		Suppressed: optOuts, Pace: pace, MaxAttempts: 6, RetryDelay: h.retry, MaxFailedInRow: maxFailedInRow,
	}
	options.UseSES(h.ses, h.settings.ConfigurationSet, h.settings.Bulk, rate)
	options.OnOutcome = func(o deliver.Outcome) {
		// A rate that is used up is not about this mail: it remains.
		if o.Result != deliver.Unsent && o.Code != deliver.CodeSESThrottled {
			b.ended[places[o.Row]] = true
		}
	}
	stats, err := deliver.Deliver(inner, func(yield func(briefing.Row, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	}, options)

	receipt := b.receipt(event, stats)
	receipt.Seconds = round(time.Since(start).Seconds())
	fields := []any{
		"bucket", event.Input.Bucket, "key", event.Input.Key, "items", receipt.Items, "sent", receipt.Sent, "already_sent", receipt.AlreadySent,
		"skipped", receipt.Skipped, "failed", receipt.Failed, "unknown", receipt.Unknown, "remaining", receipt.RemainingItems, "sec", receipt.Seconds,
	}
	if err != nil {
		fields = append(fields, "error", err.Error())
	}
	h.log.InfoContext(ctx, "batch", fields...)
	meterErr := h.meter.Count(map[string]int{
		telemetry.MailSent: receipt.Sent, telemetry.MailAlreadySent: receipt.AlreadySent, telemetry.MailSkipped: receipt.Skipped,
		telemetry.MailFailed: receipt.Failed, telemetry.MailUnknown: receipt.Unknown,
	}, map[string]any{"requestId": telemetry.RequestID(ctx), "remaining": receipt.RemainingItems, "failed_by_code": receipt.FailedByCode})
	if meterErr != nil {
		return Receipt{}, meterErr
	}
	return h.settle(ctx, receipt, stats, err)
}

// optOuts asks once for all rows who unsubscribed: one call for a hundred users.
func (h *Handler) optOuts(ctx context.Context, rows []briefing.Row) (deliver.OptOutList, error) {
	users := make([]string, len(rows))
	for i, row := range rows {
		users[i] = row.UserID
	}
	suppressed, err := deliver.NewDynamoOptOuts(h.dynamo, h.settings.LedgerTable).Suppressed(ctx, users)
	if err != nil {
		return nil, err
	}
	list := deliver.OptOutList{}
	for i, user := range users {
		if suppressed[i] {
			list[user] = true
		}
	}
	return list, nil
}

// maxFailedInRow is how many mails SES may refuse one after the other before it
// is not about the users: those whose mailbox is not there it takes.
const maxFailedInRow = 20

// busyCodes are of mails that were tried again and again.
var busyCodes = map[string]bool{deliver.CodeSESThrottled: true, deliver.CodeSESUnavailable: true, deliver.CodeSESUnreachable: true}

// settle tells what the state machine is to do about a batch.
func (h *Handler) settle(ctx context.Context, receipt Receipt, stats deliver.Stats, err error) (Receipt, error) {
	var failure *deliver.SendError
	var all *deliver.AllFailedError
	busy := 0
	for code := range busyCodes {
		busy += stats.Failed[code]
	}
	switch {
	case errors.As(err, &failure) && failure.Kind == deliver.Fatal, errors.As(err, &all) && !busyCodes[all.Code]:
		return Receipt{}, h.stopped(ctx, err)
	case receipt.Sent == 0 && busy > 0:
		return Receipt{}, &ThrottledError{fmt.Errorf("SES was too busy for all %d mails", busy)}
	case err != nil && receipt.RemainingItems == receipt.Items:
		// Not one item ended: the same again would be the same.
		return Receipt{}, &ThrottledError{err}
	}
	return receipt, nil
}

// batch is the state of one call.
type batch struct {
	ended  map[int]bool   // places of the event's items
	failed map[string]int // items that are no rows, by code
}

// read returns the rows of the event's items and where they were.
func (b *batch) read(event Event) (rows []briefing.Row, places []int) {
	for _, place := range event.Places {
		row, err := parseRow(event.Items[place])
		if err != nil {
			b.failed[deliver.CodeRow]++
			b.ended[place] = true
			continue
		}
		rows, places = append(rows, row), append(places, place)
	}
	return rows, places
}

// receipt sums up.
func (b *batch) receipt(event Event, s deliver.Stats) Receipt {
	for code, n := range s.Failed {
		if code != deliver.CodeSESThrottled {
			b.failed[code] += n
		}
	}
	r := Receipt{
		Items: len(event.Places), Sent: s.Sent, AlreadySent: s.Already, Skipped: s.SkippedFailed + s.SkippedNoAddress + s.SkippedOptOut, Unknown: s.Unknown,
		FailedByCode: map[string]int{},
	}
	remaining := slices.DeleteFunc(slices.Clone(event.Places), func(place int) bool { return b.ended[place] })
	r.RemainingItems, r.Remaining = len(remaining), span.Of(remaining, maxRanges)
	codes := slices.SortedFunc(maps.Keys(b.failed), func(x, y string) int { return b.failed[y] - b.failed[x] })
	for i, code := range codes {
		r.Failed += b.failed[code]
		if i < maxCodes {
			r.FailedByCode[code] = b.failed[code]
		}
	}
	return r
}

func round(v float64) float64 { return math.Round(v*1000) / 1000 }
