package generate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
)

// Model is a model that loads in the background, from the start of the process
// on: Lambda's INIT phase is limited to 10 s and a large model takes longer.
type Model struct {
	done    chan struct{}
	backend engine.Backend
	err     error
	took    time.Duration
}

// LoadModel begins to load.
func LoadModel(open func() (engine.Backend, error)) *Model {
	m := &Model{done: make(chan struct{})}
	start := time.Now()
	go func() {
		defer close(m.done)
		m.backend, m.err = open()
		m.took = time.Since(start)
	}()
	return m
}

// LoadingError says that the time was over before the model was loaded. The
// loading goes on.
type LoadingError struct {
	Waited time.Duration
}

func (e *LoadingError) Error() string {
	return fmt.Sprintf("the model was not loaded within %s: raise the function's timeout or memory, or try again", e.Waited.Round(100*time.Millisecond))
}

// Wait returns the model once it is loaded. Its error is that of loading, or a
// *LoadingError where ctx ends first.
func (m *Model) Wait(ctx context.Context) (engine.Backend, error) {
	start := time.Now()
	select {
	case <-m.done:
		return m.backend, m.err
	default:
	}
	select {
	case <-m.done:
		return m.backend, m.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctx.Err()
		}
		return nil, &LoadingError{Waited: time.Since(start)}
	}
}

// LoadTime returns how long loading took, 0 while it goes on.
func (m *Model) LoadTime() time.Duration {
	select {
	case <-m.done:
		return m.took
	default:
		return 0
	}
}
