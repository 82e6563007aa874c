package deliver

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
)

const (
	maxSubjectRunes   = 200
	maxNameRunes      = 100
	maxPreheaderRunes = 140
)

// isControl reports the characters that have no place in a header: C0, DEL and
// C1, and the two separators that some programs take for a line end.
func isControl(r rune) bool {
	return r < ' ' || 0x7f <= r && r <= 0x9f || r == '\u2028' || r == '\u2029'
}

// isReordering reports the characters that turn the direction of what follows,
// which in a header can make an address look like another one. The plain marks
// (U+200E, U+200F, U+061C) stay: right-to-left writers use them.
func isReordering(r rune) bool {
	return '\u202a' <= r && r <= '\u202e' || '\u2066' <= r && r <= '\u2069'
}

// headerText makes one line of any text: valid UTF-8, no control characters,
// white space collapsed. What looks like an encoded word is broken, or a
// receiver would decode it into whatever its writer wanted.
func headerText(text string) string {
	if isPlainLine(text) {
		return text
	}
	return cleanLine(text)
}

func cleanLine(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case isReordering(r):
			return -1
		case isControl(r), unicode.IsSpace(r):
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, string(utf8.RuneError)))
	text = strings.Join(strings.Fields(text), " ")
	return strings.ReplaceAll(text, "=?", "= ?")
}

// isPlainLine tells, for most text, that headerText has nothing to do.
func isPlainLine(text string) bool {
	before := byte(' ')
	for i := range len(text) {
		c := text[i]
		if c < ' ' || c > '~' || c == ' ' && before == ' ' || c == '?' && before == '=' {
			return false
		}
		before = c
	}
	return before != ' ' || text == ""
}

// displayName makes a name that can stand before an address. net/mail writes a
// backslash as it is into an encoded word, where RFC 2047 (5, rule 3) has none
// and receivers see no address after it.
func displayName(name string) string {
	return cut(strings.ReplaceAll(headerText(name), `\`, "/"), maxNameRunes)
}

// cut shortens text to at most limit runes with an ellipsis, at the end of a
// word where one is near, and never inside what a reader sees as one character.
func cut(text string, limit int) string {
	if len(text) <= limit || utf8.RuneCountInString(text) <= limit {
		return text
	}
	end, runes, lastSpace := 0, 0, 0
	for clusters := graphemes.FromString(text); clusters.Next(); {
		cluster := clusters.Value()
		n := utf8.RuneCountInString(cluster)
		if runes+n > limit-1 { // one for the ellipsis
			break
		}
		if cluster == " " {
			lastSpace = end
		}
		end += len(cluster)
		runes += n
	}
	// Scripts without spaces, and a very long word, are cut where they are.
	if lastSpace > end/2 && !strings.HasPrefix(text[end:], " ") {
		end = lastSpace
	}
	return strings.TrimRight(text[:end], " ") + "…"
}
