package deliver

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// paced returns when mails went in a time, from so many callers that come late
// now and then.
func paced(p *Pace, callers int, length, late time.Duration) []time.Duration {
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	start := time.Now()
	var mu sync.Mutex
	var at []time.Duration
	var group sync.WaitGroup
	for n := range callers {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			for p.Wait(ctx) == nil {
				mu.Lock()
				at = append(at, time.Since(start))
				mu.Unlock()
				if late > 0 && rng.IntN(20) == 0 {
					time.Sleep(rand.N(late))
				}
			}
		})
	}
	group.Wait()
	slices.Sort(at)
	return at
}

// most returns the most mails in any second.
func most(at []time.Duration) int {
	most := 0
	for i := range at {
		n := i
		for n < len(at) && at[n]-at[i] < time.Second {
			n++
		}
		most = max(most, n-i)
	}
	return most
}

// TestPace holds the rate over twenty seconds of a clock that is not the real
// one: within 5 %, and in no second above.
func TestPace(t *testing.T) {
	t.Parallel()
	for _, perSec := range []float64{0.5, 1, 12.6, 14, 50, 200, 1000} {
		for _, late := range []time.Duration{0, 300 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				const length = 20 * time.Second
				at := paced(NewPace(perSec), 64, length, late)
				want := perSec * length.Seconds()
				if got := float64(len(at)); got > want+1 || got < 0.95*want {
					t.Errorf("%v/s, late by %v: %v mails in 20 s, want %v", perSec, late, got, want)
				}
				if n := most(at); n > int(math.Ceil(perSec)) {
					t.Errorf("%v/s, late by %v: %d mails in one second", perSec, late, n)
				}
			})
		}
	}
}

// TestPaceAfterRest: nothing is saved up while nobody sends.
func TestPaceAfterRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPace(50)
		paced(p, 4, time.Second, 0)
		time.Sleep(time.Hour)
		if n := most(paced(p, 4, 2*time.Second, 0)); n > 50 {
			t.Errorf("%d mails in a second after an hour of rest", n)
		}
	})
}

func TestPaceEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPace(0.1)
		if err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 0 {
			t.Errorf("%v after %v, want the deadline to be seen at once", err, time.Since(start))
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := p.Wait(ctx); !errors.Is(err, context.Canceled) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := p.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%v of a context that has ended", err)
		}
		if err := p.Wait(t.Context()); err != nil || time.Since(start) < 9*time.Second {
			t.Errorf("%v after %v: giving up must not use up a mail's time", err, time.Since(start))
		}
	})
}

// BenchmarkRate sends at 50 mails a second for 20 seconds of real time, through
// all of Deliver, and fails where the rate is missed by more than 5 % or is above
// 50 in any second. One iteration is one run: use -benchtime 1x.
func BenchmarkRate(b *testing.B) {
	const perSec, length = 50, 20 * time.Second
	composer := testComposer(b, nil)
	for b.Loop() {
		var mu sync.Mutex
		var at []time.Duration
		start := time.Now()
		sender := senderFunc(func(message Message) (string, error) {
			mu.Lock()
			at = append(at, time.Since(start))
			mu.Unlock()
			time.Sleep(rand.N(200 * time.Millisecond)) // as SES takes
			return message.ID, nil
		})
		stats, err := Deliver(b.Context(), streamedRows(perSec*int(length.Seconds())), Options{Composer: composer, Sender: sender, Workers: 16, Pace: NewPace(perSec)})
		took := time.Since(start)
		if err != nil || stats.Sent != stats.Rows {
			b.Fatalf("%+v, %v", stats, err)
		}
		slices.Sort(at)
		observed := float64(len(at)-1) / (at[len(at)-1] - at[0]).Seconds()
		b.ReportMetric(observed, "mails/s")
		b.ReportMetric(float64(most(at)), "most-in-1s")
		if observed > perSec || observed < 0.95*perSec || most(at) > perSec {
			b.Fatalf("%.2f mails/s over %v, %d in the fullest second", observed, took, most(at))
		}
	}
}

// senderFunc is a Sender by a function.
type senderFunc func(Message) (string, error)

func (f senderFunc) Send(_ context.Context, message Message) (string, error) { return f(message) }
