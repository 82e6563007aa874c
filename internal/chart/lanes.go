package chart

import "html/template"

// Lanes shows what happens when: one lane for each activity on a common time
// axis, from zero. Values are seconds.
type Lanes struct {
	Title string
	// Caption is a short remark beside the title.
	Caption string
	// Desc is a sentence that says what the picture shows, for those who do not
	// see it. Empty: one is made from the data.
	Desc string
	Rows []Lane
	// Marks are lines across all lanes, such as a deadline.
	Marks []Mark
}

// Lane is one activity.
type Lane struct {
	Label string
	Tone  Tone
	// Note stands at the right end of the label's line. Empty: the time from the
	// first start to the last end.
	Note  string
	Spans []Span
}

// Span is a stretch of time. It is left out unless 0 <= From <= To.
type Span struct {
	From, To float64
	// Latest is when it may end at worst, drawn paler; ignored unless after To.
	Latest float64
	// Label is for the tooltip and the table.
	Label string
}

// HTML draws the chart.
func (c Lanes) HTML() template.HTML {
	rows := make([]Lane, len(c.Rows))
	var all span
	for i, r := range c.Rows {
		spans := make([]Span, 0, len(r.Spans))
		for _, s := range r.Spans {
			if !finite(s.From) || !finite(s.To) || s.From < 0 || s.To < s.From {
				continue
			}
			if !finite(s.Latest) || s.Latest <= s.To {
				s.Latest = 0
			}
			s.From, s.To, s.Latest = bounded(s.From), bounded(s.To), bounded(s.Latest)
			spans = append(spans, s)
			all.add(s.To)
			all.add(s.Latest)
		}
		r.Spans = spans
		rows[i] = r
	}
	if !all.any {
		return blank("lanes", c.Title, c.Caption)
	}
	for _, k := range c.Marks {
		if k.At >= 0 {
			all.add(k.At)
		}
	}
	end := all.high
	if end <= 0 {
		end = 1
	}
	desc := c.Desc
	if desc == "" {
		desc = Number(float64(len(rows))) + " lanes over " + Seconds(end) + "."
	}

	var m markup
	m.begin("lanes", c.Title, c.Caption)
	shown := rows[:min(len(rows), maxBars)]
	x := dataScale(0, end, 8, Axis{Time: true})
	marks := make([]Mark, 0, len(c.Marks))
	for _, k := range c.Marks {
		if k.At >= 0 && finite(k.At) {
			marks = append(marks, k)
		}
	}
	placed, lanesTop := placeMarks(marks, x)
	bottom := lanesTop + float64(len(shown))*barRow - 4
	tick := timeTick(x.ticks[len(x.ticks)-1])
	m.open("div", "class", "chart-rows chart-time")
	m.svg(bottom+24, c.Title, desc)
	m.open("g", "class", "axis", "aria-hidden", "true")
	for i, t := range x.ticks {
		class := "x"
		if i%2 == 1 {
			class = "x wide"
		}
		at := percent(x.at(t))
		m.empty("line", "class", "grid "+class, "x1", at, "x2", at, "y1", px(lanesTop), "y2", px(bottom))
		anchor := "middle"
		if t == 0 {
			anchor = "start"
		} else if x.at(t) > 0.95 {
			anchor = "end"
		}
		m.leaf("text", tick(t), "class", class, "x", at, "y", px(bottom+18), "text-anchor", anchor)
	}
	m.close("g")
	m.newline()

	var table [][]string
	late := false
	for _, r := range rows {
		for _, s := range r.Spans {
			late = late || s.Latest > 0
		}
	}
	for i, r := range rows {
		for _, s := range r.Spans {
			name := r.Label
			if s.Label != "" {
				name += ": " + s.Label
			}
			row := []string{name, Seconds(s.From), Seconds(s.To)}
			if late {
				row = append(row, "")
				if s.Latest > 0 {
					row[3] = Seconds(s.Latest)
				}
			}
			table = append(table, row)
		}
		if i < len(shown) {
			r.bars(&m, lanesTop+float64(i)*barRow, i, x)
		}
	}
	for _, k := range marks {
		row := []string{k.Label, Seconds(k.At), ""}
		if late {
			row = append(row, "")
		}
		table = append(table, row)
	}
	// Marks cross the bars, but not the names of lanes.
	markLines(&m, placed, lanesTop, bottom)
	for i, r := range shown {
		r.names(&m, lanesTop+float64(i)*barRow)
	}
	markLabels(&m, placed, lanesTop)
	m.close("svg")
	m.close("div")
	m.newline()
	if rest := len(rows) - len(shown); rest > 0 {
		m.leaf("p", "And "+Number(float64(rest))+" more, see the numbers.", "class", "chart-none")
	}
	head := []string{"What", "From", "To"}
	if late {
		head = append(head, "At the latest")
	}
	m.table(c.Title, head, table, "")
	m.close("figure")
	return m.html()
}

// names writes the lane's label and note.
func (r Lane) names(m *markup, top float64) {
	note := r.Note
	if note == "" && len(r.Spans) > 0 {
		var s span
		for _, p := range r.Spans {
			s.add(p.From)
			s.add(p.To)
		}
		note = Seconds(s.high - s.low)
	}
	note = clip(note, 24)
	m.open("g")
	m.leaf("title", r.Label+suffix(note))
	m.label(r.Label, max(8, narrowColumns-columns(note)), max(8, wideColumns-columns(note)), "class", "halo", "x", "0", "y", px(top+14))
	m.leaf("text", note, "class", "value halo", "x", "100%", "y", px(top+14), "text-anchor", "end")
	m.close("g")
	m.newline()
}

// bars draws the lane's spans on their track.
func (r Lane) bars(m *markup, top float64, i int, x scale) {
	y, h := px(top+barAt), px(barHeight)
	m.empty("rect", "class", "track", "x", "0", "width", "100%", "y", y, "height", h, "rx", "3")
	m.open("g", "class", r.Tone.class(i))
	for _, s := range r.Spans {
		m.open("g")
		tip := r.Label
		if s.Label != "" {
			tip += ", " + s.Label
		}
		tip += ": " + Seconds(s.From) + " to " + Seconds(s.To)
		if s.Latest > 0 {
			tip += ", at the latest " + Seconds(s.Latest)
		}
		m.leaf("title", tip)
		if s.Latest > 0 {
			m.empty("rect", "class", "latest", "x", percent(x.at(s.To)), "width", percent(x.at(s.Latest)-x.at(s.To)), "y", y, "height", h, "rx", "3")
		}
		// Shorter than this nobody sees it.
		m.empty("rect", "class", "bar", "x", percent(min(x.at(s.From), 0.996)), "width", percent(max(x.at(s.To)-x.at(s.From), 0.004)), "y", y, "height", h, "rx", "3")
		m.close("g")
	}
	m.close("g")
	m.newline()
}
