package rietest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/briefing-swarm/briefing-swarm/internal/demomodel"
	"github.com/briefing-swarm/briefing-swarm/internal/llamalib"
	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/internal/rootfs"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/model"
)

// worker returns the options of the real program with the real model, whose rows
// go to the stand-in.
func worker(t *testing.T, goarch string, gatherer *mototest.Gatherer, env ...string) Options {
	t.Helper()
	o := Options{Bootstrap: Program(t, "./runtime/cmd/bootstrap", goarch)}
	libs := runtime.GOARCH
	if goarch != "" {
		libs = goarch
	}
	o.Env = append(gatherer.Env(), "SWARM_HANDLER=generate", "SWARM_THREADS=1",
		"SWARM_MODEL="+demomodel.Find(t).Path, "SWARM_LLAMA_LIB="+llamalib.Dir(t, libs))
	o.Env = append(o.Env, env...)
	return o
}

// batchEvent is one batch of n users.
func batchEvent(n int) map[string]any {
	var items []map[string]string
	for k := range n {
		items = append(items, map[string]string{
			"user_id": fmt.Sprint("u", k), "name": "Ada", "city": []string{"Lisbon", "Oslo", "Quito"}[k%3], "plan": fmt.Sprint("free ", k),
		})
	}
	return map[string]any{"BatchInput": map[string]string{"run_id": "r1"}, "Items": items}
}

type receipt struct {
	OK, Failed  int
	LoadSeconds float64 `json:"load_seconds"`
	Seconds     float64
}

func generate(t *testing.T, i *Instance, users int) receipt {
	t.Helper()
	r := i.Invoke(t.Context(), batchEvent(users))
	if err := r.Err(); err != nil {
		t.Fatalf("%v; the function said:\n%s", err, i.Log())
	}
	var got receipt
	if err := json.Unmarshal(r.Body, &got); err != nil {
		t.Fatal(err)
	}
	if got.OK != users || got.Failed != 0 {
		t.Errorf("receipt %s, want %d ok; the function said:\n%s", r.Body, users, i.Log())
	}
	return got
}

// TestWorkerPeakMemory: the memory that 'swarm model inspect' predicts has to
// hold a worker that is full, and not be far beyond.
func TestWorkerPeakMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("peak memory is read from /proc")
	}
	const parallel, context = 8, 512
	gatherer := mototest.StartGatherer(t)
	i := Start(t, worker(t, "", gatherer, fmt.Sprint("SWARM_PARALLEL=", parallel), fmt.Sprint("SWARM_CONTEXT_TOKENS=", context), "SWARM_MAX_TOKENS=24"))
	start := time.Now()
	cold := generate(t, i, parallel)
	t.Logf("cold start with %d users: %.1f s, model load %.2f s", parallel, time.Since(start).Seconds(), cold.LoadSeconds)
	if cold.LoadSeconds <= 0 {
		t.Error("a cold start reports no load time")
	}
	if warm := generate(t, i, 2*parallel); warm.LoadSeconds != 0 {
		t.Errorf("a warm start reports a load time of %v s", warm.LoadSeconds)
	}
	header, err := model.Open(demomodel.Find(t).Path)
	if err != nil {
		t.Fatal(err)
	}
	cpu, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	need := header.MemoryNeed(model.MemoryOptions{
		Parallel: parallel, ContextPerSequence: context, Arch: map[string]string{"amd64": "x86_64", "arm64": "arm64"}[runtime.GOARCH],
		AMX: bytes.Contains(cpu, []byte(" amx_int8")),
	})
	peak := i.PeakMemoryBytes()
	t.Logf("peak memory %.1f MiB, predicted %.1f MiB; memory to set %d MiB", mib(peak), mib(need.PeakBytes), need.MinMemoryMib())
	if off := float64(peak)/float64(need.PeakBytes) - 1; off < -0.1 || off > 0.1 {
		t.Errorf("the worker peaked at %.1f MiB, predicted were %.1f MiB: %+.0f%%, want within 10%%", mib(peak), mib(need.PeakBytes), 100*off)
	}
	if peak > int64(need.MinMemoryMib())<<20 {
		t.Errorf("the worker peaked at %.1f MiB, above the %d MiB it is said to need", mib(peak), need.MinMemoryMib())
	}
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// TestWorkerOnGraviton2 runs the ARM64 program on an emulated Neoverse N1, which
// is Graviton2's core: the variant of llama.cpp for ARMv8.2 with dot product and
// half floats is the one that has to be loaded, by its own choice.
func TestWorkerOnGraviton2(t *testing.T) {
	env := rootfs.ARM64(t)
	if env == nil {
		t.Skip("on a real ARM64 machine its own processor decides")
	}
	gatherer := mototest.StartGatherer(t)
	// Emulation is some thirty times slower: a short prompt, few tokens.
	o := worker(t, "arm64", gatherer, append(env, "SWARM_PARALLEL=2", "SWARM_CONTEXT_TOKENS=512", "SWARM_MAX_TOKENS=4", "SWARM_SYSTEM_PROMPT=Say hello.")...)
	i := Start(t, o)
	start := time.Now()
	got := generate(t, i, 2)
	t.Logf("emulated cold start with 2 users: %.1f s, model load %.2f s", time.Since(start).Seconds(), got.LoadSeconds)
	i.WaitLog(`"variant":"armv8.2_2"`)
	rows := gatherer.Rows()
	if len(rows) != 2 {
		t.Fatalf("%d rows, want 2", len(rows))
	}
	for _, row := range rows {
		if row.Status != briefing.StatusOK || row.Briefing == "" || row.CompletionTokens < 1 {
			t.Errorf("row of %s: status %s, %d tokens, %s", row.UserID, row.Status, row.CompletionTokens, row.ErrorMessage)
		}
	}
}

// TestWorkerHandsBackWhatItHasNoTimeFor: a batch that can't be done in time comes back as remaining
// before Lambda's own end, and the process lives on.
func TestWorkerHandsBackWhatItHasNoTimeFor(t *testing.T) {
	gatherer := mototest.StartGatherer(t)
	o := worker(t, "", gatherer, "SWARM_PARALLEL=2", "SWARM_CONTEXT_TOKENS=1024", "SWARM_MAX_TOKENS=200")
	o.TimeoutSec = 15
	i := Start(t, o)
	const users = 200
	r := i.Invoke(t.Context(), batchEvent(users))
	if err := r.Err(); err != nil {
		t.Fatalf("%v; the function said:\n%s", err, i.Log())
	}
	var got struct {
		OK, Failed     int
		RemainingItems int `json:"remaining_items"`
	}
	if err := json.Unmarshal(r.Body, &got); err != nil {
		t.Fatal(err)
	}
	if got.RemainingItems < 1 || got.OK+got.Failed+got.RemainingItems != users {
		t.Errorf("receipt %s: want all %d users accounted for, some of them remaining", r.Body, users)
	}
	if rows := len(gatherer.Rows()); rows != got.OK+got.Failed {
		t.Errorf("%d rows, the receipt says %d", rows, got.OK+got.Failed)
	}
}

// TestWorkerWithoutItsModel: the process ends at once, with one line.
func TestWorkerWithoutItsModel(t *testing.T) {
	gatherer := mototest.StartGatherer(t)
	o := worker(t, "", gatherer, "SWARM_MODEL=/nowhere/model.gguf")
	i := Start(t, o)
	r, err := i.TryInvoke(t.Context(), batchEvent(1))
	if err == nil && r.Err() == nil {
		t.Errorf("answered %s", r.Body)
	}
	i.WaitLog("model file /nowhere/model.gguf does not exist")
}
