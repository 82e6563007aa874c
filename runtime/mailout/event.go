package mailout

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/object"
	"github.com/briefing-swarm/briefing-swarm/runtime/span"
)

// Event is what the deliver handler is called with: to plan a file's delivery,
// or with one batch of its rows.
type Event struct {
	// Schedule is set where the delivery of a file is to be planned.
	Schedule *object.Ref
	// Input is what all batches of a file have in common.
	Input BatchInput
	// Items are rows, as JSON.
	Items []json.RawMessage
	// Places of the items that are to be done, in order. All of them where the
	// event says nothing about it.
	Places []int
}

// BatchInput is what all batches of a file have in common.
type BatchInput struct {
	object.Ref
	// RetryUnknown also sends the mails whose fate is unknown. Some of their
	// users may get a second one; only an operator should ask for it.
	RetryUnknown bool `json:"retry_unknown,omitempty"`
}

// maxItems bounds a batch. Step Functions' own limit of 256 KiB comes first.
const maxItems = 10_000

// EventError says what is wrong with an event. Trying again can't help.
type EventError struct {
	Detail, Want string
}

func (e *EventError) Error() string { return "event: " + e.Detail + ": want " + e.Want }

// badEvent is the error of an event that the deliver handler can't use.
func badEvent(detail string) error {
	return &EventError{detail, `{"schedule":{"bucket":"...","key":"..."}} or {"BatchInput":{"bucket":"...","key":"..."},"Items":[{"run_id":"...","user_id":"..."}, ...]}`}
}

// UnmarshalJSON reads both shapes of an event.
func (e *Event) UnmarshalJSON(text []byte) error {
	*e = Event{}
	var shape struct {
		Schedule   *object.Ref        `json:"schedule"`
		BatchInput *BatchInput        `json:"BatchInput"`
		Items      *[]json.RawMessage `json:"Items"`
		Remaining  *[]span.Span       `json:"remaining"`
	}
	if err := json.Unmarshal(text, &shape); err != nil {
		return badEvent("it can't be read")
	}
	switch {
	case shape.Schedule != nil && shape.Items != nil:
		return badEvent("it has both schedule and Items")
	case shape.Schedule != nil:
		if shape.Schedule.Bucket == "" || shape.Schedule.Key == "" {
			return badEvent("schedule lacks bucket or key")
		}
		e.Schedule = shape.Schedule
		return nil
	case shape.Items == nil:
		return badEvent("schedule and Items are missing")
	case len(*shape.Items) > maxItems:
		return badEvent(fmt.Sprintf("it has %d items, at most %d", len(*shape.Items), maxItems))
	}
	e.Items = *shape.Items
	if shape.BatchInput != nil {
		e.Input = *shape.BatchInput
	}
	if shape.Remaining != nil {
		var err error
		if e.Places, err = span.Places(*shape.Remaining, len(e.Items)); err != nil {
			return badEvent(err.Error())
		}
		return nil
	}
	e.Places = span.All(len(e.Items))
	return nil
}

// parseRow reads an item: a Parquet row as the Distributed Map hands it over.
// Columns that mail does not need are not looked at, and a missing or null one
// is empty.
func parseRow(text json.RawMessage) (briefing.Row, error) {
	var in struct {
		RunID       string          `json:"run_id"`
		UserID      string          `json:"user_id"`
		Email       string          `json:"email"`
		Name        string          `json:"name"`
		Locale      string          `json:"locale"`
		Status      string          `json:"status"`
		Subject     string          `json:"subject"`
		Briefing    string          `json:"briefing"`
		GeneratedAt json.RawMessage `json:"generated_at"`
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return briefing.Row{}, err
	}
	return briefing.Row{
		RunID: in.RunID, UserID: in.UserID, Email: in.Email, Name: in.Name, Locale: in.Locale, Status: in.Status,
		Subject: in.Subject, Briefing: in.Briefing, GeneratedAt: parseTime(in.GeneratedAt),
	}, nil
}

// timeForms are those that a Parquet timestamp may have as JSON text. AWS does
// not document which one its reader writes.
var timeForms = []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999 UTC"}

// parseTime returns the zero time for what it can't read: a mail shows the day
// it was sent then.
func parseTime(text json.RawMessage) time.Time {
	text = bytes.TrimSpace(text)
	var s string
	if json.Unmarshal(text, &s) == nil {
		for _, form := range timeForms {
			if t, err := time.Parse(form, s); err == nil {
				return t.UTC()
			}
		}
		text = []byte(s)
	}
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	// Seconds, milliseconds, microseconds or nanoseconds: of those one is
	// between 1973 and 5138.
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond, time.Nanosecond} {
		if seconds := n * unit.Seconds(); seconds >= 1e8 && seconds < 1e11 {
			whole := int64(seconds)
			return time.Unix(whole, int64((seconds-float64(whole))*1e9)).UTC().Round(time.Millisecond)
		}
	}
	return time.Time{}
}

// Receipt is what a batch returns: at most MaxReceiptBytes of JSON. Sent,
// AlreadySent, Skipped, Failed, Unknown and RemainingItems add up to the items
// that the event asked for.
type Receipt struct {
	Items       int `json:"items"`
	Sent        int `json:"sent"`
	AlreadySent int `json:"already_sent"` // by an earlier call, or another item is about the same user
	Skipped     int `json:"skipped"`      // no briefing, no address, or unsubscribed
	Failed      int `json:"failed"`       // certainly not sent
	Unknown     int `json:"unknown"`      // may have been sent; not sent again by itself
	// Remaining are the places of the items that were not reached: the same
	// event with this list as "remaining" goes on.
	Remaining      []span.Span    `json:"remaining"`
	RemainingItems int            `json:"remaining_items"`
	FailedByCode   map[string]int `json:"failed_by_code"` // the most common ones
	Seconds        float64        `json:"seconds"`
}

// MaxReceiptBytes is the most a receipt has: results of all children of a map
// come together in one state.
const MaxReceiptBytes = 1 << 10

// Bounds that keep a receipt within MaxReceiptBytes.
const (
	maxRanges = 40
	maxCodes  = 6
)
