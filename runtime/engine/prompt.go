package engine

import (
	"fmt"
	"slices"
	"strings"
)

// Roles of a Message.
const (
	RoleSystem    = "system"
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// Message is one turn of a chat.
type Message struct {
	Role    string
	Content string
}

// tokenizer turns messages into prompt tokens. What the chat template writes
// may contain control tokens; what stands in a message never does, whatever
// its text: "<|eot_id|>" in a user's data stays those ten characters.
type tokenizer struct {
	backend Backend

	// The last chat and its beginning, which is the same for a whole run:
	// everything up to the content of the last message.
	roles  []string
	pieces []string
	lead   []Message
	head   []Token
}

// appendPrompt appends the tokens of the whole prompt to dst.
func (t *tokenizer) appendPrompt(dst []Token, messages []Message) ([]Token, error) {
	if len(messages) == 0 {
		return dst, &OptionError{Field: "messages", Value: "empty", Want: "at least one message"}
	}
	if err := t.setChat(messages); err != nil {
		return dst, err
	}
	dst = append(dst, t.head...)
	last := len(messages) - 1
	return t.appendTurn(dst, messages[last].Content, t.pieces[last+1], len(t.head) == 0)
}

// setChat computes pieces and head unless they are those of the last prompt.
func (t *tokenizer) setChat(messages []Message) error {
	last := len(messages) - 1
	if len(messages) == len(t.roles) && slices.Equal(t.lead, messages[:last]) && t.roles[last] == messages[last].Role {
		return nil
	}
	roles := make([]string, len(messages))
	for i, m := range messages {
		roles[i] = m.Role
	}
	pieces, err := t.backend.ChatPieces(roles)
	if err != nil {
		return fmt.Errorf("apply chat template: %w", err)
	}
	if len(pieces) != len(roles)+1 {
		return fmt.Errorf("apply chat template: %d pieces for %d messages", len(pieces), len(roles))
	}
	head, err := t.backend.AppendTokens(nil, pieces[0], true, true)
	if err != nil {
		return fmt.Errorf("tokenize chat template: %w", err)
	}
	for i, m := range messages[:last] {
		if head, err = t.appendTurn(head, m.Content, pieces[i+1], len(head) == 0); err != nil {
			return err
		}
	}
	t.roles, t.pieces, t.lead, t.head = roles, pieces, slices.Clone(messages[:last]), head
	return nil
}

// appendTurn appends a message's content and the template's text after it.
func (t *tokenizer) appendTurn(dst []Token, content, after string, first bool) ([]Token, error) {
	// Templates trim contents; doing it here keeps the pieces independent of
	// them. A NUL ends a C string, so it cannot pass.
	content = strings.ReplaceAll(strings.TrimSpace(content), "\x00", "\uFFFD")
	dst, err := t.backend.AppendTokens(dst, content, false, first)
	if err != nil {
		return dst, fmt.Errorf("tokenize message: %w", err)
	}
	dst, err = t.backend.AppendTokens(dst, after, true, false)
	if err != nil {
		return dst, fmt.Errorf("tokenize chat template: %w", err)
	}
	return dst, nil
}

// commonPrefix returns how many tokens a and b begin with together.
func commonPrefix(a, b []Token) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
