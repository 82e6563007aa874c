package stream

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
)

// completion is an answer as a whole, or with Delta a piece of one.
type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage,omitempty"`
}

type choice struct {
	Index        int     `json:"index"`
	Message      *answer `json:"message,omitempty"`
	Delta        *answer `json:"delta,omitempty"`
	FinishReason *string `json:"finish_reason"`
}

type answer struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type usage struct {
	PromptTokens        int `json:"prompt_tokens"`
	CompletionTokens    int `json:"completion_tokens"`
	TotalTokens         int `json:"total_tokens"`
	PromptTokensDetails struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func newUsage(r engine.Result) *usage {
	u := &usage{PromptTokens: r.PromptTokens, CompletionTokens: r.CompletionTokens, TotalTokens: r.PromptTokens + r.CompletionTokens}
	u.PromptTokensDetails.CachedTokens = r.CachedTokens
	return u
}

// finishReason is OpenAI's word: it has none for a text that ran out of time,
// which is cut short like one that ran out of tokens.
func finishReason(r engine.Result) *string {
	reason := r.FinishReason
	if reason == engine.FinishDeadline {
		reason = engine.FinishLength
	}
	return &reason
}

// apiError is an error as clients of the API expect it.
type apiError struct {
	status  int
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func (e *apiError) Error() string { return e.Message }

const (
	typeInvalid = "invalid_request_error"
	typeServer  = "server_error"
)

func invalid(status int, code, format string, args ...any) *apiError {
	return &apiError{status: status, Message: fmt.Sprintf(format, args...), Type: typeInvalid, Code: &code}
}

// errorOf turns what went wrong into what a client may see of it.
func errorOf(err error) *apiError {
	var known *apiError
	var tooLong *engine.PromptTooLongError
	var found faults
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &tooLong):
		return invalid(http.StatusBadRequest, "context_length_exceeded",
			"the messages have %d tokens and %d are asked for, the model's context is %d: shorten the messages or lower max_tokens",
			tooLong.PromptTokens, tooLong.MaxTokens, tooLong.Limit)
	case errors.As(err, &found):
		e := invalid(http.StatusBadRequest, "invalid_value", "%s", found.Error())
		if len(found) == 1 {
			e.Param = &found[0].field
		}
		return e
	}
	code := "internal_error"
	return &apiError{status: http.StatusInternalServerError, Message: "the model could not answer; the function's log says why", Type: typeServer, Code: &code}
}

func writeError(w http.ResponseWriter, e *apiError) {
	w.Header().Set("Content-Type", "application/json")
	if e.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	w.WriteHeader(e.status)
	writeJSON(w, map[string]any{"error": e})
}

// writeJSON writes v. A client that has gone away needs no answer.
func writeJSON(w http.ResponseWriter, v any) {
	_ = json.NewEncoder(w).Encode(v)
}
