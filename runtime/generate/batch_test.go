package generate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/internal/golden"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine/fake"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
	"github.com/briefing-swarm/briefing-swarm/runtime/recipe"
	"github.com/briefing-swarm/briefing-swarm/runtime/span"
	"github.com/briefing-swarm/briefing-swarm/runtime/telemetry"
)

// memorySink is a sink that remembers rows, and refuses some.
type memorySink struct {
	rows   []briefing.Row
	refuse func(n int, row briefing.Row) bool // n counts rows written, from 0
	lost   []int
	n      int
	// throttled says why rows are refused.
	throttled bool
}

func (s *memorySink) Write(rows ...briefing.Row) error {
	for _, r := range rows {
		if s.refuse != nil && s.refuse(s.n, r) {
			s.lost = append(s.lost, s.n)
		} else {
			s.rows = append(s.rows, r)
		}
		s.n++
	}
	return nil
}

func (s *memorySink) FlushDue() error { return nil }
func (s *memorySink) Pending() int    { return len(s.lost) }

func (s *memorySink) Flush() error {
	if len(s.lost) > 0 {
		return &gather.UndeliveredError{Rows: s.lost, Throttled: s.throttled, Err: errors.New("no")}
	}
	return nil
}

func (s *memorySink) users() []string {
	users := []string{}
	for _, r := range s.rows {
		users = append(users, r.UserID)
	}
	slices.Sort(users)
	return users
}

func testRecipe(t testing.TB) recipe.Recipe {
	t.Helper()
	template, err := briefing.ParseTemplate("You are short.", "Note: {{.note}}")
	if err != nil {
		t.Fatal(err)
	}
	return recipe.Recipe{Model: "fake", Template: template, MaxTokens: 30}
}

// model returns one that always writes something: as long as it may.
func model(step time.Duration) *fake.Backend {
	return fake.New(fake.Options{StepTime: step, Words: 1 << 30})
}

func worker(t testing.TB, backend engine.Backend) *Worker {
	return NewWorker(LoadModel(func() (engine.Backend, error) { return backend, nil }), testRecipe(t), engine.Options{Parallel: 4})
}

// batchOf returns a handler with its sink and what it writes.
func batchOf(w *Worker, sink *memorySink) (*Batch, *bytes.Buffer) {
	var out bytes.Buffer
	return &Batch{
		Worker: w, Sink: func(context.Context) gather.Sink { return sink },
		Meter: telemetry.NewMeter(&out, "acme", "generate"), Log: telemetry.NewLogger(&out, ""),
	}, &out
}

// event returns the event of a batch of n users.
func event(t testing.TB, n int, more ...string) BatchEvent {
	t.Helper()
	items := []string{}
	for i := range n {
		items = append(items, fmt.Sprintf(`{"user_id":"u-%02d","email":"secret%d@example.com","note":"note %d"}`, i, i, i))
	}
	items = append(items, more...)
	var e BatchEvent
	if err := json.Unmarshal([]byte(`{"BatchInput":{"run_id":"run-1"},"Items":[`+strings.Join(items, ",")+`]}`), &e); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestBatch(t *testing.T) {
	t.Parallel()
	sink := &memorySink{}
	b, out := batchOf(worker(t, model(0)), sink)
	ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "req-1"})
	receipt, err := b.Handle(ctx, event(t, 20, `{"user_id":"mail","email":"a@@b"}`, `"text"`, `{"user_id":"long","note":"`+strings.Repeat("x", 9000)+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	if receipt.OK != 20 || receipt.Failed != 3 || len(sink.rows) != 23 {
		t.Errorf("%+v with %d rows", receipt, len(sink.rows))
	}
	codes := map[string]string{}
	for _, r := range sink.rows {
		if r.RunID != "run-1" || r.Model != "fake" || r.GeneratedAt.IsZero() {
			t.Errorf("row %+v", r)
		}
		if r.Status == briefing.StatusFailed {
			codes[r.UserID] = r.ErrorCode
		} else if r.Briefing == "" || r.FinishReason == "" {
			t.Errorf("row of %s has the text %q and ended by %q", r.UserID, r.Briefing, r.FinishReason)
		}
	}
	if d := cmp.Diff(map[string]string{"mail": briefing.CodeEmailInvalid, "": briefing.CodeJSONNotObject, "long": recipe.CodePromptTooLong}, codes); d != "" {
		t.Errorf("failed rows (-want +got):\n%s", d)
	}
	receipt.Seconds, receipt.LoadSeconds, receipt.TokensPerSec = 0.5, 0, 100
	golden.JSON(t, "receipt.json", receipt)

	// What is logged is JSON, has the request's id, and nothing of a user.
	for line := range strings.Lines(out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil || fields["requestId"] != "req-1" {
			t.Errorf("error %v in line %s", err, line)
		}
		if strings.Contains(line, "secret") || strings.Contains(line, "u-0") || strings.Contains(line, "note") {
			t.Errorf("a line holds personal data: %s", line)
		}
	}
	if !strings.Contains(out.String(), `"message":"model loaded"`) || strings.Count(out.String(), "CloudWatchMetrics") != 1 {
		t.Errorf("lines:\n%s", out.String())
	}
	out.Reset()
	if _, err := b.Handle(ctx, event(t, 2)); err != nil || strings.Contains(out.String(), "model loaded") || strings.Contains(out.String(), "ModelLoad") {
		t.Errorf("error %v; the load time is told again:\n%s", err, out.String())
	}
}

// TestOutOfTime: every item has a row after enough calls that each have too
// little time, and none has two.
func TestOutOfTime(t *testing.T) {
	t.Parallel()
	w := worker(t, model(4*time.Millisecond))
	e := event(t, 40)
	sink := &memorySink{}
	b, _ := batchOf(w, sink)
	calls := 0
	for len(e.Places) > 0 {
		if calls++; calls > 40 {
			t.Fatal("it does not end")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
		receipt, err := b.Handle(ctx, e)
		late := ctx.Err()
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if late != nil {
			t.Error("the deadline passed before the receipt")
		}
		if receipt.OK+receipt.Failed+receipt.RemainingItems != len(e.Places) {
			t.Errorf("%d were to be done: %+v", len(e.Places), receipt)
		}
		if receipt.OK+receipt.Failed == 0 {
			t.Error("a call got nowhere")
		}
		if e.Places, err = span.Places(receipt.Remaining, len(e.Items)); err != nil {
			t.Fatal(err)
		}
	}
	if calls < 2 {
		t.Error("there was time for all: the test does not test")
	}
	want := []string{}
	for i := range 40 {
		want = append(want, fmt.Sprintf("u-%02d", i))
	}
	if d := cmp.Diff(want, sink.users()); d != "" {
		t.Errorf("users (-want +got):\n%s", d)
	}
	for _, r := range sink.rows {
		if r.Status != briefing.StatusOK {
			t.Errorf("%s failed: %s %s", r.UserID, r.ErrorCode, r.ErrorMessage)
		}
	}
}

// TestNoTimeForOne: a text that no invocation is long enough for fails, instead
// of coming back for ever.
func TestNoTimeForOne(t *testing.T) {
	t.Parallel()
	w := worker(t, model(60*time.Millisecond))
	if _, err := w.Run(t.Context(), "warm", []Item{ParseItem([]byte(`{"user_id":"w"}`))}, []int{0}, func(int, briefing.Row) error { return nil }); err != nil {
		t.Fatal(err)
	}
	sink := &memorySink{}
	b, _ := batchOf(w, sink)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	receipt, err := b.Handle(ctx, event(t, 2))
	if err != nil || receipt.Failed != 1 || receipt.RemainingItems != 1 {
		t.Fatalf("%+v, error %v", receipt, err)
	}
	if r := sink.rows[0]; r.ErrorCode != recipe.CodeDeadline || r.UserID != "u-00" {
		t.Errorf("row %+v", r)
	}
}

// poison fails with every prompt that holds the byte 0xA7.
type poison struct {
	*fake.Backend
	always bool
}

func (p *poison) Decode(b *engine.Batch) error {
	if p.always || slices.Contains(b.Tokens, 0xA7) {
		return errors.New("numbers went wrong")
	}
	return p.Backend.Decode(b)
}

// TestPoison: the record that the model fails with gets a failed row, the others
// theirs.
func TestPoison(t *testing.T) {
	t.Parallel()
	sink := &memorySink{}
	b, _ := batchOf(worker(t, &poison{Backend: model(0)}), sink)
	receipt, err := b.Handle(t.Context(), event(t, 9, `{"user_id":"bad","note":"§ 1"}`))
	if err != nil || receipt.OK != 9 || receipt.Failed != 1 || receipt.RemainingItems != 0 {
		t.Fatalf("%+v, error %v", receipt, err)
	}
	for _, r := range sink.rows {
		if (r.UserID == "bad") != (r.ErrorCode == recipe.CodeEngine) {
			t.Errorf("user %s: %s %s", r.UserID, r.Status, r.ErrorMessage)
		}
	}
	if n := len(sink.users()); n != 10 {
		t.Errorf("%d rows", n)
	}
}

// TestBrokenModel: a model that fails with everything is no fault of the
// records.
func TestBrokenModel(t *testing.T) {
	t.Parallel()
	sink := &memorySink{}
	b, _ := batchOf(worker(t, &poison{Backend: model(0), always: true}), sink)
	receipt, err := b.Handle(t.Context(), event(t, 9))
	if err == nil && receipt.RemainingItems < 7 {
		t.Errorf("%+v: records are blamed", receipt)
	}
}

func TestRefusingSink(t *testing.T) {
	t.Parallel()
	t.Run("some", func(t *testing.T) {
		t.Parallel()
		sink := &memorySink{refuse: func(_ int, r briefing.Row) bool { return r.UserID == "u-03" || r.UserID == "u-07" }}
		b, _ := batchOf(worker(t, model(0)), sink)
		receipt, err := b.Handle(t.Context(), event(t, 10))
		if err != nil || receipt.OK != 8 {
			t.Fatalf("%+v, error %v", receipt, err)
		}
		if d := cmp.Diff([]span.Span{{3, 3}, {7, 7}}, receipt.Remaining); d != "" {
			t.Errorf("remaining (-want +got):\n%s", d)
		}
	})
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		sink := &memorySink{refuse: func(int, briefing.Row) bool { return true }, throttled: true}
		b, _ := batchOf(worker(t, model(0)), sink)
		_, err := b.Handle(t.Context(), event(t, 10))
		var throttled *ThrottledError
		if !errors.As(err, &throttled) {
			t.Errorf("error %v", err)
		}
	})
}

func TestModelFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("no such file")
	w := NewWorker(LoadModel(func() (engine.Backend, error) { return nil, broken }), testRecipe(t), engine.Options{})
	b, _ := batchOf(w, &memorySink{})
	if _, err := b.Handle(t.Context(), event(t, 1)); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	block := make(chan struct{})
	t.Cleanup(func() { close(block) })
	w = NewWorker(LoadModel(func() (engine.Backend, error) { <-block; return model(0), nil }), testRecipe(t), engine.Options{})
	b, _ = batchOf(w, &memorySink{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := b.Handle(ctx, event(t, 1))
	var loading *LoadingError
	if !errors.As(err, &loading) {
		t.Errorf("error %v", err)
	}
}

// TestCancelled: rows that were finished are kept, and nothing hangs.
func TestCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	sink := &memorySink{}
	sink.refuse = func(n int, _ briefing.Row) bool {
		if n == 2 {
			cancel()
		}
		return false
	}
	b, _ := batchOf(worker(t, model(time.Millisecond)), sink)
	receipt, err := b.Handle(ctx, event(t, 30))
	if err != nil || receipt.OK < 3 || receipt.OK != len(sink.rows) || receipt.RemainingItems != 30-receipt.OK {
		t.Errorf("%+v with %d rows, error %v", receipt, len(sink.rows), err)
	}
}
