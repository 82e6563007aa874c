package rietest

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/briefing-swarm/briefing-swarm/internal/rootfs"
)

// answer is what the probe says of itself.
type answer struct {
	Items    []string
	Text     string
	PID      int
	Count    int
	LeftMsec int64
	Request  string
}

// architectures runs the test on this machine's own and on emulated ARM64.
func architectures(t *testing.T, test func(t *testing.T, o Options)) {
	t.Run("native", func(t *testing.T) {
		test(t, Options{Bootstrap: Program(t, "./internal/rietest/probe", "")})
	})
	t.Run("arm64", func(t *testing.T) {
		env := rootfs.ARM64(t)
		test(t, Options{Bootstrap: Program(t, "./internal/rietest/probe", "arm64"), Env: env})
	})
}

type event map[string]any

func invoke(t *testing.T, i *Instance, e event) answer {
	t.Helper()
	r := i.Invoke(t.Context(), e)
	if err := r.Err(); err != nil {
		t.Fatalf("%v: %v; the function said:\n%s", e, err, i.Log())
	}
	var a answer
	if err := json.Unmarshal(r.Body, &a); err != nil {
		t.Fatalf("%v: %v", e, err)
	}
	return a
}

// TestContract goes through everything that ends a process, and asserts that the
// next invocation finds a new one.
func TestContract(t *testing.T) {
	architectures(t, func(t *testing.T, o Options) {
		o.TimeoutSec = 6
		i := Start(t, o)
		first := invoke(t, i, event{"Do": "echo", "Items": []string{"a", "b"}})
		if len(first.Items) != 2 || first.Count != 1 || first.Request == "" || first.LeftMsec < 1 || first.LeftMsec > 6000 {
			t.Fatalf("echo: %+v", first)
		}
		if warm := invoke(t, i, event{"Do": "echo"}); warm.PID != first.PID || warm.Count != 2 || warm.Request == first.Request {
			t.Errorf("second invocation: %+v, want the same process", warm)
		}
		last := first.PID
		fresh := func(after string) {
			t.Helper()
			a := invoke(t, i, event{"Do": "echo"})
			if a.PID == last || a.Count != 1 {
				t.Errorf("after %s: %+v, want a new process", after, a)
			}
			last = a.PID
		}

		r := i.Invoke(t.Context(), event{"Do": "fail"})
		if err := r.Err(); err == nil || !strings.Contains(err.Error(), "told to fail") {
			t.Errorf("fail: %v", err)
		}
		if a := invoke(t, i, event{"Do": "echo"}); a.PID != last {
			t.Errorf("an error of the handler ended the process")
		}

		r = i.Invoke(t.Context(), event{"Do": "panic"})
		if err := r.Err(); err == nil || !strings.Contains(err.Error(), "told to") {
			t.Errorf("panic: %v", err)
		}
		fresh("a panic")

		r = i.Invoke(t.Context(), event{"Do": "exit"})
		if r.Err() == nil {
			t.Errorf("exit: status %d, %s", r.Status, r.Body)
		}
		i.WaitLog("told to exit")
		fresh("an exit")

		start := time.Now()
		r = i.Invoke(t.Context(), event{"Do": "sleep"})
		if took := time.Since(start); !r.TimedOut() || took < 5*time.Second {
			t.Errorf("sleep: after %v: %s", took, r.Body)
		}
		fresh("a timeout")

		// Lambda's limit of an answer is 6 MB, 6291556 bytes all in all.
		if a := invoke(t, i, event{"Do": "big", "Bytes": 6<<20 - 1024}); len(a.Text) != 6<<20-1024 {
			t.Errorf("an answer of nearly 6 MB came back with %d bytes", len(a.Text))
		}
		r = i.Invoke(t.Context(), event{"Do": "big", "Bytes": 6<<20 + 1024})
		if err := r.Err(); r.Status != http.StatusBadGateway || err == nil || !strings.Contains(err.Error(), "ResponseSizeTooLarge") {
			t.Errorf("an answer of more than 6 MB: status %d, %v", r.Status, err)
		}
		fresh("an answer that is too large")
	})
}

// TestConcurrentCalls: the emulator dies of a second request in flight, so an
// Instance must take them in turn, and a Pool spread them.
func TestConcurrentCalls(t *testing.T) {
	const instances, calls = 3, 60
	pool := NewPool(t, instances, Options{Bootstrap: Program(t, "./internal/rietest/probe", "")})
	var mu sync.Mutex
	var wg sync.WaitGroup
	perProcess := map[int]int{}
	for range calls {
		wg.Go(func() {
			r, err := pool.Invoke(context.Background(), event{"Do": "echo"})
			if err != nil || r.Err() != nil {
				t.Errorf("%v, %v", err, r)
				return
			}
			var a answer
			if err := json.Unmarshal(r.Body, &a); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			perProcess[a.PID]++
			mu.Unlock()
		})
	}
	wg.Wait()
	total := 0
	for _, n := range perProcess {
		total += n
	}
	if total != calls || len(perProcess) != instances {
		t.Errorf("%d calls in processes %v, want %d calls in %d", total, perProcess, calls, instances)
	}
	for _, i := range pool.Instances() {
		if peak := i.PeakMemoryBytes(); peak < 1<<20 || peak > 1<<30 {
			t.Errorf("peak memory of the probe: %d bytes", peak)
		}
		single := make(chan error, 8)
		for range cap(single) {
			go func() {
				r, err := i.TryInvoke(context.Background(), event{"Do": "echo"})
				if err == nil {
					err = r.Err()
				}
				single <- err
			}()
		}
		for range cap(single) {
			if err := <-single; err != nil {
				t.Errorf("side by side: %v", err)
			}
		}
	}
}
