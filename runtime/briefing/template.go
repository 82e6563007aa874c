package briefing

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"
	"unicode/utf8"
)

const (
	// MaxPromptBytes is the longest system or user prompt, and the longest
	// template.
	MaxPromptBytes = 64 << 10
	// maxTemplateSteps bounds the pieces a template writes and the rounds its
	// loops take, so that no loop runs on.
	maxTemplateSteps = 50_000
	// contextKey is the template's name for the list of context fields.
	contextKey = "context"
)

//go:embed default_system.txt default_user.tmpl
var defaults embed.FS

// DefaultSystemPrompt is the system prompt of a swarm that is given none: two to four
// plain, friendly sentences from the facts given and no others. Its two
// examples cost nothing per user, since they are in the shared prefix, and even
// a model of 135M parameters follows them.
func DefaultSystemPrompt() string { return defaultText("default_system.txt") }

// DefaultStop ends a text where a second paragraph would begin: what goes with
// the default system prompt, which asks for one.
const DefaultStop = "\n\n"

// DefaultUserTemplate is the user template of a swarm that is given none. It
// lists the name and every context field that holds something; user_id, e-mail
// address and locale stay out of the prompt.
func DefaultUserTemplate() string { return defaultText("default_user.tmpl") }

func defaultText(name string) string {
	text, err := defaults.ReadFile(name)
	if err != nil {
		panic(err) // the file is part of the program
	}
	return string(text)
}

// Prompt is what the model is given for one user.
type Prompt struct {
	// System is the same for every user of a run, so that its tokens are
	// computed once.
	System string
	// User is the text for one user.
	User string
}

// Template turns records into prompts. It is safe for concurrent use.
type Template struct {
	system string
	source string
	user   *template.Template
	fields []string
}

// Codes of a TemplateError.
const (
	CodeTemplateFailed  = "template_failed"
	CodeTemplateEndless = "template_endless"
	CodePromptTooLarge  = "prompt_too_large"
	CodePromptEmpty     = "prompt_empty"
)

// TemplateError says why a record has no prompt.
type TemplateError struct {
	// Code is one of the codes above; stable.
	Code string
	// Message says what is wrong and what to do, without text of the user.
	Message string
	// Err is the cause, or nil.
	Err error
}

// Error is the message, with the cause if there is one.
func (e *TemplateError) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *TemplateError) Unwrap() error { return e.Err }

// ParseTemplate prepares the prompts of a run.
//
// The system prompt is plain text, the same for all users, and may be empty.
//
// The user template is a text/template over one record. Its fields go by their
// own names: {{.user_id}}, {{.name}}, {{.locale}}, {{.email}} and every
// context field, {{index . "news interest"}} where a name is no identifier.
// Strings are strings, other JSON values are what they are, and a field that is
// missing, null or empty is empty and false. {{.context}} lists the context
// fields in order, each with a name and a value. Besides the functions of
// text/template there are:
//
//	default "there" .name   the value, or the text where the value is empty
//	join ", " .tasks        the items of a list in one line
//	json .calendar          the value as JSON
//	trunc 200 .news         no more than the first 200 characters
//
// A field's text is never read as a template. {{define}}, {{block}} and
// {{template}} are not available.
func ParseTemplate(system, user string) (*Template, error) {
	var errs []error
	for _, part := range []struct{ name, text string }{{"system prompt", system}, {"user template", user}} {
		switch {
		case len(part.text) > MaxPromptBytes:
			errs = append(errs, fmt.Errorf("%s: it has %d bytes, the limit is %d", part.name, len(part.text), MaxPromptBytes))
		case !utf8.ValidString(part.text):
			errs = append(errs, fmt.Errorf("%s: it is not UTF-8, save it as UTF-8", part.name))
		case strings.IndexByte(part.text, 0) >= 0:
			errs = append(errs, fmt.Errorf("%s: it holds a NUL byte, remove it", part.name))
		}
	}
	if _, after, ok := strings.Cut(system, "{{"); ok && strings.Contains(after, "}}") {
		errs = append(errs, errors.New("system prompt: it holds {{...}}, but it is the same plain text for every user, "+
			"so that the model reads it only once: put fields into the user template"))
	}
	if strings.TrimSpace(user) == "" {
		errs = append(errs, errors.New("user template: it is empty, every prompt would be the same: use at least one field"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	t := &Template{system: strings.TrimSpace(strings.TrimPrefix(system, "\ufeff")), source: user}
	parsed, err := parseUser(strings.TrimPrefix(user, "\ufeff"))
	if err != nil {
		return nil, fmt.Errorf("user template: %w", err)
	}
	t.user = parsed
	b := templateBuilder{fields: make(map[string]bool)}
	b.list(parsed.Root)
	if b.err != nil {
		return nil, fmt.Errorf("user template: %w", b.err)
	}
	for field := range b.fields {
		t.fields = append(t.fields, field)
	}
	slices.Sort(t.fields)
	return t, nil
}

func parseUser(text string) (t *template.Template, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("it cannot be parsed")
		}
	}()
	t, err = template.New("user").Funcs(templateFuncs).Parse(text)
	if err != nil {
		return nil, err
	}
	if t.Tree == nil || len(t.Templates()) > 1 {
		return nil, errors.New("{{define}}, {{block}} and {{template}} are not available: write it as one template")
	}
	return t, nil
}

// System is the system prompt, without white space around it.
func (t *Template) System() string { return t.system }

// Source is the text of the user template, as it was given.
func (t *Template) Source() string { return t.source }

// Fields lists, sorted, the names the user template asks the record for by
// {{.name}}, so that a name no record has can be reported before a run.
func (t *Template) Fields() []string { return slices.Clone(t.fields) }

// Render makes the prompt of one record. White space around the user prompt is
// dropped. Its error is a *TemplateError.
func (t *Template) Render(rec Record) (prompt Prompt, err error) {
	defer func() {
		if p := recover(); p != nil {
			prompt, err = Prompt{}, &TemplateError{Code: CodeTemplateFailed, Message: "the user template panicked on this record"}
		}
	}()
	data, err := templateData(rec)
	if err != nil {
		return Prompt{}, &TemplateError{Code: CodeTemplateFailed, Message: "the record has a context value that is not JSON", Err: err}
	}
	var out boundedWriter
	switch err := t.user.Execute(&out, data); {
	case errors.Is(err, errPromptTooLarge):
		return Prompt{}, &TemplateError{Code: CodePromptTooLarge, Message: fmt.Sprintf(
			"the prompt has more than %d bytes: shorten fields with trunc, or leave some out", MaxPromptBytes)}
	case errors.Is(err, errEndless):
		return Prompt{}, &TemplateError{Code: CodeTemplateEndless, Message: fmt.Sprintf(
			"the user template took more than %d steps: bound its loops", maxTemplateSteps)}
	case err != nil:
		return Prompt{}, &TemplateError{Code: CodeTemplateFailed, Message: "the user template does not fit this record", Err: executionError(err)}
	}
	user := strings.TrimSpace(string(out.text))
	if user == "" {
		return Prompt{}, &TemplateError{Code: CodePromptEmpty, Message: "the user template renders nothing for this record"}
	}
	return Prompt{System: t.system, User: user}, nil
}

// executionError keeps what an error of text/template says about the template.
// Some of them print the value they met, which is the user's.
func executionError(err error) error {
	text := err.Error()
	place, reason, ok := strings.Cut(text, ">: ")
	if !ok {
		return errors.New("it failed")
	}
	place += ">"
	for _, safe := range []string{"can't evaluate field", "wrong type for value", "wrong number of args",
		"error calling index: ", "error calling slice: ", "error calling len: ", "error calling printf: ",
		"error calling trunc: ", "nil pointer evaluating", "error calling lt: ", "error calling gt: "} {
		if strings.HasPrefix(reason, safe) {
			return fmt.Errorf("%s: %s", place, cutRunes(reason, 200))
		}
	}
	switch {
	case strings.HasPrefix(reason, "range can't iterate over"):
		return fmt.Errorf("%s: range needs a list or an object there", place)
	case strings.HasPrefix(reason, "error calling eq"), strings.HasPrefix(reason, "error calling ne"):
		return fmt.Errorf("%s: the two values are of kinds that cannot be compared", place)
	}
	return fmt.Errorf("%s: the value there is not what the template expects", place)
}

var (
	errPromptTooLarge = errors.New("prompt too large")
	errEndless        = errors.New("too many steps")
)

// boundedWriter takes a prompt up to its limits. Every write is a step, the
// empty ones that templateBuilder puts into loops too.
type boundedWriter struct {
	text  []byte
	steps int
}

var _ io.Writer = (*boundedWriter)(nil)

func (w *boundedWriter) Write(p []byte) (int, error) {
	if w.steps++; w.steps > maxTemplateSteps {
		return 0, errEndless
	}
	if len(w.text)+len(p) > MaxPromptBytes {
		return 0, errPromptTooLarge
	}
	w.text = append(w.text, p...)
	return len(p), nil
}

// templateBuilder rewrites a parsed template: what is printed goes through the
// function that knows empty values, and every round of a loop writes once.
type templateBuilder struct {
	fields map[string]bool
	err    error
	// inner counts the with and range blocks around, where the dot is not the
	// record.
	inner int
}

func (b *templateBuilder) list(list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *parse.ActionNode:
			b.pipe(node.Pipe)
			if len(node.Pipe.Decl) == 0 {
				node.Pipe.Cmds = append(node.Pipe.Cmds, &parse.CommandNode{
					NodeType: parse.NodeCommand,
					Pos:      node.Pos,
					Args:     []parse.Node{parse.NewIdentifier(printFunc).SetPos(node.Pos)},
				})
			}
		case *parse.IfNode:
			b.branch(&node.BranchNode, false)
		case *parse.WithNode:
			b.branch(&node.BranchNode, true)
		case *parse.RangeNode:
			b.branch(&node.BranchNode, true)
			node.List.Nodes = slices.Insert(node.List.Nodes, 0, parse.Node(&parse.TextNode{NodeType: parse.NodeText, Pos: node.Pos}))
		case *parse.TemplateNode:
			b.err = errors.New("{{template}} is not available: write it as one template")
		}
	}
}

func (b *templateBuilder) branch(node *parse.BranchNode, moves bool) {
	b.pipe(node.Pipe)
	if moves {
		b.inner++
	}
	b.list(node.List)
	if moves {
		b.inner--
	}
	b.list(node.ElseList)
}

func (b *templateBuilder) pipe(pipe *parse.PipeNode) {
	if pipe == nil {
		return
	}
	for _, cmd := range pipe.Cmds {
		for _, arg := range cmd.Args {
			b.arg(arg)
		}
	}
}

func (b *templateBuilder) arg(node parse.Node) {
	switch node := node.(type) {
	case *parse.FieldNode:
		if b.inner == 0 {
			b.fields[node.Ident[0]] = true
		}
	case *parse.VariableNode:
		if node.Ident[0] == "$" && len(node.Ident) > 1 {
			b.fields[node.Ident[1]] = true
		}
	case *parse.ChainNode:
		b.arg(node.Node)
	case *parse.PipeNode:
		b.pipe(node)
	}
}

// templateData is the record as a template sees it.
func templateData(rec Record) (map[string]any, error) {
	data := make(map[string]any, len(rec.Context)+5)
	list := make([]any, 0, len(rec.Context))
	for _, f := range rec.Context {
		value, err := templateValue(f.Value)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", showName(f.Name), err)
		}
		if value == nil {
			continue
		}
		data[f.Name] = value
		list = append(list, map[string]any{"name": f.Name, "value": value})
	}
	data[contextKey] = list
	data[FieldUserID] = rec.UserID
	data[FieldEmail] = rec.Email
	data[FieldName] = rec.Name
	data[FieldLocale] = rec.Locale
	return data, nil
}

// templateValue parses one JSON value. null is nil; so that a template can
// walk on from it as from a missing field, objects leave it out.
func templateValue(raw json.RawMessage) (any, error) {
	if len(raw) > 1 && raw[0] == '"' && raw[len(raw)-1] == '"' && bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, errors.New("it is not JSON") // the cause would quote the text
	}
	return plainValue(value), nil
}

func plainValue(value any) any {
	switch value := value.(type) {
	case json.Number:
		return plainNumber(value)
	case []any:
		for i := range value {
			value[i] = plainValue(value[i])
		}
	case map[string]any:
		for key, inner := range value {
			if inner == nil {
				delete(value, key)
			} else {
				value[key] = plainValue(inner)
			}
		}
	}
	return value
}

// plainNumber makes a number a template can compare, where that loses nothing:
// an int64, a float64, or else its own text.
func plainNumber(number json.Number) any {
	text := string(number)
	if !strings.ContainsAny(text, ".eE") {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
		return text
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsInf(f, 0) {
		return f
	}
	return text
}

// printFunc is the name of the function that prints a value. It is no name a
// template could use by accident.
const printFunc = "_print"

var templateFuncs = template.FuncMap{
	printFunc: func(value any) (string, error) { return printed(value) },
	"default": func(fallback, value any) any {
		if truth, ok := template.IsTrue(value); ok && !truth {
			return fallback
		}
		return value
	},
	"join":     joinValues,
	"json":     jsonText,
	"trunc":    truncValue,
	"print":    func(args ...any) (string, error) { return bounded(fmt.Sprint(printable(args)...)) },
	"println":  func(args ...any) (string, error) { return bounded(fmt.Sprintln(printable(args)...)) },
	"printf":   printf,
	"html":     func(args ...any) (string, error) { return bounded(template.HTMLEscaper(printable(args)...)) },
	"js":       func(args ...any) (string, error) { return bounded(template.JSEscaper(printable(args)...)) },
	"urlquery": func(args ...any) (string, error) { return bounded(template.URLQueryEscaper(printable(args)...)) },
}

// bounded keeps a template from growing a text without end.
func bounded(text string) (string, error) {
	if len(text) > MaxPromptBytes {
		return "", errPromptTooLarge
	}
	return text, nil
}

// printed is the text of a value: nothing for nil, JSON for lists and objects.
func printed(value any) (string, error) {
	switch value := value.(type) {
	case nil:
		return "", nil
	case string:
		return value, nil
	case float64:
		if a := math.Abs(value); a == 0 || a >= 1e-6 && a < 1e21 {
			return strconv.FormatFloat(value, 'f', -1, 64), nil
		}
	case []any, map[string]any:
		return jsonText(value)
	}
	return bounded(fmt.Sprint(value))
}

// printable replaces the values fmt shows badly.
func printable(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		out[i] = arg
		switch arg.(type) {
		case nil, float64, []any, map[string]any:
			if text, err := printed(arg); err == nil {
				out[i] = text
			}
		}
	}
	return out
}

// printf is fmt.Sprintf without the widths that would fill the memory.
func printf(format string, args ...any) (string, error) {
	digits := 0
	for _, c := range format {
		if c < '0' || c > '9' {
			digits = 0
		} else if digits++; digits > 3 {
			return "", errors.New("printf: a number in the format is over 999: write it smaller")
		}
	}
	if strings.Contains(format, "*") {
		return "", errors.New("printf: a width given by * is not available: write the number")
	}
	for i, arg := range args {
		switch arg.(type) {
		case nil, []any, map[string]any:
			text, err := printed(arg)
			if err != nil {
				return "", err
			}
			args[i] = text
		}
	}
	return bounded(fmt.Sprintf(format, args...))
}

func joinValues(separator string, value any) (string, error) {
	list, ok := value.([]any)
	if !ok {
		return printed(value)
	}
	var b strings.Builder
	for i, item := range list {
		if i > 0 {
			b.WriteString(separator)
		}
		text, err := printed(item)
		if err != nil {
			return "", err
		}
		b.WriteString(text)
		if b.Len() > MaxPromptBytes {
			return "", errPromptTooLarge
		}
	}
	return b.String(), nil
}

func jsonText(value any) (string, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "", errors.New("json: the value cannot be written as JSON")
	}
	return bounded(strings.TrimSuffix(b.String(), "\n"))
}

func truncValue(n int, value any) (string, error) {
	if n < 0 {
		return "", fmt.Errorf("trunc: the length is %d, want 0 or more", n)
	}
	text, err := printed(value)
	if err != nil {
		return "", err
	}
	return cutRunes(text, n), nil
}
