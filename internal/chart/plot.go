package chart

import (
	"math"
	"sort"
)

// The measures of a plot with two axes, in CSS pixels.
const (
	plotHeight = 180.0 // the area between the axes
	plotBelow  = 42.0  // x ticks and the x axis' label
	columnPx   = 7.5   // a column of tick text, in a wide font
	maxHits    = 80    // places that answer to the pointer
)

// plot is the frame that Line and Histogram draw in.
type plot struct {
	x, y         scale
	xAxis, yAxis Axis
	marks        []placedMark
	top          float64 // of the area between the axes, below the labels of marks
}

func newPlot(x, y scale, xAxis, yAxis Axis, marks []Mark) plot {
	placed, room := placeMarks(marks, x)
	return plot{x: x, y: y, xAxis: xAxis, yAxis: yAxis, marks: placed, top: room}
}

// open writes the box, the picture's element and the grid. The box leaves room
// for the widest label of the y axis.
func (p plot) open(m *markup, title, desc string) {
	widest := 0
	for _, t := range p.y.ticks {
		widest = max(widest, columns(p.yAxis.tick(t, p.y)))
	}
	m.open("div", "class", "chart-plot", "style", "padding-left:"+px(float64(widest)*columnPx+12)+"px")
	for _, k := range p.marks {
		desc += " Marked at " + p.xAxis.text(k.At) + ": " + k.Label + "."
	}
	m.svg(p.top+plotHeight+plotBelow, title, desc)

	m.open("g", "class", "axis", "aria-hidden", "true")
	for _, t := range p.y.ticks {
		y := px(p.yAt(t))
		m.empty("line", "class", "grid", "x1", "0", "x2", "100%", "y1", y, "y2", y)
		m.leaf("text", p.yAxis.tick(t, p.y), "x", "-8", "y", y, "dy", "0.35em", "text-anchor", "end")
	}
	m.newline()
	base := p.top + plotHeight
	m.empty("line", "class", "base", "x1", "0", "x2", "100%", "y1", px(p.yAt(0)), "y2", px(p.yAt(0)))
	// The first tick is always shown; a narrow figure leaves out every second one.
	for i, t := range p.x.ticks {
		class := "x"
		if i%2 == 1 {
			class = "x wide"
		}
		x := percent(p.x.at(t))
		m.empty("line", "class", "tick "+class, "x1", x, "x2", x, "y1", px(base), "y2", px(base+5))
		m.leaf("text", p.xAxis.tick(t, p.x), "class", class, "x", x, "y", px(base+21), "text-anchor", "middle")
	}
	m.newline()
	if p.xAxis.Label != "" {
		m.leaf("text", clip(p.xAxis.Label, 40), "class", "name", "x", "50%", "y", px(base+39), "text-anchor", "middle")
	}
	m.close("g")
	m.newline()
}

// close draws the marks over everything else and ends picture and box.
func (p plot) close(m *markup) {
	drawMarks(m, p.marks, p.top, p.top+plotHeight)
	m.close("svg")
	m.close("div")
	m.newline()
}

// placedMark is a mark with a place for its label.
type placedMark struct {
	Mark
	text  string  // of the label, short enough
	at    float64 // 0 to 1
	level int     // line of text above the plot, 0 the nearest
	end   bool    // the label ends at the line instead of beginning there
}

const (
	markLine  = 15.0 // a line of labels of marks
	markRoom  = 8.0  // above the plot, besides those lines
	labelPx   = 7.5  // a column of a label, in a wide font
	narrowest = 220.0

	maxMarkLabel = 24 // columns; the tooltip has all of it
)

// placeMarks finds a place for every label, so that none meets another even in
// the narrowest figure, and the room that all of them take. A label stands on
// the side of its line that has more room.
func placeMarks(marks []Mark, x scale) ([]placedMark, float64) {
	placed := make([]placedMark, 0, len(marks))
	for _, k := range marks {
		if !finite(k.At) {
			continue
		}
		at := x.at(k.At)
		placed = append(placed, placedMark{Mark: k, text: clip(k.Label, maxMarkLabel), at: at, end: at > 0.5})
	}
	sort.SliceStable(placed, func(i, j int) bool { return placed[i].at < placed[j].at })
	levels := 0
	for i := range placed {
		for taken := true; taken; {
			taken = false
			for _, before := range placed[:i] {
				if before.level == placed[i].level && before.meets(placed[i]) {
					placed[i].level++
					taken = true
				}
			}
		}
		levels = max(levels, placed[i].level+1)
	}
	return placed, markRoom + float64(levels)*markLine
}

// meets tells whether two labels would lie over each other on the same line.
func (k placedMark) meets(other placedMark) bool {
	from, to := k.extent()
	otherFrom, otherTo := other.extent()
	return from < otherTo && otherFrom < to
}

// extent is the stretch of the width that the label takes, with some space.
func (k placedMark) extent() (from, to float64) {
	width := (float64(columns(k.text))*labelPx + 12) / narrowest
	if k.end {
		return k.at - width, k.at
	}
	return k.at, k.at + width
}

// drawMarks draws vertical lines, and their labels over all of them.
func drawMarks(m *markup, marks []placedMark, top, bottom float64) {
	markLines(m, marks, top, bottom)
	markLabels(m, marks, top)
}

func markLines(m *markup, marks []placedMark, top, bottom float64) {
	for _, k := range marks {
		m.open("g", "class", "mark "+markClass(k.Tone))
		m.leaf("title", k.Label)
		m.empty("line", "x1", percent(k.at), "x2", percent(k.at), "y1", px(k.baseline(top)-9), "y2", px(bottom))
		m.close("g")
		m.newline()
	}
}

func markLabels(m *markup, marks []placedMark, top float64) {
	for _, k := range marks {
		anchor, dx := "start", "5"
		if k.end {
			anchor, dx = "end", "-5"
		}
		m.open("g", "class", "mark "+markClass(k.Tone))
		m.leaf("text", k.text, "class", "halo", "x", percent(k.at), "dx", dx, "y", px(k.baseline(top)), "text-anchor", anchor)
		m.close("g")
		m.newline()
	}
}

// baseline is where the label's text stands, above a plot that begins at top.
func (k placedMark) baseline(top float64) float64 { return top - 6 - float64(k.level)*markLine }

func markClass(t Tone) string {
	if t == Plain {
		t = Muted
	}
	return t.class(0)
}

// yAt is the place of a value on the y axis, in pixels from the top.
func (p plot) yAt(v float64) float64 { return p.top + (1-p.y.at(v))*plotHeight }

// span is the lowest and highest of the finite values seen.
type span struct {
	low, high float64
	any       bool
}

func (s *span) add(v float64) {
	if !finite(v) {
		return
	}
	if !s.any {
		s.low, s.high, s.any = v, v, true
		return
	}
	s.low, s.high = math.Min(s.low, v), math.Max(s.high, v)
}
