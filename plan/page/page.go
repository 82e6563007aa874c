// Package page draws a plan as one self-contained HTML file: the verdict, what
// the run costs line by line, when things happen, what tokens, parallel
// sequences and workers do to both, and how sure all of it is.
package page

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/briefing-swarm/briefing-swarm/internal/chart"
	"github.com/briefing-swarm/briefing-swarm/plan"
)

//go:embed page.html
var source string

var tmpl = template.Must(template.New("plan").Funcs(template.FuncMap{
	"usd":      plan.FormatUsd,
	"usdRange": usdBounds,
	"num":      plan.FormatNumber,
	"numRange": numBounds,
	"sec":      plan.FormatSec,
	"ceil":     math.Ceil,
	"float":    func(n int) float64 { return float64(n) },
	"sure":     sure,
	"price":    func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) },
	"upper":    upperFirst,
}).Parse(source))

// Write writes the page of p. Sensitivity and tuning are on it if the plan has
// them.
func Write(w io.Writer, p *plan.Plan) error {
	if err := tmpl.Execute(w, newView(p)); err != nil {
		return fmt.Errorf("write the plan's page: %w", err)
	}
	return nil
}

// view is what the template shows.
type view struct {
	*plan.Plan
	CSS       template.CSS
	Title     string
	Setting   string
	Tone      string // of the verdict
	Tiles     []tile
	CostBars  template.HTML
	Elsewhere template.HTML
	Lanes     template.HTML
	Progress  template.HTML
	Workers   template.HTML
	Curves    []template.HTML
	Deadline  string
	Quotas    []quotaRow
	Today     string
	Tuned     []tunedRow
	Speed     string
}

type tile struct{ Name, Value, Detail, Tone string }

type quotaRow struct {
	plan.Quota
	Ask string
}

type tunedRow struct {
	plan.Candidate
	Name string
}

func newView(p *plan.Plan) view {
	in := p.Inputs
	v := view{
		Plan: p, CSS: chart.CSS + chart.PageCSS,
		Title: fmt.Sprintf("%s briefings with %s", plan.FormatNumber(float64(in.Users)), in.Model),
		Setting: fmt.Sprintf("%s in %s, %s MiB with %d threads, batches of %d with %d at a time, up to %s workers; prompt %d shared and %d own tokens, briefing %d tokens",
			in.Architecture, in.Region, plan.FormatNumber(float64(in.MemoryMib)), p.Speed.Threads, in.BatchSize, min(in.BatchSize, in.ParallelSequences),
			plan.FormatNumber(float64(in.MaxConcurrency)), in.PrefixTokens, in.UserTokens, in.OutputTokens),
		Tone: map[string]string{"yes": "good", "no": "bad", "open": "warn"}[p.Verdict.Use],
	}
	v.Tiles = tiles(p)
	v.CostBars = costBars(p)
	v.Elsewhere = elsewhere(p)
	v.Lanes = lanes(p)
	v.Progress, v.Workers = progress(p)
	for _, c := range p.Sensitivity {
		v.Curves = append(v.Curves, curves(c)...)
	}
	if d := p.Deadline; d != nil {
		v.Deadline = deadline(d)
	}
	for _, q := range p.Quotas {
		ask := q.Code
		switch {
		case ask == "" && strings.HasPrefix(q.ID, "firehose."):
			ask = "AWS support"
		case ask == "":
			ask = "fixed"
		}
		v.Quotas = append(v.Quotas, quotaRow{q, ask})
	}
	slices.SortStableFunc(v.Quotas, func(a, b quotaRow) int { return b.need() - a.need() })
	v.Today = today(p)
	if t := p.Tuning; t != nil {
		if t.Winner != nil {
			v.Tuned = append(v.Tuned, tunedRow{*t.Winner, "best"})
		}
		for _, c := range t.NextBest {
			v.Tuned = append(v.Tuned, tunedRow{c, "next best"})
		}
		if t.Nearest != nil {
			v.Tuned = append(v.Tuned, tunedRow{*t.Nearest, "nearest"})
		}
		v.Tuned = append(v.Tuned, tunedRow{t.Asked, "as asked"})
	}
	v.Speed = speed(p)
	return v
}

// need orders quotas: what is short first, then what has a code.
func (q quotaRow) need() int {
	switch {
	case !q.Enough:
		return 2
	case q.Code != "":
		return 1
	}
	return 0
}

func tiles(p *plan.Plan) []tile {
	written := seconds(p, func(t plan.Timeline) float64 { return t.WrittenSec.P50 })
	list := []tile{
		{Name: "a run", Value: usdBounds(p.Cost.PerRunUsd), Detail: likelyUsd(p.Cost.PerRunUsd)},
		{Name: "a month, " + countOf(p.Inputs.RunsPerMonth, "run"), Value: usdBounds(p.Cost.PerMonthUsd), Detail: likelyUsd(p.Cost.PerMonthUsd)},
		{Name: "last briefing written after", Value: secBounds(written), Detail: likelySec(written, p.Time.Likely.WrittenSec.P99)},
	}
	if p.Inputs.Mail {
		mailed := seconds(p, func(t plan.Timeline) float64 { return t.LastMailSec.P50 })
		list = append(list, tile{Name: "last mail out after", Value: secBounds(mailed), Detail: plan.FormatNumber(p.Inputs.SesRatePerSec) + " mails a second"})
	}
	short := 0
	for _, q := range p.Quotas {
		if !q.Enough {
			short++
		}
	}
	quotas := tile{Name: "quotas", Value: "enough", Tone: "good", Detail: "of a default account, or as given"}
	if short > 0 {
		quotas = tile{Name: "quotas", Value: fmt.Sprintf("%d short", short), Tone: "warn", Detail: "of a default account, or as given"}
	}
	return append(list, quotas)
}

// costBars shows every line of a run that is more than a thousandth of it.
func costBars(p *plan.Plan) template.HTML {
	var rows []chart.Bar
	var rest plan.Range
	small := 0
	for _, l := range p.Cost.Lines {
		if l.Standing {
			continue
		}
		if l.PriceKnown && l.PerRunUsd.High < 0.001*p.Cost.PerRunUsd.Likely {
			rest.Low, rest.Likely, rest.High = rest.Low+l.PerRunUsd.Low, rest.Likely+l.PerRunUsd.Likely, rest.High+l.PerRunUsd.High
			small++
			continue
		}
		if !l.PriceKnown {
			rows = append(rows, chart.Bar{Label: l.Label, Value: math.NaN(), Note: "in no total", Tone: chart.Warn})
			continue
		}
		rows = append(rows, bar(upperFirst(strings.TrimPrefix(l.Label, "Lambda: ")), l.PerRunUsd, short(l.Confidence, l.Basis), ""))
	}
	slices.SortStableFunc(rows, func(a, b chart.Bar) int {
		switch {
		case a.Value > b.Value || math.IsNaN(b.Value) && !math.IsNaN(a.Value):
			return -1
		case a.Value < b.Value || math.IsNaN(a.Value) && !math.IsNaN(b.Value):
			return 1
		}
		return 0
	})
	if small > 0 {
		rows = append(rows, bar(countOf(small, "smaller line")+" together", rest, "", chart.Muted))
	}
	return chart.Bars{
		Title: "What a run costs", Caption: caption(p, "likely, with the range where the speed decides"), Of: "Line",
		Value: chart.Axis{Label: "US dollars a run", Format: plan.FormatUsdRough}, Rows: rows,
	}.HTML()
}

func bar(label string, r plan.Range, note string, tone chart.Tone) chart.Bar {
	b := chart.Bar{Label: label, Value: r.Likely, Note: note, Tone: tone}
	if r.High-r.Low > 0.05*r.Likely || r.Low-r.High > 0.05*r.Likely {
		b.Low, b.High = min(r.Low, r.High), max(r.Low, r.High)
	}
	return b
}

func caption(p *plan.Plan, text string) string {
	if p.Cost.PerRunUsd.Point() {
		return ""
	}
	return text
}

// elsewhere compares writing the briefings.
func elsewhere(p *plan.Plan) template.HTML {
	rows := []chart.Bar{bar("This swarm, writing only", p.Cost.WritingUsd, p.Speed.Confidence+" confidence", chart.Plain)}
	for _, a := range p.Alternatives {
		if a.PerRunUsd == nil {
			continue
		}
		label := a.Label
		if a.SameModel {
			label += ", the same model"
		}
		rows = append(rows, chart.Bar{Label: label, Value: *a.PerRunUsd, Note: short(a.Confidence, ""), Tone: chart.Muted})
	}
	return chart.Bars{
		Title: "The same briefings, written elsewhere", Caption: "list prices without batch discount", Of: "Way",
		Value: chart.Axis{Label: "US dollars a run", Format: plan.FormatUsdRough}, Rows: rows,
	}.HTML()
}

// lanes shows the stages of the likely run, and how late each may end on a
// slow machine.
func lanes(p *plan.Plan) template.HTML {
	likely, slow := p.Time.Likely, p.Time.High
	ready := 5 + float64(p.Inputs.Users)/50_000
	rows := []chart.Lane{
		{Label: "Normalise the file", Spans: []chart.Span{{From: 0, To: ready, Label: "normalise"}}},
		{Label: "Write the briefings", Spans: []chart.Span{{From: ready, To: likely.GeneratedSec.P50, Latest: slow.GeneratedSec.P99, Label: "batches"}}},
		{Label: "Parquet files land", Spans: []chart.Span{{From: firstFile(p), To: likely.WrittenSec.P50, Latest: slow.WrittenSec.P99, Label: countOf(int(likely.Files.P50), "file")}}},
	}
	if p.Inputs.Mail {
		rows = append(rows, chart.Lane{Label: "Mail goes out", Spans: []chart.Span{{From: likely.FirstMailSec.P50, To: likely.LastMailSec.P50, Latest: slow.LastMailSec.P99, Label: "mail"}}})
	}
	var marks []chart.Mark
	if m := p.Inputs.DeadlineMinutes; m > 0 {
		marks = append(marks, chart.Mark{At: 60 * m, Label: "deadline", Tone: chart.Bad})
	}
	return chart.Lanes{Title: "The run", Caption: "likely; paler: how late it may get on a slow machine", Rows: rows, Marks: marks}.HTML()
}

func firstFile(p *plan.Plan) float64 {
	for _, m := range p.Time.Likely.Series {
		if m.Written > 0 {
			return m.Sec
		}
	}
	return p.Time.Likely.WrittenSec.P50
}

// progress shows one likely run over time: rows and mails, and workers.
func progress(p *plan.Plan) (rows, workers template.HTML) {
	written := chart.Series{Label: "written"}
	mailed := chart.Series{Label: "mailed"}
	busy := chart.Series{Label: "workers"}
	for _, m := range p.Time.Likely.Series {
		written.Points = append(written.Points, chart.Point{X: m.Sec, Y: float64(m.Written)})
		mailed.Points = append(mailed.Points, chart.Point{X: m.Sec, Y: float64(m.Mailed)})
		busy.Points = append(busy.Points, chart.Point{X: m.Sec, Y: float64(m.Workers)})
	}
	series := []chart.Series{written}
	if p.Inputs.Mail {
		series = append(series, mailed)
	}
	x := chart.Axis{Label: "time since the file arrived", Time: true}
	rows = chart.Line{Title: "Briefings over time", Caption: "one simulated run, likely speed", X: x, Y: chart.Axis{Label: "briefings", Whole: true}, Series: series}.HTML()
	workers = chart.Line{Title: "Workers over time", Caption: "the same run", X: x, Y: chart.Axis{Label: "workers", Whole: true}, Series: []chart.Series{busy}, Area: true}.HTML()
	return rows, workers
}

// curves draws cost and time over one input.
func curves(c plan.Curve) []template.HTML {
	cost, time := chart.Series{Label: "cost of a run", Band: true}, chart.Series{Label: "last briefing", Band: true}
	var marks []chart.Mark
	for _, q := range c.Points {
		if q.Current {
			marks = append(marks, chart.Mark{At: q.Value, Label: "planned: " + plan.FormatNumber(q.Value), Tone: chart.Muted})
		}
		if q.Fault != "" {
			continue
		}
		cost.Points = append(cost.Points, point(q.Value, q.PerRunUsd))
		time.Points = append(time.Points, point(q.Value, q.WrittenSec))
	}
	x := chart.Axis{Label: strings.ToLower(c.Label[:1]) + c.Label[1:], Log: true, Format: plan.FormatNumber}
	if c.Input == "maxConcurrency" {
		return []template.HTML{chart.Line{Title: c.Label + " and time", X: x, Y: chart.Axis{Label: "last briefing written after", Time: true}, Series: []chart.Series{time}, Marks: marks}.HTML()}
	}
	return []template.HTML{chart.Line{Title: c.Label + " and cost", X: x, Y: chart.Axis{Label: "US dollars a run", Format: plan.FormatUsdRough}, Series: []chart.Series{cost}, Marks: marks}.HTML()}
}

func point(x float64, r plan.Range) chart.Point {
	return chart.Point{X: x, Y: r.Likely, Low: min(r.Low, r.High), High: max(r.Low, r.High)}
}

func deadline(d *plan.Deadline) string {
	at := "The deadline of " + plan.FormatSec(60*d.Minutes)
	switch {
	case d.Met.High:
		return at + " is met, on a slow machine too."
	case d.Met.Likely:
		return at + " is met in the likely case, not on a slow machine."
	case d.Met.Low:
		return at + " is missed, unless the machine is a fast one."
	}
	return at + " is missed."
}

func today(p *plan.Plan) string {
	t := p.Today
	switch {
	case len(t.Blocked) > 0:
		return "Within today's quotas this run is not possible: " + strings.Join(t.Blocked, "; ") + "."
	case t.Fits:
		return "The run fits today's quotas as planned."
	}
	text := fmt.Sprintf("Within today's quotas: %s workers, last briefing after %s (p99 %s)", plan.FormatNumber(float64(t.MaxConcurrency)),
		plan.FormatSec(t.Timeline.WrittenSec.P50), plan.FormatSec(t.Timeline.WrittenSec.P99))
	if p.Inputs.Mail {
		text += fmt.Sprintf(", last mail after %s at %s a second", plan.FormatSec(t.Timeline.LastMailSec.P50), plan.FormatNumber(t.SesRatePerSec))
	}
	return text + "."
}

func speed(p *plan.Plan) string {
	if p.Inputs.SecPerUser > 0 {
		return plan.FormatSec(p.Inputs.SecPerUser) + " a user, as given"
	}
	return fmt.Sprintf("%s, %s (%s confidence)", p.Inputs.Calibration.Machine.CPU, p.Inputs.Calibration.MeasuredAt.Format("2006-01-02"), p.Speed.Confidence)
}

func seconds(p *plan.Plan, of func(plan.Timeline) float64) plan.Range {
	return plan.Range{Low: of(p.Time.Low), Likely: of(p.Time.Likely), High: of(p.Time.High)}
}

func bounds(r plan.Range, text func(float64) string) string {
	low, high := text(r.Low), text(r.High)
	if r.Point() || low == high {
		return text(r.Likely)
	}
	return low + " to " + high
}

func usdBounds(r plan.Range) string {
	if r.Point() {
		return plan.FormatUsd(r.Likely)
	}
	return bounds(r, plan.FormatUsdRough)
}

func secBounds(r plan.Range) string { return bounds(r, plan.FormatSec) }

func numBounds(r plan.Range) string { return bounds(r, plan.FormatNumber) }

func likelyUsd(r plan.Range) string {
	if r.Point() {
		return ""
	}
	return "likely " + plan.FormatUsdRough(r.Likely)
}

func likelySec(r plan.Range, p99 float64) string {
	if r.Point() {
		return "p99 " + plan.FormatSec(p99)
	}
	return fmt.Sprintf("likely %s, p99 %s", plan.FormatSec(r.Likely), plan.FormatSec(p99))
}

// sure says what is not certain about a figure.
func sure(confidence, basis string) string {
	var words []string
	switch confidence {
	case plan.Secondary:
		words = append(words, "second-hand price")
	case plan.Unverified:
		words = append(words, "unverified price")
	case plan.StandIn:
		words = append(words, "another region's price")
	}
	if basis == plan.Assumed {
		words = append(words, "assumed quantity")
	}
	return strings.Join(words, ", ")
}

// short is sure in the room beside a bar.
func short(confidence, basis string) string {
	s := sure(confidence, basis)
	s = strings.ReplaceAll(s, " price", "")
	return strings.ReplaceAll(s, " quantity", "")
}

func countOf(n int, unit string) string {
	s := plan.FormatNumber(float64(n)) + " " + unit
	if n != 1 {
		s += "s"
	}
	return s
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
