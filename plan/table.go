package plan

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// tableWidth is the widest line WriteTable writes.
const tableWidth = 80

// WriteTable writes the plan for people, at most 80 columns wide.
func (p *Plan) WriteTable(w io.Writer) error {
	out := bufio.NewWriter(w)
	t := &table{out: out, p: p}
	t.head()
	t.cost()
	t.time()
	t.quotas()
	t.elsewhere()
	if p.Tuning != nil {
		t.tuning()
	}
	t.certainty()
	return out.Flush()
}

type table struct {
	out *bufio.Writer
	p   *Plan
}

func (t *table) line(format string, args ...any) {
	fmt.Fprintln(t.out, strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

func (t *table) section(title string) { t.line("\n%s", title) }

// wrap writes text with its first line behind first and the others behind rest.
func (t *table) wrap(first, rest, text string) {
	for _, l := range wrapText(text, tableWidth-utf8.RuneCountInString(first), tableWidth-utf8.RuneCountInString(rest)) {
		t.line("%s%s", first, l)
		first = rest
	}
}

func wrapText(text string, first, rest int) []string {
	var lines []string
	line, width := "", first
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line, width = "", rest
		}
		if line != "" {
			line += " "
		}
		line += word
		for utf8.RuneCountInString(line) > width { // a word longer than the line
			r := []rune(line)
			lines = append(lines, string(r[:width]))
			line, width = string(r[width:]), rest
		}
	}
	return append(lines, line)
}

func (t *table) head() {
	in := t.p.Inputs
	t.wrap("Plan: ", "      ", fmt.Sprintf("%s, %s on %s in %s", count(float64(in.Users), "user"), in.Model, in.Architecture, in.Region))
	t.wrap("      ", "      ", fmt.Sprintf("prompt %d shared + %d own tokens, briefing %d tokens", in.PrefixTokens, in.UserTokens, in.OutputTokens))
	t.wrap("      ", "      ", fmt.Sprintf("%s MiB (%d threads), batches of %d, %d at a time, up to %s workers",
		FormatNumber(float64(in.MemoryMib)), t.p.Speed.Threads, in.BatchSize, in.parallel(), FormatNumber(float64(in.MaxConcurrency))))
	t.line("")
	t.wrap("=> ", "   ", t.p.Verdict.Sentence)
	for _, r := range t.p.Verdict.Reasons {
		t.wrap("   - ", "     ", r)
	}
}

// marks says behind a line what is not certain about it.
func marks(l Line) string {
	m := map[string]string{Secondary: "s", Unverified: "u", StandIn: "r"}[l.Confidence]
	if !l.PriceKnown {
		m = "?"
	}
	if l.Basis == Assumed {
		m += "~"
	}
	return m
}

func (t *table) cost() {
	b := t.p.Cost
	ranges := !b.PerRunUsd.Point()
	t.section("Cost of a run")
	row := func(label string, r Range, known bool, mark string) {
		switch {
		case !known:
			t.line("%-45s%10s%10s%10s %s", label, "", "not known", "", mark)
		case !ranges || r.Point():
			t.line("%-45s%10s%10s%10s %s", label, "", FormatUsd(r.Likely), "", mark)
		default:
			t.line("%-45s%10s%10s%10s %s", label, FormatUsdRough(r.Low), FormatUsdRough(r.Likely), FormatUsdRough(r.High), mark)
		}
	}
	if ranges {
		t.line("%-45s%10s%10s%10s", "", "low", "likely", "high")
	}
	small := Range{}
	var smallLabels int
	for _, g := range Groups() {
		first := true
		var sum Range
		for _, l := range b.Lines {
			if l.Group != g || l.Standing {
				continue
			}
			sum.add(l.PerRunUsd)
			if l.PriceKnown && l.PerRunUsd.High < 0.01 && l.PerRunUsd.Likely < 0.0001*b.PerRunUsd.Likely {
				small.add(l.PerRunUsd)
				smallLabels++
				continue
			}
			if first {
				t.line("%s", g)
				first = false
			}
			row("  "+cut(l.Label, 42), l.PerRunUsd, l.PriceKnown, marks(l))
		}
	}
	if smallLabels > 0 {
		row(fmt.Sprintf("%s under a cent", plural(float64(smallLabels), "line")), small, true, "")
	}
	row("a run", b.PerRunUsd, true, "")
	row("of that, writing the briefings", b.WritingUsd, true, "")
	row("a user", b.PerUserUsd, true, "")
	t.line("a month, run or not")
	for _, l := range b.Lines {
		if l.Standing {
			row("  "+cut(l.Label, 42), l.PerMonthUsd, l.PriceKnown, marks(l))
		}
	}
	row(fmt.Sprintf("a month with %s", count(float64(t.p.Inputs.RunsPerMonth), "run")), b.PerMonthUsd, true, "")
	t.line("Price: s second-hand, u unverified, r another region's, ? not known (not in the")
	t.line("totals); no letter: read in the source. ~ the quantity rests on an assumption.")
	if t.p.Inputs.FreeTier {
		t.line("The account's monthly free tiers are taken off.")
	}
}

func (t *table) time() {
	p := t.p
	t.section("Time line, from the arrival of the file")
	times := p.Time.seconds(func(x Timeline) float64 { return x.WrittenSec.P50 })
	one := times.Point()
	if one {
		t.line("%-45s%10s%10s", "", "p50", "p99")
	} else {
		t.line("%-38s%10s%10s%10s%12s", "", "fast", "likely", "slow", "likely p99")
	}
	row := func(label string, of func(Timeline) Percentiles, text func(float64) string) {
		l := of(p.Time.Likely)
		if one {
			t.line("%-45s%10s%10s", label, text(l.P50), text(l.P99))
			return
		}
		t.line("%-38s%10s%10s%10s%12s", label, text(of(p.Time.Low).P50), text(l.P50), text(of(p.Time.High).P50), text(l.P99))
	}
	row("last briefing written", func(x Timeline) Percentiles { return x.WrittenSec }, FormatSec)
	if p.Inputs.Mail {
		row("first mail out", func(x Timeline) Percentiles { return x.FirstMailSec }, FormatSec)
		row(fmt.Sprintf("last mail out, at %s a second", FormatNumber(p.Inputs.SesRatePerSec)), func(x Timeline) Percentiles { return x.LastMailSec }, FormatSec)
	}
	row("workers at one time", func(x Timeline) Percentiles { return x.PeakConcurrency }, FormatNumber)
	row("refused and repeated calls (throttles)", func(x Timeline) Percentiles { return x.Throttles }, FormatNumber)
	t.wrap("", "", fmt.Sprintf("One user takes %s of a worker, a batch %s; %s in %s.",
		FormatSecRange(p.Speed.SecPerUser), FormatSecRange(p.Speed.BatchSec),
		count(float64(p.Speed.Children), "batch"), waves(p)))
	if d := p.Deadline; d != nil {
		switch {
		case d.Met.High:
			t.line("The deadline of %s is met, on a slow machine too.", FormatSec(60*d.Minutes))
		case d.Met.Likely:
			t.line("The deadline of %s is met in the likely case, not on a slow machine.", FormatSec(60*d.Minutes))
		case d.Met.Low:
			t.line("The deadline of %s is missed, unless the machine is a fast one.", FormatSec(60*d.Minutes))
		default:
			t.line("The deadline of %s is missed.", FormatSec(60*d.Minutes))
		}
	}
}

func waves(p *Plan) string {
	n := math.Ceil(float64(p.Inputs.Users) / float64(p.Speed.WaveUsers))
	return fmt.Sprintf("%s of up to %s users", count(n, "wave"), FormatNumber(float64(p.Speed.WaveUsers)))
}

func (t *table) quotas() {
	t.section("Quotas")
	t.line("%-32s%14s%14s  %s", "", "needed", "have", "ask for")
	var short []Quota
	fine := 0
	for _, q := range t.p.Quotas {
		if q.Enough && q.Code == "" && q.Needed.Likely < 0.7*q.Have {
			fine++
			continue
		}
		have := FormatNumber(q.Have)
		if !q.Given {
			have += "*"
		}
		ask := q.Code
		if ask == "" {
			ask = "fixed"
			if strings.HasPrefix(q.ID, "firehose.") {
				ask = "AWS support"
			}
		}
		state := "  "
		if !q.Enough {
			state = "! "
			short = append(short, q)
		}
		t.line("%s%-30s%14s%14s  %s", state, cut(q.Label, 30), FormatNumber(math.Ceil(q.Needed.Likely)), have, ask)
	}
	t.line("* default of an account that has asked for nothing; yours may differ.")
	if fine > 0 {
		t.line("%s have room to spare.", count(float64(fine), "more limit"))
	}
	for _, q := range short {
		text := q.Label + ": " + q.Consequence + "."
		if q.Remedy != "" {
			text += " " + upperFirst(q.Remedy) + "."
		}
		if q.Note != "" {
			text += " (" + q.Note + ")"
		}
		t.wrap("! ", "  ", text)
	}
	today := t.p.Today
	switch {
	case len(today.Blocked) > 0:
		t.wrap("Within today's quotas: ", "  ", "not at all. "+upperFirst(strings.Join(today.Blocked, "; "))+".")
	case today.Fits:
		t.wrap("Within today's quotas: ", "  ", "the run as planned.")
	default:
		text := fmt.Sprintf("%s workers, last briefing after %s (p99 %s)", FormatNumber(float64(today.MaxConcurrency)),
			FormatSec(today.Timeline.WrittenSec.P50), FormatSec(today.Timeline.WrittenSec.P99))
		if t.p.Inputs.Mail {
			text += fmt.Sprintf(", last mail after %s at %s a second", FormatSec(today.Timeline.LastMailSec.P50), FormatNumber(today.SesRatePerSec))
		}
		t.wrap("Within today's quotas: ", "  ", text+".")
	}
}

func (t *table) elsewhere() {
	t.section("The same briefings written elsewhere, per run")
	for _, a := range t.p.Alternatives {
		mark := map[string]string{Secondary: "s", Unverified: "u", StandIn: "r"}[a.Confidence]
		switch {
		case a.BreakEvenPerHour != nil:
			label := fmt.Sprintf("%s, $%s an hour", a.Label, trim(a.HourUsd))
			if a.PerRunUsd != nil {
				t.line("  %-43s%20s%10s %s", label, FormatUsd(*a.PerRunUsd), "", mark)
			}
			t.line("  %-43s%30s %s", label, "from "+numRange(*a.BreakEvenPerHour)+"/h", mark)
		default:
			label := a.Label
			if a.SameModel {
				label += " (the same model)"
			}
			t.line("  %-43s%20s%10s %s", label, FormatUsd(*a.PerRunUsd), "", mark)
		}
	}
	r := t.p.Cost.WritingUsd
	if r.Point() {
		t.line("  %-43s%20s", "this swarm", FormatUsd(r.Likely))
	} else {
		t.line("  %-43s%10s%10s%10s", "this swarm", FormatUsdRough(r.Low), FormatUsdRough(r.Likely), FormatUsdRough(r.High))
	}
	t.wrap("", "", "APIs at list price without batch discounts. A machine by the hour is cheaper from that many briefings an hour on, all day, if it can write them; nobody has measured that here.")
}

func (t *table) tuning() {
	u := t.p.Tuning
	t.section(fmt.Sprintf("Tuning: least %s, last briefing within %s", u.Goal, FormatSec(u.DeadlineSec)))
	t.line("%9s%8s%5s%9s%11s%13s%12s%12s", "MiB", "batch", "K", "workers", "likely", "range", "written", "slow")
	row := func(c Candidate, mark string) {
		bounds := ""
		if !c.PerRunUsd.Point() {
			bounds = FormatUsdRough(c.PerRunUsd.Low) + "-" + strings.TrimPrefix(FormatUsdRough(c.PerRunUsd.High), "$")
		}
		t.line("%s%8s%8d%5d%9s%11s%13s%12s%12s", mark, FormatNumber(float64(c.MemoryMib)), c.BatchSize, c.ParallelSequences,
			FormatNumber(float64(c.MaxConcurrency)), FormatUsdRough(c.PerRunUsd.Likely), bounds, FormatSec(c.WrittenSec.P99), FormatSec(c.SlowWrittenSec))
		t.wrap("         ", "         ", c.Reason)
	}
	switch {
	case u.Winner != nil:
		row(*u.Winner, "*")
		for _, c := range u.NextBest {
			row(c, " ")
		}
	case u.Nearest != nil:
		t.line("Nothing meets the deadline.")
		row(*u.Nearest, " ")
	default:
		t.line("No setting is without a fault.")
	}
	row(u.Asked, " ")
	t.line("%s tried.", count(float64(u.Tried), "setting"))
}

func (t *table) certainty() {
	p := t.p
	t.section("How sure is this")
	c := p.Inputs.Calibration
	switch {
	case p.Inputs.SecPerUser > 0:
		t.wrap("- ", "  ", fmt.Sprintf("Speed: %s a user, as given.", FormatSec(p.Inputs.SecPerUser)))
	default:
		t.wrap("- ", "  ", fmt.Sprintf("Speed (%s confidence): %s, %s.", p.Speed.Confidence, c.Machine.CPU, c.MeasuredAt.Format("2006-01-02")))
		for _, s := range p.Speed.Scaled {
			t.wrap("  ", "  ", upperFirst(s)+".")
		}
	}
	t.wrap("- ", "  ", fmt.Sprintf("Prices of %s: %s.", p.PricesDate, p.PricesFrom))
	for _, n := range p.Notes {
		t.wrap("- ", "  ", upperFirst(n)+".")
	}
	if p.Speed.Confidence != "measured" {
		t.line("\nYour own speed, measured on %s:", p.Inputs.Architecture)
		t.line("  %s", p.Speed.Calibrate)
		t.line("then swarm plan --calibration calibration.json, or after a run on AWS")
		t.line("swarm plan --from-manifest manifest.json.")
	}
}

// cut keeps a label within its column.
func cut(s string, width int) string {
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	return string(r[:width-1]) + "…"
}

// count writes a number with its unit in the right number.
func count(n float64, unit string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(unit, "ch"):
		unit += "es"
	default:
		unit += "s"
	}
	return FormatNumber(n) + " " + unit
}

func upperFirst(s string) string {
	for i, r := range s {
		if i == 0 {
			return strings.ToUpper(string(r)) + s[utf8.RuneLen(r):]
		}
	}
	return s
}
