// Package recipe turns a record into a request to the engine, and what the
// engine returns into a row. The local swarm and the Lambda handlers share it,
// so that the same input gives the same rows on both.
package recipe

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
)

// Codes of failed rows that arise here. Those of templates and of rejected
// input are in package briefing.
const (
	CodePromptTooLong = "prompt_too_long"
	CodeEngine        = "engine_error"
	CodeEmpty         = "empty_text"
	CodeDeadline      = "deadline" // a text that no invocation is long enough for
)

// Recipe is what decides the texts of a run, beside the records.
type Recipe struct {
	// Model is what rows call it: name and quantization.
	Model     string
	Template  *briefing.Template
	MaxTokens int
	Sampling  engine.Sampling
	Stop      []string
	Grammar   string // GBNF, or empty
}

// Messages returns the chat of a prompt.
func Messages(p briefing.Prompt) []engine.Message {
	user := engine.Message{Role: engine.RoleUser, Content: p.User}
	if p.System == "" {
		return []engine.Message{user}
	}
	return []engine.Message{{Role: engine.RoleSystem, Content: p.System}, user}
}

// Check tries what would otherwise fail every single record.
func (r *Recipe) Check(eng *engine.Engine, backend engine.Backend) error {
	if _, err := eng.CountTokens(Messages(briefing.Prompt{System: r.Template.System(), User: "x"})); err != nil {
		return err
	}
	if r.Grammar != "" {
		g, err := backend.NewGrammar(r.Grammar)
		if err != nil {
			return err
		}
		g.Close()
	}
	return nil
}

// Request returns what to ask the engine for rec; its Ref is rec. The error
// says why rec has no prompt: see FailedRow.
func (r *Recipe) Request(rec briefing.Record) (engine.Request, error) {
	prompt, err := r.Template.Render(rec)
	if err != nil {
		return engine.Request{}, err
	}
	sampling := r.Sampling
	// A seed of the user's own: the text then does not depend on the order of
	// the input, nor on which worker or session made it.
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", sampling.Seed, rec.UserID)
	sampling.Seed = h.Sum64()
	return engine.Request{
		Ref: rec, Messages: Messages(prompt), MaxTokens: r.MaxTokens,
		Sampling: sampling, Stop: r.Stop, Grammar: r.Grammar,
	}, nil
}

// row returns what every row of rec begins with.
func (r *Recipe) row(runID string, rec briefing.Record) briefing.Row {
	return briefing.Row{
		RunID: runID, UserID: rec.UserID, Email: rec.Email, Name: rec.Name, Locale: rec.Locale,
		Model: r.Model, Attributes: rec.Attributes(), GeneratedAt: Now(),
	}
}

// Now is the time as rows have it: UTC, in milliseconds.
func Now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// FailedRow returns the row of a record for which nothing can be generated. Its
// code is that of err, where it has one.
func (r *Recipe) FailedRow(runID string, rec briefing.Record, err error) briefing.Row {
	row := r.row(runID, rec)
	row.Status, row.ErrorCode, row.ErrorMessage = briefing.StatusFailed, codeOf(err), err.Error()
	return row
}

// RejectedRow returns the row of a record that cannot be read.
func (r *Recipe) RejectedRow(runID string, e *briefing.RowError) briefing.Row {
	row := r.row(runID, briefing.Record{UserID: e.UserID})
	messages := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		messages[i] = f.Message
	}
	row.Status, row.ErrorCode, row.ErrorMessage = briefing.StatusFailed, e.Faults[0].Code, strings.Join(messages, "; ")
	return row
}

func codeOf(err error) string {
	var template *briefing.TemplateError
	var tooLong *engine.PromptTooLongError
	var late *DeadlineError
	switch {
	case errors.As(err, &template):
		return template.Code
	case errors.As(err, &tooLong):
		return CodePromptTooLong
	case errors.As(err, &late):
		return CodeDeadline
	}
	return CodeEngine
}

// DeadlineError says that a text was not finished in the time there was for it
// alone.
type DeadlineError struct {
	After time.Duration
}

func (e *DeadlineError) Error() string {
	return fmt.Sprintf("no text within the %s that one invocation has: raise the timeout or the memory, or lower max tokens", e.After.Round(100*time.Millisecond))
}

// Row returns the row of a result.
func (r *Recipe) Row(runID string, rec briefing.Record, res engine.Result) briefing.Row {
	row := r.row(runID, rec)
	row.PromptTokens, row.CachedTokens, row.CompletionTokens = int32(res.PromptTokens), int32(res.CachedTokens), int32(res.CompletionTokens)
	row.FinishReason = res.FinishReason
	full := res.Text
	if res.FinishReason == engine.FinishLength && r.Grammar == "" {
		full = briefing.TrimUnfinished(full)
	}
	subject, text := briefing.SplitSubject(full)
	if subject == "" {
		subject = briefing.Subject(rec)
	}
	switch {
	case res.Err != nil:
		row.Status, row.ErrorCode, row.ErrorMessage = briefing.StatusFailed, codeOf(res.Err), res.Err.Error()
	case strings.TrimSpace(text) == "":
		row.Status, row.ErrorCode, row.ErrorMessage = briefing.StatusFailed, CodeEmpty, "the model ended its text without a word: try another model, or a temperature above 0"
	default:
		row.Status, row.Subject, row.Briefing = briefing.StatusOK, subject, text
	}
	return row
}
