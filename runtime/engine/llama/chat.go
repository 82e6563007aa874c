package llama

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// errNoTemplate says that the file brings no chat template.
var errNoTemplate = errors.New("the model file has no chat template: use an instruct or chat version of the model, or --chat-template plain for a base model")

// chatTemplate is a model's own chat template.
type chatTemplate struct {
	compiled *jinja.Template
	bos, eos string
}

func compileTemplate(source, bos, eos string) (*chatTemplate, error) {
	if strings.TrimSpace(source) == "" {
		return nil, errNoTemplate
	}
	t, err := jinja.Compile(source)
	if err != nil {
		return nil, fmt.Errorf("compile the model's chat template: %w", err)
	}
	return &chatTemplate{compiled: t, bos: bos, eos: eos}, nil
}

// mark stands for a message's content. Private-use characters do not occur in
// templates, and no template changes them.
func mark(i int) string { return "\uE0F0" + strconv.Itoa(i) + "\uE0F1" }

// pieces renders the template around marks and splits it there. Some templates
// refuse a system message; then it is put before the first user message, which
// is what their authors advise.
func (t *chatTemplate) pieces(roles []string) ([]string, error) {
	contents := make([]string, len(roles))
	for i := range roles {
		contents[i] = mark(i)
	}
	pieces, err := t.render(roles, contents)
	if err == nil || len(roles) < 2 || roles[0] != "system" {
		return pieces, err
	}
	folded := slices.Clone(contents[1:])
	folded[0] = contents[0] + "\n\n" + contents[1]
	if pieces, err2 := t.render(roles[1:], folded); err2 == nil {
		return pieces, nil
	}
	return nil, err
}

func (t *chatTemplate) render(roles, contents []string) ([]string, error) {
	messages := make([]any, len(roles))
	n := 0
	for i, role := range roles {
		messages[i] = map[string]any{"role": role, "content": contents[i]}
		n += strings.Count(contents[i], "\uE0F0")
	}
	text, err := t.compiled.Render(map[string]any{
		"messages":              messages,
		"add_generation_prompt": true,
		"bos_token":             t.bos,
		"eos_token":             t.eos,
	})
	if err != nil {
		return nil, fmt.Errorf("render the model's chat template: %w", err)
	}
	var pieces []string
	for i := range n {
		before, after, ok := strings.Cut(text, mark(i))
		if !ok {
			return nil, fmt.Errorf("render the model's chat template: it leaves out message %d of roles %v", i+1, roles)
		}
		pieces = append(pieces, before)
		text = after
	}
	if strings.Contains(text, "\uE0F0") {
		return nil, fmt.Errorf("render the model's chat template: it repeats a message of roles %v", roles)
	}
	return append(pieces, text), nil
}
