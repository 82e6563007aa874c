package mailout

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/briefing-swarm/briefing-swarm/component/states"
	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/internal/statestest"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/telemetry"
)

// TestDeliveryMachine runs the component's own state machine with this handler:
// from the event of a Parquet file to the mails.
func TestDeliveryMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("an interpreter of state machines takes a while to start: left out by -short")
	}
	account := statestest.Start(t)
	clients := mototest.Clients(t, account.URL)
	mototest.Bucket(t, clients, "runs")
	mototest.Bucket(t, clients, "briefings")
	front := mototest.NewFront(t, mototest.Start(t)) // the functions' own AWS
	w := &world{front: front, clients: mototest.Clients(t, front.URL), said: &lines{}}
	mototest.Sender(t, w.clients, "desk@briefings.example")
	mototest.LedgerTable(t, w.clients, "ledger")
	w.restart(t, EnvRatePerSec, "40", EnvWorkers, "2")

	document, err := states.Delivery{
		DeliverFunction: statestest.FunctionARN("deliver"), DeliverTimeoutSec: 60, RunsBucket: "runs", WindowSec: 60,
	}.JSON()
	if err != nil {
		t.Fatal(err)
	}
	machine := account.Machine(t, "delivery", document)
	var calls atomic.Int64
	account.Function(t, "deliver", func(ctx context.Context, event []byte) ([]byte, error) {
		calls.Add(1)
		// So little time that one invocation can't send all.
		ctx, cancel := context.WithTimeout(ctx, 1200*time.Millisecond)
		defer cancel()
		return lambda.NewHandlerWithOptions(w.Handle, lambda.WithSetEscapeHTML(false)).Invoke(ctx, event)
	})
	var rows []briefing.Row
	for i := range 60 {
		row := briefing.Row{
			RunID: "run-1", UserID: fmt.Sprintf("user-%02d", i), Email: fmt.Sprintf("u%d@example.com", i), Status: briefing.StatusOK,
			Subject: "Hello", Briefing: "Short.", GeneratedAt: time.Date(2026, time.November, 30, 7, 0, 0, 0, time.UTC),
		}
		if i%10 == 3 {
			row.Status, row.Briefing = briefing.StatusFailed, ""
		}
		rows = append(rows, row)
	}
	mototest.Put(t, clients, "briefings", "briefings/x.parquet", mototest.Converted(t, rows))
	event := map[string]any{
		"detail-type": "Object Created", "source": "aws.s3",
		"detail": map[string]any{"bucket": map[string]any{"name": "briefings"}, "object": map[string]any{"key": "briefings/x.parquet", "size": 1}},
	}

	// The same event can come twice.
	for _, name := range []string{"first", "second"} {
		calls.Store(0)
		e := account.Run(t, machine, name, event)
		if e.Status != "SUCCEEDED" || !e.Visited("Delivered") {
			t.Fatalf("%s execution: %s with %q (%s) after %v", name, e.Status, e.Error, e.Cause, e.States)
		}
		users := map[string]int{}
		for _, m := range front.Mails() {
			users[m.To.Address]++
		}
		if len(users) != 54 || len(front.Mails()) != 54 {
			t.Errorf("%s execution: %d mails to %d users, want 54 to 54", name, len(front.Mails()), len(users))
		}
		if name == "first" && calls.Load() < 4 {
			t.Errorf("%d calls of the function: nothing remained of any", calls.Load())
		}
	}
	if n := w.said.counted(t, telemetry.MailSent); n != 54 {
		t.Errorf("the metrics tell of %d mails", n)
	}

	// What stops the account stops the machine at once.
	w.restart(t)
	front.SetAccount(mototest.Account{MaxSendRate: 14, Max24HourSend: 50_000, Paused: true})
	start := time.Now()
	e := account.Run(t, machine, "paused", event)
	if e.Status != "FAILED" || e.Error != "DeliveryFailedError" && e.Error != "StoppedError" || time.Since(start) > 20*time.Second {
		t.Errorf("with a paused account: %s with %q (%s) after %v", e.Status, e.Error, e.Cause, e.States)
	}
}
