// Package chart draws the few charts our pages need as SVG inside HTML: Bars,
// Histogram, Line and Lanes.
//
// A chart is a struct, and its HTML method returns a figure that any
// html/template page can place as it is, once the page's style sheet holds CSS.
// What every chart keeps:
//
//   - It asks for nothing from outside: no script, no font, no image.
//   - Every text that was passed in is escaped; no input can end a tag.
//   - Colours come from the custom properties in CSS, so dark mode and print
//     change them without drawing again.
//   - It fills the width it is given and its text keeps its size, on a phone too.
//   - A screen reader gets a name and a sentence; everybody gets the numbers
//     behind the picture in a table that opens on request.
//   - NaN, infinities and missing data never break it: such a value is left out
//     or shown as "n/a", and a chart without any data says so.
//   - The same input gives the same bytes.
package chart

import (
	_ "embed"
	"encoding/xml"
	"html/template"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

//go:embed chart.css
var chartCSS string

//go:embed page.css
var pageCSS string

// CSS is the style sheet of the charts. A page that shows one puts it in its
// style element, once. It defines the custom properties that colour the charts
// and nothing outside of .chart but those.
var CSS = template.CSS(chartCSS)

// PageCSS is the look of the pages that charts stand on: type, cards, tiles of
// headline numbers, tables, print. It builds on the custom properties of CSS
// and comes after it. The classes are described where they are defined.
var PageCSS = template.CSS(pageCSS)

// Tone is the meaning of a mark, where it has one. Marks without one take the
// next colour of the palette.
type Tone string

// The tones.
const (
	Plain Tone = ""
	Good  Tone = "good"
	Warn  Tone = "warn"
	Bad   Tone = "bad"
	Muted Tone = "muted"
)

// paletteSize is the number of --chart-N colours in chart.css. After the last
// one the colours start again.
const paletteSize = 8

// class names the colour of the i-th series or part.
func (t Tone) class(i int) string {
	switch t {
	case Good, Warn, Bad, Muted:
		return "tone-" + string(t)
	}
	return "c" + strconv.Itoa(i%paletteSize+1)
}

// Axis says how the values along one axis are named and written.
type Axis struct {
	// Label says what the values are, for example "prompt tokens".
	Label string
	// Format writes one value. The zero value is Compact on the axis and Number
	// in tooltips and tables.
	Format Format
	// Time says that values are seconds: ticks then fall on whole seconds,
	// minutes, hours or days and are written in that unit, whatever Format is.
	// Elsewhere Format is Seconds when none is given.
	Time bool
	// Whole says that values are counts, so that no tick falls between two of
	// them. Only y axes take it.
	Whole bool
	// Log spaces the axis by powers of ten. Only the x axis of a Line takes it,
	// and values that are not above zero are then left out.
	Log bool
}

// tick writes a value on the axis, where room is short.
func (a Axis) tick(v float64, s scale) string {
	switch {
	case a.Time:
		return timeTick(s.ticks[len(s.ticks)-1])(v)
	case a.Format == nil:
		return Compact(v)
	}
	return a.Format(v)
}

// text writes a value where there is room for all of it.
func (a Axis) text(v float64) string {
	switch {
	case a.Format != nil:
		return a.Format(v)
	case a.Time:
		return Seconds(v)
	}
	return Number(v)
}

// head is the heading of the axis' column in the table.
func (a Axis) head(otherwise string) string {
	if a.Label == "" {
		return otherwise
	}
	first, size := utf8.DecodeRuneInString(a.Label)
	return string(unicode.ToUpper(first)) + a.Label[size:]
}

// Mark is a labelled line across a chart, such as a median or a deadline.
type Mark struct {
	At    float64
	Label string
	Tone  Tone
}

// markup writes elements. It is the only way text gets into a chart: names come
// from this package, and values and text are escaped here, so that what it
// holds is well formed whatever was passed in.
type markup struct{ b strings.Builder }

// open starts an element; attrs are names and values in turn.
func (m *markup) open(name string, attrs ...string) {
	m.start(name, attrs)
	m.b.WriteByte('>')
}

// close ends an element.
func (m *markup) close(name string) {
	m.b.WriteString("</")
	m.b.WriteString(name)
	m.b.WriteString(">")
}

// empty writes an element without content.
func (m *markup) empty(name string, attrs ...string) {
	m.start(name, attrs)
	m.b.WriteString("/>")
}

// leaf writes an element that holds only text.
func (m *markup) leaf(name, text string, attrs ...string) {
	m.open(name, attrs...)
	m.text(text)
	m.close(name)
}

func (m *markup) text(s string) {
	// EscapeText also replaces what XML cannot hold (control characters, broken
	// UTF-8), which html escaping would let through. A Builder never fails.
	_ = xml.EscapeText(&m.b, []byte(s))
}

// newline keeps the page's source readable, and a golden file's diff short.
func (m *markup) newline() { m.b.WriteByte('\n') }

func (m *markup) start(name string, attrs []string) {
	m.b.WriteByte('<')
	m.b.WriteString(name)
	for i := 0; i+1 < len(attrs); i += 2 {
		m.b.WriteByte(' ')
		m.b.WriteString(attrs[i])
		m.b.WriteString(`="`)
		m.text(attrs[i+1])
		m.b.WriteByte('"')
	}
}

func (m *markup) html() template.HTML { return template.HTML(m.b.String()) }

// begin opens a figure and writes its caption.
func (m *markup) begin(kind, title, caption string) {
	m.open("figure", "class", "chart chart-"+kind)
	m.open("figcaption")
	m.leaf("span", title, "class", "chart-title")
	if caption != "" {
		m.text(" ")
		m.leaf("span", caption, "class", "chart-caption")
	}
	m.close("figcaption")
	m.newline()
}

// blank is the whole of a chart that has nothing to show.
func blank(kind, title, caption string) template.HTML {
	var m markup
	m.begin(kind, title, caption)
	m.leaf("p", "No data.", "class", "chart-none")
	m.close("figure")
	return m.html()
}

// svg opens the picture: as wide as its box, and high as given, in CSS pixels.
// Across, places are percentages of the width, so that lines and text keep
// their size on any screen.
func (m *markup) svg(height float64, title, desc string) {
	m.open("svg", "xmlns", "http://www.w3.org/2000/svg", "role", "img", "width", "100%", "height", px(height))
	m.leaf("title", title)
	m.leaf("desc", desc)
	m.newline()
}

// key is one entry of a legend.
type key struct{ label, class string }

func (m *markup) legend(keys []key) {
	m.open("ul", "class", "chart-legend", "aria-hidden", "true")
	for _, k := range keys {
		m.open("li")
		m.leaf("span", "", "class", "chart-key "+k.class)
		m.leaf("span", k.label, "dir", "auto")
		m.close("li")
	}
	m.close("ul")
	m.newline()
}

// maxTableRows bounds the table under a chart.
const maxTableRows = 200

// table writes the numbers behind the picture. Its first column names the row.
func (m *markup) table(title string, head []string, rows [][]string, note string) {
	m.open("details", "class", "chart-data")
	m.leaf("summary", "Numbers")
	m.open("div", "class", "chart-scroll", "tabindex", "0", "role", "region", "aria-label", "Numbers: "+title)
	m.open("table")
	m.leaf("caption", title)
	m.open("thead")
	m.open("tr")
	for _, h := range head {
		m.leaf("th", h, "scope", "col")
	}
	m.close("tr")
	m.close("thead")
	m.newline()
	m.open("tbody")
	rest := 0
	if len(rows) > maxTableRows {
		rest = len(rows) - maxTableRows
		rows = rows[:maxTableRows]
	}
	for _, row := range rows {
		m.open("tr")
		for i, cell := range row {
			if i == 0 {
				m.leaf("th", cell, "scope", "row", "dir", "auto")
			} else {
				m.leaf("td", cell)
			}
		}
		m.close("tr")
		m.newline()
	}
	m.close("tbody")
	m.close("table")
	if rest > 0 {
		note = strings.TrimSpace(note + " " + Number(float64(rest)) + " more rows are left out.")
	}
	if note != "" {
		m.leaf("p", note)
	}
	m.close("div")
	m.close("details")
}

// px writes a length with at most two decimals.
func px(v float64) string {
	s := strconv.FormatFloat(v, 'f', 2, 64)
	s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	if s == "-0" {
		return "0"
	}
	return s
}

// percent writes a share of the width, 0 to 1.
func percent(share float64) string { return px(share*100) + "%" }

// columns is the room a text takes, in widths of a Latin letter. Wide scripts
// take two. It only has to be good enough to keep labels from meeting.
func columns(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case r >= 0x1100 && (r <= 0x115f || r >= 0x2e80 && r <= 0xa4cf || r >= 0xac00 && r <= 0xd7a3 ||
			r >= 0xf900 && r <= 0xfaff || r >= 0xfe30 && r <= 0xfe6f || r >= 0xff00 && r <= 0xff60 || r >= 0x1f300):
			n += 2
		default:
			n++
		}
	}
	return n
}

// clip shortens a text to a number of columns. Tooltip and table have all of it.
func clip(s string, room int) string {
	if columns(s) <= room {
		return s
	}
	used := 0
	for i, r := range s {
		used += columns(string(r))
		if used > room-1 {
			return strings.TrimRight(s[:i], " ") + "…"
		}
	}
	return s
}

// label writes a text twice where it needs shortening: clipped for a narrow
// figure and for a wide one. The style sheet shows the one that fits.
func (m *markup) label(s string, narrow, wide int, attrs ...string) {
	n, w := clip(s, narrow), clip(s, wide)
	if n == w {
		m.leaf("text", w, attrs...)
		return
	}
	m.open("g", "class", "narrow")
	m.leaf("text", n, attrs...)
	m.close("g")
	m.open("g", "class", "wide")
	m.leaf("text", w, attrs...)
	m.close("g")
}
