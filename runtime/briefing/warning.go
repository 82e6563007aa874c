package briefing

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Warning is something about a file that costs no row but may surprise.
type Warning struct {
	// Code is stable, such as "backslashes".
	Code string
	// Count is how many rows it concerns, or 1 for the file.
	Count int64
	// Row and Line are where it is first seen; Row is 0 for the header.
	Row, Line int64
	// Message says what it means. It holds no text of a user.
	Message string
}

// Warning codes.
const (
	WarnBackslashes     = "backslashes"
	WarnPadded          = "padded_by_step_functions"
	WarnDropped         = "dropped_by_step_functions"
	WarnControlTokens   = "control_tokens"
	WarnNearName        = "near_known_name"
	WarnLocalPart       = "email_local_part_not_ascii"
	WarnNoFinalLineEnd  = "no_final_line_end"
	WarnContextShadowed = "context_shadowed"
)

// tally counts the rows of one warning.
type tally struct{ rows, row, line, times int64 }

func (t *tally) add(row, line, times int64) {
	if t.rows == 0 {
		t.row, t.line = row, line
	}
	t.rows++
	t.times += times
}

// watch collects the warnings of a file as it is read.
type watch struct {
	backslashes, short, long, tokens, localPart, finalLine tally
	names                                                  []Warning
}

// list returns the warnings in a fixed order.
func (w *watch) list() []Warning {
	all := append([]Warning(nil), w.names...)
	add := func(code string, t tally, message string) {
		if t.rows > 0 {
			all = append(all, Warning{Code: code, Count: t.rows, Row: t.row, Line: t.line, Message: message})
		}
	}
	add(WarnBackslashes, w.backslashes, fmt.Sprintf(
		"%s backslashes: a run keeps them, Step Functions' own CSV reader drops them", rowsHold(w.backslashes.rows)))
	add(WarnPadded, w.short, fmt.Sprintf(
		"%s too few columns: a run rejects them, Step Functions' own CSV reader pads them with empty fields",
		rowsHave(w.short.rows)))
	add(WarnDropped, w.long, fmt.Sprintf(
		"%s too many columns: a run rejects them, Step Functions' own CSV reader drops the extra fields",
		rowsHave(w.long.rows)))
	add(WarnControlTokens, w.tokens, fmt.Sprintf(
		"%s text that looks like a model's control tokens (%d in all): kept, and read by the model as plain text",
		rowsHold(w.tokens.rows), w.tokens.times))
	add(WarnLocalPart, w.localPart, fmt.Sprintf(
		"%s an e-mail address with non-ASCII letters before the @: it needs a mail service that offers SMTPUTF8",
		rowsHave(w.localPart.rows)))
	add(WarnNoFinalLineEnd, w.finalLine, "the last line has no line end: check that the file was not cut short")
	return all
}

func rowsHold(n int64) string {
	if n == 1 {
		return "1 row holds"
	}
	return fmt.Sprintf("%d rows hold", n)
}

func rowsHave(n int64) string {
	if n == 1 {
		return "1 row has"
	}
	return fmt.Sprintf("%d rows have", n)
}

// header warns of column names that are almost a known field.
func (w *watch) header(names []string, line int64) {
	known := make(map[string]bool)
	for _, name := range names {
		known[name] = true
	}
	for _, name := range names {
		if near := nearKnownName(name); near != "" && !known[near] {
			w.names = append(w.names, Warning{Code: WarnNearName, Count: 1, Line: line, Message: fmt.Sprintf(
				"field %s is plain context: rename it to %q if it is that", showName(name), near)})
		}
		if name == contextKey {
			w.names = append(w.names, Warning{Code: WarnContextShadowed, Count: 1, Line: line, Message: fmt.Sprintf(
				"field %q is hidden in prompt templates by the list of all context fields: rename it to use it by name",
				contextKey)})
		}
	}
}

// nearKnownName is the known field that name differs from by case, spaces and
// punctuation only, or is empty.
func nearKnownName(name string) string {
	folded := strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' || r == '.' {
			return -1
		}
		return r
	}, strings.ToLower(name))
	known := ""
	switch folded {
	case "userid":
		known = FieldUserID
	case "email", "mail", "emailaddress":
		known = FieldEmail
	case "name":
		known = FieldName
	case "locale":
		known = FieldLocale
	}
	if known == name {
		return ""
	}
	return known
}

// record notes what is odd in the raw text of a row that is accepted.
func (w *watch) record(raw []byte, d *draft, row int64, format Format) {
	if n := countControlTokens(raw, format); n > 0 {
		w.tokens.add(row, d.line, int64(n))
	}
	if at := bytes.LastIndexByte(d.email, '@'); at > 0 {
		for _, c := range d.email[:at] {
			if c >= utf8.RuneSelf {
				w.localPart.add(row, d.line, 1)
				break
			}
		}
	}
}

// namedTokens are control tokens that do not look like <|name|>.
var namedTokens = [][]byte{
	[]byte("<s>"), []byte("</s>"), []byte("<bos>"), []byte("<eos>"), []byte("<unk>"), []byte("<pad>"),
	[]byte("<start_of_turn>"), []byte("<end_of_turn>"), []byte("<<SYS>>"), []byte("<</SYS>>"),
}

var bracketTokens = [][]byte{[]byte("[INST]"), []byte("[/INST]")}

// maxTokenName bounds what may stand between <| and |>.
const maxTokenName = 40

// countControlTokens counts what looks like a control token of a chat model,
// in one pass.
func countControlTokens(raw []byte, format Format) int {
	if format == FormatJSONL && bytes.Contains(raw, []byte(`\u00`)) {
		raw = unescapeMarkup(raw)
	}
	n := 0
	for rest := raw; ; {
		i := bytes.IndexByte(rest, '<')
		if i < 0 {
			break
		}
		rest = rest[i:]
		size := tokenAt(rest)
		if size > 0 {
			n++
		}
		rest = rest[max(1, size):]
	}
	for _, token := range bracketTokens {
		n += bytes.Count(raw, token)
	}
	return n
}

// tokenAt is the length of the control token b starts with, or 0.
func tokenAt(b []byte) int {
	if len(b) > 1 && b[1] == '|' {
		for i := 2; i < len(b) && i < 2+maxTokenName; i++ {
			switch c := b[i]; {
			case c == '|' && i > 2 && i+1 < len(b) && b[i+1] == '>':
				return i + 2
			case c == '<' || c == '>' || c <= ' ':
				return 0
			}
		}
		return 0
	}
	for _, token := range namedTokens {
		if bytes.HasPrefix(b, token) {
			return len(token)
		}
	}
	return 0
}

// unescapeMarkup undoes the escapes \u003c, \u003e and \u007c that some JSON
// writers use for <, > and |.
func unescapeMarkup(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for {
		i := bytes.Index(raw, []byte(`\u00`))
		if i < 0 || i+6 > len(raw) {
			return append(out, raw...)
		}
		r, ok := hex4(raw[i+2:])
		out = append(out, raw[:i]...)
		if ok && (r == '<' || r == '>' || r == '|') {
			out = append(out, byte(r))
			raw = raw[i+6:]
		} else {
			out = append(out, raw[i:i+4]...)
			raw = raw[i+4:]
		}
	}
}
