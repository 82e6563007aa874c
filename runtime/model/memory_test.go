package model

import "testing"

// TestMemoryNeed compares with the buffers that llama.cpp v0.4.0 reported
// when it loaded files of these shapes (no mmap, micro-batch 512).
func TestMemoryNeed(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, tc := range []struct {
		name                string
		parallel, context   int
		weights             int64
		kvMib               int64
		computeMib, outMib  float64 // reported: compute buffer and output buffer
		residentMib         int64   // peak resident memory of the process, in MiB
		headBytes           int64
		needAtMostTimesPeak float64
	}{
		{"llama-3.2-3b", 16, 512, 2011539712, 896, 262.50, 7.83, 2869, 323205120, 1.4},
		{"llama-3.2-1b", 16, 2048, 799862912, 1024, 258.50, 7.83, 1839, 215470080, 1.5},
		{"smollm2-135m", 16, 2048, 103668480, 720, 98.25, 3.00, 853, 30081024, 1.7},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n := MemoryNeed(mustEntry(tc.name).Shape, tc.weights, tc.headBytes, MemoryOptions{Parallel: tc.parallel, ContextPerSequence: tc.context})
			if n.KVBytes != tc.kvMib*mib {
				t.Errorf("KV cache %d MiB, reported %d MiB", n.KVBytes/mib, tc.kvMib)
			}
			if got, reported := float64(n.ComputeBytes)/mib, tc.computeMib+tc.outMib; got < reported || got > 1.4*reported {
				t.Errorf("compute %.1f MiB, reported %.1f MiB", got, reported)
			}
			if n.TotalBytes < tc.residentMib*mib || float64(n.TotalBytes) > tc.needAtMostTimesPeak*float64(tc.residentMib*mib)+OverheadBytes {
				t.Errorf("total %d MiB, resident %d MiB", n.TotalBytes/mib, tc.residentMib)
			}
			if sum := n.WeightBytes + n.RepackBytes + n.KVBytes + n.ComputeBytes + n.OverheadBytes; sum != n.TotalBytes {
				t.Errorf("the parts add up to %d, the total is %d", sum, n.TotalBytes)
			}
		})
	}
}

func TestMemoryNeedDefaults(t *testing.T) {
	t.Parallel()
	s := mustEntry("llama-3.1-8b").Shape
	n := MemoryNeed(s, 5e9, 4e8, MemoryOptions{})
	if n.Parallel != 1 || n.ContextPerSequence != DefaultContext || n.RepackBytes != 0 {
		t.Errorf("got %+v", n)
	}
	if n := MemoryNeed(s, 5e9, 4e8, MemoryOptions{MMap: true}); n.RepackBytes != 5e9 {
		t.Errorf("mapped: %d bytes held twice, want all weights", n.RepackBytes)
	}
	odd := MemoryNeed(s, 5e9, 4e8, MemoryOptions{ContextPerSequence: 257})
	if want := 512 * s.KVBytesPerToken(); odd.KVBytes != want {
		t.Errorf("257 tokens: KV cache of %d bytes, want %d (512 tokens)", odd.KVBytes, want)
	}
}

func TestMinMemoryMib(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		total int64
		want  int
		fits  bool
	}{{1, 128, true}, {128 << 20, 128, true}, {128<<20 + 1, 129, true}, {10240 << 20, 10240, true}, {10240<<20 + 1, 10241, false}} {
		n := Need{TotalBytes: tc.total}
		if n.MinMemoryMib() != tc.want || n.FitsLambda() != tc.fits {
			t.Errorf("%d bytes: %d MiB, fits %v; want %d, %v", tc.total, n.MinMemoryMib(), n.FitsLambda(), tc.want, tc.fits)
		}
	}
}

// TestArticleModelFits: the model and the memory setting of the source
// article, 3B in 4 GB, hold 16 users at once.
func TestArticleModelFits(t *testing.T) {
	t.Parallel()
	if mib := mustEntry("llama-3.2-3b").MemoryNeed(MemoryOptions{Parallel: 16, ContextPerSequence: 512}).MinMemoryMib(); mib > 4096 {
		t.Errorf("needs %d MiB", mib)
	}
}
