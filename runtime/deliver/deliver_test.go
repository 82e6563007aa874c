package deliver

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

// scriptedSender hands mails to a function and counts what was sent to whom.
type scriptedSender struct {
	send func(ctx context.Context, message Message) error // nil: all is well

	mu   sync.Mutex
	sent map[string]int // by user
	at   []time.Time
}

func (s *scriptedSender) Send(ctx context.Context, message Message) (string, error) {
	s.mu.Lock()
	s.at = append(s.at, time.Now())
	s.mu.Unlock()
	if s.send != nil {
		if err := s.send(ctx, message); err != nil {
			return "", err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent == nil {
		s.sent = map[string]int{}
	}
	s.sent[message.UserID]++
	return message.ID, nil
}

// manyRows returns n rows that can all be mailed.
func manyRows(n int) []briefing.Row {
	rows := make([]briefing.Row, n)
	for i := range rows {
		rows[i] = briefing.Row{
			RunID: "run-1", UserID: fmt.Sprintf("user-%04d", i), Email: fmt.Sprintf("u%d@example.com", i),
			Status: briefing.StatusOK, Subject: "Hello", Briefing: "Short.", GeneratedAt: morning,
		}
	}
	return rows
}

// sums fails when the counts do not add up to the rows.
func sums(t *testing.T, stats Stats) {
	t.Helper()
	sum := stats.Sent + stats.SkippedFailed + stats.SkippedNoAddress + stats.Already + stats.Unknown + stats.Unsent + stats.FailedTotal()
	if sum != stats.Rows {
		t.Errorf("the counts of %+v add up to %d", stats, sum)
	}
}

// TestDeliverCounts gives every row the fate that its user is named after.
func TestDeliverCounts(t *testing.T) {
	t.Parallel()
	rows := manyRows(12)
	rows[1].Status = briefing.StatusFailed
	rows[2].Email = ""
	rows[3].Email = "not an address"
	rows[4].Briefing = strings.Repeat("x", maxBriefingBytes+1)
	rows[5].UserID = "permanent"
	rows[6].UserID = "temporary"
	rows[7].UserID = "uncertain"
	rows[8].UserID = "untyped"
	rows[9].UserID = rows[0].UserID // twice in the file
	rows[10].UserID = "second try"
	tries := map[string]int{}
	sender := &scriptedSender{send: func(_ context.Context, message Message) error {
		tries[message.UserID]++
		switch message.UserID {
		case "permanent":
			return &SendError{Kind: Permanent, Code: "smtp_550"}
		case "temporary":
			return &SendError{Kind: Temporary, Code: "smtp_451"}
		case "uncertain":
			return &SendError{Kind: Uncertain, Code: CodeUncertain}
		case "untyped":
			return errors.New("who knows")
		case "second try":
			if tries["second try"] == 1 {
				return fmt.Errorf("wrapped: %w", &SendError{Kind: Temporary, Code: "smtp_451"})
			}
		}
		return nil
	}}
	results := map[string]string{}
	ledger := testLedger(t)
	stats, err := Deliver(t.Context(), rowsOf(rows), Options{
		Composer: testComposer(t, nil), Sender: sender, Ledger: ledger,
		Workers: 1, MaxAttempts: 3, RetryDelay: time.Millisecond,
		OnOutcome: func(o Outcome) {
			results[o.UserID] += strings.TrimSpace(string(o.Result)+" "+o.Code) + ";"
			if o.RunID != "run-1" || o.Time.IsZero() || (o.Result == Sent) != (o.MessageID != "") {
				t.Errorf("outcome %+v", o)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Stats{
		Rows: 12, Sent: 3, SkippedFailed: 1, SkippedNoAddress: 1, Already: 1, Unknown: 2,
		Failed: map[string]int{CodeAddress: 1, CodeTooLong: 1, "smtp_550": 1, "smtp_451": 1},
	}
	if diff := cmp.Diff(want, stats); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	sums(t, stats)
	wantResults := map[string]string{
		"user-0001": "skipped_failed;", "user-0002": "skipped_no_address;", "user-0003": "failed address_invalid;",
		"user-0004": "failed " + CodeTooLong + ";", "permanent": "failed smtp_550;", "temporary": "failed smtp_451;",
		"uncertain": "unknown smtp_uncertain;", "untyped": "unknown untyped_error;", "second try": "sent;", "user-0011": "sent;",
	}
	first := results["user-0000"]
	delete(results, "user-0000")
	if first != "sent;already;" && first != "already;sent;" {
		t.Errorf("the user who is there twice: %s", first)
	}
	if diff := cmp.Diff(wantResults, results); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if tries["temporary"] != 3 || tries["permanent"] != 1 || tries["uncertain"] != 1 || tries["untyped"] != 1 || tries["second try"] != 2 {
		t.Errorf("tries %v", tries)
	}
	// Whoever certainly got nothing can be mailed by a later run; who may have got it cannot.
	if sent, open, err := ledger.Counts(); sent != 3 || open != 2 || err != nil {
		t.Errorf("ledger: %d sent, %d open, %v, want 3 and 2", sent, open, err)
	}
}

func TestDeliverTwiceSendsOnce(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/ledger"
	sender := &scriptedSender{}
	rows := manyRows(200)
	for i, want := range []Stats{{Rows: 200, Sent: 200}, {Rows: 200, Already: 200}, {Rows: 200, Sent: 200}} {
		if i == 2 { // another run mails the same users again
			for j := range rows {
				rows[j].RunID = "run-2"
			}
		}
		ledger, err := OpenFileLedger(path)
		if err != nil {
			t.Fatal(err)
		}
		stats, err := Deliver(t.Context(), rowsOf(rows), Options{Composer: testComposer(t, nil), Sender: sender, Ledger: ledger})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, stats); diff != "" {
			t.Errorf("delivery %d: stats (-want +got):\n%s", i+1, diff)
		}
		if err := ledger.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for user, n := range sender.sent {
		if n != 2 {
			t.Errorf("%s got %d mails, want one for each run", user, n)
		}
	}
}

// TestClaimedBeforeIsNeverSent plays a process that claimed and vanished.
func TestClaimedBeforeIsNeverSent(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/ledger"
	rows := manyRows(10)
	dead, err := OpenFileLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dead.Claim(t.Context(), []Key{{"run-1", rows[3].UserID}, {"run-1", rows[7].UserID}}); err != nil {
		t.Fatal(err)
	}
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	sender := &scriptedSender{}
	for i, want := range []Stats{{Rows: 10, Sent: 8, Unknown: 2}, {Rows: 10, Already: 8, Unknown: 2}} {
		ledger, err := OpenFileLedger(path)
		if err != nil {
			t.Fatal(err)
		}
		stats, err := Deliver(t.Context(), rowsOf(rows), Options{Composer: testComposer(t, nil), Sender: sender, Ledger: ledger})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, stats); diff != "" {
			t.Errorf("delivery %d: stats (-want +got):\n%s", i+1, diff)
		}
		ledger.Close()
	}
	if sender.sent[rows[3].UserID] != 0 || sender.sent[rows[7].UserID] != 0 {
		t.Error("a mail of unknown fate was sent")
	}
}

// TestCancelAndResume ends a delivery at several points; the next one sends the
// rest, and everybody gets one mail.
func TestCancelAndResume(t *testing.T) {
	t.Parallel()
	for _, after := range []int{1, 50, 64, 65, 173} {
		t.Run(fmt.Sprintf("after %d", after), func(t *testing.T) {
			t.Parallel()
			path := t.TempDir() + "/ledger"
			rows := manyRows(300)
			sender := &scriptedSender{}
			deliver := func(ctx context.Context) (Stats, error) {
				ledger, err := OpenFileLedger(path)
				if err != nil {
					t.Fatal(err)
				}
				defer ledger.Close()
				return Deliver(ctx, rowsOf(rows), Options{Composer: testComposer(t, nil), Sender: sender, Ledger: ledger})
			}
			ctx, cancel := context.WithCancel(t.Context())
			sender.send = func(context.Context, Message) error {
				sender.mu.Lock()
				defer sender.mu.Unlock()
				if len(sender.at) >= after {
					cancel()
				}
				return nil
			}
			first, err := deliver(ctx)
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("error %v, want canceled", err)
			}
			sums(t, first)
			if first.Sent < after || first.Sent > after+8 || first.Unknown != 0 || first.FailedTotal() != 0 {
				t.Errorf("stats %+v after a cancel at mail %d", first, after)
			}
			sender.send = nil
			second, err := deliver(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Stats{Rows: 300, Sent: 300 - first.Sent, Already: first.Sent}, second); diff != "" {
				t.Errorf("stats of the second delivery (-want +got):\n%s", diff)
			}
			for _, row := range rows {
				if n := sender.sent[row.UserID]; n != 1 {
					t.Errorf("%s got %d mails", row.UserID, n)
				}
			}
		})
	}
}

// TestRate looks at the times of the attempts, retries included.
func TestRate(t *testing.T) {
	t.Parallel()
	const perSec, attempts = 100, 41
	sender := &scriptedSender{send: func(_ context.Context, message Message) error {
		if message.UserID == "user-0005" {
			return &SendError{Kind: Temporary, Code: "smtp_451"}
		}
		return nil
	}}
	stats, err := Deliver(t.Context(), rowsOf(manyRows(attempts-2)), Options{
		Composer: testComposer(t, nil), Sender: sender, Workers: 8, Pace: NewPace(perSec), MaxAttempts: 3, RetryDelay: time.Millisecond,
	})
	if err != nil || stats.Sent != attempts-3 {
		t.Fatalf("stats %+v, %v", stats, err)
	}
	if len(sender.at) != attempts {
		t.Fatalf("%d attempts, want %d", len(sender.at), attempts)
	}
	took := sender.at[attempts-1].Sub(sender.at[0])
	if earliest := (attempts - 1) * time.Second / perSec; took < earliest-paceDebt {
		t.Errorf("%d attempts took %v, at %d per second it is at least %v", attempts, took, perSec, earliest)
	}
}

// TestRateAndDeadline has a deadline that comes before the next mail is due:
// the run ends with an error, not with rows that look like all there were.
func TestRateAndDeadline(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stats, err := Deliver(ctx, rowsOf(manyRows(3)), Options{
		Composer: testComposer(t, nil), Sender: &scriptedSender{}, Pace: NewPace(0.01), Workers: 1,
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want that the deadline is exceeded", err)
	}
	if stats.Sent != 1 || stats.Unsent != stats.Rows-1 {
		t.Errorf("stats %+v", stats)
	}
}

func TestDeliverStops(t *testing.T) {
	t.Parallel()
	failAll := func(err error) func(context.Context, Message) error {
		return func(context.Context, Message) error { return err }
	}
	broken := errors.New("file is cut short")
	for _, tc := range []struct {
		name   string
		rows   iter.Seq2[briefing.Row, error]
		send   func(context.Context, Message) error
		ledger Ledger
		want   string
		check  func(t *testing.T, stats Stats)
	}{
		{"rows cannot be read", func(yield func(briefing.Row, error) bool) {
			for _, row := range manyRows(70) {
				if !yield(row, nil) {
					return
				}
			}
			yield(briefing.Row{}, broken)
		}, nil, nil, "read rows: file is cut short", func(t *testing.T, stats Stats) {
			if stats.Rows != 70 || stats.Sent+stats.Unsent != 70 {
				t.Errorf("stats %+v", stats)
			}
		}},
		{"fatal", rowsOf(manyRows(500)), failAll(&SendError{Kind: Fatal, Code: CodeAuth}), nil, CodeAuth, func(t *testing.T, stats Stats) {
			if stats.Sent != 0 || stats.Unsent != stats.Rows {
				t.Errorf("stats %+v", stats)
			}
		}},
		{"all fail", rowsOf(manyRows(500)), failAll(&SendError{Kind: Permanent, Code: "smtp_550"}), nil, "the last 20 mails all failed, the last one with smtp_550", func(t *testing.T, stats Stats) {
			if got := stats.Failed["smtp_550"]; got < 20 || got > 300 {
				t.Errorf("%d failed before the run stopped", got)
			}
		}},
		{"ledger cannot claim", rowsOf(manyRows(500)), nil, brokenLedger{claim: errors.New("disk full")}, "disk full", func(t *testing.T, stats Stats) {
			if stats.Sent != 0 || stats.Unsent != stats.Rows {
				t.Errorf("stats %+v", stats)
			}
		}},
		{"ledger cannot confirm", rowsOf(manyRows(500)), nil, brokenLedger{settle: errors.New("disk full")}, "disk full", func(t *testing.T, stats Stats) {
			// Sent without a record is what the next run sees as unknown.
			if stats.Sent != 0 || stats.Unknown == 0 {
				t.Errorf("stats %+v", stats)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			stats, err := Deliver(t.Context(), tc.rows, Options{
				Composer: testComposer(t, nil), Sender: &scriptedSender{send: tc.send}, Ledger: tc.ledger, MaxFailedInRow: 20,
			})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			holdsNobody(t, err)
			sums(t, stats)
			tc.check(t, stats)
		})
	}
	if _, err := Deliver(t.Context(), rowsOf(nil), Options{}); err == nil {
		t.Error("Deliver takes options without Composer and Sender")
	}
}

// TestBadAddressesDoNotStopTheRun: faults of rows say nothing about the server.
func TestBadAddressesDoNotStopTheRun(t *testing.T) {
	t.Parallel()
	rows := manyRows(60)
	for i := range rows[:50] {
		rows[i].Email = "nobody"
	}
	stats, err := Deliver(t.Context(), rowsOf(rows), Options{
		Composer: testComposer(t, nil), Sender: &scriptedSender{}, MaxFailedInRow: 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Stats{Rows: 60, Sent: 10, Failed: map[string]int{CodeAddress: 50}}, stats); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}

// brokenLedger claims all and fails where it is told to.
type brokenLedger struct{ claim, settle error }

func (b brokenLedger) Claim(_ context.Context, keys []Key) ([]Claim, error) {
	claims := make([]Claim, len(keys))
	for i := range claims {
		claims[i] = Claimed
	}
	return claims, b.claim
}

func (b brokenLedger) Retake(ctx context.Context, keys []Key) ([]Claim, error) {
	return b.Claim(ctx, keys)
}

func (b brokenLedger) Look(ctx context.Context, keys []Key) ([]Claim, error) {
	return b.Claim(ctx, keys)
}

func (b brokenLedger) Settle(context.Context, []Receipt, []Key) error { return b.settle }
