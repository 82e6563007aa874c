package stream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
)

// Bounds of a request, beside the model's context.
const (
	maxBodyBytes   = 1 << 20
	maxMessages    = 1024
	maxStops       = 4
	maxStopBytes   = 256
	maxTemperature = 2
)

// chat is a request for a completion. What OpenAI's form has beyond it is
// refused where it would change the text, and else passed over.
type chat struct {
	Model               string          `json:"model"`
	Messages            []message       `json:"messages"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Temperature         *float64        `json:"temperature"`
	TopP                *float64        `json:"top_p"`
	MinP                *float64        `json:"min_p"`
	Seed                *int64          `json:"seed"`
	Stop                json.RawMessage `json:"stop"`
	Stream              bool            `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`

	// What is not done: only the value that means nothing is taken.
	N                *int                   `json:"n"`
	Logprobs         *bool                  `json:"logprobs"`
	FrequencyPenalty *float64               `json:"frequency_penalty"`
	PresencePenalty  *float64               `json:"presence_penalty"`
	LogitBias        map[string]json.Number `json:"logit_bias"`
	Tools            []json.RawMessage      `json:"tools"`
	Functions        []json.RawMessage      `json:"functions"`
	ResponseFormat   *struct {
		Type string `json:"type"`
	} `json:"response_format"`
}

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// fault is one thing wrong with a request.
type fault struct {
	field, text string
}

// faults are all that is wrong with a request.
type faults []fault

func (f faults) Error() string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = one.field + " " + one.text
	}
	return strings.Join(lines, "; ")
}

// parseChat reads a request and returns what to ask the engine for, less the
// bound of tokens where none is given. base has what the request leaves open.
// The error is faults.
func parseChat(body []byte, base engine.Request) (*chat, engine.Request, error) {
	c := &chat{}
	decoder := json.NewDecoder(bytes.NewReader(body))
	if !utf8.Valid(body) {
		return nil, base, faults{{"the body", "is not UTF-8"}}
	}
	if err := decoder.Decode(c); err != nil {
		return nil, base, faults{{"the body", "is no chat request in JSON: " + jsonFault(err)}}
	}
	if decoder.More() {
		return nil, base, faults{{"the body", "has something after its JSON object"}}
	}
	var found faults
	add := func(field, format string, args ...any) {
		found = append(found, fault{field, fmt.Sprintf(format, args...)})
	}
	r := base
	r.Messages = c.messages(add)
	if c.MaxTokens != nil && c.MaxCompletionTokens != nil && *c.MaxTokens != *c.MaxCompletionTokens {
		add("max_tokens", "is %d and max_completion_tokens is %d: give one of them", *c.MaxTokens, *c.MaxCompletionTokens)
	}
	for field, v := range map[string]*int{"max_tokens": c.MaxTokens, "max_completion_tokens": c.MaxCompletionTokens} {
		if v == nil {
			continue
		}
		if *v < 1 {
			add(field, "is %d, want at least 1", *v)
		}
		r.MaxTokens = *v
	}
	fraction := func(field string, v *float64, most float64, to *float32) {
		if v == nil {
			return
		}
		if !(*v >= 0 && *v <= most) {
			add(field, "is %v, want 0 to %v", *v, most)
		}
		*to = float32(*v)
	}
	fraction("temperature", c.Temperature, maxTemperature, &r.Sampling.Temperature)
	fraction("top_p", c.TopP, 1, &r.Sampling.TopP)
	fraction("min_p", c.MinP, 1, &r.Sampling.MinP)
	if c.Seed != nil {
		r.Sampling.Seed = uint64(*c.Seed)
	}
	if stop, ok := c.stop(add); ok {
		r.Stop = stop
	}
	c.refuse(add)
	if len(found) > 0 {
		// Fields of a map come in any order.
		slices.SortStableFunc(found, func(a, b fault) int { return strings.Compare(a.field, b.field) })
		return nil, base, found
	}
	return c, r, nil
}

// jsonFault says what is wrong with JSON without quoting it: it is a user's.
func jsonFault(err error) string {
	switch e := err.(type) {
	case *json.SyntaxError:
		return fmt.Sprintf("syntax error at byte %d", e.Offset)
	case *json.UnmarshalTypeError:
		return fmt.Sprintf("%s has the wrong type, want %s", e.Field, e.Type)
	}
	return "it ends too early"
}

func (c *chat) messages(add func(field, format string, args ...any)) []engine.Message {
	if len(c.Messages) == 0 || len(c.Messages) > maxMessages {
		add("messages", "has %d entries, want 1 to %d", len(c.Messages), maxMessages)
		return nil
	}
	var all []engine.Message
	for i, m := range c.Messages {
		field := fmt.Sprintf("messages[%d]", i)
		role := m.Role
		switch role {
		case "developer":
			role = engine.RoleSystem
		case engine.RoleSystem, engine.RoleUser, engine.RoleAssistant:
		default:
			add(field+".role", "is not one of system, developer, user, assistant")
		}
		text, ok := contentText(m.Content)
		if !ok {
			add(field+".content", "is neither a text nor a list of parts of type text")
		}
		all = append(all, engine.Message{Role: role, Content: text})
	}
	if last := all[len(all)-1].Role; last == engine.RoleSystem || last == engine.RoleAssistant {
		add("messages", "end with a message of role %s, want one of user to answer", last)
	}
	return all
}

// contentText is the text of a message: a string, or parts that are texts.
func contentText(raw json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil && string(bytes.TrimSpace(raw)) != "null" {
		return text, true
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil || len(parts) == 0 {
		return "", false
	}
	for _, p := range parts {
		if p.Type != "text" || p.Text == nil {
			return "", false
		}
		text += *p.Text
	}
	return text, true
}

// stop returns the stop strings where the request has the field.
func (c *chat) stop(add func(field, format string, args ...any)) ([]string, bool) {
	raw := bytes.TrimSpace(c.Stop)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, false
	}
	var one string
	list := []string{}
	if json.Unmarshal(raw, &one) == nil {
		list = []string{one}
	} else if json.Unmarshal(raw, &list) != nil {
		add("stop", "is neither a text nor a list of texts")
		return nil, false
	}
	if len(list) > maxStops {
		add("stop", "has %d texts, at most %d", len(list), maxStops)
	}
	for i, s := range list {
		if s == "" || len(s) > maxStopBytes {
			add(fmt.Sprintf("stop[%d]", i), "has %d bytes, want 1 to %d", len(s), maxStopBytes)
		}
	}
	return list, true
}

// refuse names what this endpoint can't do, rather than leave it undone.
func (c *chat) refuse(add func(field, format string, args ...any)) {
	if c.N != nil && *c.N != 1 {
		add("n", "is %d, only 1 is supported", *c.N)
	}
	if c.Logprobs != nil && *c.Logprobs {
		add("logprobs", "is not supported: leave it out")
	}
	for field, v := range map[string]*float64{"frequency_penalty": c.FrequencyPenalty, "presence_penalty": c.PresencePenalty} {
		if v != nil && (*v != 0 || math.IsNaN(*v)) {
			add(field, "is not supported: leave it out")
		}
	}
	for field, n := range map[string]int{"logit_bias": len(c.LogitBias), "tools": len(c.Tools), "functions": len(c.Functions)} {
		if n > 0 {
			add(field, "are not supported: leave them out")
		}
	}
	if f := c.ResponseFormat; f != nil && f.Type != "" && f.Type != "text" {
		add("response_format", "is only supported with type text")
	}
}
