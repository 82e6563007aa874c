package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/briefing-swarm/briefing-swarm/internal/demomodel"
	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/internal/pipelinetest"
)

// function makes a handler as a cold start of its function does.
func function(t testing.TB, env map[string]string, out io.Writer) lambda.Handler {
	t.Helper()
	p := &process{start: time.Now(), getenv: func(k string) string { return env[k] }, out: out}
	f, err := p.handler(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lambda.NewHandlerWithOptions(f, lambda.WithSetEscapeHTML(false))
}

// TestPipeline sends files through all handlers with a real model, while a tenth of
// the calls to AWS fails in some way. The pipeline under the runtime interface
// emulator does the same with ten seeds, in processes of their own.
func TestPipeline(t *testing.T) {
	const (
		workers = 3
		seeds   = 4
	)
	server := mototest.Start(t)
	front := mototest.NewFront(t, server)
	safe := mototest.Clients(t, server.URL)
	pipelinetest.Setup(t, safe)
	mototest.Clients(t, front.URL) // from here on, the environment is the functions'
	model := demomodel.Find(t).Path
	logs := &countingLog{t: t}
	env := func(handler string) map[string]string {
		env := pipelinetest.Env(handler)
		env["SWARM_MODEL"], env["SWARM_THREADS"], env["SWARM_MAX_TOKENS"], env["SWARM_PARALLEL"] = model, "1", "8", "4"
		return env
	}
	mototest.LedgerTable(t, safe, "ledger")
	mototest.Sender(t, safe, "desk@briefings.example")
	functions := map[string]lambda.Handler{
		"normalise": function(t, env("normalise"), logs), "reconcile": function(t, env("reconcile"), logs), "deliver": function(t, env("deliver"), logs),
	}
	for i := range workers {
		functions[fmt.Sprint("generate", i)] = function(t, env("generate"), logs)
	}
	invoke := func(ctx context.Context, handler string, worker int, event []byte) ([]byte, error) {
		f, ok := functions[handler]
		if !ok {
			f = functions[fmt.Sprint(handler, worker)]
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return f.Invoke(lambdacontext.NewContext(ctx, &lambdacontext.LambdaContext{AwsRequestID: fmt.Sprint(handler, "-request")}), event)
	}
	all := 0
	for seed := range uint64(seeds) {
		front.FailAtRandom(seed, 0.1)
		o := pipelinetest.Run{
			ID: fmt.Sprint("seed-", seed), Users: 14, Faulty: 2, BatchSize: 3, Workers: workers, Invoke: invoke, Clients: safe, Ledger: "ledger",
		}.Do(t)
		faults := 0
		for _, n := range front.Faults() {
			faults += n
		}
		all += faults
		t.Logf("seed %d: %d faults %v, %d invocations made again, %d duplicate rows, %d mails, %d unknown", seed, faults, front.Faults(), o.Retries, o.Manifest.Counts.Duplicate, o.Mail.Sent, o.Mail.Unknown)
	}
	if all < 2*seeds {
		t.Errorf("%d calls failed in %d runs: too few to show anything", all, seeds)
	}
	if logs.metrics == 0 || logs.loads != workers {
		t.Errorf("%d lines of metrics, %d of %d models told their load time", logs.metrics, logs.loads, workers)
	}
}

// countingLog takes the lines of all functions and checks that they are JSON
// without personal data.
type countingLog struct {
	t              testing.TB
	mu             sync.Mutex
	metrics, loads int
}

func (l *countingLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		l.t.Errorf("a line is no JSON: %s", line)
	}
	if strings.Contains(string(line), "@example.com") || strings.Contains(string(line), "City ") {
		l.t.Errorf("a line holds personal data: %s", line)
	}
	if _, ok := fields["_aws"]; ok {
		l.metrics++
	}
	if fields["message"] == "model loaded" {
		l.loads++
	}
	return len(line), nil
}
