package chart

import (
	"html/template"
	"math"
)

// Bars compares values that have names: one horizontal bar each, or a stack of
// parts. Labels stand above their bar, so that they fit on a phone.
type Bars struct {
	Title string
	// Caption is a short remark beside the title.
	Caption string
	// Desc is a sentence that says what the picture shows, for those who do not
	// see it. Empty: one is made from the data.
	Desc string
	// Value is the axis of the values. Its label heads the table's column.
	Value Axis
	// Of heads the column of the names, for example "Error code".
	Of   string
	Rows []Bar
}

// Bar is one row of Bars.
type Bar struct {
	Label string
	// Value is the bar's length. It is the sum of the parts when there are any.
	// Below zero or not finite, the row has its text and no bar.
	Value float64
	Tone  Tone
	// Note follows the value, for example a share.
	Note string
	// Parts stack along the bar, in order. Parts with the same label have the
	// same colour in every row. One that is not above zero is left out.
	Parts []Part
	// Low and High are the ends of the range the value may lie in, drawn as a
	// whisker and written below the bar. It is left out unless Low < High.
	Low, High float64
}

// Part is a piece of a stacked Bar.
type Part struct {
	Label string
	Value float64
	Tone  Tone
}

const (
	barRow    = 46.0 // a label, its bar, and the space below
	barAt     = 22.0 // the bar's top within its row
	barHeight = 12.0
	rangeRow  = 18.0 // the line below a bar that names its range
	// maxBars bounds the picture; the table has up to maxTableRows.
	maxBars = 40
	// narrowColumns and wideColumns are the room for text in a row.
	narrowColumns = 36
	wideColumns   = 58
)

// HTML draws the chart.
func (c Bars) HTML() template.HTML {
	if len(c.Rows) == 0 {
		return blank("bars", c.Title, c.Caption)
	}
	rows := make([]Bar, len(c.Rows))
	colours := map[string]string{}
	var keys []key
	longest := 0.0
	largest := 0
	for i, r := range c.Rows {
		if len(r.Parts) > 0 {
			parts := make([]Part, 0, len(r.Parts))
			r.Value = 0
			for _, p := range r.Parts {
				if !finite(p.Value) || p.Value <= 0 {
					continue
				}
				p.Value = bounded(p.Value)
				r.Value += p.Value
				parts = append(parts, p)
				if _, seen := colours[p.Label]; !seen {
					colours[p.Label] = p.Tone.class(len(colours))
					keys = append(keys, key{p.Label, colours[p.Label]})
				}
			}
			r.Parts = parts
		}
		if finite(r.Value) {
			r.Value = bounded(r.Value)
		}
		if !finite(r.Low) || !finite(r.High) || r.Low >= r.High {
			r.Low, r.High = 0, 0
		}
		r.Low, r.High = max(bounded(r.Low), 0), max(bounded(r.High), 0)
		rows[i] = r
		if finite(r.Value) {
			longest = max(longest, r.Value, r.High)
			if r.Value > rows[largest].Value || !finite(rows[largest].Value) {
				largest = i
			}
		}
	}
	desc := c.Desc
	if desc == "" {
		desc = Number(float64(len(rows))) + " bars. The longest is " + rows[largest].Label + " with " + c.Value.text(rows[largest].Value) + "."
		if len(rows) == 1 {
			desc = rows[0].Label + ": " + c.Value.text(rows[0].Value) + "."
		}
	}

	var m markup
	m.begin("bars", c.Title, c.Caption)
	if len(keys) > 0 {
		m.legend(keys)
	}
	shown := rows[:min(len(rows), maxBars)]
	height := -8.0 // no space below the last row
	for _, r := range shown {
		height += r.height()
	}
	m.open("div", "class", "chart-rows")
	m.svg(height, c.Title, desc)
	top := 0.0
	for _, r := range shown {
		c.row(&m, r, top, longest, colours)
		top += r.height()
	}
	m.close("svg")
	m.close("div")
	m.newline()
	if rest := len(rows) - len(shown); rest > 0 {
		m.leaf("p", "And "+Number(float64(rest))+" more, see the numbers.", "class", "chart-none")
	}
	c.numbers(&m, rows, keys)
	m.close("figure")
	return m.html()
}

func (r Bar) height() float64 {
	if r.High > 0 {
		return barRow + rangeRow
	}
	return barRow
}

func (c Bars) row(m *markup, r Bar, top, longest float64, colours map[string]string) {
	value := c.Value.text(r.Value)
	whole := value
	if r.High > 0 {
		whole = c.Value.text(r.Low) + " - " + value + " - " + c.Value.text(r.High)
	}
	note := clip(r.Note, 16)
	room := columns(value)
	if note != "" {
		room += columns(note) + 2
	}
	share := func(v float64) float64 {
		if longest <= 0 || !finite(v) {
			return 0
		}
		return max(0, min(1, v/longest))
	}
	base := r.Tone.class(0)

	m.open("g")
	m.leaf("title", r.Label+": "+whole+suffix(r.Note))
	m.label(r.Label, max(8, narrowColumns-room), max(8, wideColumns-room), "x", "0", "y", px(top+14))
	m.open("text", "x", "100%", "y", px(top+14), "text-anchor", "end")
	m.leaf("tspan", value, "class", "value")
	if note != "" {
		m.leaf("tspan", note, "class", "note", "dx", "8")
	}
	m.close("text")
	m.empty("rect", "class", "track", "x", "0", "width", "100%", "y", px(top+barAt), "height", px(barHeight), "rx", "3")
	if len(r.Parts) > 0 {
		x := 0.0
		for _, p := range r.Parts {
			m.open("rect", "class", "part "+colours[p.Label], "x", percent(share(x)), "width", percent(share(p.Value)),
				"y", px(top+barAt), "height", px(barHeight))
			m.leaf("title", p.Label+": "+c.Value.text(p.Value)+" ("+Percent(p.Value/r.Value)+")")
			m.close("rect")
			x += p.Value
		}
	} else if w := share(r.Value); w > 0 {
		// Thinner than this nobody sees it.
		m.empty("rect", "class", "bar "+base, "x", "0", "width", percent(math.Max(w, 0.004)), "y", px(top+barAt), "height", px(barHeight), "rx", "3")
	}
	if r.High > 0 {
		mid := px(top + barAt + barHeight/2)
		low, high := percent(share(r.Low)), percent(share(r.High))
		m.empty("line", "class", "whisker", "x1", low, "x2", high, "y1", mid, "y2", mid)
		for _, x := range []string{low, high} {
			m.empty("line", "class", "whisker", "x1", x, "x2", x, "y1", px(top+barAt), "y2", px(top+barAt+barHeight))
		}
		m.leaf("text", "between "+c.Value.text(r.Low)+" and "+c.Value.text(r.High), "class", "range", "x", "0", "y", px(top+barAt+barHeight+15))
	}
	m.close("g")
	m.newline()
}

func suffix(note string) string {
	if note == "" {
		return ""
	}
	return " (" + note + ")"
}

func (c Bars) numbers(m *markup, rows []Bar, keys []key) {
	ranges, notes := false, false
	for _, r := range rows {
		ranges = ranges || r.High > 0
		notes = notes || r.Note != ""
	}
	of := c.Of
	if of == "" {
		of = "Name"
	}
	head := []string{of}
	for _, k := range keys {
		head = append(head, k.label)
	}
	if ranges {
		head = append(head, "Low")
	}
	if len(keys) > 0 {
		head = append(head, "Total")
	} else {
		head = append(head, c.Value.head("Value"))
	}
	if ranges {
		head = append(head, "High")
	}
	if notes {
		head = append(head, "Note")
	}
	out := make([][]string, 0, len(rows))
	for _, r := range rows {
		row := []string{r.Label}
		for _, k := range keys {
			sum, any := 0.0, false
			for _, p := range r.Parts {
				if p.Label == k.label {
					sum, any = sum+p.Value, true
				}
			}
			if any {
				row = append(row, c.Value.text(sum))
			} else {
				row = append(row, "")
			}
		}
		low, high := "", ""
		if r.High > 0 {
			low, high = c.Value.text(r.Low), c.Value.text(r.High)
		}
		if ranges {
			row = append(row, low)
		}
		row = append(row, c.Value.text(r.Value))
		if ranges {
			row = append(row, high)
		}
		if notes {
			row = append(row, r.Note)
		}
		out = append(out, row)
	}
	m.table(c.Title, head, out, "")
}
