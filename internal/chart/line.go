package chart

import (
	"html/template"
	"sort"
	"strings"
)

// Line shows how values change along an axis, for one or more series. Its y
// axis always includes zero, so that a small change looks like one.
type Line struct {
	Title string
	// Caption is a short remark beside the title.
	Caption string
	// Desc is a sentence that says what the picture shows, for those who do not
	// see it. Empty: one is made from the data.
	Desc string
	X, Y Axis
	// Series are drawn in this order, the first on top.
	Series []Series
	// Marks are lines at values of the x axis, such as the value in use.
	Marks []Mark
	// Area fills the space under the first series.
	Area bool
}

// Series is one line of a Line.
type Series struct {
	Label string
	Tone  Tone
	// Points are taken in the order of X. One with a coordinate that is not
	// finite is left out. Series of more than 240 points are thinned; peaks stay.
	Points []Point
	// Band fills the space between Low and High of the points.
	Band bool
}

// Point is one value, with the range it may lie in when its series has a band.
type Point struct{ X, Y, Low, High float64 }

const (
	maxLinePoints = 240
	curveUnits    = 1000.0 // the curve's own coordinates, stretched to the plot
	maxDots       = 24     // a line with more points is drawn without dots
)

// HTML draws the chart.
func (l Line) HTML() template.HTML {
	series := make([]Series, 0, len(l.Series))
	var x, y span
	for _, s := range l.Series {
		s.Points = l.usable(s)
		for _, p := range s.Points {
			x.add(p.X)
			y.add(p.Y)
			if s.Band {
				y.add(p.Low)
				y.add(p.High)
			}
		}
		if s.Label == "" {
			s.Label = l.Title
		}
		series = append(series, s)
	}
	if !x.any {
		return blank("line", l.Title, l.Caption)
	}
	desc := l.Desc
	if desc == "" {
		desc = l.describe(series)
	}

	var m markup
	m.begin("line", l.Title, l.Caption)
	if len(series) > 1 {
		keys := make([]key, len(series))
		for i, s := range series {
			keys[i] = key{s.Label, s.Tone.class(i) + " " + dash(i)}
		}
		m.legend(keys)
	}
	marks := make([]Mark, 0, len(l.Marks))
	for _, k := range l.Marks {
		if k.At >= x.low && k.At <= x.high {
			marks = append(marks, k)
		}
	}
	p := newPlot(dataScale(x.low, x.high, 8, l.X), roundScale(y.low, y.high, 4, l.Y), l.X, l.Y, marks)
	p.open(&m, l.Title, desc)
	m.open("svg", "class", "curve", "x", "0", "y", px(p.top), "width", "100%", "height", px(plotHeight),
		"viewBox", "0 0 "+px(curveUnits)+" "+px(curveUnits), "preserveAspectRatio", "none", "aria-hidden", "true")
	for i := len(series) - 1; i >= 0; i-- {
		l.curve(&m, p, series[i], i)
	}
	m.close("svg")
	m.newline()
	l.hits(&m, p, series)
	p.close(&m)
	l.numbers(&m, series)
	m.close("figure")
	return m.html()
}

// usable are a series' points that can be drawn, in order and not too many.
func (l Line) usable(s Series) []Point {
	out := make([]Point, 0, len(s.Points))
	for _, p := range s.Points {
		if !finite(p.X) || !finite(p.Y) || l.X.Log && p.X <= 0 {
			continue
		}
		if !finite(p.Low) || !finite(p.High) || p.Low > p.High {
			p.Low, p.High = p.Y, p.Y
		}
		p.X, p.Y, p.Low, p.High = bounded(p.X), bounded(p.Y), bounded(p.Low), bounded(p.High)
		out = append(out, p)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].X < out[j].X })
	return thin(out, maxLinePoints)
}

// thin keeps the lowest and the highest point of equal stretches, and both ends.
func thin(points []Point, limit int) []Point {
	if len(points) <= limit {
		return points
	}
	inner := points[1 : len(points)-1]
	buckets := (limit - 2) / 2
	out := append(make([]Point, 0, limit), points[0])
	for b := range buckets {
		from, to := b*len(inner)/buckets, (b+1)*len(inner)/buckets
		low, high := from, from
		for i := from; i < to; i++ {
			if inner[i].Y < inner[low].Y {
				low = i
			}
			if inner[i].Y > inner[high].Y {
				high = i
			}
		}
		out = append(out, inner[min(low, high)])
		if low != high {
			out = append(out, inner[max(low, high)])
		}
	}
	return append(out, points[len(points)-1])
}

func (l Line) curve(m *markup, p plot, s Series, i int) {
	if len(s.Points) == 0 {
		return
	}
	at := func(x, y float64) string {
		return px(p.x.at(x)*curveUnits) + " " + px((1-p.y.at(y))*curveUnits)
	}
	along := func(y func(Point) float64, reverse bool) []string {
		out := make([]string, 0, len(s.Points))
		for k := range s.Points {
			if reverse {
				k = len(s.Points) - 1 - k
			}
			out = append(out, at(s.Points[k].X, y(s.Points[k])))
		}
		return out
	}
	middle := func(q Point) float64 { return q.Y }
	m.open("g", "class", s.Tone.class(i))
	if s.Band && len(s.Points) > 1 {
		edge := append(along(func(q Point) float64 { return q.High }, false), along(func(q Point) float64 { return q.Low }, true)...)
		m.empty("path", "class", "band", "d", "M"+strings.Join(edge, "L")+"Z")
	}
	line := along(middle, false)
	if l.Area && i == 0 && len(line) > 1 {
		first, last := s.Points[0], s.Points[len(s.Points)-1]
		m.empty("path", "class", "area", "d", "M"+at(first.X, 0)+"L"+strings.Join(line, "L")+"L"+at(last.X, 0)+"Z")
	}
	if len(line) > 1 {
		m.empty("path", "class", "line "+dash(i), "vector-effect", "non-scaling-stroke", "d", "M"+strings.Join(line, "L"))
	}
	m.close("g")
	m.newline()
}

// dash tells lines apart without colour.
func dash(i int) string {
	return [...]string{"dash1", "dash2", "dash3", "dash4"}[i%4]
}

// hits lays one invisible column over every place with data; the pointer on it
// shows the values there and their dots.
func (l Line) hits(m *markup, p plot, series []Series) {
	xs := places(series)
	dots := len(xs) <= maxDots
	xs = pick(xs, maxHits)
	for i, x := range xs {
		left, right := 0.0, 1.0
		if i > 0 {
			left = (p.x.at(xs[i-1]) + p.x.at(x)) / 2
		}
		if i < len(xs)-1 {
			right = (p.x.at(xs[i+1]) + p.x.at(x)) / 2
		}
		var tip strings.Builder
		tip.WriteString(l.place(x))
		m.open("g", "class", "hit")
		m.open("rect", "x", percent(left), "width", percent(right-left), "y", px(p.top), "height", px(plotHeight))
		for _, s := range series {
			if q, ok := pointAt(s, x); ok {
				tip.WriteString("\n" + s.Label + ": " + l.value(s, q))
			}
		}
		m.leaf("title", tip.String())
		m.close("rect")
		for k, s := range series {
			if q, ok := pointAt(s, x); ok {
				class := s.Tone.class(k)
				if dots {
					class += " shown"
				}
				m.empty("circle", "class", class, "cx", percent(p.x.at(x)), "cy", px(p.yAt(q.Y)), "r", "3.5")
			}
		}
		m.close("g")
		m.newline()
	}
}

// place names a value of the x axis in full.
func (l Line) place(x float64) string {
	s := l.X.text(x)
	if l.X.Label != "" {
		s = l.X.head("") + ": " + s
	}
	return s
}

// value writes a point, with its range when it has one.
func (l Line) value(s Series, q Point) string {
	v := l.Y.text(q.Y)
	if s.Band && q.Low != q.High {
		v += " (" + l.Y.text(q.Low) + " to " + l.Y.text(q.High) + ")"
	}
	return v
}

func (l Line) describe(series []Series) string {
	var parts []string
	for _, s := range series {
		if len(s.Points) == 0 {
			continue
		}
		first, last := s.Points[0], s.Points[len(s.Points)-1]
		if len(s.Points) == 1 {
			parts = append(parts, s.Label+": "+l.Y.text(first.Y)+" at "+l.X.text(first.X)+".")
			continue
		}
		parts = append(parts, s.Label+": from "+l.Y.text(first.Y)+" at "+l.X.text(first.X)+" to "+l.Y.text(last.Y)+" at "+l.X.text(last.X)+".")
	}
	return strings.Join(parts, " ")
}

func (l Line) numbers(m *markup, series []Series) {
	all := places(series)
	xs := pick(all, maxTableRows)
	head := []string{l.X.head("At")}
	for _, s := range series {
		if s.Band {
			head = append(head, s.Label+", low", s.Label+", likely", s.Label+", high")
		} else {
			head = append(head, s.Label)
		}
	}
	rows := make([][]string, 0, len(xs))
	for _, x := range xs {
		row := []string{l.X.text(x)}
		for _, s := range series {
			q, ok := pointAt(s, x)
			switch {
			case !ok && s.Band:
				row = append(row, "", "", "")
			case !ok:
				row = append(row, "")
			case s.Band:
				row = append(row, l.Y.text(q.Low), l.Y.text(q.Y), l.Y.text(q.High))
			default:
				row = append(row, l.Y.text(q.Y))
			}
		}
		rows = append(rows, row)
	}
	note := ""
	if len(xs) < len(all) {
		note = "Shown are " + Number(float64(len(xs))) + " of " + Number(float64(len(all))) + " points."
	}
	m.table(l.Title, head, rows, note)
}

// places are the x values that any series has, in order, each once.
func places(series []Series) []float64 {
	var xs []float64
	for _, s := range series {
		for _, p := range s.Points {
			xs = append(xs, p.X)
		}
	}
	sort.Float64s(xs)
	out := xs[:0]
	for i, x := range xs {
		if i == 0 || x != out[len(out)-1] {
			out = append(out, x)
		}
	}
	return out
}

// pick takes at most n values at equal distances, both ends among them.
func pick(xs []float64, n int) []float64 {
	if len(xs) <= n {
		return xs
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = xs[i*(len(xs)-1)/(n-1)]
	}
	return out
}

// pointAt finds the last point of a series at exactly x.
func pointAt(s Series, x float64) (Point, bool) {
	i := sort.Search(len(s.Points), func(i int) bool { return s.Points[i].X > x }) - 1
	if i < 0 || s.Points[i].X != x {
		return Point{}, false
	}
	return s.Points[i], true
}
