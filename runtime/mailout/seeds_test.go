package mailout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/runtime/awsclient"
	"github.com/briefing-swarm/briefing-swarm/runtime/telemetry"
)

// childEnv makes the test binary play one invocation of the deliver handler.
const childEnv = "SWARM_MAILOUT_CHILD"

// TestMain lets the test binary be the process that is killed.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		if err := child(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// answer is what a child says.
type answer struct {
	Receipt   Receipt
	ErrorType string
	Error     string
}

func child(in io.Reader, out io.Writer) error {
	var event Event
	if err := json.NewDecoder(in).Decode(&event); err != nil {
		return err
	}
	settings, err := ReadSettings(os.Getenv, Read{})
	if err != nil {
		return err
	}
	clients, err := awsclient.New(context.Background())
	if err != nil {
		return err
	}
	h, err := New(clients.DynamoDB, clients.SES, settings, telemetry.NewMeter(io.Discard, "acme", "deliver"), telemetry.NewLogger(os.Stderr, "INFO"))
	if err != nil {
		return err
	}
	h.retry = 20 * time.Millisecond
	result, err := h.Handle(context.Background(), event)
	var a answer
	if err != nil {
		a.ErrorType, a.Error = fmt.Sprintf("%T", err), err.Error()
	} else {
		a.Receipt = result.(Receipt)
	}
	return json.NewEncoder(out).Encode(a)
}

// testRow is a row as the map's Parquet reader may hand it over.
type testRow map[string]any

// seedRows are the users of one file: most get a mail, some must not.
func seedRows(run string, users int) []testRow {
	rows := make([]testRow, users)
	for i := range rows {
		rows[i] = testRow{
			"run_id": run, "user_id": fmt.Sprintf("user-%02d", i), "email": fmt.Sprintf("u%d@example.com", i), "name": fmt.Sprint("User ", i), "locale": "en",
			"status": "ok", "subject": "Hello", "briefing": "Short.", "generated_at": "2026-11-30T07:00:00.000Z", "attributes": nil, "prompt_tokens": 12,
		}
		switch i % 12 {
		case 3:
			rows[i]["status"], rows[i]["briefing"] = "failed", nil
		case 5:
			rows[i]["email"] = ""
		case 7:
			rows[i]["email"] = "not an address"
		case 9:
			rows[i]["email"] = rows[i-1]["email"] // two users, one address
			rows[i]["subject"] = "Second"
		}
	}
	return rows
}

// TestSeeds mails a file twenty times, with each of: throttles, errors, answers
// that get lost, refusals within a bulk, and processes that are killed at any
// point. Every other seed two executions mail the same file at the same time.
// Nobody gets two mails, and everybody is accounted for.
func TestSeeds(t *testing.T) {
	if testing.Short() {
		t.Skip("twenty runs in processes that are killed take a while: left out by -short")
	}
	front := mototest.NewFront(t, mototest.Start(t))
	clients := mototest.Clients(t, front.URL)
	mototest.Sender(t, clients, "briefings.example")
	mototest.Sender(t, clients, "desk@briefings.example")
	var all seedCounts
	for seed := range uint64(20) {
		run := &seedRun{t: t, front: front, clients: clients, seed: seed, rng: rand.New(rand.NewPCG(seed, 7)), run: fmt.Sprint("seed-", seed)}
		c := run.do()
		t.Logf("seed %d: %+v, faults %v", seed, c, front.Faults())
		all.kills += c.kills
		all.unknown += c.unknown
		all.retries += c.retries
		if t.Failed() {
			t.FailNow()
		}
	}
	if all.kills < 20 || all.unknown == 0 || all.retries == 0 {
		t.Errorf("%+v in all: too few to show anything", all)
	}
}

type seedCounts struct{ users, mails, kills, retries, unknown, failed int }

// seedRun is the delivery of one file.
type seedRun struct {
	t       *testing.T
	front   *mototest.Front
	clients *awsclient.Clients
	seed    uint64
	run     string

	mu    sync.Mutex // of all below
	rng   *rand.Rand
	kills int
	child map[*exec.Cmd]bool
}

func (s *seedRun) random(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

func (s *seedRun) do() seedCounts {
	const users, batchSize = 36, 12
	t := s.t
	table := "ledger-" + s.run
	s.front.Fail(nil)
	mototest.LedgerTable(t, s.clients, table)
	rows := seedRows(s.run, users)
	optOuts := newOptOuts(s.clients, table)
	for _, user := range []string{"user-01", "user-25"} {
		if err := optOuts.Add(t.Context(), user); err != nil {
			t.Fatal(err)
		}
	}
	before := len(s.front.Mails())
	s.child = map[*exec.Cmd]bool{}
	s.misbehave()

	executions := 1 + int(s.seed%2)
	receipts := make([][]Receipt, executions)
	var retries int
	var group sync.WaitGroup
	for e := range executions {
		group.Go(func() {
			for from := 0; from < users; from += batchSize {
				got, n := s.batch(table, rows[from:from+batchSize])
				s.mu.Lock()
				receipts[e] = append(receipts[e], got...)
				retries += n
				s.mu.Unlock()
			}
		})
	}
	group.Wait()
	s.front.Fail(nil)

	c := seedCounts{users: users, kills: s.kills, retries: retries}
	mails := map[string]int{} // by address and subject, which is one user
	for _, m := range s.front.Mails()[before:] {
		subject := m.Subject
		if bytes.Contains(m.Raw, []byte("Subject: Second\r\n")) {
			subject = "Second"
		} else if len(m.Raw) > 0 {
			subject = "Hello"
		}
		mails[m.To.Address+" "+subject]++
		c.mails++
	}
	for who, n := range mails {
		if n > 1 {
			t.Errorf("seed %d: %s got %d mails", s.seed, who, n)
		}
	}
	s.account(rows, table, mails, &c)
	for e, list := range receipts {
		sum := Receipt{}
		for _, r := range list {
			sum.Sent += r.Sent
			sum.AlreadySent += r.AlreadySent
			sum.Skipped += r.Skipped
			sum.Failed += r.Failed
			sum.Unknown += r.Unknown
		}
		if total := sum.Sent + sum.AlreadySent + sum.Skipped + sum.Failed + sum.Unknown; total != users {
			t.Errorf("seed %d, execution %d: the receipts account for %d of %d users: %+v", s.seed, e, total, users, list)
		}
	}
	return c
}

// account holds what each user got against what the ledger says.
func (s *seedRun) account(rows []testRow, table string, mails map[string]int, c *seedCounts) {
	s.t.Helper()
	state := map[string]string{}
	out, err := s.clients.DynamoDB.Query(s.t.Context(), &dynamodb.QueryInput{
		TableName: &table, KeyConditionExpression: ptr("run_id = :run"),
		ExpressionAttributeValues: map[string]dynamotypes.AttributeValue{":run": &dynamotypes.AttributeValueMemberS{Value: s.run}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, item := range out.Items {
		state[item["user_id"].(*dynamotypes.AttributeValueMemberS).Value] = item["state"].(*dynamotypes.AttributeValueMemberS).Value
	}
	for i, row := range rows {
		user := fmt.Sprint(row["user_id"])
		got := mails[fmt.Sprint(row["email"], " ", row["subject"])]
		mailable := row["status"] == "ok" && strings.Contains(fmt.Sprint(row["email"]), "@") && user != "user-01" && user != "user-25"
		switch {
		case !mailable:
			if got != 0 && i%12 != 8 {
				s.t.Errorf("seed %d: %s got a mail", s.seed, user)
			}
			if state[user] != "" {
				s.t.Errorf("seed %d: %s must get no mail and is %s in the ledger", s.seed, user, state[user])
			}
		case state[user] == "sent" && got != 1:
			s.t.Errorf("seed %d: %s is recorded as sent and got %d mails", s.seed, user, got)
		case state[user] == "claimed":
			c.unknown++
		case state[user] == "" && got != 0:
			s.t.Errorf("seed %d: %s got a mail that the ledger does not know", s.seed, user)
		case state[user] == "":
			c.failed++
		}
	}
}

// misbehave makes the services fail and processes die, by the seed.
func (s *seedRun) misbehave() {
	faults := []mototest.Fault{mototest.Throttle, mototest.ServerError, mototest.CutBefore, mototest.CutAfter, mototest.CutBody}
	s.front.Fail(func(c mototest.Call) mototest.Fault {
		if c.Operation == "Query" || c.Service != "ses" && c.Service != "dynamodb" {
			return mototest.None
		}
		roll := s.random(1000)
		switch {
		case roll < 20 && c.Operation != "GetAccount":
			// The call is done all the same, and nobody hears the answer.
			s.kill()
			return mototest.CutAfter
		case roll < 30:
			s.kill()
			return mototest.CutBefore
		case roll < 100:
			if c.Operation == "SendBulkEmail" && s.random(2) == 0 {
				return mototest.Partial
			}
			return faults[s.random(len(faults))]
		}
		return mototest.None
	})
}

// kill ends one of the processes that run now.
func (s *seedRun) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for cmd := range s.child {
		if cmd.Process.Kill() == nil {
			s.kills++
		}
		delete(s.child, cmd)
		return
	}
}

// batch calls the handler as the map's child does: again after an error that may
// pass or a process that died, and with what remains.
func (s *seedRun) batch(table string, rows []testRow) (receipts []Receipt, retries int) {
	event := map[string]any{"BatchInput": map[string]any{"bucket": "briefings", "key": "part-0.parquet"}, "Items": rows}
	for range 60 {
		a, err := s.invoke(table, event)
		switch {
		case err != nil:
			retries++
		case a.ErrorType == "*mailout.ThrottledError":
			retries++
		case a.ErrorType != "":
			s.t.Errorf("seed %d: %s: %s", s.seed, a.ErrorType, a.Error)
			return receipts, retries
		default:
			receipts = append(receipts, a.Receipt)
			if a.Receipt.RemainingItems == 0 {
				return receipts, retries
			}
			event["remaining"] = a.Receipt.Remaining
		}
	}
	s.t.Errorf("seed %d: a batch does not come to an end", s.seed)
	return receipts, retries
}

// invoke runs one invocation in a process of its own. The error says that the
// process died.
func (s *seedRun) invoke(table string, event any) (a answer, err error) {
	text, err := json.Marshal(event)
	if err != nil {
		s.t.Fatal(err)
	}
	sender := []string{SenderSES, SenderSESBulk}[s.seed/2%2]
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1", EnvLedgerTable+"="+table, EnvFrom+"=Desk <desk@briefings.example>", EnvSender+"="+sender, EnvRatePerSec+"=25")
	for _, name := range slices.Sorted(maps.Keys(mototest.Env(s.front.URL))) {
		cmd.Env = append(cmd.Env, name+"="+mototest.Env(s.front.URL)[name])
	}
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), &out, &said
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	s.child[cmd] = true
	s.mu.Unlock()
	err = cmd.Wait()
	s.mu.Lock()
	delete(s.child, cmd)
	s.mu.Unlock()
	if strings.Contains(said.String(), "@example.com") {
		s.t.Errorf("a log line holds an address: %s", said.String())
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		s.t.Fatalf("the handler could not begin: %s", said.String())
	}
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(out.Bytes(), &a)
}

func ptr[T any](v T) *T { return &v }
