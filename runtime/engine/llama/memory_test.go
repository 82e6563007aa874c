package llama

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/briefing-swarm/briefing-swarm/internal/demomodel"
	"github.com/briefing-swarm/briefing-swarm/runtime/model"
)

// TestMemoryNeedIsWhatLlamaAllocates compares the model's predicted need with the
// buffers that llama.cpp says it makes for the engine's options.
func TestMemoryNeedIsWhatLlamaAllocates(t *testing.T) {
	path, dir := demomodel.Find(t).Path, demomodel.LibraryDir(t)
	library.log.mu.Lock()
	library.log.all = true
	library.log.mu.Unlock()
	t.Cleanup(func() {
		library.log.mu.Lock()
		library.log.all = false
		library.log.mu.Unlock()
	})
	for _, tc := range []struct{ parallel, context, batch int }{{16, 512, 512}, {1, 2048, 512}, {8, 1000, 256}} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			b, err := Open(Options{LibraryDir: dir, Path: path, Parallel: tc.parallel, ContextPerSequence: tc.context, MaxBatch: tc.batch, ReadWeights: true})
			if err != nil {
				t.Fatal(err)
			}
			said := strings.Join(library.log.take(), "\n")
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			need := b.header.MemoryNeed(model.MemoryOptions{Parallel: tc.parallel, ContextPerSequence: tc.context, MicroBatch: tc.batch})
			if kv := bufferMib(t, said, "KV"); kv != float64(need.KVBytes)/(1<<20) {
				t.Errorf("KV cache of %.2f MiB, predicted %.2f", kv, float64(need.KVBytes)/(1<<20))
			}
			compute := bufferMib(t, said, "compute") + bufferMib(t, said, " output")
			if predicted := float64(need.ComputeBytes) / (1 << 20); predicted < compute || predicted > 1.1*compute {
				t.Errorf("compute and output buffers of %.2f MiB, predicted %.2f", compute, predicted)
			}
		})
	}
}

// bufferMib finds the size of a buffer in llama.cpp's log.
func bufferMib(t *testing.T, said, kind string) float64 {
	t.Helper()
	found := regexp.MustCompile(kind + ` buffer size = +([0-9.]+) MiB`).FindStringSubmatch(said)
	if found == nil {
		t.Fatalf("llama.cpp does not tell its %s buffer any more:\n%s", kind, said)
	}
	mib, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return mib
}
