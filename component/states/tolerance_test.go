package states_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/briefing-swarm/briefing-swarm/component/states"
	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/internal/statestest"
	"github.com/briefing-swarm/briefing-swarm/runtime/generate"
)

// TestTolerance runs documents as they are in an interpreter that counts failed
// children and reads JSON Lines, and has no batches: each record is one.
func TestTolerance(t *testing.T) {
	a, c := prepared(t, statestest.StartMiniStack(t))

	// A third of the records is lost.
	run := func(t *testing.T, percentage int) (*world, statestest.Execution, map[string]string) {
		w := newWorld(t, a, c, func(r *states.Run) {
			r.ToleratedFailurePercentage, r.ReconcileAttempts, r.TopicArn = percentage, 1, ""
		})
		real := w.handlers["g"]
		w.function("g", func(ctx context.Context, item json.RawMessage) (json.RawMessage, error) {
			var record struct {
				UserID     string `json:"user_id"`
				BatchInput json.RawMessage
			}
			if err := json.Unmarshal(item, &record); err != nil || record.BatchInput != nil {
				t.Errorf("the event of a child is %s, error %v", item, err)
			}
			if strings.HasSuffix(record.UserID, "0") || strings.HasSuffix(record.UserID, "1") {
				return nil, &generate.EventError{Detail: "poison"}
			}
			// What ItemBatcher would make of it.
			event, err := json.Marshal(map[string]any{"BatchInput": map[string]string{"run_id": w.name + "-1"}, "Items": []json.RawMessage{item}})
			if err != nil {
				return nil, err
			}
			return real.Invoke(ctx, event)
		})
		key := w.input(6)
		e := w.run("1", objectCreated(inputBucket, key, ""))
		if m := w.manifest("1"); m.Counts.OK != 4 || m.Counts.Missing != 2 || m.RerunCount != 2 {
			t.Errorf("counts %+v", m.Counts)
		}
		return w, e, w.claim(inputBucket, key, "")
	}

	t.Run("within", func(t *testing.T) {
		t.Parallel()
		_, e, claim := run(t, 34)
		if e.Status != "FAILED" || e.Error != "MissingRowsError" || claim["state"] != "incomplete" {
			t.Errorf("%s with %q (%s) after %v, claim %v", e.Status, e.Error, e.Cause, e.States, claim)
		}
	})

	t.Run("beyond", func(t *testing.T) {
		t.Parallel()
		_, e, claim := run(t, 33)
		if e.Status != "FAILED" || e.Error != "RunFailedError" || !strings.HasPrefix(e.Cause, "States.ExceedToleratedFailureThreshold: ") || !e.Visited("Let calls end") ||
			claim["state"] != "failed" || claim["error"] != "States.ExceedToleratedFailureThreshold" {
			t.Errorf("%s with %q (%s) after %v, claim %v", e.Status, e.Error, e.Cause, e.States, claim)
		}
	})

	t.Run("none_failed", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, a, c, func(r *states.Run) { r.TopicArn = "" })
		real := w.handlers["g"]
		w.function("g", func(ctx context.Context, item json.RawMessage) (json.RawMessage, error) {
			return real.Invoke(ctx, []byte(fmt.Sprintf(`{"BatchInput":{"run_id":"%s-1"},"Items":[%s]}`, w.name, item)))
		})
		key := w.input(5)
		e := w.run("1", objectCreated(inputBucket, key, ""))
		if claim := w.claim(inputBucket, key, ""); e.Status != "SUCCEEDED" || claim["state"] != "complete" {
			t.Errorf("%s with %q (%s) after %v, claim %v", e.Status, e.Error, e.Cause, e.States, claim)
		}
		if again := w.run("2", objectCreated(inputBucket, key, "")); again.Status != "SUCCEEDED" || again.Output["state"] != "duplicate" {
			t.Errorf("a second event ended as %s with %v", again.Status, again.Output)
		}
	})

	t.Run("stopped_delivery", func(t *testing.T) {
		t.Parallel()
		m := newMailing(t, a, c, func(d *states.Delivery) { d.TopicArn = "" })
		m.fail = func([]string, int) error { return StoppedError{errors.New("sending is paused")} }
		key := "briefings/" + m.name + ".parquet"
		mototest.Put(t, c, outputBucket, key, []byte(`[{"run_id":"run-1","user_id":"u-00","status":"ok"},{"run_id":"run-1","user_id":"u-01","status":"ok"}]`))
		e := m.run("1", objectCreated(outputBucket, key, ""))
		if e.Status != "FAILED" || e.Error != "DeliveryFailedError" || !strings.HasPrefix(e.Cause, "States.ExceedToleratedFailureThreshold: ") {
			t.Errorf("%s with %q (%s) after %v", e.Status, e.Error, e.Cause, e.States)
		}
	})
}
