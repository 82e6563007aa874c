package engine

import "fmt"

// PromptTooLongError reports a prompt that does not fit. The prompt is refused
// whole: cutting it would change what is asked without anyone knowing.
type PromptTooLongError struct {
	PromptTokens int // tokens of the prompt
	MaxTokens    int // tokens asked for
	Limit        int // cells one sequence may take
}

func (e *PromptTooLongError) Error() string {
	return fmt.Sprintf("prompt of %d tokens and %d to generate do not fit into a context of %d tokens: shorten the record or the template, lower max tokens, or raise the context",
		e.PromptTokens, e.MaxTokens, e.Limit)
}

// OptionError reports an option or request field outside of its range.
type OptionError struct {
	Field string
	Value any
	Want  string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("%s is %v, want %s", e.Field, e.Value, e.Want)
}
