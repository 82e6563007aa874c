package states

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Machine is a state machine, or the part of one that a Map runs for each
// batch.
type Machine struct {
	Comment string `json:",omitempty"`
	StartAt string
	// TimeoutSeconds ends an execution from outside: no Catch sees that. 0 is
	// none. A Map's part must have none.
	TimeoutSeconds int `json:",omitempty"`
	States         map[string]State
}

// Document returns the machine as indented JSON, the same for the same machine.
func (m Machine) Document() (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(m); err != nil {
		return "", fmt.Errorf("encode state machine: %w", err)
	}
	return b.String(), nil
}

// State is a Task, Pass, Choice, Wait, Map, Succeed or Fail. Fields of these are
// named as in the Amazon States Language; a zero one is left out.
type State interface{ state() }

// Path selects a part of a state's input, or a place in it.
type Path string

// Discard as a ResultPath drops the result and keeps the input.
const Discard Path = "null"

// MarshalJSON implements json.Marshaler.
func (p Path) MarshalJSON() ([]byte, error) {
	if p == Discard {
		return []byte("null"), nil
	}
	return json.Marshal(string(p))
}

// Template is a payload template: of a key that ends in ".$" the value is a
// path or an intrinsic function.
type Template map[string]any

// Task calls a service.
type Task struct {
	Comment        string `json:",omitempty"`
	Resource       string
	Parameters     Template `json:",omitempty"`
	ResultSelector Template `json:",omitempty"`
	ResultPath     Path     `json:",omitempty"`
	TimeoutSeconds int      `json:",omitempty"`
	Retry          []Retry  `json:",omitempty"`
	Catch          []Catch  `json:",omitempty"`
	Next           string   `json:",omitempty"`
}

// Pass builds a new input for the next state.
type Pass struct {
	InputPath  Path     `json:",omitempty"`
	Parameters Template `json:",omitempty"`
	ResultPath Path     `json:",omitempty"`
	Next       string   `json:",omitempty"`
}

// Choice goes on with the first rule that holds.
type Choice struct {
	Choices []Rule
	Default string `json:",omitempty"`
}

// Rule is a comparison, or an And of some. Next is set on the outermost only.
type Rule struct {
	Variable            Path     `json:",omitempty"`
	IsPresent           *bool    `json:",omitempty"`
	BooleanEquals       *bool    `json:",omitempty"`
	StringEquals        *string  `json:",omitempty"`
	NumericEquals       *float64 `json:",omitempty"`
	NumericLessThan     *float64 `json:",omitempty"`
	NumericLessThanPath Path     `json:",omitempty"`
	And                 []Rule   `json:",omitempty"`
	Next                string   `json:",omitempty"`
}

// Wait waits for Seconds, or until the time at TimestampPath.
type Wait struct {
	Comment       string `json:",omitempty"`
	Seconds       int    `json:",omitempty"`
	TimestampPath Path   `json:",omitempty"`
	Next          string
}

// Succeed ends an execution well.
type Succeed struct {
	InputPath Path `json:",omitempty"`
}

// Fail ends an execution as failed, with an error and a cause that are fixed or
// at a path.
type Fail struct {
	Error     string `json:",omitempty"`
	ErrorPath Path   `json:",omitempty"`
	Cause     string `json:",omitempty"`
	CausePath Path   `json:",omitempty"`
}

// Map is a Distributed Map: it reads an object in S3 and runs ItemProcessor for
// each batch of its items.
type Map struct {
	// Label is the part of the ARNs of the map's children that names it.
	Label         string
	ItemReader    ItemReader
	ItemBatcher   ItemBatcher
	ItemProcessor ItemProcessor
	// MaxConcurrency is a number or comes from MaxConcurrencyPath.
	MaxConcurrency     int  `json:",omitempty"`
	MaxConcurrencyPath Path `json:",omitempty"`
	// ToleratedFailurePercentage is written always: a map whose children may
	// not fail says so.
	ToleratedFailurePercentage int
	ResultWriter               ResultWriter
	ResultPath                 Path    `json:",omitempty"`
	Catch                      []Catch `json:",omitempty"`
	Next                       string  `json:",omitempty"`
}

// ItemReader says where the items are.
type ItemReader struct {
	Resource     string
	ReaderConfig ReaderConfig
	Parameters   Template
}

// ReaderConfig says what form the items have: JSONL or PARQUET.
type ReaderConfig struct {
	InputType string
}

// ItemBatcher puts items into batches. A child gets an object with BatchInput
// and the list Items.
type ItemBatcher struct {
	// MaxItemsPerBatch is a number or comes from MaxItemsPerBatchPath.
	MaxItemsPerBatch      int  `json:",omitempty"`
	MaxItemsPerBatchPath  Path `json:",omitempty"`
	MaxInputBytesPerBatch int  `json:",omitempty"`
	BatchInput            Template
}

// ItemProcessor is what runs for each batch.
type ItemProcessor struct {
	ProcessorConfig ProcessorConfig
	StartAt         string
	States          map[string]State
}

// ProcessorConfig says how the children of a map run.
type ProcessorConfig struct {
	Mode          string
	ExecutionType string
}

// ResultWriter says where the results of the children go: in the output of the
// map they would soon be too many.
type ResultWriter struct {
	Resource     string
	Parameters   Template
	WriterConfig WriterConfig
}

// WriterConfig says what of the results is kept, and in which form.
type WriterConfig struct {
	OutputType     string
	Transformation string
}

// Retry tries a task again.
type Retry struct {
	ErrorEquals     []string
	IntervalSeconds int `json:",omitempty"`
	// MaxAttempts is written always: 0 forbids a retry.
	MaxAttempts     int
	BackoffRate     float64 `json:",omitempty"`
	MaxDelaySeconds int     `json:",omitempty"`
	JitterStrategy  string  `json:",omitempty"`
}

// Catch goes on elsewhere after an error.
type Catch struct {
	ErrorEquals []string
	ResultPath  Path `json:",omitempty"`
	Next        string
}

func (Task) state()    {}
func (Pass) state()    {}
func (Choice) state()  {}
func (Wait) state()    {}
func (Succeed) state() {}
func (Fail) state()    {}
func (Map) state()     {}

// MarshalJSON implements json.Marshaler.
func (s Task) MarshalJSON() ([]byte, error) {
	type fields Task
	return json.Marshal(struct {
		Type string
		fields
	}{"Task", fields(s)})
}

// MarshalJSON implements json.Marshaler.
func (s Pass) MarshalJSON() ([]byte, error) {
	type fields Pass
	return json.Marshal(struct {
		Type string
		fields
	}{"Pass", fields(s)})
}

// MarshalJSON implements json.Marshaler.
func (s Choice) MarshalJSON() ([]byte, error) {
	type fields Choice
	return json.Marshal(struct {
		Type string
		fields
	}{"Choice", fields(s)})
}

// MarshalJSON implements json.Marshaler.
func (s Wait) MarshalJSON() ([]byte, error) {
	type fields Wait
	return json.Marshal(struct {
		Type string
		fields
	}{"Wait", fields(s)})
}

// MarshalJSON implements json.Marshaler.
func (s Succeed) MarshalJSON() ([]byte, error) {
	type fields Succeed
	return json.Marshal(struct {
		Type string
		fields
	}{"Succeed", fields(s)})
}

// MarshalJSON implements json.Marshaler.
func (s Fail) MarshalJSON() ([]byte, error) {
	type fields Fail
	return json.Marshal(struct {
		Type string
		fields
	}{"Fail", fields(s)})
}

// MarshalJSON implements json.Marshaler.
func (s Map) MarshalJSON() ([]byte, error) {
	type fields Map
	return json.Marshal(struct {
		Type string
		fields
	}{"Map", fields(s)})
}
