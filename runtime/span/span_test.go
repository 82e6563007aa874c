package span_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/runtime/span"
)

// TestOf: spans say the same as the places, or a little more.
func TestOf(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		n, limit := 1+rng.IntN(200), 1+rng.IntN(10)
		var places []int
		for i := range n {
			if rng.IntN(3) > 0 {
				places = append(places, i)
			}
		}
		spans := span.Of(places, limit)
		if len(spans) > limit {
			t.Fatalf("%d spans, at most %d", len(spans), limit)
		}
		got, err := span.Places(spans, n)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range places {
			if !slices.Contains(got, p) {
				t.Fatalf("place %d of %v is lost in %v", p, places, spans)
			}
		}
		if exact := span.Of(places, n); len(exact) <= limit && len(got) != len(places) {
			t.Fatalf("%v became %v", places, spans)
		}
	}
	if d := cmp.Diff([]span.Span{{0, 0}, {5, 9}}, span.Of([]int{0, 5, 6, 8, 9}, 2)); d != "" {
		t.Errorf("the nearest are not joined (-want +got):\n%s", d)
	}
}

func TestPlacesRefuses(t *testing.T) {
	t.Parallel()
	for _, s := range []span.Span{{-1, 0}, {2, 1}, {0, 3}} {
		var outside *span.OutsideError
		if places, err := span.Places([]span.Span{{0, 0}, s}, 3); !errors.As(err, &outside) || outside.Span != s {
			t.Errorf("%v of 3 items: %v, error %v", s, places, err)
		}
	}
	if d := cmp.Diff([]int{0, 1, 2}, span.All(3)); d != "" {
		t.Error(d)
	}
}
