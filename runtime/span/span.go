// Package span names the places of a batch that are still to be done, in few
// bytes: a state machine carries them from one call of a function to the next.
package span

import (
	"fmt"
	"slices"
)

// Span is a run of places in a batch, first and last, from 0.
type Span [2]int

// OutsideError says that a span is not one of the batch's.
type OutsideError struct {
	Span  Span
	Items int
}

func (e *OutsideError) Error() string {
	return fmt.Sprintf("remaining has the range %d to %d in a batch of %d items", e.Span[0], e.Span[1], e.Items)
}

// All returns the places of a batch of so many items.
func All(items int) []int {
	places := make([]int, items)
	for i := range places {
		places[i] = i
	}
	return places
}

// Places returns the places in spans, once each and in order. The error is a
// *OutsideError.
func Places(spans []Span, items int) ([]int, error) {
	want := make([]bool, items)
	for _, r := range spans {
		if r[0] < 0 || r[0] > r[1] || r[1] >= items {
			return nil, &OutsideError{r, items}
		}
		for i := r[0]; i <= r[1]; i++ {
			want[i] = true
		}
	}
	places := []int{}
	for i, ok := range want {
		if ok {
			places = append(places, i)
		}
	}
	return places, nil
}

// Of returns places, which ascend, as at most limit spans. Where there are
// more, those with the fewest done places between them are joined: whoever is
// called with them must bear that a few items are done twice.
func Of(places []int, limit int) []Span {
	spans := []Span{}
	for _, p := range places {
		if n := len(spans); n > 0 && spans[n-1][1] == p-1 {
			spans[n-1][1] = p
		} else {
			spans = append(spans, Span{p, p})
		}
	}
	for len(spans) > limit {
		best := 1
		for i := 2; i < len(spans); i++ {
			if spans[i][0]-spans[i-1][1] < spans[best][0]-spans[best-1][1] {
				best = i
			}
		}
		spans[best-1][1] = spans[best][1]
		spans = slices.Delete(spans, best, best+1)
	}
	return spans
}
