// Package pipelinetest sends a file of users through the handlers as the run's
// state machine does, against the emulated services, and checks that everyone is
// accounted for. How a handler is called is up to the test: in its own process,
// or in Lambda's Runtime Interface Emulator.
package pipelinetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/parquet-go/parquet-go"
	"golang.org/x/sync/errgroup"

	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/runtime/awsclient"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/generate"
	"github.com/briefing-swarm/briefing-swarm/runtime/mailout"
	"github.com/briefing-swarm/briefing-swarm/runtime/normalise"
	"github.com/briefing-swarm/briefing-swarm/runtime/reconcile"
	"github.com/briefing-swarm/briefing-swarm/runtime/span"
)

// Names of what Setup makes.
const (
	InputBucket  = "inputs"
	RunsBucket   = "runs"
	OutputBucket = "briefings"
	Stream       = "rows"
	rawPrefix    = "raw/"
	parquetPath  = "briefings/"
)

// Setup makes the buckets and the stream.
func Setup(t testing.TB, c *awsclient.Clients) {
	t.Helper()
	for _, name := range []string{InputBucket, RunsBucket, OutputBucket} {
		mototest.Bucket(t, c, name)
	}
	mototest.Stream(t, c, Stream, OutputBucket, rawPrefix)
}

// Env is the environment of a handler, beside that of the model and of
// mototest.Env.
func Env(handler string) map[string]string {
	return map[string]string{
		"SWARM_HANDLER": handler, "SWARM_TENANT": "acme", "SWARM_RUNS_BUCKET": RunsBucket, "SWARM_FIREHOSE_STREAM": Stream,
		"SWARM_BRIEFINGS_BUCKET": OutputBucket, "SWARM_BRIEFINGS_PREFIX": parquetPath, "SWARM_USD_PER_RECORD": "0.00016",
		mailout.EnvLedgerTable: "ledger", mailout.EnvFrom: "Desk <desk@briefings.example>", mailout.EnvRatePerSec: "200",
	}
}

// Run is one run of the pipeline.
type Run struct {
	ID string
	// Users is the number of good records. As many rows of each kind of fault
	// are among them as Faulty says.
	Users, Faulty int
	BatchSize     int
	// Workers is how many batches run at a time. Invoke is called with the
	// worker's number, from 0.
	Workers int
	Invoke  func(ctx context.Context, handler string, worker int, event []byte) ([]byte, error)
	// Clients are not those of the functions: they must not fail.
	Clients *awsclient.Clients
	// Attempts is how often a state is tried, as its Retry says. Default 5.
	Attempts int
	// Ledger is the table of the sent-ledger; "" leaves the mail out.
	Ledger string
}

// Outcome is what came of a run.
type Outcome struct {
	Normalised normalise.Result
	Receipts   []generate.Receipt
	Manifest   reconcile.Manifest
	Mail       mailout.Receipt // of all batches together
	Retries    int             // invocations that failed and were made again
}

// input is the file of the run: good users, and rows that are none.
func (r Run) input() []byte {
	var b bytes.Buffer
	b.WriteString("user_id,email,name,locale,city,weather\n")
	for i := range r.Users {
		fmt.Fprintf(&b, "%s-u%d,u%d@example.com,User %d,en,\"City %d, north\",%s\n", r.ID, i, i, i, i, []string{"rain", "sun", "fog"}[i%3])
	}
	for i := range r.Faulty {
		fmt.Fprintf(&b, "%s-bad%d,no address,Bad %d,en,Nowhere,rain\n", r.ID, i, i)
		fmt.Fprintf(&b, "%s-u%d,twice@example.com,Twice,en,Nowhere,rain\n", r.ID, i)
		fmt.Fprintf(&b, ",nobody@example.com,Nobody %d,en,Nowhere,rain\n", i)
	}
	return b.Bytes()
}

// Do runs the pipeline and checks what came out of it. The checks do not rely on
// what the handlers say of themselves: they read what lies in the buckets.
func (r Run) Do(t testing.TB) Outcome {
	t.Helper()
	if r.Attempts == 0 {
		r.Attempts = 5
	}
	var o Outcome
	key := "inputs/" + r.ID + ".csv"
	mototest.Put(t, r.Clients, InputBucket, key, r.input())
	r.call(t, &o, "normalise", map[string]any{"run_id": r.ID, "bucket": InputBucket, "key": key}, &o.Normalised)
	if n := o.Normalised; n.Records != int64(r.Users) || n.Rejected != int64(3*r.Faulty) || n.FailedRows != int64(r.Faulty) {
		t.Errorf("run %s: %d records, %d rejected, %d rows of rejected users", r.ID, n.Records, n.Rejected, n.FailedRows)
	}
	r.generate(t, &o)
	mototest.ConvertToParquet(t, r.Clients, OutputBucket, rawPrefix, parquetPath)
	r.call(t, &o, "reconcile", map[string]any{"run_id": r.ID}, &o.Manifest)
	r.check(t, o)
	if r.Ledger != "" {
		r.deliver(t, &o)
	}
	return o
}

// call invokes a handler until it succeeds, as a state with a Retry does.
func (r Run) call(t testing.TB, o *Outcome, handler string, event, result any) {
	t.Helper()
	text, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	retries, err := r.attempt(t.Context(), handler, 0, text, result)
	o.Retries += retries
	if err != nil {
		t.Fatalf("run %s: %s: %v", r.ID, handler, err)
	}
}

func (r Run) attempt(ctx context.Context, handler string, worker int, event []byte, result any) (retries int, err error) {
	var faults []error
	for n := range r.Attempts {
		answer, err := r.Invoke(ctx, handler, worker, event)
		if err == nil {
			return n, json.Unmarshal(answer, result)
		}
		faults = append(faults, err)
		time.Sleep(100 * time.Millisecond)
	}
	return r.Attempts, errors.Join(faults...)
}

// generate is the Distributed Map: batches of lines, each called again with what
// remains of it.
func (r Run) generate(t testing.TB, o *Outcome) {
	t.Helper()
	lines := bytes.Split(bytes.TrimSpace(mototest.Get(t, r.Clients, RunsBucket, o.Normalised.Normalised.Key)), []byte("\n"))
	type batch struct {
		BatchInput generate.BatchInput
		Items      []json.RawMessage
		Remaining  []span.Span `json:"remaining,omitempty"`
	}
	batches := make(chan batch, len(lines))
	for from := 0; from < len(lines); from += r.BatchSize {
		b := batch{BatchInput: generate.BatchInput{RunID: r.ID}}
		for _, line := range lines[from:min(from+r.BatchSize, len(lines))] {
			b.Items = append(b.Items, line)
		}
		batches <- b
	}
	close(batches)
	receipts := make(chan generate.Receipt, 100*len(lines))
	retried := make(chan int, 100*len(lines))
	group, ctx := errgroup.WithContext(t.Context())
	for worker := range r.Workers {
		group.Go(func() error {
			for b := range batches {
				for {
					event, err := json.Marshal(b)
					if err != nil {
						return err
					}
					var raw json.RawMessage
					retries, err := r.attempt(ctx, "generate", worker, event, &raw)
					retried <- retries
					if err != nil {
						return err
					}
					var receipt generate.Receipt
					if err := json.Unmarshal(raw, &receipt); err != nil {
						return err
					}
					if len(raw) > generate.MaxReceiptBytes {
						return fmt.Errorf("receipt of %d bytes", len(raw))
					}
					receipts <- receipt
					if receipt.RemainingItems == 0 {
						break
					}
					b.Remaining = receipt.Remaining
				}
			}
			return nil
		})
	}
	err := group.Wait()
	close(receipts)
	close(retried)
	if err != nil {
		t.Fatalf("run %s: generate: %v", r.ID, err)
	}
	for receipt := range receipts {
		o.Receipts = append(o.Receipts, receipt)
	}
	for n := range retried {
		o.Retries += n
	}
}

// deliver mails the rows of all Parquet objects, one object after the other, as
// the delivery's state machine does: it plans, then calls each batch again with
// what remains of it. Whoever has two rows gets one mail.
func (r Run) deliver(t testing.TB, o *Outcome) {
	t.Helper()
	rows := 0
	for _, key := range mototest.Keys(t, r.Clients, OutputBucket, parquetPath) {
		items := r.items(t, key)
		if len(items) == 0 {
			continue
		}
		var plan mailout.Plan
		r.call(t, o, "deliver", map[string]any{"schedule": map[string]string{"bucket": OutputBucket, "key": key}}, &plan)
		for from := 0; from < len(items); from += r.BatchSize {
			batch := items[from:min(from+r.BatchSize, len(items))]
			rows += len(batch)
			r.mail(t, o, map[string]any{"BatchInput": map[string]string{"bucket": OutputBucket, "key": key}, "Items": batch})
		}
	}
	m := o.Mail
	if sum := m.Sent + m.AlreadySent + m.Skipped + m.Failed + m.Unknown; sum != rows || m.Sent+m.Unknown < r.Users || m.Sent > r.Users || m.Failed > 0 {
		t.Errorf("run %s: %d rows of %d users, the receipts say %+v", r.ID, rows, r.Users, m)
	}
	r.checkLedger(t, m)
}

// items returns a Parquet object's rows of this run as the map's reader makes
// them.
func (r Run) items(t testing.TB, key string) []map[string]any {
	t.Helper()
	body := mototest.Get(t, r.Clients, OutputBucket, key)
	type row struct {
		RunID    *string `parquet:"run_id,optional" json:"run_id"`
		UserID   *string `parquet:"user_id,optional" json:"user_id"`
		Email    *string `parquet:"email,optional" json:"email"`
		Name     *string `parquet:"name,optional" json:"name"`
		Locale   *string `parquet:"locale,optional" json:"locale"`
		Status   *string `parquet:"status,optional" json:"status"`
		Subject  *string `parquet:"subject,optional" json:"subject"`
		Briefing *string `parquet:"briefing,optional" json:"briefing"`
	}
	all, err := parquet.Read[row](bytes.NewReader(body), int64(len(body)))
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	var items []map[string]any
	for _, one := range all {
		if one.RunID == nil || *one.RunID != r.ID {
			continue
		}
		items = append(items, map[string]any{
			"run_id": one.RunID, "user_id": one.UserID, "email": one.Email, "name": one.Name, "locale": one.Locale, "status": one.Status,
			"subject": one.Subject, "briefing": one.Briefing, "generated_at": "2026-11-30T07:50:00.000Z",
		})
	}
	return items
}

// mail calls the handler for one batch until nothing remains.
func (r Run) mail(t testing.TB, o *Outcome, event map[string]any) {
	t.Helper()
	for {
		var receipt mailout.Receipt
		r.call(t, o, "deliver", event, &receipt)
		o.Mail.Sent += receipt.Sent
		o.Mail.AlreadySent += receipt.AlreadySent
		o.Mail.Skipped += receipt.Skipped
		o.Mail.Failed += receipt.Failed
		o.Mail.Unknown += receipt.Unknown
		if receipt.RemainingItems == 0 {
			return
		}
		event["remaining"] = receipt.Remaining
	}
}

// checkLedger holds the receipts against the table.
func (r Run) checkLedger(t testing.TB, m mailout.Receipt) {
	t.Helper()
	condition := "run_id = :run"
	out, err := r.Clients.DynamoDB.Query(t.Context(), &dynamodb.QueryInput{
		TableName: &r.Ledger, KeyConditionExpression: &condition,
		ExpressionAttributeValues: map[string]types.AttributeValue{":run": &types.AttributeValueMemberS{Value: r.ID}},
	})
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]int{}
	for _, item := range out.Items {
		if state, ok := item["state"].(*types.AttributeValueMemberS); ok {
			states[state.Value]++
		}
	}
	if states["sent"]+states["claimed"] != r.Users || states["claimed"] > m.Unknown {
		t.Errorf("run %s: the ledger has %v for %d users, the receipts say %+v", r.ID, states, r.Users, m)
	}
}

// check compares the Parquet objects with the input, and the manifest with both.
func (r Run) check(t testing.TB, o Outcome) {
	t.Helper()
	type row struct {
		RunID    string `parquet:"run_id"`
		UserID   string `parquet:"user_id"`
		Status   string `parquet:"status"`
		Briefing string `parquet:"briefing"`
	}
	ok, failed, rows := map[string]bool{}, map[string]bool{}, 0
	for _, key := range mototest.Keys(t, r.Clients, OutputBucket, parquetPath) {
		body := mototest.Get(t, r.Clients, OutputBucket, key)
		all, err := parquet.Read[row](bytes.NewReader(body), int64(len(body)))
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		for _, one := range all {
			if one.RunID != r.ID {
				continue
			}
			rows++
			switch {
			case one.Status == briefing.StatusOK && one.Briefing != "":
				ok[one.UserID] = true
			case one.Status == briefing.StatusFailed:
				failed[one.UserID] = true
			default:
				t.Errorf("run %s: user %s has the status %q and the text %q", r.ID, one.UserID, one.Status, one.Briefing)
			}
		}
	}
	for i := range r.Users {
		if id := fmt.Sprintf("%s-u%d", r.ID, i); !ok[id] {
			t.Errorf("run %s: user %s has no briefing", r.ID, id)
		}
	}
	for i := range r.Faulty {
		if id := fmt.Sprintf("%s-bad%d", r.ID, i); !failed[id] {
			t.Errorf("run %s: rejected user %s has no row", r.ID, id)
		}
	}
	if len(ok) != r.Users || len(failed) != r.Faulty {
		t.Errorf("run %s: %d users are ok and %d failed, want %d and %d", r.ID, len(ok), len(failed), r.Users, r.Faulty)
	}
	c := o.Manifest.Counts
	if !o.Manifest.Complete || c.OK != int64(len(ok)) || c.Failed != int64(len(failed)) || c.Missing != 0 || c.Unexpected != 0 ||
		c.Duplicate != int64(rows-len(ok)-len(failed)) || o.Manifest.RerunCount != 0 {
		t.Errorf("run %s: %d rows, but the manifest says %+v", r.ID, rows, c)
	}
}
