package generate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/briefing-swarm/briefing-swarm/runtime/span"
)

// BatchEvent is what a child of the Distributed Map is called with.
type BatchEvent struct {
	Input BatchInput
	// Items are records, as JSON.
	Items []json.RawMessage
	// Places of the items that are to be done, in order. All of them where the
	// event says nothing about it.
	Places []int
}

// BatchInput is what all batches of a run have in common.
type BatchInput struct {
	RunID string `json:"run_id"`
}

// maxItems bounds a batch. Step Functions' own limit of 256 KiB comes first.
const maxItems = 10_000

// EventError says what is wrong with an event. Trying again can't help.
type EventError struct {
	Detail string
}

func (e *EventError) Error() string {
	return "event: " + e.Detail + `: want {"BatchInput":{"run_id":"..."},"Items":[{"user_id":"..."}, ...]}, or a list of records, or one record`
}

// runIDs are names that are safe in keys and logs.
var runIDs = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:+-]{0,127}$`)

// UnmarshalJSON reads the three shapes of an event: an object with Items, which
// is what ItemBatcher makes and to which the state machine adds the remaining
// places of an earlier call; a bare list of records; one bare record.
func (e *BatchEvent) UnmarshalJSON(text []byte) error {
	*e = BatchEvent{}
	switch text = bytes.TrimSpace(text); {
	case len(text) > 0 && text[0] == '[':
		if err := json.Unmarshal(text, &e.Items); err != nil {
			return &EventError{"the list can't be read"}
		}
	case len(text) > 0 && text[0] == '{':
		var shape struct {
			BatchInput json.RawMessage
			Items      *[]json.RawMessage
			Remaining  *[]span.Span `json:"remaining"`
		}
		// A bare record may have a field of any name and type, so a failure here
		// only counts where the object is a batch.
		err := json.Unmarshal(text, &shape)
		var keys map[string]json.RawMessage
		if json.Unmarshal(text, &keys) != nil {
			return &EventError{"the object can't be read"}
		}
		if _, record := keys["user_id"]; record {
			e.Items = []json.RawMessage{text}
			break
		}
		if err != nil || shape.Items == nil {
			return &EventError{"Items is missing or no list"}
		}
		e.Items = *shape.Items
		if len(shape.BatchInput) > 0 {
			if err := json.Unmarshal(shape.BatchInput, &e.Input); err != nil {
				return &EventError{"BatchInput is no object with a run_id"}
			}
		}
		if shape.Remaining != nil {
			if e.Places, err = span.Places(*shape.Remaining, min(len(e.Items), maxItems)); err != nil {
				return &EventError{err.Error()}
			}
		}
	default:
		return &EventError{"it is neither an object nor a list"}
	}
	if len(e.Items) > maxItems {
		return &EventError{fmt.Sprintf("it has %d items, at most %d", len(e.Items), maxItems)}
	}
	if id := e.Input.RunID; id != "" && !runIDs.MatchString(id) {
		return &EventError{"the run_id must be up to 128 letters, digits or ._:+-"}
	}
	if e.Places == nil {
		e.Places = span.All(len(e.Items))
	}
	return nil
}

// Receipt is what a batch returns: at most MaxReceiptBytes of JSON, however
// large the batch was. The texts themselves went to the sink.
type Receipt struct {
	RunID  string `json:"run_id"`
	Items  int    `json:"items"`
	OK     int    `json:"ok"`
	Failed int    `json:"failed"`
	// Remaining are the places of the items that have no row yet: the same event
	// with this list as "remaining" goes on. RemainingItems is their number.
	Remaining      []span.Span `json:"remaining"`
	RemainingItems int         `json:"remaining_items"`

	PromptTokens     int64 `json:"prompt_tokens"`
	CachedTokens     int64 `json:"cached_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`

	Seconds      float64 `json:"seconds"`
	LoadSeconds  float64 `json:"load_seconds"` // of a cold start, else 0
	TokensPerSec float64 `json:"tokens_per_sec"`
	Model        string  `json:"model"`
}

// MaxReceiptBytes is the most a receipt has: results of all children of a map
// come together in one state.
const MaxReceiptBytes = 1 << 10

// Bounds that keep a receipt within MaxReceiptBytes.
const (
	maxRanges     = 24
	maxModelBytes = 100
)

// short cuts a model's name for a receipt and leaves nothing that JSON would
// write longer.
func short(model string) string {
	model = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune(`"\<>&`, r) {
			return '?'
		}
		return r
	}, model)
	return model[:min(len(model), maxModelBytes)]
}
