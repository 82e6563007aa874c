package briefing

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// sentenceEnds close a sentence in the scripts that mail is written in.
const sentenceEnds = ".!?…。！？؟۔।"

// TrimUnfinished cuts the sentence that a text breaks off in, for a text that
// reached its token limit. Where less than half of it would stay, or it has no
// sentence end, it is returned as it is.
func TrimUnfinished(text string) string {
	text = strings.TrimRightFunc(text, unicode.IsSpace)
	for at := len(text); at > 0; {
		r, size := utf8.DecodeLastRuneInString(text[:at])
		if strings.ContainsRune(sentenceEnds, r) && endsSentence(text[at:]) {
			rest := text[at:]
			closing := len(rest) - len(strings.TrimLeft(rest, `"'”’»)`))
			if kept := text[:at+closing]; 2*len(kept) >= len(text) {
				return kept
			}
			return text
		}
		at -= size
	}
	return text
}

// endsSentence reports whether what follows a full stop shows that it was one:
// the 5 of "3.5" does not.
func endsSentence(rest string) bool {
	rest = strings.TrimLeft(rest, `"'”’»)`)
	r, _ := utf8.DecodeRuneInString(rest)
	return rest == "" || unicode.IsSpace(r) || unicode.Is(unicode.Han, r) || unicode.In(r, unicode.Hiragana, unicode.Katakana)
}
