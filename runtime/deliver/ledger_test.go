package deliver

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
)

// ledgers opens sessions of each kind of Ledger. open ends the session before,
// as a process that dies does; later is true for one long after that.
func ledgers(t *testing.T) map[string]func(t *testing.T) (open func(later bool) Ledger) {
	server := mototest.Start(t)
	clients := mototest.Clients(t, server.URL)
	tables := 0
	return map[string]func(t *testing.T) func(bool) Ledger{
		"file": func(t *testing.T) func(bool) Ledger {
			path := filepath.Join(t.TempDir(), "ledger")
			var last *FileLedger
			t.Cleanup(func() { last.Close() })
			return func(bool) Ledger {
				if last != nil {
					last.Close()
				}
				last = openLedger(t, path)
				return last
			}
		},
		"dynamodb": func(t *testing.T) func(bool) Ledger {
			tables++
			table := fmt.Sprint("ledger-", tables)
			mototest.LedgerTable(t, clients, table)
			return func(later bool) Ledger {
				l := NewDynamoLedger(clients.DynamoDB, table, time.Hour)
				if later {
					l.now = func() time.Time { return time.Now().Add(ClaimLife + time.Minute) }
				}
				return l
			}
		},
	}
}

// TestLedgers holds every Ledger to the contract.
func TestLedgers(t *testing.T) {
	for kind, start := range ledgers(t) {
		t.Run(kind, func(t *testing.T) {
			for name, test := range map[string]func(*testing.T, func(bool) Ledger){
				"states": ledgerStates, "sessions": ledgerSessions, "retake": ledgerRetake, "side by side": ledgerSideBySide, "odd keys": ledgerOddKeys,
			} {
				t.Run(name, func(t *testing.T) { test(t, start(t)) })
			}
		})
	}
}

// answers fails unless the ledger gives these answers.
func answers(t *testing.T, what string, ask func(context.Context, []Key) ([]Claim, error), keys []Key, want ...Claim) {
	t.Helper()
	got, err := ask(t.Context(), keys)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func ledgerStates(t *testing.T, open func(bool) Ledger) {
	ledger := open(false)
	a, b, c := Key{"r", "a"}, Key{"r", "b"}, Key{"r", "c"}
	answers(t, "look at nothing", ledger.Look, []Key{a, b}, Claimed, Claimed)
	answers(t, "new", ledger.Claim, []Key{a, b, a, c}, Claimed, Claimed, AlreadyClaimed, Claimed)
	answers(t, "look at claims", ledger.Look, []Key{a, {"other", "a"}}, AlreadyClaimed, Claimed)
	for range 2 { // settling again does no harm
		if err := ledger.Settle(t.Context(), []Receipt{{a, "id", morning}}, []Key{b}); err != nil {
			t.Fatal(err)
		}
	}
	answers(t, "settled", ledger.Claim, []Key{a, b, c, {"other", "a"}}, AlreadySent, Claimed, AlreadyClaimed, Claimed)
	answers(t, "look at all", ledger.Look, []Key{a, b, c}, AlreadySent, AlreadyClaimed, AlreadyClaimed)
	answers(t, "none", ledger.Claim, nil)
	if err := ledger.Settle(t.Context(), []Receipt{{Key{"r", "x"}, "", morning}}, nil); err == nil {
		t.Error("a mail was confirmed that nobody claimed")
	}
	if err := ledger.Settle(t.Context(), nil, []Key{a}); err == nil {
		t.Error("a mail was released that was sent")
	}
	answers(t, "in the end", ledger.Look, []Key{a, {"r", "x"}}, AlreadySent, Claimed)
}

func ledgerSessions(t *testing.T, open func(bool) Ledger) {
	a, b, c := Key{"r", "a"}, Key{"r", "b"}, Key{"r", "c"}
	first := open(false)
	answers(t, "first", first.Claim, []Key{a, b, c}, Claimed, Claimed, Claimed)
	if err := first.Settle(t.Context(), []Receipt{{a, "id", morning}}, []Key{c}); err != nil {
		t.Fatal(err)
	}
	second := open(true)
	answers(t, "second", second.Claim, []Key{a, b, c, b}, AlreadySent, Unknown, Claimed, Unknown)
	if err := second.Settle(t.Context(), []Receipt{{b, "", morning}}, nil); err == nil {
		t.Error("another session's claim was confirmed")
	}
	if err := second.Settle(t.Context(), nil, []Key{b}); err == nil {
		t.Error("another session's claim was released")
	}
	answers(t, "untouched", second.Look, []Key{b}, Unknown)
}

func ledgerRetake(t *testing.T, open func(bool) Ledger) {
	a, b, c := Key{"r", "a"}, Key{"r", "b"}, Key{"r", "c"}
	first := open(false)
	answers(t, "first", first.Claim, []Key{a, b}, Claimed, Claimed)
	if err := first.Settle(t.Context(), []Receipt{{a, "id", morning}}, nil); err != nil {
		t.Fatal(err)
	}
	operator := open(true)
	answers(t, "operator", operator.Retake, []Key{a, b, c, b}, AlreadySent, Claimed, Claimed, AlreadyClaimed)
	answers(t, "again", operator.Retake, []Key{b}, AlreadyClaimed)
	if err := operator.Settle(t.Context(), []Receipt{{b, "id", morning}, {c, "id", morning}}, nil); err != nil {
		t.Fatal(err)
	}
	answers(t, "in the end", open(true).Retake, []Key{a, b, c}, AlreadySent, AlreadySent, AlreadySent)
}

// ledgerSideBySide lets many workers ask for the same mails.
func ledgerSideBySide(t *testing.T, open func(bool) Ledger) {
	ledger := open(false)
	var mu sync.Mutex
	got := map[Key]int{}
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range 6 {
				keys := []Key{{"r", fmt.Sprint(i)}, {"r", fmt.Sprint(i + 1)}}
				claims, err := ledger.Claim(context.Background(), keys)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for n, key := range keys {
					if claims[n] == Claimed {
						got[key]++
					}
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	if len(got) != 7 {
		t.Errorf("%d keys were claimed, want 7", len(got))
	}
	for key, n := range got {
		if n != 1 {
			t.Errorf("%v was given out %d times", key, n)
		}
	}
}

// ledgerOddKeys uses ids that a store may not take, or mix up.
func ledgerOddKeys(t *testing.T, open func(bool) Ledger) {
	ledger := open(false)
	ids := []string{
		"", "a", "A", " a", "a ", "é", "e\u0301", "\x00", "\xff", "\xfe", "\ufffd", "#", "#opt-out", "#sha256:", keyText(""), "a@example.com", "日本", strings.Repeat("x", 1024),
		strings.Repeat("x", 1025), strings.Repeat("x", 1026), strings.Repeat("y", 5000),
	}
	var keys []Key
	var claimed, sent []Claim
	var receipts []Receipt
	for _, run := range []string{"r", "#opt-out"} {
		for _, id := range ids {
			key := Key{run, id}
			keys, claimed, sent = append(keys, key), append(claimed, Claimed), append(sent, AlreadySent)
			receipts = append(receipts, Receipt{key, "id", morning})
		}
	}
	answers(t, "odd ids", ledger.Claim, keys, claimed...)
	if err := ledger.Settle(t.Context(), receipts, nil); err != nil {
		t.Fatal(err)
	}
	answers(t, "odd ids again", open(true).Claim, keys, sent...)
}

// TestRetakeLeavesTheLiving: a claim that is young may be about to be sent.
func TestRetakeLeavesTheLiving(t *testing.T) {
	server := mototest.Start(t)
	clients := mototest.Clients(t, server.URL)
	mototest.LedgerTable(t, clients, "ledger")
	worker := NewDynamoLedger(clients.DynamoDB, "ledger", time.Hour)
	answers(t, "worker", worker.Claim, []Key{{"r", "a"}}, Claimed)
	operator := NewDynamoLedger(clients.DynamoDB, "ledger", time.Hour)
	answers(t, "young", operator.Retake, []Key{{"r", "a"}}, Unknown)
	operator.now = func() time.Time { return time.Now().Add(ClaimLife + time.Second) }
	second := NewDynamoLedger(clients.DynamoDB, "ledger", time.Hour)
	second.now = operator.now
	answers(t, "old", operator.Retake, []Key{{"r", "a"}}, Claimed)
	answers(t, "a second operator", second.Retake, []Key{{"r", "a"}}, Unknown)
	if err := worker.Settle(t.Context(), []Receipt{{Key{"r", "a"}, "id", morning}}, nil); err == nil {
		t.Error("the worker confirmed a claim that it has lost")
	}
}

// TestDynamoLedgerThroughFaults has a third of all calls fail in some way. A put
// that was done although its answer got lost is our own.
func TestDynamoLedgerThroughFaults(t *testing.T) {
	server := mototest.Start(t)
	front := mototest.NewFront(t, server)
	clients := mototest.Clients(t, front.URL)
	mototest.LedgerTable(t, clients, "ledger")
	front.FailAtRandom(1, 0.3)
	ledger := NewDynamoLedger(clients.DynamoDB, "ledger", time.Hour)
	var keys []Key
	var want []Claim
	for i := range 40 {
		keys, want = append(keys, Key{"r", fmt.Sprint(i)}), append(want, Claimed)
	}
	answers(t, "claim", ledger.Claim, keys, want...)
	var receipts []Receipt
	for _, key := range keys[:20] {
		receipts = append(receipts, Receipt{key, "id", morning})
	}
	if err := ledger.Settle(t.Context(), receipts, keys[20:]); err != nil {
		t.Fatal(err)
	}
	for i := range keys[:20] {
		want[i] = AlreadySent
	}
	front.Fail(nil)
	answers(t, "in the end", NewDynamoLedger(clients.DynamoDB, "ledger", time.Hour).Look, keys, want...)
}

// TestDynamoLedgerGivesBack: where a call cannot claim all, nothing stays claimed.
func TestDynamoLedgerGivesBack(t *testing.T) {
	server := mototest.Start(t)
	front := mototest.NewFront(t, server)
	clients := mototest.Clients(t, front.URL)
	mototest.LedgerTable(t, clients, "ledger")
	keys := []Key{{"r", "a"}, {"r", "b"}, {"r", "c"}, {"r", "d"}}
	front.Fail(func(c mototest.Call) mototest.Fault {
		switch {
		case c.Operation == "PutItem" && c.N == 2:
			return mototest.Denied
		case c.Operation == "PutItem" && c.N == 1:
			return mototest.CutAfter
		}
		return mototest.None
	})
	if _, err := NewDynamoLedger(clients.DynamoDB, "ledger", time.Hour).Claim(t.Context(), keys); err == nil {
		t.Fatal("a claim that was refused is no error")
	}
	front.Fail(nil)
	answers(t, "afterwards", NewDynamoLedger(clients.DynamoDB, "ledger", time.Hour).Look, keys, Claimed, Claimed, Claimed, Claimed)
}

func TestOptOuts(t *testing.T) {
	server := mototest.Start(t)
	clients := mototest.Clients(t, server.URL)
	mototest.LedgerTable(t, clients, "ledger")
	stored := NewDynamoOptOuts(clients.DynamoDB, "ledger")
	gone := []string{"user-7", "user-104", "#odd", strings.Repeat("long", 500)}
	for _, id := range gone {
		if err := stored.Add(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	listed, err := ReadOptOuts(strings.NewReader(strings.Join(gone, "\r\n") + "\n\n"))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range 250 {
		ids = append(ids, fmt.Sprint("user-", i))
	}
	ids = append(append(ids, gone...), "user-7", "")
	want := make([]bool, len(ids))
	for i, id := range ids {
		for _, other := range gone {
			want[i] = want[i] || id == other
		}
	}
	for name, list := range map[string]Suppressed{"dynamodb": stored, "file": listed} {
		got, err := list.Suppressed(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	// Who unsubscribed is no entry of a run, not even of one with that name.
	ledger := NewDynamoLedger(clients.DynamoDB, "ledger", time.Hour)
	answers(t, "a run of that name", ledger.Look, []Key{{optOutRun, "user-7"}}, Claimed)
}
