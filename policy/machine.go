package policy

import (
	"maps"
	"slices"
)

// distributedMap is a Distributed Map in the document of a state machine.
type distributedMap struct {
	name          string
	executionType string
	// maxConcurrency is 0 where there is no bound.
	maxConcurrency float64
	// maxItems and maxBytes bound a batch, 0 where they do not.
	maxItems, maxBytes float64
	// byPath says that a bound comes from the run's own input.
	byPath bool
	// batches says that there is an ItemBatcher.
	batches bool
	// timeoutSec is the longest TimeoutSeconds of its tasks, 0 where one has none.
	timeoutSec float64
	// functions are the Lambda functions that its tasks call, as the document
	// names them.
	functions []string
}

// distributedMaps finds them, however deep.
func distributedMaps(document any) []distributedMap {
	var found []distributedMap
	var machine func(any, int)
	machine = func(doc any, depth int) {
		m, _ := doc.(map[string]any)
		states, _ := m["States"].(map[string]any)
		if depth > 20 {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(states)) {
			s, _ := states[name].(map[string]any)
			for _, branch := range list(s["Branches"]) {
				machine(branch, depth+1)
			}
			processor, ok := s["ItemProcessor"].(map[string]any)
			if !ok {
				processor, _ = s["Iterator"].(map[string]any)
			}
			config, _ := processor["ProcessorConfig"].(map[string]any)
			if config["Mode"] == "DISTRIBUTED" {
				d := distributedMap{name: name}
				d.executionType, _ = config["ExecutionType"].(string)
				d.maxConcurrency, _ = s["MaxConcurrency"].(float64)
				batcher, batches := s["ItemBatcher"].(map[string]any)
				d.batches = batches
				d.maxItems, _ = batcher["MaxItemsPerBatch"].(float64)
				d.maxBytes, _ = batcher["MaxInputBytesPerBatch"].(float64)
				d.byPath = s["MaxConcurrencyPath"] != nil
				d.tasks(processor)
				found = append(found, d)
			}
			machine(processor, depth+1)
		}
	}
	machine(document, 0)
	return found
}

// tasks reads the tasks of the map's own processor.
func (d *distributedMap) tasks(processor map[string]any) {
	states, _ := processor["States"].(map[string]any)
	unbounded := false
	for _, name := range slices.Sorted(maps.Keys(states)) {
		s, _ := states[name].(map[string]any)
		if s["Type"] != "Task" {
			continue
		}
		timeout, ok := s["TimeoutSeconds"].(float64)
		unbounded = unbounded || !ok
		d.timeoutSec = max(d.timeoutSec, timeout)
		parameters, _ := s["Parameters"].(map[string]any)
		if name, ok := parameters["FunctionName"].(string); ok {
			d.functions = append(d.functions, name)
		}
		arguments, _ := s["Arguments"].(map[string]any)
		if name, ok := arguments["FunctionName"].(string); ok {
			d.functions = append(d.functions, name)
		}
	}
	if unbounded {
		d.timeoutSec = 0
	}
}

func list(value any) []any {
	switch value := value.(type) {
	case nil:
		return nil
	case []any:
		return value
	}
	return []any{value}
}
