package pipelinetest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/briefing-swarm/briefing-swarm/internal/demomodel"
	"github.com/briefing-swarm/briefing-swarm/internal/llamalib"
	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/internal/pipelinetest"
	"github.com/briefing-swarm/briefing-swarm/internal/rietest"
)

// TestPipelineUnderEmulator is the whole way of a run with nothing of ours left
// out: the real program under Lambda's runtime interface emulator, three workers
// with the real model, the real SDK against moto, and every tenth call to AWS
// failing in one way or another. Ten seeds in a row, everyone is accounted for.
func TestPipelineUnderEmulator(t *testing.T) {
	if os.Getenv("SWARM_E2E") == "" {
		t.Skip("set SWARM_E2E=1 to run the pipeline under the emulator; `make e2e` does")
	}
	const (
		seeds   = 10
		workers = 3
		share   = 0.1
	)
	server := mototest.Start(t)
	clients := mototest.Clients(t, server.URL)
	pipelinetest.Setup(t, clients)
	mototest.LedgerTable(t, clients, "ledger")
	mototest.Sender(t, clients, "desk@briefings.example")
	front := mototest.NewFront(t, server)

	program := rietest.Program(t, "./runtime/cmd/bootstrap", "")
	options := func(handler string) rietest.Options {
		o := rietest.Options{Bootstrap: program}
		for _, set := range []map[string]string{mototest.Env(front.URL), pipelinetest.Env(handler)} {
			for name, value := range set {
				o.Env = append(o.Env, name+"="+value)
			}
		}
		o.Env = append(o.Env, "SWARM_MODEL="+demomodel.Find(t).Path, "SWARM_LLAMA_LIB="+llamalib.Dir(t, runtime.GOARCH),
			"SWARM_THREADS=1", "SWARM_PARALLEL=4", "SWARM_CONTEXT_TOKENS=512", "SWARM_MAX_TOKENS=8")
		return o
	}
	functions := map[string][]*rietest.Instance{
		"normalise": {rietest.Start(t, options("normalise"))},
		"reconcile": {rietest.Start(t, options("reconcile"))},
		"deliver":   {rietest.Start(t, options("deliver"))},
		"generate":  rietest.NewPool(t, workers, options("generate")).Instances(),
	}
	invoke := func(ctx context.Context, handler string, worker int, event []byte) ([]byte, error) {
		r, err := functions[handler][worker].TryInvoke(ctx, json.RawMessage(event))
		if err != nil {
			return nil, err
		}
		return r.Body, r.Err()
	}

	faults := 0
	for seed := range uint64(seeds) {
		front.FailAtRandom(seed, share)
		start := time.Now()
		outcome := pipelinetest.Run{
			ID: fmt.Sprintf("seed-%d", seed), Users: 24, Faulty: 2, BatchSize: 4, Workers: workers, Invoke: invoke, Clients: clients, Ledger: "ledger",
		}.Do(t)
		for _, n := range front.Faults() {
			faults += n
		}
		t.Logf("seed %d: %.1f s, faults %v, %d invocations made again, %d mails, %d unknown",
			seed, time.Since(start).Seconds(), front.Faults(), outcome.Retries, outcome.Mail.Sent, outcome.Mail.Unknown)
		if t.Failed() {
			break
		}
	}
	if faults < seeds {
		t.Errorf("%d calls failed in %d runs: the front let too much through to prove anything", faults, seeds)
	}
	if t.Failed() {
		for name, instances := range functions {
			for _, i := range instances {
				t.Logf("%s said:\n%s", name, tail(i.Log(), 4000))
			}
		}
	}
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }
