package mailout

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/deliver"
	"github.com/briefing-swarm/briefing-swarm/runtime/object"
	"github.com/briefing-swarm/briefing-swarm/runtime/span"
)

func TestEvents(t *testing.T) {
	t.Parallel()
	items := []json.RawMessage{json.RawMessage(`{"a":1}`), json.RawMessage(`[]`), json.RawMessage(`null`)}
	ref := object.Ref{Bucket: "b", Key: "k"}
	for name, tc := range map[string]struct {
		text string
		want Event
	}{
		"schedule":     {`{"schedule":{"bucket":"b","key":"k"}}`, Event{Schedule: &ref}},
		"batch":        {`{"BatchInput":{"bucket":"b","key":"k"},"Items":[{"a":1},[],null]}`, Event{Input: BatchInput{Ref: ref}, Items: items, Places: []int{0, 1, 2}}},
		"remaining":    {`{"Items":[{"a":1},[],null],"remaining":[[2,2],[0,0],[0,0]]}`, Event{Items: items, Places: []int{0, 2}}},
		"none remain":  {`{"Items":[{"a":1},[],null],"remaining":[]}`, Event{Items: items, Places: []int{}}},
		"null":         {`{"BatchInput":null,"Items":[{"a":1},[],null],"remaining":null}`, Event{Items: items, Places: []int{0, 1, 2}}},
		"retry":        {`{"BatchInput":{"retry_unknown":true},"Items":[]}`, Event{Input: BatchInput{RetryUnknown: true}, Items: []json.RawMessage{}, Places: []int{}}},
		"more is left": {`{"BatchInput":{"bucket":"b","key":"k","map":"x"},"Items":[],"Execution":"y"}`, Event{Input: BatchInput{Ref: ref}, Items: []json.RawMessage{}, Places: []int{}}},
	} {
		var got Event
		if err := json.Unmarshal([]byte(tc.text), &got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for text, want := range map[string]string{
		`{}`: "are missing", `[]`: "can't be read", `{"Items":{}}`: "can't be read", `{"schedule":{"bucket":"b"}}`: "lacks bucket or key",
		`{"schedule":{"bucket":"b","key":"k"},"Items":[]}`: "both", `{"Items":[1],"remaining":[[0,1]]}`: "range 0 to 1 in a batch of 1", `{"Items":[1],"remaining":[[-1,0]]}`: "range -1",
		`{"Items":[1,2],"remaining":[[1,0]]}`: "range 1 to 0", `{"Items":[` + strings.Repeat("1,", maxItems) + `1]}`: "10001 items",
	} {
		var got Event
		err := json.Unmarshal([]byte(text), &got)
		var event *EventError
		if !errors.As(err, &event) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: error %v, want %q", text, err, want)
		}
	}
}

func TestRows(t *testing.T) {
	t.Parallel()
	full := briefing.Row{
		RunID: "r", UserID: "u", Email: "u@example.com", Name: "Ü", Locale: "de", Status: "ok", Subject: "s", Briefing: "b",
		GeneratedAt: time.Date(2026, time.November, 30, 7, 0, 0, 123e6, time.UTC),
	}
	row := func(at string) string {
		return `{"run_id":"r","user_id":"u","email":"u@example.com","name":"Ü","locale":"de","status":"ok","subject":"s","briefing":"b","prompt_tokens":"many","attributes":{},"generated_at":` + at + `}`
	}
	for _, at := range []string{
		`"2026-11-30T07:00:00.123Z"`, `"2026-11-30T08:00:00.123+01:00"`, `"2026-11-30 07:00:00.123"`, `"2026-11-30T07:00:00.123"`, `"2026-11-30 07:00:00.123 UTC"`,
		`1796022000.123`, `1796022000123`, `1796022000123000`, `1796022000123000000`, `"1796022000123"`,
	} {
		got, err := parseRow(json.RawMessage(row(at)))
		if err != nil {
			t.Errorf("%s: %v", at, err)
		}
		if diff := cmp.Diff(full, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", at, diff)
		}
	}
	for _, at := range []string{`null`, `""`, `"soon"`, `0`, `-5`, `true`, `{}`, `[1]`, `1e400`, `"NaN"`} {
		if got, err := parseRow(json.RawMessage(row(at))); err != nil || !got.GeneratedAt.IsZero() || got.Email == "" {
			t.Errorf("%s: %v, %v", at, got.GeneratedAt, err)
		}
	}
	if got, err := parseRow(json.RawMessage(`{"user_id":null,"email":null}`)); err != nil || got != (briefing.Row{}) {
		t.Errorf("nulls: %+v, %v", got, err)
	}
	for _, text := range []string{`1`, `"x"`, `[]`, `{"email":5}`, `{"user_id":{}}`} {
		if _, err := parseRow(json.RawMessage(text)); err == nil {
			t.Errorf("%s is taken for a row", text)
		}
	}
}

// TestReceiptIsSmall: a thousand children's receipts come together in one state.
func TestReceiptIsSmall(t *testing.T) {
	t.Parallel()
	event := Event{}
	b := &batch{ended: map[int]bool{}, failed: map[string]int{}}
	for i := range maxItems {
		event.Places = append(event.Places, i)
		b.ended[i] = i%2 == 0
		b.failed[fmt.Sprintf("a_rather_long_code_%d", i%50)] = 9000 + i
	}
	r := b.receipt(event, deliver.Stats{Sent: maxItems, Already: maxItems, Unknown: maxItems, SkippedFailed: maxItems})
	r.Seconds = 899.999
	text, err := json.Marshal(r)
	if err != nil || len(text) > MaxReceiptBytes {
		t.Errorf("%d bytes, %v: %s", len(text), err, text)
	}
	if places, err := span.Places(r.Remaining, maxItems); err != nil || len(places) < maxItems/2 {
		t.Errorf("%d places remain, %v", len(places), err)
	}
}

func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"schedule":{"bucket":"b","key":"k"}}`))
	f.Add([]byte(`{"BatchInput":{"bucket":"b","key":"k"},"Items":[{"run_id":"r","generated_at":1796022000123},1],"remaining":[[0,1]]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var event Event
		if err := json.Unmarshal(text, &event); err != nil {
			return
		}
		if (event.Schedule == nil) == (event.Items == nil) {
			t.Errorf("neither, or both: %+v", event)
		}
		last := -1
		for _, place := range event.Places {
			if place <= last || place >= len(event.Items) {
				t.Fatalf("places %v of %d items", event.Places, len(event.Items))
			}
			last = place
			if row, err := parseRow(event.Items[place]); err == nil && !row.GeneratedAt.IsZero() && (row.GeneratedAt.Year() < 1 || row.GeneratedAt.Year() > 9999) {
				t.Errorf("a year %d", row.GeneratedAt.Year())
			}
		}
		if places, err := span.Places(span.Of(event.Places, len(event.Places)+1), len(event.Items)); err != nil || !cmp.Equal(places, append([]int{}, event.Places...)) {
			t.Errorf("places %v came back as %v, %v", event.Places, places, err)
		}
	})
}
