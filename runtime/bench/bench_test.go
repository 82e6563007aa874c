package bench_test

import (
	"testing"
	"time"

	"github.com/briefing-swarm/briefing-swarm/runtime/bench"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine/fake"
)

// TestRun measures the fake model, whose steps all take the same time: then the
// figures follow from the number of steps.
func TestRun(t *testing.T) {
	t.Parallel()
	const step = 2 * time.Millisecond
	w := bench.Workload{Name: "small", PrefixTokens: 40, OwnTokens: 20, OutputTokens: 10, Parallel: 4}
	b := fake.New(fake.Options{Parallel: 8, ContextCells: 4096, StepTime: step})
	r, err := bench.Run(t.Context(), bench.Options{Backend: b, Loops: true, Sequences: []int{1, 8}, Workloads: []bench.Workload{w}, Repeat: 3})
	if err != nil {
		t.Fatal(err)
	}
	c := r.Calibration
	if len(c.Decode) != 2 || c.Decode[1].TokensPerSec < 4*c.Decode[0].TokensPerSec {
		t.Errorf("decode %+v: 8 sequences take as many steps as 1", c.Decode)
	}
	if limit := 1 / step.Seconds(); c.Decode[0].TokensPerSec > limit {
		t.Errorf("decode %v tokens/s, more than a step each", c.Decode[0].TokensPerSec)
	}
	if got := r.Comparisons[0]; got.OverClear < 2 || got.OverClear > 5 || got.ClearSec < 10*step.Seconds() {
		t.Errorf("comparison %+v: 4 sequences at a time save about three quarters", got)
	}
	if c.PeakMemoryBytes < 1<<20 || r.OwnShare < 0 || r.OwnShare > 1 {
		t.Errorf("peak %d bytes, own share %v", c.PeakMemoryBytes, r.OwnShare)
	}
	if n := b.CellsHeld(); n != 0 {
		t.Errorf("%d cells are held afterwards", n)
	}
}
