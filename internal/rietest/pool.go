package rietest

import (
	"context"
	"testing"
)

// Pool is several Instances of one function: what Lambda's scaling is.
type Pool struct {
	all  []*Instance
	free chan *Instance
}

// NewPool starts n instances.
func NewPool(t testing.TB, n int, o Options) *Pool {
	t.Helper()
	p := &Pool{free: make(chan *Instance, n)}
	for range n {
		i := Start(t, o)
		p.all = append(p.all, i)
		p.free <- i
	}
	return p
}

// Invoke sends the event to a free instance, for which it waits. It may be
// called from any goroutine.
func (p *Pool) Invoke(ctx context.Context, event any) (*Response, error) {
	select {
	case i := <-p.free:
		defer func() { p.free <- i }()
		return i.TryInvoke(ctx, event)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Instances returns all of them.
func (p *Pool) Instances() []*Instance { return p.all }
