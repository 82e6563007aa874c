package component

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/briefing-swarm/briefing-swarm/plan"
)

// reviewWidth is the widest line of the cost review. Pulumi indents a message by
// four columns, and terminals have 80 or more.
const reviewWidth = 76

// review is the cost review that a preview shows: what a run costs, how long it
// takes, which quotas it needs, what else would do the same, and how sure all of
// that is.
func (d *design) review(name string) string {
	r := &reviewText{p: d.plan}
	r.head(name, d)
	r.verdict()
	r.cost(d)
	r.time(d)
	r.quotas()
	r.certainty()
	return strings.TrimRight(r.out.String(), "\n")
}

type reviewText struct {
	out strings.Builder
	p   *plan.Plan
}

func (r *reviewText) line(format string, args ...any) {
	fmt.Fprintln(&r.out, strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

// wrap writes text with its first line behind first, the others behind rest.
func (r *reviewText) wrap(first, rest, text string) {
	line := first
	for _, word := range strings.Fields(text) {
		if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > reviewWidth && strings.TrimSpace(line) != "" && line != first {
			r.line("%s", line)
			line = rest
		}
		if line != first && line != rest {
			line += " "
		}
		line += word
	}
	r.line("%s", line)
}

func (r *reviewText) head(name string, d *design) {
	in := r.p.Inputs
	r.line("Cost review of %s: %s a run, %s a month, %s", name, count(in.Users, "user"), count(int64(in.RunsPerMonth), "run"), in.Region)
	r.wrap("  ", "  ", fmt.Sprintf("%s on %s, %s MiB (%s), batches of %d, %d at a time, up to %s",
		in.Model, in.Architecture, number(int64(in.MemoryMib)), count(int64(r.p.Speed.Threads), "thread"), in.BatchSize, min(in.ParallelSequences, in.BatchSize), count(int64(in.MaxConcurrency), "worker")))
	if d.Items > 0 && d.Items < d.ExpectedUsers {
		r.wrap("  ", "  ", fmt.Sprintf("items: of %s, only the first %s are used", count(int64(d.ExpectedUsers), "record"), number(int64(d.Items))))
	}
}

// row writes a label and its range of amounts.
func (r *reviewText) row(label string, amount plan.Range, mark string) {
	if n := utf8.RuneCountInString(label); n > 40 {
		label = string([]rune(label)[:39]) + "…"
	}
	if amount.Point() {
		r.line("%-40s%11s%11s%11s %s", label, "", usd(amount.Likely), "", mark)
		return
	}
	r.line("%-40s%11s%11s%11s %s", label, usd(amount.Low), usd(amount.Likely), usd(amount.High), mark)
}

// usd writes an amount; below a hundredth of a cent nobody wants more digits.
func usd(v float64) string {
	if v > 0 && v < 0.0001 {
		return "<$0.0001"
	}
	return plan.FormatUsdRough(v)
}

// mark says what is not certain about a line.
func mark(l plan.Line) string {
	m := map[string]string{plan.Secondary: "s", plan.Unverified: "u", plan.StandIn: "r"}[l.Confidence]
	if !l.PriceKnown {
		m = "?"
	}
	if l.Basis == plan.Assumed {
		m += "~"
	}
	return m
}

// smallShare is the part of the total below which lines are put together.
const smallShare = 0.001

func (r *reviewText) cost(d *design) {
	b := r.p.Cost
	r.line("\n%-40s%11s%11s%11s", "Cost", "low", "likely", "high")
	var small plan.Range
	var smalls int
	for _, l := range b.Lines {
		if l.Standing || !l.PriceKnown {
			continue
		}
		if l.PerRunUsd.High < smallShare*b.PerRunUsd.High {
			small = add(small, l.PerRunUsd)
			smalls++
			continue
		}
		r.row("  "+l.Label, l.PerRunUsd, mark(l))
	}
	if smalls > 0 {
		r.row("  "+count(int64(smalls), "smaller line"), small, "")
	}
	r.row("a run", b.PerRunUsd, "")
	r.row("  of that, writing the briefings", b.WritingUsd, "")
	r.row("a user", b.PerUserUsd, "")
	r.row("a month, run or not", b.StandingUsd, "")
	for _, l := range b.Lines {
		if l.Standing && l.Group == plan.GroupOptions && l.PriceKnown {
			r.row("  of that, "+l.Label, l.PerMonthUsd, mark(l))
		}
	}
	r.row("a month with "+count(int64(r.p.Inputs.RunsPerMonth), "run"), b.PerMonthUsd, "")
	if c := d.CostCeilingUsdPerRun; c > 0 {
		r.line("Ceiling: %s a run; what would cost more is refused at its start.", plan.FormatUsd(c))
	}
	if c := d.CostCeilingUsdPerMonth; c > 0 {
		tells := "; an AWS budget counts"
		if d.AlarmsEmail != "" {
			tells = "; an AWS budget warns at 80% and 100%"
		}
		r.line("Ceiling: %s a month%s.", plan.FormatUsd(c), tells)
	}
}

func (r *reviewText) time(d *design) {
	t := r.p.Time
	r.line("\n%-40s%11s%11s%11s", "Time, from the arrival of the file", "fast", "likely", "slow")
	row := func(label string, of func(plan.Timeline) plan.Percentiles) {
		r.line("  %-38s%11s%11s%11s", label, plan.FormatSec(of(t.Low).P50), plan.FormatSec(of(t.Likely).P50), plan.FormatSec(of(t.High).P50))
	}
	row("last briefing written", func(t plan.Timeline) plan.Percentiles { return t.WrittenSec })
	if r.p.Inputs.Mail {
		row("first mail out", func(t plan.Timeline) plan.Percentiles { return t.FirstMailSec })
		row("last mail out, at "+plan.FormatNumber(r.p.Inputs.SesRatePerSec)+"/s", func(t plan.Timeline) plan.Percentiles { return t.LastMailSec })
	}
	if dl := r.p.Deadline; dl != nil {
		verdict := "missed, unless the machine is a fast one"
		switch {
		case dl.Met.High:
			verdict = "met, on a slow machine too"
		case dl.Met.Likely:
			verdict = "met in the likely case, not on a slow machine"
		case !dl.Met.Low:
			verdict = "missed"
		}
		r.line("  The deadline of %s is %s.", plan.FormatSec(60*dl.Minutes), verdict)
	}
	if r.p.Inputs.Mail && d.DeliverAt != "" && d.InputAt == "" {
		r.wrap("  ", "  ", "Mail waits for "+d.DeliverAt+"; set inputAt to see that here.")
	}
}

func (r *reviewText) quotas() {
	var short, near []plan.Quota
	for _, q := range r.p.Quotas {
		switch {
		case !q.Enough:
			short = append(short, q)
		case q.Code != "" && q.Needed.Likely > closeShare*q.Have:
			near = append(near, q)
		}
	}
	r.line("\n%-34s%14s%14s  %s", "Quotas", "needed", "have", "ask for")
	defaults := false
	for _, q := range append(short, near...) {
		have, sign := plan.FormatNumber(q.Have), "  "
		if !q.Given {
			have += "*"
			defaults = true
		}
		if !q.Enough {
			sign = "! "
		}
		ask := q.Code
		if ask == "" {
			ask = "fixed"
			if strings.HasPrefix(q.ID, "firehose.") {
				ask = "AWS support"
			}
		}
		label := q.Label
		if n := []rune(label); len(n) > 32 {
			label = string(n[:31]) + "…"
		}
		r.line("%s%-32s%14s%14s  %s", sign, label, plan.FormatNumber(math.Ceil(q.Needed.Likely)), have, ask)
	}
	if n := len(r.p.Quotas) - len(short) - len(near); n > 0 {
		r.line("  %d more have room to spare.", n)
	}
	if defaults {
		r.line("* of an account that has asked for nothing; give yours in accountQuotas.")
	}
	for _, q := range short {
		text := q.Label + ": " + q.Consequence + "."
		if q.Remedy != "" {
			text += " " + strings.ToUpper(q.Remedy[:1]) + q.Remedy[1:] + "."
		}
		r.wrap("! ", "  ", text)
	}
}

// closeShare is the part of a quota from which on it is worth a line.
const closeShare = 0.7

func (r *reviewText) verdict() {
	r.line("")
	r.wrap("=> ", "   ", r.p.Verdict.Sentence)
	for _, reason := range r.p.Verdict.Reasons {
		r.wrap("   - ", "     ", reason)
	}
}

func (r *reviewText) certainty() {
	p := r.p
	r.line("\nHow sure is this")
	c := p.Inputs.Calibration
	r.wrap("- ", "  ", fmt.Sprintf("Speed, %s confidence: %s, %s. %s",
		p.Speed.Confidence, c.Machine.CPU, c.MeasuredAt.Format("2006-01-02"), sentences(p.Speed.Scaled)))
	r.wrap("- ", "  ", fmt.Sprintf("Prices of %s: %s. Behind a line: s second-hand, u unverified, r another region's; ~ the quantity is an assumption.", p.PricesDate, p.PricesFrom))
	for _, n := range p.Notes {
		r.wrap("- ", "  ", sentences([]string{n}))
	}
	uncounted := "alarms, the dashboard, backups of tables, scans of the image"
	if p.Inputs.Mail {
		uncounted += ", the secret of the links to unsubscribe"
	}
	r.wrap("- ", "  ", "In no line, since no price of theirs was read: "+uncounted+".")
}

func sentences(texts []string) string {
	var b []string
	for _, t := range texts {
		b = append(b, strings.ToUpper(t[:1])+t[1:]+".")
	}
	return strings.Join(b, " ")
}

func add(a, b plan.Range) plan.Range {
	return plan.Range{Low: a.Low + b.Low, Likely: a.Likely + b.Likely, High: a.High + b.High}
}

// count writes a number with its unit, in the plural where it must be.
func count(n int64, unit string) string {
	if n != 1 {
		unit += "s"
	}
	return number(n) + " " + unit
}

func number(n int64) string { return plan.FormatNumber(float64(n)) }
