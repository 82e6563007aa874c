package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// statesDefinition asks for a document of the Amazon States Language that Step
// Functions would take: states that exist and can be reached, ends, and the
// limits of the Distributed Map. It is a coarse sieve; the documents themselves
// are judged by the tests of component/states.
func (in *inputs) statesDefinition(path, machineType string) {
	doc, ok := in.document(path)
	if !ok {
		return
	}
	if text, ok := in.text(path); ok && len(text) > 1<<20 {
		in.fault(path, "has %d bytes, want at most 1 MiB", len(text))
	}
	object, ok := doc.(map[string]any)
	if !ok {
		in.fault(path, "is not a state machine: not an object")
		return
	}
	statesCheck{in, path, machineType}.machine("", object)
}

type statesCheck struct {
	in                *inputs
	path, machineType string
}

func (c statesCheck) fault(at, format string, args ...any) {
	if at != "" {
		format = "state " + at + " " + format
	}
	c.in.fault(c.path, format, args...)
}

var stateTypes = []string{"Task", "Pass", "Choice", "Wait", "Succeed", "Fail", "Parallel", "Map"}

func (c statesCheck) machine(at string, m map[string]any) {
	states, _ := m["States"].(map[string]any)
	start, _ := m["StartAt"].(string)
	if len(states) == 0 {
		c.fault(at, "has no States")
		return
	}
	if _, ok := states[start]; !ok {
		c.fault(at, "starts at %q, which is no state of it", start)
	}
	reached := map[string]bool{start: true}
	goTo := func(from string, target any) {
		name, ok := target.(string)
		if !ok {
			return
		}
		if _, exists := states[name]; !exists {
			c.fault(from, "goes to %q, which is no state", name)
		}
		reached[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(states)) {
		where := strings.TrimPrefix(at+"/"+name, "/")
		if len(name) > 80 {
			c.fault(where, "has a name of %d characters, want at most 80", len(name))
		}
		s, ok := states[name].(map[string]any)
		if !ok {
			c.fault(where, "is not an object")
			continue
		}
		typ, _ := s["Type"].(string)
		if !slices.Contains(stateTypes, typ) {
			c.fault(where, "has Type %q", typ)
			continue
		}
		goTo(where, s["Next"])
		goTo(where, s["Default"])
		for _, list := range []string{"Choices", "Catch"} {
			for _, entry := range asList(s[list]) {
				if entry, ok := entry.(map[string]any); ok {
					goTo(where, entry["Next"])
				}
			}
		}
		switch typ {
		case "Choice", "Succeed", "Fail":
			if s["End"] != nil || typ != "Choice" && s["Next"] != nil {
				c.fault(where, "of Type %s has a Next or an End", typ)
			}
			if typ == "Choice" && len(asList(s["Choices"])) == 0 {
				c.fault(where, "has no Choices")
			}
		default:
			if (s["Next"] == nil) == (s["End"] != true) {
				c.fault(where, "wants exactly one of Next and End")
			}
		}
		switch typ {
		case "Task":
			resource, _ := s["Resource"].(string)
			if !strings.HasPrefix(resource, "arn:aws") {
				c.fault(where, "has Resource %q, which is no ARN", resource)
			}
		case "Parallel":
			for i, branch := range asList(s["Branches"]) {
				if branch, ok := branch.(map[string]any); ok {
					c.machine(fmt.Sprintf("%s[%d]", where, i), branch)
				}
			}
		case "Map":
			c.mapState(where, s)
		}
		for i, retry := range asList(s["Retry"]) {
			if retry, ok := retry.(map[string]any); !ok || len(asList(retry["ErrorEquals"])) == 0 {
				c.fault(where, "Retry[%d] has no ErrorEquals", i)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(states)) {
		if !reached[name] {
			c.fault(strings.TrimPrefix(at+"/"+name, "/"), "cannot be reached")
		}
	}
}

func (c statesCheck) mapState(at string, s map[string]any) {
	processor, ok := s["ItemProcessor"].(map[string]any)
	if !ok {
		if processor, ok = s["Iterator"].(map[string]any); !ok {
			c.fault(at, "has no ItemProcessor")
			return
		}
	}
	between := func(object map[string]any, key string, low, high float64) {
		if n, ok := object[key].(float64); ok && (n < low || n > high) {
			c.fault(at, "has %s %v, want %v to %v", key, n, low, high)
		}
	}
	config, _ := processor["ProcessorConfig"].(map[string]any)
	distributed := config["Mode"] == "DISTRIBUTED"
	between(s, "MaxConcurrency", 0, 10_000)
	between(s, "ToleratedFailurePercentage", 0, 100)
	if batcher, ok := s["ItemBatcher"].(map[string]any); ok {
		between(batcher, "MaxInputBytesPerBatch", 1, 262_144)
		between(batcher, "MaxItemsPerBatch", 1, 100_000_000)
		if batcher["MaxItemsPerBatch"] == nil && batcher["MaxInputBytesPerBatch"] == nil &&
			batcher["MaxItemsPerBatchPath"] == nil && batcher["MaxInputBytesPerBatchPath"] == nil {
			c.fault(at, "has an ItemBatcher without a bound")
		}
	}
	if distributed {
		if config["ExecutionType"] != "STANDARD" && config["ExecutionType"] != "EXPRESS" {
			c.fault(at, "is distributed with ExecutionType %v", config["ExecutionType"])
		}
		if c.machineType == "EXPRESS" {
			c.fault(at, "is distributed in an EXPRESS machine, which cannot run it")
		}
	} else {
		for _, key := range []string{"ItemBatcher", "ItemReader", "ResultWriter", "ToleratedFailurePercentage", "ToleratedFailureCount", "Label"} {
			if s[key] != nil {
				c.fault(at, "has %s, which only a DISTRIBUTED map has", key)
			}
		}
	}
	c.machine(at, processor)
}
