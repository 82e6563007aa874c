package gather

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/firehose"
	"github.com/aws/aws-sdk-go-v2/service/firehose/types"
	"github.com/aws/smithy-go"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

// Firehose's limits.
const (
	maxBatchRecords = 500
	// AWS counts 4 MiB "for the entire request", and records travel in base64:
	// 3 MiB of rows are within the limit whichever way it is meant.
	maxBatchBytes = 3 << 20
	// maxRecordBytes is 1,000 KiB before base64.
	maxRecordBytes = 1000 << 10
)

// CodeRowTooLarge is the code of a row that Firehose would refuse for its size.
const CodeRowTooLarge = "row_too_large"

// FirehoseOptions tune a Firehose. The zero value of a field takes its default.
type FirehoseOptions struct {
	// FlushAfter is the age at which rows are sent, full batch or not. Default
	// 2 s.
	FlushAfter time.Duration
	// FirstPause is how long to wait after the first call of which no row was
	// taken; each further wait is twice as long, up to MaxPause, less up to half
	// of it by chance. Default 200 ms and 10 s.
	FirstPause, MaxPause time.Duration
	// GiveUpAfter is how many calls in a row without a single row taken open the
	// circuit: rows are then refused at once for OpenFor, instead of burning
	// paid time. Default 9 calls, which is about half a minute, and 30 s.
	GiveUpAfter int
	OpenFor     time.Duration
}

func (o *FirehoseOptions) setDefaults() {
	if o.FlushAfter <= 0 {
		o.FlushAfter = 2 * time.Second
	}
	if o.FirstPause <= 0 {
		o.FirstPause = 200 * time.Millisecond
	}
	if o.MaxPause <= 0 {
		o.MaxPause = 10 * time.Second
	}
	if o.GiveUpAfter <= 0 {
		o.GiveUpAfter = 9
	}
	if o.OpenFor <= 0 {
		o.OpenFor = 30 * time.Second
	}
}

// Firehose is a delivery stream. It outlives invocations, so that a stream that
// is throttled is not tried anew by each of them.
type Firehose struct {
	client *firehose.Client
	stream string
	opt    FirehoseOptions

	mu       sync.Mutex
	failures int       // calls in a row of which no row was taken
	retryAt  time.Time // no call before that
	lastErr  error
}

// NewFirehose returns the stream of that name.
func NewFirehose(client *firehose.Client, stream string, opt FirehoseOptions) *Firehose {
	opt.setDefaults()
	return &Firehose{client: client, stream: stream, opt: opt}
}

// UndeliveredError says which rows Firehose has not taken. They can be written
// again, to this session or to another.
type UndeliveredError struct {
	// Rows are their places among all rows written to the session, from 0.
	Rows []int
	// Throttled says that the stream has no more throughput: trying again makes
	// sense, but later.
	Throttled bool
	Err       error
}

func (e *UndeliveredError) Error() string {
	what := "Firehose has not taken"
	if e.Throttled {
		what = "Firehose is throttled and has not taken"
	}
	return fmt.Sprintf("%s %d rows: %v", what, len(e.Rows), e.Err)
}

func (e *UndeliveredError) Unwrap() error { return e.Err }

// errCircuit says that a stream is not even tried.
var errCircuit = errors.New("the stream took no row for a while, so it is left alone: ask for more throughput, or lower the concurrency")

// Session returns a Sink whose calls end with ctx. It is not safe for concurrent
// use; several sessions of one Firehose are.
func (f *Firehose) Session(ctx context.Context) *FirehoseSession {
	return &FirehoseSession{ctx: ctx, f: f}
}

// FirehoseSession hands the rows of one invocation to Firehose: one JSON object
// and a line end for each row, as Firehose puts nothing between records.
//
// A row may arrive twice, for example where the answer to a call is lost;
// reconciling counts users, not rows.
type FirehoseSession struct {
	ctx     context.Context // of the invocation, as a Sink has none
	f       *Firehose
	pending []record
	bytes   int
	oldest  time.Time
	written int
	buf     bytes.Buffer
}

type record struct {
	place int
	data  []byte
}

// maxPending bounds the rows in memory while the stream takes none.
const maxPending = 4 * maxBatchRecords

// Write takes rows and sends full batches. It blocks while the stream is
// slower than the rows; its error is an *UndeliveredError.
func (s *FirehoseSession) Write(rows ...briefing.Row) error {
	for _, row := range rows {
		data, err := s.encode(row)
		if err != nil {
			return err
		}
		if len(s.pending) == 0 {
			s.oldest = time.Now()
		}
		s.pending = append(s.pending, record{s.written, data})
		s.bytes += len(data)
		s.written++
		for len(s.pending) >= maxBatchRecords || s.bytes >= maxBatchBytes {
			if len(s.pending) < maxPending && s.bytes < 4*maxBatchBytes && !s.f.ready() {
				break // the stream needs a rest, and there is room
			}
			if err := s.send(); err != nil {
				return err
			}
		}
	}
	return nil
}

// encode returns the line of a row.
func (s *FirehoseSession) encode(row briefing.Row) ([]byte, error) {
	row.GeneratedAt = row.GeneratedAt.UTC().Truncate(time.Millisecond)
	line, err := s.line(row)
	if err == nil && len(line) > maxRecordBytes {
		row.Status, row.ErrorCode = briefing.StatusFailed, CodeRowTooLarge
		row.ErrorMessage = fmt.Sprintf("the row has %d bytes, Firehose takes %d", len(line), maxRecordBytes)
		row.Subject, row.Briefing, row.Attributes = "", "", "{}"
		line, err = s.line(row)
	}
	if err != nil {
		return nil, fmt.Errorf("encode row: %w", err)
	}
	return line, nil
}

func (s *FirehoseSession) line(row briefing.Row) ([]byte, error) {
	s.buf.Reset()
	encoder := json.NewEncoder(&s.buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(row); err != nil {
		return nil, err
	}
	return bytes.Clone(s.buf.Bytes()), nil
}

// FlushDue sends rows that have waited for FlushAfter, once, unless the stream
// is being given a rest.
func (s *FirehoseSession) FlushDue() error {
	if len(s.pending) == 0 || time.Since(s.oldest) < s.f.opt.FlushAfter || !s.f.ready() {
		return nil
	}
	return s.send()
}

// Flush sends all rows. Its error is an *UndeliveredError; the rows in it are
// no longer pending.
func (s *FirehoseSession) Flush() error {
	for len(s.pending) > 0 {
		if err := s.send(); err != nil {
			return err
		}
	}
	return nil
}

// Pending returns how many rows Firehose has not taken yet.
func (s *FirehoseSession) Pending() int { return len(s.pending) }

// send makes one call with the oldest rows, after the wait that is due. What is
// not taken stays pending; an error means that there is no point in going on.
func (s *FirehoseSession) send() error {
	if err := s.f.wait(s.ctx); err != nil {
		return s.undelivered(err)
	}
	n, size := 0, 0
	for n < len(s.pending) && n < maxBatchRecords && (n == 0 || size+len(s.pending[n].data) <= maxBatchBytes) {
		size += len(s.pending[n].data)
		n++
	}
	records := make([]types.Record, n)
	for i := range records {
		records[i].Data = s.pending[i].data
	}
	out, err := s.f.client.PutRecordBatch(s.ctx, &firehose.PutRecordBatchInput{DeliveryStreamName: &s.f.stream, Records: records})
	if err != nil && (s.ctx.Err() != nil || refused(err)) {
		return s.undelivered(err)
	}
	var failed []record
	switch {
	case err != nil:
		failed = append(failed, s.pending[:n]...)
	case len(out.RequestResponses) != n:
		// Without an answer for each row nothing can be told apart.
		err = fmt.Errorf("it answered for %d of %d rows", len(out.RequestResponses), n)
		failed = append(failed, s.pending[:n]...)
	default:
		for i, response := range out.RequestResponses {
			if code := aws.ToString(response.ErrorCode); code != "" {
				err = fmt.Errorf("%s: %s", code, aws.ToString(response.ErrorMessage))
				failed = append(failed, s.pending[i])
			}
		}
	}
	for _, r := range s.pending[:n] {
		s.bytes -= len(r.data)
	}
	for _, r := range failed {
		s.bytes += len(r.data)
	}
	s.pending = append(failed, s.pending[n:]...)
	s.oldest = time.Now()
	s.f.note(n-len(failed), err)
	return nil
}

// undelivered gives up on the pending rows.
func (s *FirehoseSession) undelivered(err error) error {
	e := &UndeliveredError{Err: err, Throttled: errors.Is(err, errCircuit)}
	for _, r := range s.pending {
		e.Rows = append(e.Rows, r.place)
	}
	s.pending, s.bytes = nil, 0
	return e
}

// note counts a call of which taken rows were taken.
func (f *Firehose) note(taken int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if taken > 0 {
		f.failures = 0
	} else {
		f.failures++
	}
	f.retryAt, f.lastErr = time.Time{}, err
	switch {
	case err == nil:
	case f.failures >= f.opt.GiveUpAfter:
		f.retryAt = time.Now().Add(f.opt.OpenFor)
	default:
		pause := min(f.opt.MaxPause, f.opt.FirstPause<<min(max(f.failures-1, 0), 20))
		f.retryAt = time.Now().Add(pause/2 + rand.N(pause/2+1))
	}
}

// ready reports whether a call may be made now.
func (f *Firehose) ready() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !time.Now().Before(f.retryAt)
}

// wait waits until a call may be made. While the circuit is open it fails at
// once; when that time is over, one more failure opens it again.
func (f *Firehose) wait(ctx context.Context) error {
	f.mu.Lock()
	until, open, last := f.retryAt, f.failures >= f.opt.GiveUpAfter, f.lastErr
	f.mu.Unlock()
	left := time.Until(until)
	if left <= 0 {
		return ctx.Err()
	}
	if open {
		return fmt.Errorf("%w (%w)", errCircuit, last)
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), last)
	}
}

// refused reports whether Firehose has said no for a reason that stays.
func refused(err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode() {
	case "ResourceNotFoundException", "InvalidArgumentException", "InvalidKMSResourceException", "InvalidSourceException",
		"AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "ValidationException":
		return true
	}
	return false
}
