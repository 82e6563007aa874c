package mailout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/briefing-swarm/briefing-swarm/internal/golden"
	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/runtime/deliver"
	"github.com/briefing-swarm/briefing-swarm/runtime/object"
	"github.com/briefing-swarm/briefing-swarm/runtime/span"
	"github.com/briefing-swarm/briefing-swarm/runtime/telemetry"
)

// eventOf is the event of a batch.
func eventOf(t testing.TB, rows []testRow, remaining ...span.Span) Event {
	t.Helper()
	shape := map[string]any{"BatchInput": map[string]any{"bucket": "briefings", "key": "part-0.parquet"}, "Items": rows}
	if remaining != nil {
		shape["remaining"] = remaining
	}
	text, err := json.Marshal(shape)
	if err != nil {
		t.Fatal(err)
	}
	var event Event
	if err := json.Unmarshal(text, &event); err != nil {
		t.Fatal(err)
	}
	return event
}

func (w *world) mail(t testing.TB, ctx context.Context, event Event) (Receipt, error) {
	t.Helper()
	result, err := w.Handle(ctx, event)
	if err != nil {
		return Receipt{}, err
	}
	r := result.(Receipt)
	r.Seconds = 0
	if sum := r.Sent + r.AlreadySent + r.Skipped + r.Failed + r.Unknown + r.RemainingItems; sum != r.Items {
		t.Errorf("the receipt accounts for %d of %d items: %+v", sum, r.Items, r)
	}
	return r, nil
}

func TestBatch(t *testing.T) {
	w := newWorld(t)
	if err := newOptOuts(w.clients, "ledger").Add(t.Context(), "user-01"); err != nil {
		t.Fatal(err)
	}
	rows := append(seedRows("run-1", 24), testRow{"user_id": 5}, testRow{"run_id": "run-1", "user_id": "", "status": "ok", "email": "x@example.com"}, testRow{})
	first, err := w.mail(t, t.Context(), eventOf(t, rows))
	if err != nil {
		t.Fatal(err)
	}
	golden.JSON(t, "receipt.json", first)
	again, err := w.mail(t, t.Context(), eventOf(t, rows))
	if err != nil {
		t.Fatal(err)
	}
	golden.JSON(t, "receipt-again.json", again)
	if n := len(w.front.Mails()); n != first.Sent {
		t.Errorf("SES took %d mails, the receipt says %d", n, first.Sent)
	}
	for metric, want := range map[string]int{
		telemetry.MailSent: first.Sent, telemetry.MailAlreadySent: again.AlreadySent, telemetry.MailSkipped: 2 * first.Skipped, telemetry.MailFailed: 2 * first.Failed, telemetry.MailUnknown: 0,
	} {
		if got := w.said.counted(t, metric); got != want {
			t.Errorf("%s is %d in all, want %d", metric, got, want)
		}
	}
	for _, secret := range []string{"example.com", "User 1", "Hello"} {
		if strings.Contains(w.said.String(), secret) {
			t.Errorf("the log holds %q:\n%s", secret, w.said.String())
		}
	}
	if mail := string(w.front.Mails()[0].Raw); !strings.Contains(mail, "List-Unsubscribe-Post: List-Unsubscribe=One-Click") {
		t.Errorf("the mail has no one-click link:\n%s", mail)
	}
}

// TestBatchRunsOutOfTime: what there was no time for remains, in several
// invocations of the same process, at the rate.
func TestBatchRunsOutOfTime(t *testing.T) {
	w := newWorld(t, EnvRatePerSec, "20")
	rows := seedRows("run-1", 36)
	var total Receipt
	var remaining []span.Span
	calls := 0
	start := time.Now()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
		r, err := w.mail(t, ctx, eventOf(t, rows, remaining...))
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		calls++
		total.Sent += r.Sent
		total.Skipped += r.Skipped
		total.Failed += r.Failed
		total.Unknown += r.Unknown
		total.AlreadySent += r.AlreadySent
		if r.RemainingItems == 0 {
			break
		}
		if calls > 20 {
			t.Fatalf("it does not come to an end: %+v", r)
		}
		remaining = r.Remaining
	}
	if calls < 2 || total.Sent != 27 || total.Skipped != 6 || total.Failed != 3 || total.Unknown+total.AlreadySent != 0 {
		t.Errorf("%d calls, %+v", calls, total)
	}
	if took := time.Since(start); took < 26*time.Second/20 {
		t.Errorf("27 mails at 20/s took %v", took)
	}
	if n := len(w.front.Mails()); n != 27 {
		t.Errorf("SES took %d mails", n)
	}
}

// TestBatchWithoutTime: where not one mail can be sent the state machine waits,
// it does not go round in circles.
func TestBatchWithoutTime(t *testing.T) {
	w := newWorld(t, EnvRatePerSec, "0.001")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	rows := seedRows("run-1", 3)
	first, err := w.mail(t, ctx, eventOf(t, rows)) // the first token is there
	if err != nil || first.Sent != 1 || first.RemainingItems != 2 {
		t.Fatalf("%+v, %v", first, err)
	}
	_, err = w.mail(t, ctx, eventOf(t, rows, first.Remaining...))
	var throttled *ThrottledError
	if !errors.As(err, &throttled) {
		t.Errorf("error %v, want a ThrottledError", err)
	}
}

// TestBatchErrors tells what a state machine is to do about each trouble.
func TestBatchErrors(t *testing.T) {
	w := newWorld(t)
	always := func(operation string, fault mototest.Fault) func(mototest.Call) mototest.Fault {
		return func(c mototest.Call) mototest.Fault {
			if c.Operation == operation {
				return fault
			}
			return mototest.None
		}
	}
	const stopped, throttled = "*mailout.StoppedError", "*mailout.ThrottledError"
	for i, tc := range []struct {
		name    string
		account mototest.Account
		rule    func(mototest.Call) mototest.Fault
		more    []string
		want    string
		says    string
	}{
		{"paused", mototest.Account{MaxSendRate: 14, Max24HourSend: 100, Paused: true}, nil, nil, stopped, "paused"},
		{"daily quota", mototest.Account{MaxSendRate: 14, Max24HourSend: 100, SentLast24Hours: 100}, nil, nil, stopped, "24 hours"},
		{"sender not verified", mototest.Account{}, nil, []string{EnvFrom, "x@elsewhere.example"}, stopped, "verify the sender"},
		{"no permission", mototest.Account{}, always("SendEmail", mototest.Denied), nil, stopped, "permission"},
		{"throttled", mototest.Account{}, always("SendEmail", mototest.Throttle), nil, throttled, "too busy"},
		{"SES is down", mototest.Account{}, always("SendEmail", mototest.ServerError), nil, throttled, "too busy"},
		{"no ledger", mototest.Account{}, nil, []string{EnvLedgerTable, "absent"}, throttled, "unsubscribed"},
		{"no permission for the ledger", mototest.Account{}, always("PutItem", mototest.Denied), nil, throttled, "claim"},
		{"no permission for the account", mototest.Account{}, always("GetAccount", mototest.Denied), nil, throttled, "what the account may send"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w.front.Fail(tc.rule)
			w.front.SetAccount(tc.account)
			w.restart(t, tc.more...)
			before := len(w.front.Mails())
			_, err := w.mail(t, t.Context(), eventOf(t, seedRows(fmt.Sprint("run-", i), 3)))
			if got := fmt.Sprintf("%T", err); got != tc.want || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: %v, want a %s that says %q", got, err, tc.want, tc.says)
			}
			if strings.Contains(fmt.Sprint(err), "example.com") {
				t.Errorf("the error holds an address: %v", err)
			}
			// Whoever certainly got nothing gets it by the next call.
			w.front.Fail(nil)
			w.front.SetAccount(mototest.Account{})
			w.restart(t)
			if r, err := w.mail(t, t.Context(), eventOf(t, seedRows(fmt.Sprint("run-", i), 3))); err != nil || r.Sent != 3 || len(w.front.Mails()) != before+3 {
				t.Errorf("afterwards %+v, %v, %d mails", r, err, len(w.front.Mails())-before)
			}
		})
	}
}

// TestBatchSomeThrottled: mails that the account's rate had no room for remain,
// and the others are sent.
func TestBatchSomeThrottled(t *testing.T) {
	w := newWorld(t, EnvRatePerSec, "200")
	front := func(limit int) {
		w.front.Fail(func(c mototest.Call) mototest.Fault {
			if c.Operation == "SendEmail" && c.N >= limit {
				return mototest.Throttle
			}
			return mototest.None
		})
	}
	front(2)
	rows := seedRows("run-1", 3)
	r, err := w.mail(t, t.Context(), eventOf(t, rows))
	if err != nil || r.Sent != 2 || r.Failed != 0 || r.RemainingItems != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	var throttled *ThrottledError
	front(0)
	if _, err := w.mail(t, t.Context(), eventOf(t, rows, r.Remaining...)); !errors.As(err, &throttled) {
		t.Errorf("while nothing goes: %v", err)
	}
	w.front.Fail(nil)
	if r, err := w.mail(t, t.Context(), eventOf(t, rows, r.Remaining...)); err != nil || r.Sent != 1 || r.RemainingItems != 0 {
		t.Errorf("in the end: %+v, %v", r, err)
	}
}

// TestBatchAllRefused: where SES takes nobody's mail, a million users must not
// all be tried.
func TestBatchAllRefused(t *testing.T) {
	w := newWorld(t, EnvRatePerSec, "500")
	calls := 0
	var mu sync.Mutex
	answer := ""
	fake := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		calls++
		rw.Header().Set("Content-Type", "application/json")
		rw.Header().Set("X-Amzn-Errortype", answer)
		rw.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(rw, `{"message":"on demand"}`)
	}))
	t.Cleanup(fake.Close)
	w.ses = mototest.Clients(t, fake.URL).SES
	w.retry = time.Millisecond
	var rows []testRow
	for i := range 100 {
		rows = append(rows, testRow{"run_id": "run-1", "user_id": fmt.Sprint("u", i), "email": fmt.Sprintf("u%d@example.com", i), "status": "ok", "subject": "s", "briefing": "b"})
	}
	for name, want := range map[string]string{"BadRequestException": "*mailout.StoppedError", "TooManyRequestsException": "*mailout.ThrottledError"} {
		mu.Lock()
		calls, answer = 0, name
		mu.Unlock()
		_, err := w.mail(t, t.Context(), eventOf(t, rows))
		if got := fmt.Sprintf("%T", err); got != want {
			t.Errorf("%s: %s %v, want a %s", name, got, err, want)
		}
		if name == "BadRequestException" && calls > 90 {
			t.Errorf("%d mails were tried before the delivery stopped", calls)
		}
	}
}

// TestRetryUnknown: an operator's word, and only for claims that are old.
func TestRetryUnknown(t *testing.T) {
	w := newWorld(t)
	young := deliver.NewDynamoLedger(w.clients.DynamoDB, "ledger", time.Hour)
	if _, err := young.Claim(t.Context(), []deliver.Key{{RunID: "run-1", UserID: "user-00"}}); err != nil {
		t.Fatal(err)
	}
	event := eventOf(t, seedRows("run-1", 3))
	r, err := w.mail(t, t.Context(), event)
	if err != nil || r.Sent != 2 || r.Unknown != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	event.Input.RetryUnknown = true
	r, err = w.mail(t, t.Context(), event)
	if err != nil || r.AlreadySent != 2 || r.Unknown != 1 {
		t.Errorf("while the claim is young: %+v, %v", r, err)
	}
}

func TestSchedule(t *testing.T) {
	w := newWorld(t)
	at := func(text string) func() time.Time {
		return func() time.Time {
			now, err := time.Parse(time.RFC3339, text)
			if err != nil {
				t.Fatal(err)
			}
			return now
		}
	}
	for _, tc := range []struct {
		name    string
		more    []string
		account mototest.Account
		now     string
	}{
		{"at-once", nil, mototest.Account{MaxSendRate: 14, Max24HourSend: 50_000}, "2026-11-30T06:52:07Z"},
		{"at-eight", []string{EnvDeliverAt, "08:00", EnvTimeZone, "Europe/Berlin", EnvWorkers, "4"}, mototest.Account{MaxSendRate: 200, Max24HourSend: -1}, "2026-11-30T06:52:07Z"},
		{"late", []string{EnvDeliverAt, "08:00", EnvTimeZone, "Europe/Berlin"}, mototest.Account{MaxSendRate: 1, Max24HourSend: 200, Sandbox: true}, "2026-11-30T07:10:00Z"},
		{"own-rate", []string{EnvRatePerSec, "0.01"}, mototest.Account{}, "2026-11-30T06:52:07Z"},
		{"bulk", []string{EnvSender, SenderSESBulk}, mototest.Account{MaxSendRate: 50, Max24HourSend: -1}, "2026-11-30T06:52:07Z"},
	} {
		w.restart(t, tc.more...)
		w.front.SetAccount(tc.account)
		w.now = at(tc.now)
		var event Event
		if err := json.Unmarshal([]byte(`{"schedule":{"bucket":"briefings","key":"part-0.parquet"}}`), &event); err != nil {
			t.Fatal(err)
		}
		plan, err := w.Handle(t.Context(), event)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		golden.JSON(t, "plan-"+tc.name+".json", plan)
	}
	if !strings.Contains(w.said.String(), "sandbox") {
		t.Error("nobody says that the account is in the sandbox")
	}
	w.restart(t)
	w.front.SetAccount(mototest.Account{MaxSendRate: 14, Max24HourSend: 100, Paused: true})
	_, err := w.Handle(t.Context(), Event{Schedule: &object.Ref{Bucket: "b", Key: "k"}})
	var stopped *StoppedError
	if !errors.As(err, &stopped) {
		t.Errorf("a paused account: error %v", err)
	}
	if w.said.counted(t, telemetry.MailStopped) != 1 {
		t.Error("the stop is not counted")
	}
}
