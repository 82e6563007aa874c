package model

import (
	"fmt"
	"testing"
)

// TestMemoryNeed compares with the buffers that llama.cpp v0.4.0 reported on x86
// when it loaded files of these shapes as the engine does: no mmap, a KV cache for
// each sequence, logits of one token a sequence. The engine's own test compares
// with what llama.cpp reports on this machine.
func TestMemoryNeed(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, tc := range []struct {
		name                     string
		parallel, context, batch int
		weightsMib               float64
		head                     TensorType
		headMib, repackMib       float64
		kvMib                    float64
		computeMib, outMib       float64 // reported: compute buffer and output buffer
	}{
		{"llama-3.2-1b", 16, 512, 512, 663.16, TypeQ4_0, 140.91, 140.91, 272, 66.40, 8.32},
		{"llama-3.2-1b", 1, 2048, 512, 663.16, TypeQ4_0, 140.91, 140.91, 128, 66.01, 0.98},
		{"llama-3.2-1b", 32, 512, 512, 663.16, TypeQ4_0, 140.91, 140.91, 528, 66.53, 16.15},
		{"llama-3.2-1b", 8, 1000, 256, 663.16, TypeQ4_0, 140.91, 140.91, 288, 33.14, 4.40},
		{"llama-3.2-1b", 4, 4096, 512, 663.16, TypeQ4_0, 140.91, 140.91, 640, 68.41, 2.45},
		{"smollm2-135m", 16, 512, 512, 92.10, TypeQ8_0, 28.69, 0, 191.25, 14.42, 3.19},
		{"smollm2-135m", 1, 2048, 512, 92.10, TypeQ8_0, 28.69, 0, 90, 15.51, 0.38},
		{"smollm2-135m", 8, 1000, 256, 92.10, TypeQ8_0, 28.69, 0, 202.5, 7.40, 1.69},
		{"smollm2-135m", 4, 4096, 512, 92.10, TypeQ8_0, 28.69, 0, 450, 17.61, 0.94},
	} {
		t.Run(fmt.Sprintf("%s %d x %d, batch %d", tc.name, tc.parallel, tc.context, tc.batch), func(t *testing.T) {
			t.Parallel()
			h := Header{Shape: mustEntry(tc.name).Shape, WeightBytes: int64(tc.weightsMib * mib), HeadBytes: int64(tc.headMib * mib), HeadType: tc.head}
			options := MemoryOptions{Parallel: tc.parallel, ContextPerSequence: tc.context, MicroBatch: tc.batch, Arch: "x86_64"}
			n := h.MemoryNeed(options)
			if n.KVBytes != int64(tc.kvMib*mib) {
				t.Errorf("KV cache %.2f MiB, reported %.2f MiB", float64(n.KVBytes)/mib, tc.kvMib)
			}
			if n.RepackBytes != int64(tc.repackMib*mib) {
				t.Errorf("%.2f MiB are held twice, reported %.2f", float64(n.RepackBytes)/mib, tc.repackMib)
			}
			if got, reported := float64(n.ComputeBytes)/mib, tc.computeMib+tc.outMib; got < reported || got > 1.06*reported {
				t.Errorf("compute %.2f MiB, reported %.2f MiB", got, reported)
			}
			if n.PeakBytes > n.TotalBytes {
				t.Errorf("peak %d above the total %d", n.PeakBytes, n.TotalBytes)
			}
			if sum := n.WeightBytes + n.RepackBytes + n.KVBytes + n.ComputeBytes + n.OverheadBytes; sum != n.TotalBytes {
				t.Errorf("the parts add up to %d, the total is %d", sum, n.TotalBytes)
			}
			// ARM re-orders heads of every type: an emulated Neoverse N1 held
			// SmolLM2's of Q8_0 twice.
			options.Arch = "arm64"
			if arm := h.MemoryNeed(options); arm.RepackBytes != h.HeadBytes {
				t.Errorf("on arm64 %d bytes are held twice, want the head's %d", arm.RepackBytes, h.HeadBytes)
			}
			// A Sapphire Rapids did, too.
			options.Arch, options.AMX = "x86_64", true
			if amx := h.MemoryNeed(options); amx.RepackBytes != h.HeadBytes {
				t.Errorf("with matrix units %d bytes are held twice, want the head's %d", amx.RepackBytes, h.HeadBytes)
			}
			options.Arch, options.AMX = "", false
			if either := h.MemoryNeed(options); either.RepackBytes != h.HeadBytes {
				t.Errorf("on whichever %d bytes are held twice, want the head's %d", either.RepackBytes, h.HeadBytes)
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
	if want := 2 * 512 * s.KVBytesPerToken(); odd.KVBytes != want {
		t.Errorf("257 tokens: KV cache of %d bytes, want %d (512 tokens, twice)", odd.KVBytes, want)
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
