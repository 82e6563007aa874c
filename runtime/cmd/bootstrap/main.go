// Command bootstrap is what runs inside Lambda: one binary for all functions,
// which SWARM_HANDLER tells apart.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // images without it have no time zones

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdaurl"

	"github.com/briefing-swarm/briefing-swarm/runtime/awsclient"
	"github.com/briefing-swarm/briefing-swarm/runtime/deliver"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine/llama"
	"github.com/briefing-swarm/briefing-swarm/runtime/errortype"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
	"github.com/briefing-swarm/briefing-swarm/runtime/generate"
	"github.com/briefing-swarm/briefing-swarm/runtime/guard"
	"github.com/briefing-swarm/briefing-swarm/runtime/mailout"
	"github.com/briefing-swarm/briefing-swarm/runtime/normalise"
	"github.com/briefing-swarm/briefing-swarm/runtime/object"
	"github.com/briefing-swarm/briefing-swarm/runtime/reconcile"
	"github.com/briefing-swarm/briefing-swarm/runtime/stream"
	"github.com/briefing-swarm/briefing-swarm/runtime/telemetry"
)

// Environment of all handlers.
const (
	envHandler = "SWARM_HANDLER" // required
	envTenant  = "SWARM_TENANT"  // dimension of the metrics
	envLevel   = "SWARM_LOG_LEVEL"
)

// initTime is how long INIT waits for the model: Lambda's limit is 10 s, after
// which all work is done again and paid for twice. Environments that are
// provisioned ahead have 130 s.
const (
	initTime            = 9 * time.Second
	provisionedInitTime = 120 * time.Second
)

func main() { guard.Main(run) }

// run answers invocations until Lambda ends the process. Where it can't begin it
// says why in one line and returns 1.
func run() int {
	p := &process{start: time.Now(), getenv: os.Getenv, out: os.Stdout}
	handler, err := p.handler(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "bootstrap:", strings.Join(strings.Split(err.Error(), "\n"), "; "))
		return 1
	}
	if h, ok := handler.(streaming); ok {
		// Its answer is not to be held back until it is whole, which calling it as a
		// lambda.Handler would do; and its errors are HTTP statuses, without a name.
		lambda.Start(h)
		return 0
	}
	lambda.Start(errortype.Handler(lambda.NewHandlerWithOptions(handler, lambda.WithSetEscapeHTML(false))))
	return 0
}

// streaming is a handler whose answer is sent as it is written.
type streaming func(context.Context, *events.LambdaFunctionURLRequest) (*events.LambdaFunctionURLStreamingResponse, error)

// process is what handlers are made from.
type process struct {
	start  time.Time
	getenv func(string) string
	out    io.Writer
	log    *slog.Logger
	aws    *awsclient.Clients
	model  *generate.Model
}

// handlers by the name that SWARM_HANDLER has.
var handlers = map[string]func(*process, context.Context) (any, error){
	"normalise":   (*process).normalise,
	"generate":    (*process).batch,
	"queue":       (*process).queue,
	"stream":      (*process).stream,
	"reconcile":   (*process).reconcile,
	"deliver":     (*process).deliver,
	"unsubscribe": (*process).unsubscribe,
	"feedback":    (*process).feedback,
}

// handler returns the function that answers events.
func (p *process) handler(ctx context.Context) (any, error) {
	name := p.getenv(envHandler)
	build, ok := handlers[name]
	if !ok {
		var known []string
		for k := range handlers {
			known = append(known, k)
		}
		slices.Sort(known)
		if name == "" {
			return nil, fmt.Errorf("%s is not set: want one of %s", envHandler, strings.Join(known, ", "))
		}
		return nil, fmt.Errorf("%s is %q, want one of %s", envHandler, name, strings.Join(known, ", "))
	}
	p.log = telemetry.NewLogger(p.out, p.getenv(envLevel)).With("handler", name)
	var err error
	if p.aws, err = awsclient.New(ctx); err != nil {
		return nil, err
	}
	return build(p, ctx)
}

func (p *process) normalise(context.Context) (any, error) {
	settings, err := normalise.ReadSettings(p.getenv)
	if err != nil {
		return nil, err
	}
	h := &normalise.Handler{S3: p.aws.S3, Sink: p.sink(settings.Stream), Log: p.log, Settings: settings}
	return h.Handle, nil
}

func (p *process) reconcile(context.Context) (any, error) {
	settings, err := reconcile.ReadSettings(p.getenv)
	if err != nil {
		return nil, err
	}
	h := &reconcile.Handler{S3: p.aws.S3, Log: p.log, Settings: settings}
	return h.Handle, nil
}

func (p *process) batch(ctx context.Context) (any, error) {
	settings, err := p.generateSettings(ctx, generate.Settings.RequireBatch)
	if err != nil {
		return nil, err
	}
	worker, err := p.worker(ctx, settings)
	if err != nil {
		return nil, err
	}
	h := &generate.Batch{Worker: worker, Sink: p.sink(settings.Stream), Meter: p.meter(), Log: p.log}
	return h.Handle, nil
}

func (p *process) queue(ctx context.Context) (any, error) {
	settings, err := p.generateSettings(ctx, generate.Settings.RequireQueue)
	if err != nil {
		return nil, err
	}
	worker, err := p.worker(ctx, settings)
	if err != nil {
		return nil, err
	}
	h := &generate.Queue{
		Worker: worker, DynamoDB: p.aws.DynamoDB, SQS: p.aws.SQS, Table: settings.Table, DeadLetters: settings.DeadLetters,
		KeepFor: settings.KeepFor, Meter: p.meter(), Log: p.log,
	}
	return h.Handle, nil
}

func (p *process) deliver(ctx context.Context) (any, error) {
	settings, err := mailout.ReadSettings(p.getenv, p.reader(ctx))
	if err != nil {
		return nil, err
	}
	h, err := mailout.New(p.aws.DynamoDB, p.aws.SES, settings, p.meter(), p.log)
	if err != nil {
		return nil, err
	}
	return h.Handle, nil
}

func (p *process) unsubscribe(ctx context.Context) (any, error) {
	table := p.getenv(mailout.EnvLedgerTable)
	var missing error
	if table == "" {
		missing = fmt.Errorf("%s is not set: give the name of the sent-ledger's table", mailout.EnvLedgerTable)
	}
	keys, err := mailout.ReadKeys(p.getenv, p.reader(ctx))
	if err := errors.Join(missing, err); err != nil {
		return nil, err
	}
	h := &mailout.Unsubscribe{
		Keys: keys, OptOuts: deliver.NewDynamoOptOuts(p.aws.DynamoDB, table), Brand: p.getenv(mailout.EnvBrand), Meter: p.meter(), Log: p.log,
	}
	return h.Handle, nil
}

func (p *process) feedback(context.Context) (any, error) {
	h := &mailout.Feedback{SES: p.aws.SES, Meter: p.meter(), Log: p.log}
	return h.Handle, nil
}

// reader reads what settings name but do not hold.
func (p *process) reader(ctx context.Context) mailout.Read {
	return mailout.Read{
		Text:   func(url string) (string, error) { return p.text(ctx, url) },
		Secret: func(arn string) (string, error) { return mailout.Secret(ctx, p.aws.SecretsManager, arn) },
	}
}

func (p *process) stream(ctx context.Context) (any, error) {
	settings, err := p.generateSettings(ctx, func(generate.Settings) error { return nil })
	if err != nil {
		return nil, err
	}
	if err := p.load(ctx, settings); err != nil {
		return nil, err
	}
	return streaming(lambdaurl.Wrap(stream.New(p.model, settings.Recipe, engine.Options{Parallel: 1}, p.meter(), p.log))), nil
}

// sink returns what makes the sink of an invocation.
func (p *process) sink(stream string) func(context.Context) gather.Sink {
	f := gather.NewFirehose(p.aws.Firehose, stream, gather.FirehoseOptions{})
	return func(ctx context.Context) gather.Sink { return f.Session(ctx) }
}

func (p *process) meter() *telemetry.Meter {
	return telemetry.NewMeter(p.out, p.getenv(envTenant), p.getenv("AWS_LAMBDA_FUNCTION_NAME"))
}

// generateSettings reads the environment, and texts that lie in S3.
func (p *process) generateSettings(ctx context.Context, require func(generate.Settings) error) (generate.Settings, error) {
	settings, err := generate.ReadSettings(p.getenv, func(url string) (string, error) { return p.text(ctx, url) })
	return settings, errors.Join(err, require(settings))
}

// text reads the object of an s3:// URL.
func (p *process) text(ctx context.Context, url string) (string, error) {
	ref, err := object.ParseRef(url)
	if err != nil {
		return "", err
	}
	return readText(ctx, p.aws, ref)
}

// maxTextBytes bounds a prompt, grammar or template that lies in S3.
const maxTextBytes = 1 << 20

func readText(ctx context.Context, clients *awsclient.Clients, ref object.Ref) (string, error) {
	in, err := object.Open(ctx, clients.S3, ref)
	if err != nil {
		return "", err
	}
	defer in.Close() // opened for reading: nothing to lose
	text, err := io.ReadAll(io.LimitReader(in, maxTextBytes+1))
	if err == nil && len(text) > maxTextBytes {
		err = fmt.Errorf("%s has more than %d bytes", ref, maxTextBytes)
	}
	return string(text), err
}

// worker loads the model and returns a worker for it.
func (p *process) worker(ctx context.Context, s generate.Settings) (*generate.Worker, error) {
	if err := p.load(ctx, s); err != nil {
		return nil, err
	}
	return generate.NewWorker(p.model, s.Recipe, engine.Options{Parallel: s.Parallel}), nil
}

// load starts to load the model and waits for it as long as INIT may take.
func (p *process) load(ctx context.Context, s generate.Settings) error {
	threads := s.Threads
	if threads == 0 {
		threads = engine.Threads(engine.CPUs(runtime.NumCPU()))
	}
	p.model = generate.LoadModel(func() (engine.Backend, error) {
		return llama.Open(llama.Options{
			Path: s.ModelPath, Name: s.Recipe.Model, Parallel: s.Parallel, ContextPerSequence: s.Context, Threads: threads,
			ChatTemplate: s.ChatTemplate, ReadWeights: true,
		})
	})
	limit := initTime
	if p.getenv("AWS_LAMBDA_INITIALIZATION_TYPE") == "provisioned-concurrency" {
		limit = provisionedInitTime
	}
	ctx, cancel := context.WithDeadline(ctx, p.start.Add(limit))
	defer cancel()
	_, err := p.model.Wait(ctx)
	var loading *generate.LoadingError
	if err != nil && !errors.As(err, &loading) {
		return err
	}
	return nil
}
