package states_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/parquet-go/parquet-go"

	"github.com/briefing-swarm/briefing-swarm/component/states"
	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/internal/statestest"
	"github.com/briefing-swarm/briefing-swarm/runtime/awsclient"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine/fake"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
	"github.com/briefing-swarm/briefing-swarm/runtime/generate"
	"github.com/briefing-swarm/briefing-swarm/runtime/normalise"
	"github.com/briefing-swarm/briefing-swarm/runtime/recipe"
	"github.com/briefing-swarm/briefing-swarm/runtime/reconcile"
	"github.com/briefing-swarm/briefing-swarm/runtime/telemetry"
)

// Buckets and the table of all tests.
const (
	inputBucket  = "inputs"
	runsBucket   = "runs"
	outputBucket = "briefings"
	claims       = "claims"
)

// prepared makes what both machines need in an account.
func prepared(t *testing.T, a *statestest.Account) (*statestest.Account, *awsclient.Clients) {
	t.Helper()
	c := mototest.Clients(t, a.URL)
	for _, bucket := range []string{inputBucket, runsBucket, outputBucket} {
		mototest.Bucket(t, c, bucket)
	}
	mototest.Table(t, c, claims, states.ClaimKey)
	return a, c
}

// world is the run machine of one test, with the real handlers of its functions
// and a model that is none. Rows lie in memory until reconcile is called, which
// is when the stand-in for Firehose writes them as Parquet.
type world struct {
	t       *testing.T
	account *statestest.Account
	clients *awsclient.Clients
	name    string
	machine string

	// handlers are the functions, by the ending of their names.
	handlers map[string]lambda.Handler

	mu    sync.Mutex
	rows  []briefing.Row
	calls map[string]int
	// refuse loses the rows for which it returns true.
	refuse func(row briefing.Row) bool
	// before is called before each call of a handler, with its event and how
	// often that function was called before. Its error is the function's.
	before map[string]func(event []byte, n int) error
	// hold keeps rows back at the first so many calls of reconcile.
	hold int
}

// newWorld makes the functions and the machine of a test. The machine can be
// changed before it is made.
func newWorld(t *testing.T, a *statestest.Account, c *awsclient.Clients, change func(*states.Run)) *world {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	w := &world{t: t, account: a, clients: c, name: name, handlers: map[string]lambda.Handler{}, calls: map[string]int{}, before: map[string]func([]byte, int) error{}}
	r := states.Run{
		NormaliseFunction: statestest.FunctionARN(name + "-n"), GenerateFunction: statestest.FunctionARN(name + "-g"),
		ReconcileFunction: statestest.FunctionARN(name + "-r"), NormaliseTimeoutSec: 60, GenerateTimeoutSec: 60, ReconcileTimeoutSec: 60,
		ClaimsTable: claims, RunsBucket: runsBucket, MaxConcurrency: 4, MaxItemsPerBatch: 4, BufferSec: 1, SettleSec: 1, ReconcileAttempts: 3,
		TopicArn: statestest.TopicARN(name),
	}
	if change != nil {
		change(&r)
	}
	document, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	w.machine = a.Machine(t, name, document)

	template, err := briefing.ParseTemplate("You are short.", "Note: {{.note}}")
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	sink := func(context.Context) gather.Sink { return &memorySink{world: w} }
	normaliser := &normalise.Handler{S3: c.S3, Sink: sink, Log: quiet, Settings: normalise.Settings{
		RunsBucket: runsBucket, ModelName: "fake", USDPerRecord: 0.01, SecPerRecord: 1, CeilingUSD: 1, TempDir: t.TempDir(),
	}}
	generator := &generate.Batch{
		Worker: generate.NewWorker(generate.LoadModel(func() (engine.Backend, error) { return fake.New(fake.Options{Words: 1 << 30}), nil }),
			recipe.Recipe{Model: "fake", Template: template, MaxTokens: 5}, engine.Options{Parallel: 2}),
		Sink: sink, Meter: telemetry.NewMeter(new(bytes.Buffer), "acme", "generate"), Log: quiet,
	}
	reconciler := &reconcile.Handler{S3: c.S3, Log: quiet, Settings: reconcile.Settings{
		RunsBucket: runsBucket, BriefingsBucket: outputBucket, BriefingsPrefix: name + "/", TempDir: t.TempDir(),
	}}
	var generating sync.Mutex // a function's environment has one call at a time
	w.function("n", normaliser.Handle)
	w.function("g", func(ctx context.Context, event generate.BatchEvent) (generate.Receipt, error) {
		generating.Lock()
		defer generating.Unlock()
		return generator.Handle(ctx, event)
	})
	w.function("r", func(ctx context.Context, event reconcile.Event) (reconcile.Manifest, error) {
		w.firehose(ctx)
		return reconciler.Handle(ctx, event)
	})
	return w
}

// function makes a handler the function with that ending.
func (w *world) function(ending string, handle any) {
	handler := lambda.NewHandlerWithOptions(handle, lambda.WithSetEscapeHTML(false))
	w.handlers[ending] = handler
	w.account.Function(w.t, w.name+"-"+ending, func(ctx context.Context, event []byte) ([]byte, error) {
		w.mu.Lock()
		n, before := w.calls[ending], w.before[ending]
		w.calls[ending]++
		w.mu.Unlock()
		if before != nil {
			if err := before(event, n); err != nil {
				return nil, err
			}
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return handler.Invoke(ctx, event)
	})
}

func (w *world) called(ending string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[ending]
}

// firehose writes the rows that have come as a Parquet object.
func (w *world) firehose(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hold > 0 {
		w.hold--
		return
	}
	if len(w.rows) == 0 {
		return
	}
	var b bytes.Buffer
	if err := parquet.Write(&b, w.rows); err != nil {
		w.t.Error(err)
	}
	mototest.Put(w.t, w.clients, outputBucket, fmt.Sprintf("%s/%d.parquet", w.name, time.Now().UnixNano()), b.Bytes())
	w.rows = nil
}

// memorySink passes rows to its world.
type memorySink struct {
	*world
	n    int
	lost []int
}

func (s *memorySink) Write(rows ...briefing.Row) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, row := range rows {
		if s.refuse != nil && s.refuse(row) {
			s.lost = append(s.lost, s.n)
		} else {
			s.rows = append(s.rows, row)
		}
		s.n++
	}
	return nil
}

func (s *memorySink) FlushDue() error { return nil }
func (s *memorySink) Pending() int    { return len(s.lost) }

func (s *memorySink) Flush() error {
	if len(s.lost) > 0 {
		return &gather.UndeliveredError{Rows: s.lost, Throttled: true, Err: fmt.Errorf("%d rows", len(s.lost))}
	}
	return nil
}

// input puts a file of n users and returns its key.
func (w *world) input(n int) string {
	var b bytes.Buffer
	b.WriteString("user_id,email,note\n")
	for i := range n {
		fmt.Fprintf(&b, "%s-%02d,u%d@example.com,note %d\n", w.name, i, i, i)
	}
	key := "inputs/" + w.name + ".csv"
	mototest.Put(w.t, w.clients, inputBucket, key, b.Bytes())
	return key
}

// put writes a file of input.
func (w *world) put(key, text string) {
	w.t.Helper()
	mototest.Put(w.t, w.clients, inputBucket, key, []byte(text))
}

// run runs an execution, whose name is the run's id.
func (w *world) run(name string, input map[string]any) statestest.Execution {
	w.t.Helper()
	return w.account.Run(w.t, w.machine, w.name+"-"+name, input)
}

// claim returns the claim of an object as it lies in the table.
func (w *world) claim(bucket, key, version string) map[string]string {
	w.t.Helper()
	table := claims
	out, err := w.clients.DynamoDB.GetItem(w.t.Context(), &dynamodb.GetItemInput{
		TableName: &table, Key: map[string]dynamotypes.AttributeValue{
			states.ClaimKey: &dynamotypes.AttributeValueMemberS{Value: bucket + "#" + key + "#" + version},
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	claim := map[string]string{}
	for name, value := range out.Item {
		claim[name] = value.(*dynamotypes.AttributeValueMemberS).Value
	}
	return claim
}

// manifest returns that of a run, as it lies in the bucket.
func (w *world) manifest(name string) (m reconcile.Manifest) {
	w.t.Helper()
	if err := json.Unmarshal(mototest.Get(w.t, w.clients, runsBucket, normalise.RunPrefix(w.name+"-"+name)+reconcile.ManifestName), &m); err != nil {
		w.t.Fatal(err)
	}
	return m
}

// told returns the outcomes that the topic was told.
func (w *world) told() (outcomes []string) {
	w.t.Helper()
	for _, message := range w.account.Messages(w.name) {
		var outcome struct{ State string }
		if err := json.Unmarshal([]byte(message.Text), &outcome); err != nil {
			w.t.Fatalf("message %s: %v", message.Text, err)
		}
		if want := "Briefings: run " + outcome.State; message.Subject != want {
			w.t.Errorf("the subject is %q, want %q", message.Subject, want)
		}
		outcomes = append(outcomes, outcome.State)
	}
	return outcomes
}

// ended checks how an execution ended, and what its claim and the topic say. The
// error may be one with the beginning of its cause, after a colon.
func (w *world) ended(e statestest.Execution, status, err string, claim map[string]string, state string) {
	w.t.Helper()
	name, cause, _ := strings.Cut(err, ": ")
	if e.Status != status || e.Error != name || !strings.HasPrefix(e.Cause, cause) {
		w.t.Errorf("%s ended as %s with %q (%s) after %s, want %s with %q", e.Name, e.Status, e.Error, e.Cause, strings.Join(e.States, ", "), status, err)
	}
	if claim["state"] != state || claim["run_id"] != e.Name {
		w.t.Errorf("the claim is %v, want the state %s and the run %s", claim, state, e.Name)
	}
	if told := w.told(); !slices.Equal(told[max(0, len(told)-1):], []string{state}) {
		w.t.Errorf("the topic was told %q, want %s at last", told, state)
	}
}
