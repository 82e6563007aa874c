package idtable

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
)

// TestAgainstMap holds a Table that spills against a map, with values that
// change after they were spilled.
func TestAgainstMap(t *testing.T) {
	t.Parallel()
	for _, memory := range []int{1, 7, 100, 5000} {
		t.Run(fmt.Sprint(memory), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			table := New(Options{Dir: dir, MemoryIDs: memory})
			want := map[string]uint32{}
			rng := rand.New(rand.NewPCG(1, uint64(memory)))
			for range 2000 {
				id := fmt.Sprintf("u-%d", rng.IntN(700))
				got, ok, err := table.Get([]byte(id))
				if err != nil {
					t.Fatal(err)
				}
				if value, known := want[id]; ok != known || got != value {
					t.Fatalf("id %s has %d, %v; want %d, %v", id, got, ok, value, known)
				}
				if rng.IntN(3) > 0 {
					want[id] = rng.Uint32()
					if err := table.Put([]byte(id), want[id]); err != nil {
						t.Fatal(err)
					}
				}
			}
			if spilled := table.Spilled() > 0; spilled != (memory < 700) {
				t.Errorf("spilled %v with room for %d ids", spilled, memory)
			}
			if err := table.Close(); err != nil {
				t.Fatal(err)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("%d files are left", len(left))
			}
		})
	}
}

func TestFull(t *testing.T) {
	t.Parallel()
	table := New(Options{Dir: t.TempDir(), MemoryIDs: 2, MaxIDs: 3})
	defer table.Close()
	for i := range 3 {
		if err := table.Put(fmt.Append(nil, i), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Put([]byte("2"), 2); err != nil {
		t.Errorf("an id that is there is refused: %v", err)
	}
	var full *FullError
	if err := table.Put([]byte("9"), 1); !errors.As(err, &full) || full.Max != 3 {
		t.Errorf("error %v", err)
	}
}

func TestUnusableFolder(t *testing.T) {
	t.Parallel()
	table := New(Options{Dir: t.TempDir() + "/none", MemoryIDs: 1})
	if err := table.Put([]byte("a"), 1); err != nil {
		t.Fatal(err)
	}
	if err := table.Put([]byte("b"), 1); err == nil {
		t.Error("an id is spilled into a folder that does not exist")
	}
}

// TestBloomRate holds the share of needless reads to what its size promises.
func TestBloomRate(t *testing.T) {
	t.Parallel()
	const n = 50_000
	b := newBloom(n)
	for i := range n {
		b.add(keyOf(fmt.Append(nil, "in", i)))
	}
	wrong := 0
	for i := range n {
		if !b.has(keyOf(fmt.Append(nil, "in", i))) {
			t.Fatal("a key is lost")
		}
		if b.has(keyOf(fmt.Append(nil, "out", i))) {
			wrong++
		}
	}
	if rate := float64(wrong) / n; rate > 0.015 {
		t.Errorf("%.2f%% of foreign keys seem to be there", 100*rate)
	}
}

func BenchmarkSpilled(b *testing.B) {
	table := New(Options{Dir: b.TempDir(), MemoryIDs: 1 << 18})
	defer table.Close()
	var id []byte
	for i := 0; b.Loop(); i++ {
		id = fmt.Append(id[:0], "user-", i)
		if _, ok, err := table.Get(id); ok || err != nil {
			b.Fatal(ok, err)
		}
		if err := table.Put(id, uint32(i)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(table.Spilled()), "spilled")
}
