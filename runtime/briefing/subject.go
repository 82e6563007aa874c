package briefing

import (
	"strings"
	"unicode"
)

const (
	// maxSubjectRunes bounds a subject: mail programs show fewer.
	maxSubjectRunes = 120
	// maxSubjectName bounds the name in a fallback subject.
	maxSubjectName = 60
)

// SplitSubject takes the subject a model put at the head of its text, as in
// "Subject: Your Tuesday", with or without bold marks or quotes. The subject
// is one line of at most 120 characters without control characters; the body
// is the text after it. Where the text has no such line, or nothing but it,
// subject is empty and body is the text.
func SplitSubject(text string) (subject, body string) {
	const label = "subject:"
	head := strings.TrimLeft(text, " \t\r\n")
	line, rest := head, ""
	if i := strings.IndexAny(head, "\r\n"); i >= 0 {
		line, rest = head[:i], strings.TrimLeft(head[i:], " \t\r\n")
	}
	line = strings.TrimLeft(line, "*_# ")
	if len(line) < len(label) || !strings.EqualFold(line[:len(label)], label) || rest == "" {
		return "", text
	}
	subject = strings.Trim(line[len(label):], "*_ \t")
	for _, pair := range [][2]string{{`"`, `"`}, {"“", "”"}, {"«", "»"}, {"„", "“"}} {
		if inner, ok := strings.CutPrefix(subject, pair[0]); ok {
			if inner, ok = strings.CutSuffix(inner, pair[1]); ok {
				subject = inner
				break
			}
		}
	}
	return oneLine(subject, maxSubjectRunes), rest
}

// Subject is the subject of a briefing whose text brings none: "Your briefing,
// Ana", or "Your briefing" for a user without a name. Line ends and other
// control characters in a name become spaces, and a name over 60 characters is
// cut.
func Subject(rec Record) string {
	if name := oneLine(rec.Name, maxSubjectName); name != "" {
		return "Your briefing, " + name
	}
	return "Your briefing"
}

// oneLine makes s safe for a header: one line, no control characters, none
// that reorder what follows, at most n runes.
func oneLine(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r), r == '\u2028', r == '\u2029', r == unicode.ReplacementChar:
			return ' '
		case unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, " "))
	s = strings.Join(strings.Fields(s), " ")
	return strings.TrimSpace(cutRunes(s, n))
}
