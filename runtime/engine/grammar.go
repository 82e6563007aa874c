package engine

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// TagsGrammar returns a GBNF grammar whose only texts are the given tags, for
// classification: one short word or phrase per user.
func TagsGrammar(tags []string) (string, error) {
	if len(tags) < 2 {
		return "", &OptionError{Field: "tags", Value: fmt.Sprintf("%d tags", len(tags)), Want: "at least 2"}
	}
	seen := map[string]bool{}
	quoted := make([]string, len(tags))
	for i, tag := range tags {
		switch {
		case strings.TrimSpace(tag) != tag || tag == "":
			return "", &OptionError{Field: "tags", Value: fmt.Sprintf("%q", tag), Want: "words without space around them"}
		case seen[tag]:
			return "", &OptionError{Field: "tags", Value: fmt.Sprintf("%q twice", tag), Want: "each tag once"}
		case !utf8.ValidString(tag) || strings.ContainsFunc(tag, func(r rune) bool { return r < 0x20 || r == 0x7f }):
			return "", &OptionError{Field: "tags", Value: fmt.Sprintf("%q", tag), Want: "printable UTF-8"}
		}
		seen[tag] = true
		quoted[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(tag) + `"`
	}
	return "root ::= " + strings.Join(quoted, " | "), nil
}
