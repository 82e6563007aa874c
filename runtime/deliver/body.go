package deliver

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
	"golang.org/x/text/width"
)

// Kinds of a Block.
const (
	Paragraph = "paragraph"
	Heading   = "heading"
	Bullets   = "bullets"
	Numbers   = "numbers"
)

// Block is one part of a briefing's text. Models write a little Markdown
// unasked, so the marks that they use most are understood (paragraphs, lists,
// headings, bold) and everything else is text.
type Block struct {
	Kind  string
	Start int    // the first number of Numbers, else 0
	Lines []Line // one for a heading, one per item of a list, one per line of a paragraph
}

// Line is a run of text within a Block.
type Line []Span

// Span is text of one weight.
type Span struct {
	Text string
	Bold bool
}

// String returns the text of the line without its weights.
func (l Line) String() string {
	if len(l) == 1 {
		return l[0].Text
	}
	var b strings.Builder
	for _, span := range l {
		b.WriteString(span.Text)
	}
	return b.String()
}

// bodyText makes any text safe for a mail body: valid UTF-8, line ends as \n,
// no control character but the tab and the line end.
func bodyText(text string) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\r', r == '\u2028', r == '\u2029', r == '\v', r == '\f', r == '\u0085':
			return '\n'
		case r == '\t':
			return ' '
		case isControl(r):
			return -1
		}
		return r
	}, text)
}

// parseBody splits a briefing into blocks.
func parseBody(text string) []Block {
	var blocks []Block
	open := "" // the kind that the next line may continue
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		kind, start, rest := classify(line)
		if rest == "" || isRule(line) {
			open = ""
			continue
		}
		spans := parseSpans(rest)
		if kind == open && kind != Heading {
			last := &blocks[len(blocks)-1]
			// A number that does not follow is kept by a list of its own.
			if kind != Numbers || start == last.Start+len(last.Lines) {
				last.Lines = append(last.Lines, spans)
				continue
			}
		}
		blocks = append(blocks, Block{Kind: kind, Start: start, Lines: []Line{spans}})
		open = kind
	}
	return blocks
}

// isRule tells whether the line is a horizontal rule, such as "---": a mail has
// space between its paragraphs anyway.
func isRule(line string) bool {
	return len(line) >= 3 && strings.Trim(line, "-") == "" ||
		len(line) >= 3 && strings.Trim(line, "*") == "" ||
		len(line) >= 3 && strings.Trim(line, "_") == ""
}

// classify tells what a trimmed line is and returns it without its mark.
func classify(line string) (kind string, start int, rest string) {
	for _, mark := range []string{"- ", "* ", "• ", "– "} {
		if rest, ok := strings.CutPrefix(line, mark); ok {
			return Bullets, 0, strings.TrimSpace(rest)
		}
	}
	if hashes := len(line) - len(strings.TrimLeft(line, "#")); hashes >= 1 && hashes <= 6 {
		if rest, ok := strings.CutPrefix(line[hashes:], " "); ok {
			return Heading, 0, strings.TrimSpace(strings.TrimRight(rest, "# "))
		}
	}
	// One or two digits: "2026. " at the start of a line is a sentence.
	digits := 0
	for digits < len(line) && digits < 3 && line[digits] >= '0' && line[digits] <= '9' {
		start = start*10 + int(line[digits]-'0')
		digits++
	}
	if digits >= 1 && digits <= 2 && len(line) > digits+1 &&
		(line[digits] == '.' || line[digits] == ')') && line[digits+1] == ' ' {
		return Numbers, start, strings.TrimSpace(line[digits+2:])
	}
	return Paragraph, 0, line
}

// parseSpans finds **bold** text. Stars that do not pair up stay what they are.
func parseSpans(line string) Line {
	if !strings.Contains(line, "**") {
		return Line{{Text: line}}
	}
	var spans Line
	plain := func(text string) {
		if text == "" {
			return
		}
		if n := len(spans); n > 0 && !spans[n-1].Bold {
			spans[n-1].Text += text
			return
		}
		spans = append(spans, Span{Text: text})
	}
	for line != "" {
		before, after, found := strings.Cut(line, "**")
		inside, rest, closed := strings.Cut(after, "**")
		if !found || !closed {
			plain(line)
			break
		}
		plain(before)
		if inside == "" || strings.TrimSpace(inside) != inside {
			plain("**")
			line = after
			continue
		}
		spans = append(spans, Span{Text: inside, Bold: true})
		line = rest
	}
	return spans
}

// wrapColumns is the width of the text part. 72 leaves room for the marks of a
// reply or two within 80.
const wrapColumns = 72

// wrapBlocks writes the blocks as plain text, lines wrapped, paragraphs apart.
func wrapBlocks(blocks []Block) string {
	var b strings.Builder
	for i, block := range blocks {
		if i > 0 {
			b.WriteByte('\n')
		}
		for n, line := range block.Lines {
			first := ""
			switch block.Kind {
			case Bullets:
				first = "- "
			case Numbers:
				first = strconv.Itoa(block.Start+n) + ". "
			}
			wrapLine(&b, line.String(), first)
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// wrapLine writes one line of text, wrapped, with the mark before its first
// line and spaces of the same width before the others.
func wrapLine(b *strings.Builder, text, mark string) {
	b.WriteString(mark)
	column, atStart := len(mark), true
	for word := range strings.FieldsSeq(text) {
		columns := displayWidth(word)
		if !atStart && column+1+columns <= wrapColumns {
			b.WriteByte(' ')
			column++
		} else if !atStart {
			newLine(b, len(mark))
			column = len(mark)
		}
		atStart = false
		if columns <= wrapColumns-len(mark) || columns == len(word) {
			// It fits, or it is a long ASCII word: an address or a link,
			// which would break.
			b.WriteString(word)
			column += columns
			continue
		}
		// Scripts without spaces: break between characters.
		for clusters := graphemes.FromString(word); clusters.Next(); {
			cluster := clusters.Value()
			w := displayWidth(cluster)
			if column+w > wrapColumns && column > len(mark) {
				newLine(b, len(mark))
				column = len(mark)
			}
			b.WriteString(cluster)
			column += w
		}
	}
	b.WriteByte('\n')
}

func newLine(b *strings.Builder, indent int) {
	b.WriteByte('\n')
	for range indent {
		b.WriteByte(' ')
	}
}

// displayWidth returns the columns that text takes in a fixed-width font.
func displayWidth(text string) int {
	columns := 0
	for _, r := range text {
		switch {
		case r < utf8.RuneSelf:
			columns++
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		default:
			switch width.LookupRune(r).Kind() {
			case width.EastAsianWide, width.EastAsianFullwidth:
				columns += 2
			default:
				columns++
			}
		}
	}
	return columns
}
