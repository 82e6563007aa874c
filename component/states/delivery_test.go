package states_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/briefing-swarm/briefing-swarm/component/states"
	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/internal/statestest"
	"github.com/briefing-swarm/briefing-swarm/runtime/awsclient"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

// The errors of the deliver function.
type (
	ThrottledError struct{ error }
	StoppedError   struct{ error }
)

// mailing is the delivery machine of one test. Its function answers as the
// deliver handler does, and mails nothing.
type mailing struct {
	t       *testing.T
	account *statestest.Account
	clients *awsclient.Clients
	name    string
	machine string

	mu      sync.Mutex
	waitFor time.Duration
	refused int            // how many schedule events Lambda refuses
	begun   time.Time      // of the first batch
	planned time.Time      // when the schedule says it begins
	mailed  map[string]int // by user
	inputs  []string       // BatchInput of each batch
	calls   int            // with batches
	// fail is called before each call with a batch, with its users and how often
	// there was one before.
	fail func(users []string, n int) error
	// atMost bounds what one call gets done.
	atMost int
}

func newMailing(t *testing.T, a *statestest.Account, c *awsclient.Clients, change func(*states.Delivery)) *mailing {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	m := &mailing{t: t, account: a, clients: c, name: name, mailed: map[string]int{}, atMost: 100}
	d := states.Delivery{
		DeliverFunction: statestest.FunctionARN(name), DeliverTimeoutSec: 60, RunsBucket: runsBucket, WindowSec: 60, TopicArn: statestest.TopicARN(name),
	}
	if change != nil {
		change(&d)
	}
	document, err := d.JSON()
	if err != nil {
		t.Fatal(err)
	}
	m.machine = a.Machine(t, name, document)
	a.Function(t, name, m.deliver)
	return m
}

// deliver answers both kinds of event.
func (m *mailing) deliver(_ context.Context, text []byte) ([]byte, error) {
	var event struct {
		Schedule   *struct{ Bucket, Key string }
		BatchInput json.RawMessage
		Items      []struct {
			UserID string `json:"user_id"`
			RunID  string `json:"run_id"`
			Status string `json:"status"`
		}
		Remaining *[][2]int
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&event); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if event.Schedule != nil {
		if event.Schedule.Bucket != outputBucket || !strings.HasSuffix(event.Schedule.Key, ".parquet") {
			m.t.Errorf("the event of a schedule is %s", text)
		}
		if m.refused > 0 {
			m.refused--
			return nil, statestest.ErrThrottle
		}
		m.planned = time.Now().Add(m.waitFor).Truncate(time.Second)
		return json.Marshal(map[string]any{"wait_until": m.planned.UTC().Format(time.RFC3339), "workers": 2, "rate_per_sec": 14, "batch_size": 3})
	}
	if m.begun.IsZero() {
		m.begun = time.Now()
	}
	var ids []string
	for _, item := range event.Items {
		if item.RunID != "run-1" || item.Status != briefing.StatusOK {
			m.t.Errorf("a row in the event is %+v", item)
		}
		ids = append(ids, item.UserID)
	}
	n := m.calls
	m.calls++
	m.inputs = append(m.inputs, string(event.BatchInput))
	if m.fail != nil {
		if err := m.fail(ids, n); err != nil {
			return nil, err
		}
	}
	todo := [][2]int{{0, len(ids) - 1}}
	if event.Remaining != nil {
		todo = *event.Remaining
	}
	sent, left := 0, [][2]int{}
	remaining := 0
	for _, r := range todo {
		for i := r[0]; i <= r[1]; i++ {
			if sent < m.atMost {
				m.mailed[ids[i]]++
				sent++
				continue
			}
			left = append(left, [2]int{i, i})
			remaining++
		}
	}
	return json.Marshal(map[string]any{"items": len(ids), "sent": sent, "remaining": left, "remaining_items": remaining})
}

// rows puts a Parquet file of n users and returns its key.
func (m *mailing) rows(n int) string {
	m.t.Helper()
	var rows []briefing.Row
	for i := range n {
		rows = append(rows, briefing.Row{RunID: "run-1", UserID: fmt.Sprintf("u-%02d", i), Email: "u@example.com", Status: briefing.StatusOK, Briefing: "Good day.", GeneratedAt: time.Now()})
	}
	var b bytes.Buffer
	if err := parquet.Write(&b, rows); err != nil {
		m.t.Fatal(err)
	}
	key := "briefings/" + m.name + ".parquet"
	mototest.Put(m.t, m.clients, outputBucket, key, b.Bytes())
	return key
}

func (m *mailing) run(name string, input map[string]any) statestest.Execution {
	m.t.Helper()
	return m.account.Run(m.t, m.machine, m.name+"-"+name, input)
}

// all checks that so many users were mailed, once each.
func (m *mailing) all(n int) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range n {
		if id := fmt.Sprintf("u-%02d", i); m.mailed[id] != 1 {
			m.t.Errorf("user %s was mailed %d times", id, m.mailed[id])
		}
	}
	if len(m.mailed) != n {
		m.t.Errorf("%d users were mailed, want %d", len(m.mailed), n)
	}
}

func (m *mailing) told() (outcomes []string) {
	m.t.Helper()
	for _, message := range m.account.Messages(m.name) {
		var outcome struct{ State, Error string }
		if err := json.Unmarshal([]byte(message.Text), &outcome); err != nil {
			m.t.Fatalf("message %s: %v", message.Text, err)
		}
		outcomes = append(outcomes, strings.TrimSpace(outcome.State+" "+outcome.Error))
	}
	return outcomes
}

func TestDelivery(t *testing.T) {
	a, c := prepared(t, statestest.Start(t))

	t.Run("event", func(t *testing.T) {
		t.Parallel()
		m := newMailing(t, a, c, nil)
		m.waitFor = 3 * time.Second
		key := m.rows(10)
		e := m.run("1", objectCreated(outputBucket, key, "v1"))
		if e.Status != "SUCCEEDED" {
			t.Fatalf("%s with %q (%s) after %v", e.Status, e.Error, e.Cause, e.States)
		}
		m.all(10)
		// The interpreter waits whole seconds.
		if m.begun.Before(m.planned.Add(-time.Second)) {
			t.Errorf("it began at %s, %s too early", m.begun, m.planned.Sub(m.begun))
		}
		var input struct {
			Bucket, Key  string
			RetryUnknown bool `json:"retry_unknown"`
		}
		if err := json.Unmarshal([]byte(m.inputs[0]), &input); err != nil || len(m.inputs) != 4 || input.Bucket != outputBucket || input.Key != key || input.RetryUnknown {
			t.Errorf("%d batches with the input %s, error %v", len(m.inputs), m.inputs[0], err)
		}
		outcome, _ := e.Output["outcome"].(map[string]any)
		if !e.Visited("Delivered") || outcome["summary"] == nil || outcome["receipts"] == nil {
			t.Errorf("the outcome is %v after %v", outcome, e.States)
		}
		if told := m.told(); !slices.Equal(told, []string{"delivered"}) {
			t.Errorf("the topic was told %q", told)
		}
	})

	t.Run("request", func(t *testing.T) {
		t.Parallel()
		m := newMailing(t, a, c, func(d *states.Delivery) { d.TopicArn = "" })
		e := m.run("1", map[string]any{"bucket": outputBucket, "key": m.rows(2), "retry_unknown": true})
		m.all(2)
		if e.Status != "SUCCEEDED" || e.Visited("Notify") || !strings.Contains(m.inputs[0], "true") {
			t.Errorf("%s with %q (%s) after %v, input %s", e.Status, e.Error, e.Cause, e.States, m.inputs[0])
		}
	})

	t.Run("unknown_input", func(t *testing.T) {
		t.Parallel()
		m := newMailing(t, a, c, nil)
		if e := m.run("1", map[string]any{"key": "k"}); e.Status != "FAILED" || e.Error != "EventError" {
			t.Errorf("%s with %q", e.Status, e.Error)
		}
	})

	t.Run("remaining", func(t *testing.T) {
		t.Parallel()
		m := newMailing(t, a, c, nil)
		m.atMost = 1
		e := m.run("1", objectCreated(outputBucket, m.rows(3), ""))
		m.all(3)
		if e.Status != "SUCCEEDED" || m.calls != 3 {
			t.Errorf("%s with %q (%s) after %d calls", e.Status, e.Error, e.Cause, m.calls)
		}
	})

	t.Run("busy", func(t *testing.T) {
		t.Parallel()
		m := newMailing(t, a, c, nil)
		m.refused = 2
		m.fail = func(_ []string, n int) error {
			return []error{statestest.ErrThrottle, ThrottledError{errors.New("SES is busy")}, statestest.ErrThrottle, nil}[min(n, 3)]
		}
		e := m.run("1", objectCreated(outputBucket, m.rows(2), ""))
		m.all(2)
		if e.Status != "SUCCEEDED" || m.calls != 4 {
			t.Errorf("%s with %q (%s) after %d calls", e.Status, e.Error, e.Cause, m.calls)
		}
	})

	t.Run("stopped_batch", func(t *testing.T) {
		t.Parallel()
		m := newMailing(t, a, c, nil)
		m.fail = func([]string, int) error { return StoppedError{errors.New("sending is paused")} }
		m.run("1", objectCreated(outputBucket, m.rows(2), ""))
		if m.calls != 1 {
			t.Errorf("a batch was tried %d times after delivery was stopped", m.calls)
		}
	})

	t.Run("stopped_at_once", func(t *testing.T) {
		t.Parallel()
		m := newMailing(t, a, c, nil)
		calls := 0
		a.Function(t, m.name, func(context.Context, []byte) ([]byte, error) {
			calls++
			return nil, StoppedError{errors.New("sending is paused")}
		})
		e := m.run("1", objectCreated(outputBucket, m.rows(2), ""))
		if e.Status != "FAILED" || e.Error != "DeliveryFailedError" || !strings.HasPrefix(e.Cause, "StoppedError: ") || calls != 1 {
			t.Errorf("%s with %q (%s) after %d calls", e.Status, e.Error, e.Cause, calls)
		}
		if told := m.told(); !slices.Equal(told, []string{"failed StoppedError"}) {
			t.Errorf("the topic was told %q", told)
		}
	})

	t.Run("no_file", func(t *testing.T) {
		t.Parallel()
		m := newMailing(t, a, c, nil)
		e := m.run("1", objectCreated(outputBucket, "briefings/none.parquet", ""))
		if e.Status != "FAILED" || e.Error != "DeliveryFailedError" || m.calls != 0 {
			t.Errorf("%s with %q (%s) after %v", e.Status, e.Error, e.Cause, e.States)
		}
	})
}
