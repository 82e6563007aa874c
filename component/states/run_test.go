package states_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/briefing-swarm/briefing-swarm/component/states"
	"github.com/briefing-swarm/briefing-swarm/internal/statestest"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/generate"
	"github.com/briefing-swarm/briefing-swarm/runtime/normalise"
	"github.com/briefing-swarm/briefing-swarm/runtime/object"
	"github.com/briefing-swarm/briefing-swarm/runtime/span"
)

// objectCreated is the event that S3 sends by way of EventBridge.
func objectCreated(bucket, key, version string) map[string]any {
	object := map[string]any{"key": key, "size": 5, "etag": "b1946ac92492d2347c6235b4d2611184", "sequencer": "617f08299329d189"}
	if version != "" {
		object["version-id"] = version
	}
	return map[string]any{
		"version": "0", "id": "17793124-05d4-b198-2fde-7ededc63b103", "detail-type": "Object Created", "source": "aws.s3",
		"account": "123456789012", "time": "2026-11-30T07:50:00Z", "region": "us-east-1", "resources": []string{"arn:aws:s3:::" + bucket},
		"detail": map[string]any{"version": "0", "bucket": map[string]any{"name": bucket}, "object": object, "reason": "PutObject"},
	}
}

// users returns the user ids in the event of a batch.
func users(t *testing.T, event []byte) []string {
	var batch struct {
		Items []struct {
			UserID string `json:"user_id"`
		}
	}
	if err := json.Unmarshal(event, &batch); err != nil {
		t.Errorf("event of a batch: %v", err)
	}
	var ids []string
	for _, item := range batch.Items {
		ids = append(ids, item.UserID)
	}
	return ids
}

func TestRun(t *testing.T) {
	a, c := prepared(t, statestest.Start(t))

	t.Run("event", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, a, c, nil)
		var mu sync.Mutex
		var sizes []int
		w.before["g"] = func(event []byte, _ int) error {
			mu.Lock()
			defer mu.Unlock()
			sizes = append(sizes, len(users(t, event)))
			var batch generate.BatchEvent
			if err := json.Unmarshal(event, &batch); err != nil || batch.Input.RunID != w.name+"-1" {
				t.Errorf("the event of a batch is %s, error %v", event, err)
			}
			return nil
		}
		key := w.input(10)
		e := w.run("1", objectCreated(inputBucket, key, ""))
		w.ended(e, "SUCCEEDED", "", w.claim(inputBucket, key, ""), "complete")
		slices.Sort(sizes)
		if m := w.manifest("1"); !m.Complete || m.Counts.OK != 10 || !slices.Equal(sizes, []int{2, 4, 4}) {
			t.Errorf("batches of %v, counts %+v", sizes, m.Counts)
		}
		written, _ := e.Output["map"].(map[string]any)
		details, _ := written["ResultWriterDetails"].(map[string]any)
		if details["Bucket"] != runsBucket || !strings.HasPrefix(fmt.Sprint(details["Key"]), "runs/"+w.name+"-1/map/") {
			t.Errorf("the results of the map are at %v", details)
		}
		// The same event once more.
		again := w.run("2", objectCreated(inputBucket, key, ""))
		if again.Status != "SUCCEEDED" || again.Output["state"] != "duplicate" || w.called("n") != 1 {
			t.Errorf("a second event ended as %s with %v after %v", again.Status, again.Output, again.States)
		}
		if claim := w.claim(inputBucket, key, ""); claim["run_id"] != e.Name || claim["state"] != "complete" {
			t.Errorf("after a second event the claim is %v", claim)
		}
	})

	t.Run("version", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, a, c, nil)
		// Reading a version is the handler's business, and has its own tests.
		w.before["n"] = func(event []byte, _ int) error {
			var e normalise.Event
			if err := json.Unmarshal(event, &e); err != nil || e.Version != "v1" || e.Format != "auto" || e.Limit != 0 || e.RunID != w.name+"-1" {
				t.Errorf("normalise gets %s, error %v", event, err)
			}
			return &normalise.InputError{Ref: e.Ref, Err: errors.New("no such version")}
		}
		key := w.input(3)
		e := w.run("1", objectCreated(inputBucket, key, "v1"))
		w.ended(e, "FAILED", "RunFailedError: InputError", w.claim(inputBucket, key, "v1"), "failed")
		if w.called("n") != 1 {
			t.Errorf("normalise was called %d times after an error that stays", w.called("n"))
		}
	})

	t.Run("request_with_limit", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, a, c, func(r *states.Run) { r.TopicArn = "" })
		key := w.input(25)
		e := w.run("1", map[string]any{"bucket": inputBucket, "key": key, "limit": 10, "format": "csv"})
		if e.Status != "SUCCEEDED" || e.Visited("Notify") {
			t.Errorf("%s with %q (%s) after %v", e.Status, e.Error, e.Cause, e.States)
		}
		if m := w.manifest("1"); m.Counts.OK != 10 || m.Counts.Records != 10 {
			t.Errorf("counts %+v of a run with a limit of 10", m.Counts)
		}
		// The whole file needs the word that the trial may be followed.
		refused := w.run("2", map[string]any{"bucket": inputBucket, "key": key, "again": "another-run"})
		again := w.run("3", map[string]any{"bucket": inputBucket, "key": key, "again": w.name + "-1"})
		if refused.Output["state"] != "duplicate" || again.Status != "SUCCEEDED" {
			t.Errorf("with the wrong run %v, with the right one %s: %s", refused.Output, again.Status, again.Cause)
		}
		if m := w.manifest("3"); m.Counts.OK != 25 {
			t.Errorf("counts %+v of the whole file", m.Counts)
		}
	})

	t.Run("unknown_input", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, a, c, nil)
		for i, input := range []map[string]any{{}, {"bucket": inputBucket}, {"detail": map[string]any{}}} {
			if e := w.run(fmt.Sprint(i), input); e.Status != "FAILED" || e.Error != "EventError" {
				t.Errorf("%v ended as %s with %q", input, e.Status, e.Error)
			}
		}
	})

	t.Run("over_the_budget", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, a, c, nil)
		key := w.input(101) // at 0.01 USD, with a ceiling of 1 USD
		e := w.run("1", objectCreated(inputBucket, key, ""))
		w.ended(e, "FAILED", "OverBudgetError", w.claim(inputBucket, key, ""), "refused")
		if w.called("g") != 0 || !strings.Contains(e.Cause, "101 records would cost 1.01 USD, and the ceiling of a run is 1") {
			t.Errorf("%d batches were generated; the cause is %q", w.called("g"), e.Cause)
		}
	})

	t.Run("retries", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, a, c, nil)
		w.before["n"] = func(_ []byte, n int) error {
			if n == 0 {
				return statestest.ErrThrottle
			}
			return nil
		}
		w.before["g"] = func(_ []byte, n int) error {
			return []error{&generate.ThrottledError{Err: errors.New("no throughput")}, statestest.ErrThrottle, &generate.LoadingError{}, errors.New("crashed"), nil}[min(n, 4)]
		}
		w.before["r"] = func(_ []byte, n int) error {
			if n == 0 {
				return errors.New("crashed")
			}
			return nil
		}
		key := w.input(3)
		e := w.run("1", objectCreated(inputBucket, key, ""))
		w.ended(e, "SUCCEEDED", "", w.claim(inputBucket, key, ""), "complete")
		if w.called("n") != 2 || w.called("g") != 5 || w.called("r") != 2 {
			t.Errorf("calls of n, g and r: %d, %d, %d, want 2, 5, 2", w.called("n"), w.called("g"), w.called("r"))
		}
	})

	t.Run("remaining", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, a, c, nil)
		// Of each row only the third attempt is taken, of some the first: the
		// child goes round with what is left.
		attempts := map[string]int{}
		w.refuse = func(row briefing.Row) bool {
			attempts[row.UserID]++
			return !strings.HasSuffix(row.UserID, "0") && attempts[row.UserID] < 2+int(row.UserID[len(row.UserID)-1]-'0')%2
		}
		key := w.input(4)
		e := w.run("1", objectCreated(inputBucket, key, ""))
		w.ended(e, "SUCCEEDED", "", w.claim(inputBucket, key, ""), "complete")
		if m := w.manifest("1"); m.Counts.OK != 4 || m.Counts.Duplicate != 0 || w.called("g") != 3 {
			t.Errorf("%d calls, counts %+v, want 3 calls and no duplicate", w.called("g"), m.Counts)
		}
	})

	t.Run("largest_batch", func(t *testing.T) {
		t.Parallel()
		// Four records that fill a batch as far as it may be filled, in a child
		// that keeps two receipts beside them.
		w := newWorld(t, a, c, nil)
		attempts := map[string]int{}
		w.refuse = func(row briefing.Row) bool {
			attempts[row.UserID]++
			return attempts[row.UserID] < 1+int(row.UserID[len(row.UserID)-1]-'0')
		}
		var text strings.Builder
		text.WriteString("user_id,note\n")
		for i := range 4 {
			id := fmt.Sprintf("u-%d", i)
			fmt.Fprintf(&text, "%s,%s\n", id, strings.Repeat("x", 253_952/4-len(`{"user_id":"u-0","note":""},`)))
		}
		key := "inputs/" + w.name + ".csv"
		w.put(key, text.String())
		e := w.run("1", objectCreated(inputBucket, key, ""))
		w.ended(e, "SUCCEEDED", "", w.claim(inputBucket, key, ""), "complete")
		if m := w.manifest("1"); m.Counts.Failed != 4 || w.called("g") != 4 {
			t.Errorf("%d calls, counts %+v", w.called("g"), m.Counts)
		}
	})

	t.Run("failed_batches_and_redrive", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, a, c, func(r *states.Run) { r.ToleratedFailurePercentage = 40 })
		poison := w.name + "-05"
		broken := true
		w.before["g"] = func(event []byte, _ int) error {
			if broken && slices.Contains(users(t, event), poison) {
				return &generate.EventError{Detail: "poison"}
			}
			return nil
		}
		key := w.input(12)
		e := w.run("1", objectCreated(inputBucket, key, ""))
		w.ended(e, "FAILED", "MissingRowsError", w.claim(inputBucket, key, ""), "incomplete")
		if m := w.manifest("1"); m.Counts.OK != 8 || m.Counts.Missing != 4 || m.RerunCount != 4 || w.called("r") != 3 || w.called("g") != 3 {
			t.Errorf("counts %+v after %d batches and %d looks", m.Counts, w.called("g"), w.called("r"))
		}
		if !strings.HasPrefix(e.Cause, "4 users have no row") {
			t.Errorf("the cause is %q", e.Cause)
		}
		// Only what has failed runs again.
		broken = false
		again := w.run("2", map[string]any{"redrive": w.name + "-1"})
		w.ended(again, "SUCCEEDED", "", w.claim(runsBucket, "runs/"+w.name+"-1/rerun.jsonl", ""), "complete")
		if m := w.manifest("2"); m.Counts.OK != 4 || m.Counts.Records != 4 || w.called("g") != 4 {
			t.Errorf("counts %+v of the redrive after %d batches", m.Counts, w.called("g"))
		}
		if third := w.run("3", map[string]any{"redrive": w.name + "-1"}); third.Output["state"] != "duplicate" {
			t.Errorf("a second redrive ended as %s with %v", third.Status, third.Output)
		}
	})

	t.Run("stalled", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, a, c, func(r *states.Run) { r.ReconcileAttempts = 1 })
		first := true
		w.function("g", func(event generate.BatchEvent) (generate.Receipt, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			left := len(event.Places)
			if first {
				first, left = false, left-1
			}
			return generate.Receipt{RunID: event.Input.RunID, Items: len(event.Items), Remaining: []span.Span{{len(event.Items) - left, len(event.Items) - 1}}, RemainingItems: left}, nil
		})
		key := w.input(4)
		e := w.run("1", objectCreated(inputBucket, key, ""))
		w.ended(e, "FAILED", "MissingRowsError", w.claim(inputBucket, key, ""), "incomplete")
		if w.called("g") != 2 {
			t.Errorf("a batch without progress was called %d times, want 2", w.called("g"))
		}
	})

	t.Run("late_rows", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, a, c, nil)
		w.hold = 2
		key := w.input(5)
		e := w.run("1", objectCreated(inputBucket, key, ""))
		w.ended(e, "SUCCEEDED", "", w.claim(inputBucket, key, ""), "complete")
		if w.called("r") != 3 {
			t.Errorf("the rows were looked at %d times, want 3", w.called("r"))
		}
	})

	t.Run("rejected_and_failed_rows", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, a, c, nil)
		key := w.input(3)
		w.put(key, "user_id,email,note\na-1,a@example.com,fine\na-2,no address,x\na-3,b@example.com,"+strings.Repeat("long ", 4000)+"\n")
		e := w.run("1", objectCreated(inputBucket, key, ""))
		w.ended(e, "SUCCEEDED", "", w.claim(inputBucket, key, ""), "complete")
		if m := w.manifest("1"); m.Counts.OK != 1 || m.Counts.Failed != 2 || m.Counts.Rejected != 1 {
			t.Errorf("counts %+v", m.Counts)
		}
	})

	t.Run("no_file", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, a, c, nil)
		e := w.run("1", objectCreated(inputBucket, "inputs/none.csv", ""))
		w.ended(e, "FAILED", "RunFailedError: NotFoundError", w.claim(inputBucket, "inputs/none.csv", ""), "failed")
		if w.called("n") != 1 {
			t.Errorf("a file that is not there was looked for %d times", w.called("n"))
		}
	})

	t.Run("reconcile_fails", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, a, c, nil)
		w.before["r"] = func([]byte, int) error { return &object.ChangedError{} }
		key := w.input(2)
		e := w.run("1", objectCreated(inputBucket, key, ""))
		w.ended(e, "FAILED", "RunFailedError: ChangedError", w.claim(inputBucket, key, ""), "failed")
	})

	t.Run("no_table", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, a, c, func(r *states.Run) { r.ClaimsTable = "no-such-table" })
		key := w.input(2)
		e := w.run("1", objectCreated(inputBucket, key, ""))
		if e.Status != "FAILED" || e.Error != "RunFailedError" || !strings.HasPrefix(e.Cause, "DynamoDB.") || w.called("n") != 0 || e.Visited("Mark") {
			t.Errorf("without a table %s with %q (%s) after %v", e.Status, e.Error, e.Cause, e.States)
		}
		if told := w.told(); !slices.Equal(told, []string{"failed"}) {
			t.Errorf("the topic was told %q", told)
		}
	})

	t.Run("no_function", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, a, c, func(r *states.Run) { r.NormaliseFunction = statestest.FunctionARN("no-such-function") })
		key := w.input(2)
		e := w.run("1", objectCreated(inputBucket, key, ""))
		w.ended(e, "FAILED", "RunFailedError: Lambda.ResourceNotFoundException", w.claim(inputBucket, key, ""), "failed")
	})
}
