package states_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/briefing-swarm/briefing-swarm/component/states"
	"github.com/briefing-swarm/briefing-swarm/runtime/errortype"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
	"github.com/briefing-swarm/briefing-swarm/runtime/generate"
	"github.com/briefing-swarm/briefing-swarm/runtime/normalise"
	"github.com/briefing-swarm/briefing-swarm/runtime/object"
	"github.com/briefing-swarm/briefing-swarm/runtime/reconcile"
)

// TestContract holds names that the documents and the handlers share: neither
// imports the other.
func TestContract(t *testing.T) {
	t.Parallel()
	documents := documents(t)
	for _, want := range []string{
		"'" + normalise.RunPrefix("{}") + reconcile.RerunName + "'", "'" + normalise.RunPrefix("{}") + "map'",
	} {
		if !strings.Contains(documents["run-full"], want) {
			t.Errorf("the run has no %s", want)
		}
	}
	if !strings.HasPrefix(normalise.RunPrefix("x"), states.RunsPrefix) {
		t.Errorf("runs are below %s, not %s", normalise.RunPrefix("x"), states.RunsPrefix)
	}

	never := []error{&generate.EventError{}, &normalise.EventError{}, &normalise.InputError{Err: errors.New("x")}, &object.NotFoundError{Err: errors.New("x")}, &object.ChangedError{}}
	later := []error{&generate.ThrottledError{Err: errors.New("x")}, &generate.LoadingError{}, &gather.UndeliveredError{Err: errors.New("x")}}
	for name, text := range documents {
		var machine any
		if err := json.Unmarshal([]byte(text), &machine); err != nil {
			t.Fatal(err)
		}
		calls := 0
		each(machine, func(state map[string]any) {
			if resource, _ := state["Resource"].(string); !strings.HasSuffix(resource, ":lambda:invoke") {
				return
			}
			calls++
			for _, err := range never {
				if n := attempts(state, errortype.Of(err)); n != 0 {
					t.Errorf("%s: %T is tried again %d times", name, err, n)
				}
			}
			for _, err := range later {
				if n := attempts(state, errortype.Of(err)); n < 5 {
					t.Errorf("%s: %T is tried again %d times only", name, err, n)
				}
			}
			// A function whose concurrency the delivery of another file uses up.
			if n := attempts(state, "Lambda.TooManyRequestsException"); strings.HasPrefix(name, "delivery") && n < 7200/60 {
				t.Errorf("%s: a busy function is tried again %d times only, in a window of two hours", name, n)
			}
		})
		if want := map[bool]int{true: 4, false: 3}[strings.HasPrefix(name, "run")]; calls != want {
			t.Errorf("%s calls functions in %d states, want %d", name, calls, want)
		}
	}
}

// each calls f with all objects in value.
func each(value any, f func(map[string]any)) {
	switch v := value.(type) {
	case map[string]any:
		f(v)
		for _, inner := range v {
			each(inner, f)
		}
	case []any:
		for _, inner := range v {
			each(inner, f)
		}
	}
}

// attempts returns what the first retrier that names an error allows.
func attempts(state map[string]any, name string) int {
	retriers, _ := state["Retry"].([]any)
	for _, retrier := range retriers {
		r, _ := retrier.(map[string]any)
		names, _ := r["ErrorEquals"].([]any)
		if slices.Contains(names, any(name)) {
			n, _ := r["MaxAttempts"].(float64)
			return int(n)
		}
	}
	return -1
}
