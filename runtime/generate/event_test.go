package generate

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/runtime/span"
)

func TestBatchEvent(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		event  string
		runID  string
		items  []string
		places []int
		err    string
	}{
		"batch":          {event: `{"BatchInput":{"run_id":"run-1","more":1},"Items":[{"user_id":"a"},{"user_id":"b"}]}`, runID: "run-1", items: []string{`{"user_id":"a"}`, `{"user_id":"b"}`}, places: []int{0, 1}},
		"no input":       {event: `{"Items":[{"user_id":"a"}]}`, items: []string{`{"user_id":"a"}`}, places: []int{0}},
		"list":           {event: ` [{"user_id":"a"}, 7]`, items: []string{`{"user_id":"a"}`, `7`}, places: []int{0, 1}},
		"record":         {event: `{"user_id":"a","Items":"mine"}`, items: []string{`{"user_id":"a","Items":"mine"}`}, places: []int{0}},
		"remaining":      {event: `{"Items":[1,2,3,4,5],"remaining":[[3,4],[1,1],[4,4]]}`, items: []string{"1", "2", "3", "4", "5"}, places: []int{1, 3, 4}},
		"none remaining": {event: `{"Items":[1,2],"remaining":[]}`, items: []string{"1", "2"}, places: []int{}},
		"empty":          {event: `{"Items":[]}`, items: []string{}, places: []int{}},
		"text":           {event: `"x"`, err: "neither"},
		"no items":       {event: `{"BatchInput":{}}`, err: "Items is missing"},
		"items no list":  {event: `{"Items":{}}`, err: "Items is missing"},
		"null items":     {event: `{"Items":null}`, err: "Items is missing"},
		"run id":         {event: `{"BatchInput":{"run_id":"a/../b"},"Items":[]}`, err: "run_id must be"},
		"range too far":  {event: `{"Items":[1],"remaining":[[0,1]]}`, err: "range 0 to 1 in a batch of 1"},
		"range reversed": {event: `{"Items":[1,2],"remaining":[[1,0]]}`, err: "range 1 to 0"},
		"range negative": {event: `{"Items":[1,2],"remaining":[[-1,0]]}`, err: "range -1 to 0"},
		"too many":       {event: `[` + strings.Repeat("1,", maxItems) + `1]`, err: "10001 items"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var event BatchEvent
			err := json.Unmarshal([]byte(test.event), &event)
			if test.err != "" {
				var eventErr *EventError
				if !errors.As(err, &eventErr) || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("error %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			items := []string{}
			for _, item := range event.Items {
				items = append(items, string(item))
			}
			if d := cmp.Diff(test.items, items); d != "" {
				t.Errorf("items (-want +got):\n%s", d)
			}
			if d := cmp.Diff(test.places, event.Places); d != "" || event.Input.RunID != test.runID {
				t.Errorf("run %q, places (-want +got):\n%s", event.Input.RunID, d)
			}
		})
	}
}

// FuzzBatchEvent: whatever an event holds, reading it ends in an *EventError or
// in places that are within its items, and every item gets an Item.
func FuzzBatchEvent(f *testing.F) {
	for _, seed := range []string{
		`{"BatchInput":{"run_id":"r"},"Items":[{"user_id":"a"}],"remaining":[[0,0]]}`, `[{"user_id":"a"},null,"x"]`, `{"user_id":7}`,
		`{"Items":[{}],"remaining":[[0,9223372036854775807]]}`, `{"Items":[],"Items":[1]}`, `{"items":[1]}`, ``, `{`, `[[[]]]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var event BatchEvent
		if err := event.UnmarshalJSON(text); err != nil {
			var eventErr *EventError
			if !errors.As(err, &eventErr) {
				t.Fatalf("error %T: %v", err, err)
			}
			return
		}
		last := -1
		for _, place := range event.Places {
			if place <= last || place >= len(event.Items) {
				t.Fatalf("places %v of %d items", event.Places, len(event.Items))
			}
			last = place
			if item := ParseItem(event.Items[place]); item.Err == nil && item.Record.UserID == "" {
				t.Fatalf("item %s is a record of nobody", event.Items[place])
			}
		}
	})
}

// TestReceiptIsSmall: the largest receipt there can be is within the limit.
func TestReceiptIsSmall(t *testing.T) {
	t.Parallel()
	var places []int
	for i := range maxItems {
		if i%3 == 0 {
			places = append(places, i)
		}
	}
	r := Receipt{
		RunID: strings.Repeat("r", 128), Items: maxItems, OK: maxItems, Failed: maxItems, Remaining: span.Of(places, maxRanges), RemainingItems: maxItems,
		PromptTokens: math.MaxInt64, CachedTokens: math.MaxInt64, CompletionTokens: math.MaxInt64, Seconds: 899.999, LoadSeconds: 899.999, TokensPerSec: 99999.999,
		Model: short(strings.Repeat("\"<é>\u2028", 100)),
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > MaxReceiptBytes {
		t.Errorf("%d bytes, at most %d: %s", len(text), MaxReceiptBytes, text)
	}
}
