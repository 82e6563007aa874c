package chart

import (
	"html/template"
	"sort"
)

// Histogram shows how often values fall into ranges.
type Histogram struct {
	Title string
	// Caption is a short remark beside the title.
	Caption string
	// Desc is a sentence that says what the picture shows, for those who do not
	// see it. Empty: one is made from the data.
	Desc string
	// X is the axis of the values that were counted.
	X Axis
	// Unit names what was counted, in the plural: "briefings".
	Unit string
	// Bins are drawn over the range they cover, in any order. A bin that is
	// empty, turned round or not finite is left out, as is a negative count.
	Bins []Bin
	// Marks are lines at values of the x axis, such as a median.
	Marks []Mark
}

// Bin counts the values in [From, To).
type Bin struct {
	From, To float64
	N        int64
}

// HTML draws the chart.
func (h Histogram) HTML() template.HTML {
	bins := make([]Bin, 0, len(h.Bins))
	var x, y span
	var total, peak float64
	mode := Bin{}
	for _, b := range h.Bins {
		if !finite(b.From) || !finite(b.To) || b.From >= b.To || b.N < 0 {
			continue
		}
		bins = append(bins, b)
		x.add(b.From)
		x.add(b.To)
		y.add(float64(b.N))
		total += float64(b.N)
		if float64(b.N) > peak {
			peak, mode = float64(b.N), b
		}
	}
	if total == 0 {
		return blank("histogram", h.Title, h.Caption)
	}
	sort.SliceStable(bins, func(i, j int) bool { return bins[i].From < bins[j].From })

	unit := h.Unit
	if unit == "" {
		unit = "values"
	}
	desc := h.Desc
	if desc == "" {
		desc = Number(total) + " " + unit + " from " + h.X.text(x.low) + " to " + h.X.text(x.high) +
			"; most of them, " + Number(peak) + ", from " + h.X.text(mode.From) + " to " + h.X.text(mode.To) + "."
	}

	var m markup
	m.begin("histogram", h.Title, h.Caption)
	marks := make([]Mark, 0, len(h.Marks))
	for _, k := range h.Marks {
		if k.At >= x.low && k.At <= x.high {
			marks = append(marks, k)
		}
	}
	p := newPlot(dataScale(x.low, x.high, 8, Axis{Time: h.X.Time}), roundScale(0, y.high, 4, Axis{Whole: true}), h.X, Axis{Label: unit}, marks)
	p.open(&m, h.Title, desc)
	m.open("g", "class", "c1")
	rows := make([][]string, 0, len(bins))
	for _, b := range bins {
		rows = append(rows, []string{h.X.text(b.From), h.X.text(b.To), Number(float64(b.N)), Percent(float64(b.N) / total)})
		if b.N == 0 {
			continue
		}
		top := p.yAt(float64(b.N))
		// A single briefing among a million must still be seen.
		top = min(top, p.top+plotHeight-2)
		left, right := p.x.at(b.From), p.x.at(b.To)
		gap := (right - left) * 0.04
		m.open("rect", "class", "bin", "x", percent(left+gap), "width", percent(right-left-2*gap),
			"y", px(top), "height", px(p.top+plotHeight-top))
		m.leaf("title", h.X.text(b.From)+" to "+h.X.text(b.To)+": "+Number(float64(b.N))+" "+unit+" ("+Percent(float64(b.N)/total)+")")
		m.close("rect")
		m.newline()
	}
	m.close("g")
	p.close(&m)
	m.table(h.Title, []string{h.X.head("From"), "Below", Axis{Label: unit}.head(""), "Share"}, rows, "")
	m.close("figure")
	return m.html()
}
