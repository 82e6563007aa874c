package chart

import "math"

// The measures of a plot with two axes, in CSS pixels.
const (
	plotTop    = 22.0  // room for the labels of marks
	plotHeight = 180.0 // the area between the axes
	plotBelow  = 42.0  // x ticks and the x axis' label
	columnPx   = 7.5   // a column of tick text, in a wide font
	maxHits    = 80    // places that answer to the pointer
)

// plot is the frame that Line and Histogram draw in.
type plot struct {
	x, y         scale
	xAxis, yAxis Axis
	marks        []Mark
}

func newPlot(x, y scale, xAxis, yAxis Axis, marks []Mark) plot {
	return plot{x: x, y: y, xAxis: xAxis, yAxis: yAxis, marks: marks}
}

// open writes the box, the picture's element and the grid. The box leaves room
// for the widest label of the y axis.
func (p plot) open(m *markup, title, desc string) {
	widest := 0
	for _, t := range p.y.ticks {
		widest = max(widest, columns(p.yAxis.tick(t, p.y)))
	}
	m.open("div", "class", "chart-plot", "style", "padding-left:"+px(float64(widest)*columnPx+12)+"px")
	m.svg(plotTop+plotHeight+plotBelow, title, desc)

	m.open("g", "class", "axis", "aria-hidden", "true")
	for _, t := range p.y.ticks {
		y := px(p.yAt(t))
		m.empty("line", "class", "grid", "x1", "0", "x2", "100%", "y1", y, "y2", y)
		m.leaf("text", p.yAxis.tick(t, p.y), "x", "-8", "y", y, "dy", "0.35em", "text-anchor", "end")
	}
	m.newline()
	base := plotTop + plotHeight
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
	drawMarks(m, p.marks, p.x, plotTop, plotTop+plotHeight)
	m.close("svg")
	m.close("div")
	m.newline()
}

// drawMarks draws vertical lines with their labels on top. A label stands on
// the side of its line that has more room.
func drawMarks(m *markup, marks []Mark, x scale, top, bottom float64) {
	for _, k := range marks {
		if !finite(k.At) {
			continue
		}
		at := x.at(k.At)
		m.open("g", "class", "mark "+markClass(k.Tone))
		m.leaf("title", k.Label)
		m.empty("line", "x1", percent(at), "x2", percent(at), "y1", px(top-6), "y2", px(bottom))
		anchor, dx := "start", "5"
		if at > 0.5 {
			anchor, dx = "end", "-5"
		}
		m.leaf("text", clip(k.Label, 24), "x", percent(at), "dx", dx, "y", px(top-9), "text-anchor", anchor)
		m.close("g")
		m.newline()
	}
}

func markClass(t Tone) string {
	if t == Plain {
		t = Muted
	}
	return t.class(0)
}

// yAt is the place of a value on the y axis, in pixels from the top.
func (p plot) yAt(v float64) float64 { return plotTop + (1-p.y.at(v))*plotHeight }

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
