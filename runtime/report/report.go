package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"regexp"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/briefing-swarm/briefing-swarm/internal/chart"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

//go:embed report.html.tmpl
var pageSource string

//go:embed report.css
var pageCSS string

var page = template.Must(template.New("report").Parse(pageSource))

// Limits of what the page shows.
const (
	maxSamples     = 10
	maxSampleRunes = 1500
	maxWindows     = 30 // of the throughput chart
	maxHeadRunes   = 80 // of a name in the head; "How it ran" has all of it
)

// Write writes the report of a run as one HTML file. It asks for nothing from
// outside: no script, no font, no image, which its Content-Security-Policy
// states. Samples show name, locale and text; what looks like an e-mail address
// is masked everywhere in them. The same Data gives the same bytes.
func Write(w io.Writer, d Data) error {
	var buf bytes.Buffer
	if err := page.Execute(&buf, newView(d)); err != nil {
		return fmt.Errorf("draw report: %w", err)
	}
	if _, err := w.Write(buf.Bytes()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// view is what the template shows: words and finished charts, no arithmetic.
type view struct {
	CSS     template.CSS
	Title   string
	Line    string // run id, date, model
	Verdict verdict
	Outcome template.HTML
	Counts  []tile
	Speed   []tile

	Progress, Throughput       template.HTML
	PromptTokens, OutputTokens template.HTML
	Failures, Finish           template.HTML
	NoFailures                 string // in place of Failures
	Meanings                   []fact
	Time                       template.HTML
	Samples                    []sample
	SampleNote                 string
	Files                      []file
	Facts                      []fact
	Steps                      []step
	Footer                     string
}

type verdict struct{ Tone, Text string }

type tile struct {
	Name, Value, Detail, Tone string
	Long                      bool
}

type fact struct {
	Name, Value string
}

type sample struct {
	Name, Lang, Tags   string
	Subject, Text      string
	Code, ErrorMessage string
}

type file struct{ Path, Link, Size, About string }

type step struct{ About, Command string }

func newView(d Data) view {
	title, _ := cutRunes(orElse(d.Title, "Briefing run"), maxHeadRunes)
	v := view{
		CSS:     chart.CSS + chart.PageCSS + template.CSS(pageCSS),
		Title:   title,
		Line:    headline(d),
		Verdict: judge(d),
		Outcome: outcome(d),
		Counts:  counts(d),
		Speed:   speed(d),
	}
	v.Progress, v.Throughput = overTime(d)
	v.PromptTokens = tokens("Prompt tokens per user", "prompt tokens", d.PromptHist)
	v.OutputTokens = tokens("Output tokens per user", "output tokens", d.OutputHist)
	v.Failures, v.Meanings = failures(d)
	v.NoFailures = "No user failed, and no input row was rejected."
	if d.Failed > 0 || d.Rejected > 0 {
		v.NoFailures = "The codes of the failed and rejected rows were not recorded."
	}
	v.Finish = finish(d)
	v.Time = whereTimeWent(d)
	v.Samples, v.SampleNote = samples(d)
	v.Files = files(d)
	v.Facts = facts(d)
	v.Steps = steps(d)
	v.Footer = "Numbers are from this run alone. Times are UTC."
	if !d.Finished.IsZero() {
		v.Footer = "Written " + d.Finished.UTC().Format("2006-01-02 15:04:05") + " UTC. " + v.Footer
	}
	return v
}

func headline(d Data) string {
	var parts []string
	if !d.Started.IsZero() {
		parts = append(parts, d.Started.UTC().Format("Monday, 2 January 2006, 15:04")+" UTC")
	}
	if d.Model != "" {
		model, _ := cutRunes(d.Model, maxHeadRunes)
		parts = append(parts, model)
	}
	if d.RunID != "" {
		run, _ := cutRunes(d.RunID, maxHeadRunes)
		parts = append(parts, "run "+run)
	}
	return strings.Join(parts, " · ")
}

// unfinished is how many records have no result.
func unfinished(d Data) float64 {
	return math.Max(0, float64(d.Records)-float64(d.OK)-float64(d.Failed))
}

// judge says in one sentence how the run went.
func judge(d Data) verdict {
	rejected := ""
	if d.Rejected > 0 {
		rejected = " " + plural(d.Rejected, "input row was", "input rows were") + " rejected."
	}
	switch {
	case d.Records <= 0 && d.Rejected <= 0:
		return verdict{"warn", "There was nothing to do: the input holds no users."}
	case d.Records <= 0:
		return verdict{"bad", "No input row could be used: " + plural(d.Rejected, "row was", "rows were") + " rejected."}
	case unfinished(d) > 0:
		return verdict{"warn", "Not finished yet: " + count(d.OK) + " of " + plural(d.Records, "user", "users") + " have a briefing, " +
			chart.Number(unfinished(d)) + " still wait. The same command goes on from here." + rejected}
	case d.OK <= 0:
		return verdict{"bad", "No briefing was written: " + plural(d.Failed, "user", "users") + " failed." + rejected}
	case d.Failed > 0:
		return verdict{"warn", count(d.OK) + " of " + plural(d.Records, "user", "users") + " have a briefing, " + count(d.Failed) + " failed." + rejected}
	case d.Rejected > 0:
		return verdict{"warn", "Every usable row has its briefing: " + count(d.OK) + "." + rejected}
	case d.OK == 1:
		return verdict{"good", "The one user has a briefing."}
	}
	return verdict{"good", "All " + count(d.OK) + " users have a briefing."}
}

func outcome(d Data) template.HTML {
	total := math.Max(float64(d.Records), float64(d.OK)+float64(d.Failed)) + float64(d.Rejected)
	if total <= 0 {
		return ""
	}
	return chart.Bars{
		Title: "What became of the input",
		Of:    "Input",
		Value: chart.Axis{Label: "rows", Format: chart.Number},
		Rows: []chart.Bar{{Label: "Rows of the input", Parts: []chart.Part{
			{Label: "Briefing written", Value: float64(d.OK), Tone: chart.Good},
			{Label: "Failed", Value: float64(d.Failed), Tone: chart.Bad},
			{Label: "Rejected", Value: float64(d.Rejected), Tone: chart.Warn},
			{Label: "Not finished", Value: unfinished(d), Tone: chart.Muted},
		}}},
	}.HTML()
}

func newTile(name, value, detail string) tile {
	return tile{Name: name, Value: value, Detail: detail, Long: utf8.RuneCountInString(value) > 9}
}

func counts(d Data) []tile {
	ok := newTile("Briefings", count(d.OK), "")
	if d.Records > 0 {
		ok.Detail = chart.Percent(float64(d.OK)/float64(d.Records)) + " of users"
	}
	if d.OK > 0 {
		ok.Tone = "good"
	}
	failed := newTile("Failed", count(d.Failed), "users without a briefing")
	if d.Failed > 0 {
		failed.Tone = "bad"
	}
	rejected := newTile("Rejected", count(d.Rejected), "input rows that could not be used")
	if d.Rejected > 0 {
		rejected.Tone = "warn"
	}
	mailed := newTile("Mailed", count(d.Mailed), "")
	var details []string
	if d.MailedBefore > 0 {
		details = append(details, count(d.MailedBefore)+" more before this session")
	}
	if d.NoMail > 0 {
		details = append(details, plural(d.NoMail, "briefing", "briefings")+" without mail")
	}
	mailed.Detail = strings.Join(details, ", ")
	return []tile{newTile("Users", count(d.Records), "records in the input"), ok, failed, rejected, mailed}
}

func speed(d Data) []tile {
	wall := wallSec(d)
	t := newTile("Wall time", orUnknown(chart.Seconds(wall), wall > 0), "")
	if d.LoadSec > 0 {
		t.Detail = "including " + chart.Seconds(d.LoadSec) + " to load the model"
	}
	perMin := newTile("Briefings per minute", orUnknown(chart.Number(float64(d.OK)/wall*60), wall > 0), "over the whole run")
	perSec := newTile("Output tokens per second", orUnknown(chart.Number(float64(d.CompletionTokens)/wall), wall > 0), count(d.CompletionTokens)+" in total")
	shared := newTile("Prompt tokens shared", "n/a", "")
	if d.PromptTokens > 0 {
		shared.Value = chart.Percent(float64(d.CachedTokens) / float64(d.PromptTokens))
		shared.Detail = chart.Compact(float64(d.CachedTokens)) + " of " + chart.Compact(float64(d.PromptTokens)) + " came from the common prefix"
	}
	return []tile{t, perMin, perSec, shared}
}

// wallSec is the length of the run; 0 when it is not known.
func wallSec(d Data) float64 {
	if d.Started.IsZero() || d.Finished.Before(d.Started) {
		return 0
	}
	return d.Finished.Sub(d.Started).Seconds()
}

// overTime draws progress and throughput.
func overTime(d Data) (progress, throughput template.HTML) {
	points := make([]Point, 0, len(d.Timeline)+1)
	for _, p := range d.Timeline {
		if p.Sec >= 0 && p.Sec < math.MaxInt64 { // leaves out NaN too
			points = append(points, p)
		}
	}
	sort.SliceStable(points, func(i, j int) bool { return points[i].Sec < points[j].Sec })
	if len(points) > 0 && points[0].Sec > 0 {
		points = append([]Point{{}}, points...)
	}
	time := chart.Axis{Label: "time since the start", Time: true}
	rows := chart.Line{
		Title: "Users done over time", X: time, Y: chart.Axis{Label: "users done", Whole: true}, Area: true,
		Series: []chart.Series{{Label: "Users done"}},
	}
	for _, p := range points {
		rows.Series[0].Points = append(rows.Series[0].Points, chart.Point{X: p.Sec, Y: float64(p.Rows)})
	}
	rate := chart.Line{
		Title: "Output tokens per second", X: time, Y: chart.Axis{Label: "tokens per second"}, Area: true,
		Series: []chart.Series{{Label: "Tokens per second", Tone: chart.Plain, Points: rates(points)}},
	}
	return rows.HTML(), rate.HTML()
}

// rates are output tokens per second in equal windows of the run. Each rate
// stands in the middle of its window, the first and last at the ends too.
func rates(points []Point) []chart.Point {
	if len(points) < 2 {
		return nil
	}
	start, end := points[0].Sec, points[len(points)-1].Sec
	if end <= start {
		return nil
	}
	windows := min(maxWindows, len(points)-1)
	width := (end - start) / float64(windows)
	out := make([]chart.Point, 0, windows+2)
	at := 0
	before := float64(points[0].Tokens)
	for i := range windows {
		edge := start + float64(i+1)*width
		if i == windows-1 {
			edge = end
		}
		for at < len(points)-2 && points[at+1].Sec < edge {
			at++
		}
		tokens := between(points[at], points[at+1], edge)
		rate := math.Max(0, (tokens-before)/width)
		if i == 0 {
			out = append(out, chart.Point{X: start, Y: rate})
		}
		out = append(out, chart.Point{X: edge - width/2, Y: rate})
		if i == windows-1 {
			out = append(out, chart.Point{X: end, Y: rate})
		}
		before = tokens
	}
	return out
}

// between is the token count at a moment from a to b.
func between(a, b Point, sec float64) float64 {
	if b.Sec <= a.Sec {
		return float64(b.Tokens)
	}
	share := math.Max(0, math.Min(1, (sec-a.Sec)/(b.Sec-a.Sec)))
	return float64(a.Tokens) + share*(float64(b.Tokens)-float64(a.Tokens))
}

func tokens(title, unit string, bins []Bin) template.HTML {
	h := chart.Histogram{Title: title, X: chart.Axis{Label: unit, Format: chart.Number}, Unit: "users"}
	for _, b := range bins {
		h.Bins = append(h.Bins, chart.Bin{From: float64(b.From), To: float64(b.To), N: b.N})
	}
	if m, ok := median(bins); ok {
		h.Marks = []chart.Mark{{At: m, Label: "median " + chart.Number(math.Round(m))}}
	}
	return h.HTML()
}

// median is the middle value, as far as bins tell.
func median(bins []Bin) (float64, bool) {
	sorted := make([]Bin, 0, len(bins))
	total := 0.0
	for _, b := range bins {
		if b.N > 0 && b.From < b.To {
			sorted = append(sorted, b)
			total += float64(b.N)
		}
	}
	sort.SliceStable(sorted, func(i, j int) bool { return sorted[i].From < sorted[j].From })
	seen := 0.0
	for _, b := range sorted {
		n := float64(b.N)
		if seen+n >= total/2 {
			return float64(b.From) + (total/2-seen)/n*(float64(b.To)-float64(b.From)), true
		}
		seen += n
	}
	return 0, false
}

func failures(d Data) (template.HTML, []fact) {
	if len(d.FailuresBy) == 0 {
		return "", nil
	}
	bars := chart.Bars{Title: "Failed and rejected, by code", Of: "Code", Value: chart.Axis{Label: "rows", Format: chart.Number}}
	var about []fact
	for _, c := range d.FailuresBy {
		label := orElse(c.Label, "(no code)")
		bars.Rows = append(bars.Rows, chart.Bar{Label: label, Value: float64(c.N), Tone: chart.Bad})
		about = append(about, fact{Name: label, Value: c.meaning()})
	}
	return bars.HTML(), about
}

func finish(d Data) template.HTML {
	if len(d.FinishReasons) == 0 {
		return ""
	}
	total := 0.0
	for _, c := range d.FinishReasons {
		total += math.Max(0, float64(c.N))
	}
	bars := chart.Bars{Title: "How briefings ended", Of: "Finish reason", Value: chart.Axis{Label: "briefings", Format: chart.Number}}
	for _, c := range d.FinishReasons {
		b := chart.Bar{Label: orElse(c.Label, "(none)"), Value: float64(c.N), Tone: chart.Warn}
		if words, ok := finishes[c.Label]; ok {
			b.Label = words + " (" + c.Label + ")"
		} else if c.About != "" {
			b.Label = c.About + " (" + c.Label + ")"
		}
		if c.Label == briefing.FinishStop {
			b.Tone = chart.Good
		}
		if total > 0 {
			b.Note = chart.Percent(float64(c.N) / total)
		}
		bars.Rows = append(bars.Rows, b)
	}
	return bars.HTML()
}

// whereTimeWent splits the wall time. Parts that overlap or are not known are
// left out rather than guessed.
func whereTimeWent(d Data) template.HTML {
	own := d.EngineSec - d.DecodeSec
	rest := wallSec(d) - d.LoadSec - d.EngineSec
	prefill := math.Min(d.PrefillSec, d.DecodeSec)
	bar := chart.Bar{Label: "Whole run", Parts: []chart.Part{
		{Label: "Loading the model", Value: d.LoadSec, Tone: chart.Muted},
		{Label: "Reading prompts (prefill)", Value: prefill},
		{Label: "Writing text (decode)", Value: d.DecodeSec - prefill},
		{Label: "The engine's own work", Value: own},
		{Label: "Input, output and mail", Value: rest},
	}}
	for _, p := range bar.Parts {
		if p.Value > 0 {
			return chart.Bars{
				Title: "Where the time went", Of: "Time",
				Value: chart.Axis{Label: "time", Format: chart.Seconds},
				Rows:  []chart.Bar{bar},
			}.HTML()
		}
	}
	return ""
}

var (
	langTag = regexp.MustCompile(`^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$`)
	address = regexp.MustCompile(`[^\s<>"'(),;:@]+@[^\s<>"'(),;:@]+\.[^\s<>"'(),;:@]+`)
	// secret is the user part of a URL.
	secret = regexp.MustCompile(`(://)[^/\s@]*@`)
)

const addressMask = "(address hidden)"

// maskAddress takes e-mail addresses out of a text, the row's own first, however
// it is written.
func maskAddress(s, own string) string {
	if own != "" {
		s = regexp.MustCompile(`(?i)`+regexp.QuoteMeta(strings.ToValidUTF8(own, "\uFFFD"))).ReplaceAllLiteralString(s, addressMask)
	}
	return address.ReplaceAllLiteralString(s, addressMask)
}

func samples(d Data) ([]sample, string) {
	rows := d.Samples[:min(len(d.Samples), maxSamples)]
	out := make([]sample, 0, len(rows))
	cut := false
	for _, r := range rows {
		clean := func(s string) string { return maskAddress(strings.ToValidUTF8(s, "\uFFFD"), r.Email) }
		s := sample{
			Name:    orElse(clean(r.Name), "User "+clean(r.UserID)),
			Subject: clean(r.Subject),
			Text:    strings.TrimSpace(clean(r.Briefing)),
		}
		s.Name, _ = cutRunes(s.Name, maxHeadRunes)
		s.Subject, _ = cutRunes(s.Subject, 2*maxHeadRunes)
		if tag := strings.ReplaceAll(r.Locale, "_", "-"); langTag.MatchString(tag) {
			s.Lang = tag
		}
		var tags []string
		if s.Lang != "" {
			tags = append(tags, s.Lang)
		}
		if r.Status == briefing.StatusFailed {
			s.Code, s.ErrorMessage, s.Text = orElse(r.ErrorCode, "failed"), clean(r.ErrorMessage), ""
		} else {
			tags = append(tags, plural(int64(r.CompletionTokens), "token", "tokens"))
			if r.FinishReason != "" && r.FinishReason != briefing.FinishStop {
				tags = append(tags, strings.ToLower(orElse(finishes[r.FinishReason], r.FinishReason)))
			}
		}
		s.Tags = strings.Join(tags, " · ")
		if short, did := cutRunes(s.Text, maxSampleRunes); did {
			s.Text, cut = short, true
		}
		out = append(out, s)
	}
	if cut {
		return out, "Long texts are cut here; the Parquet files hold all of them."
	}
	return out, ""
}

// cutRunes shortens a text to n runes and tells whether it did.
func cutRunes(s string, n int) (string, bool) {
	for i := range s {
		if n == 0 {
			return strings.TrimRight(s[:i], " \n") + " …", true
		}
		n--
	}
	return s, false
}

func files(d Data) []file {
	out := make([]file, 0, len(d.Files))
	for _, f := range d.Files {
		// "./" keeps a path with a colon from reading as a URL of some scheme.
		out = append(out, file{Path: f.Path, Link: "./" + f.Path, Size: chart.Bytes(float64(f.Bytes)), About: f.About})
	}
	return out
}

func facts(d Data) []fact {
	var out []fact
	add := func(name, value string, known bool) {
		if known {
			out = append(out, fact{Name: name, Value: value})
		}
	}
	add("Input", d.Title, d.Title != "")
	add("Model", d.Model, d.Model != "")
	add("Machine", d.Host, d.Host != "")
	add("Sequences at a time", count(int64(d.Parallel)), d.Parallel > 0)
	add("Batch size", plural(int64(d.BatchSize), "record", "records"), d.BatchSize > 0)
	add("Started", stamp(d.Started), !d.Started.IsZero())
	add("Finished", stamp(d.Finished), !d.Finished.IsZero())
	add("Prompt tokens", count(d.PromptTokens)+", of them "+count(d.CachedTokens)+" from the common prefix", d.PromptTokens > 0)
	add("Output tokens", count(d.CompletionTokens), d.CompletionTokens > 0)
	if d.EngineSec > 0 && d.DecodeSec > 0 {
		share := math.Max(0, math.Min(1, (d.EngineSec-d.DecodeSec)/d.EngineSec))
		add("Engine overhead", chart.Percent(share)+" of "+chart.Seconds(d.EngineSec)+" engine time was spent outside of llama.cpp", true)
	}
	add("Run", d.RunID, d.RunID != "")
	return out
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") + " UTC" }

// steps are what a reader may want to do next, as commands to copy.
func steps(d Data) []step {
	var out []step
	command := secret.ReplaceAllString(d.Command, "${1}***@")
	if command != "" {
		about := "Run it again. What is done already stays, so this only adds what is missing."
		if unfinished(d) > 0 {
			about = "Go on where the run stopped."
		}
		if command != d.Command {
			about += " The user and password of a URL are masked: put them back."
		}
		out = append(out, step{about, command})
	}
	if command != "" && d.OutDir != "" && d.Failed > 0 && !strings.Contains(command, "--rerun-failed") {
		out = append(out, step{"Try the failed users once more.", command + " --rerun-failed " + shellQuote(d.OutDir+"/manifest.json")})
	}
	if d.OutDir != "" && d.Rejected > 0 {
		out = append(out, step{"See which input rows were rejected, and why.", "head " + shellQuote(d.OutDir+"/rejects.jsonl")})
	}
	if d.OutDir != "" {
		out = append(out, step{"Query the results with any Parquet reader, for example DuckDB.",
			"cd " + shellQuote(d.OutDir) + ` && duckdb -c "select status, count(*) from 'briefings/*.parquet' group by status"`})
	}
	if d.Records > 0 {
		out = append(out, step{"See what the same run costs on AWS, and how long it takes there.", fmt.Sprintf("swarm plan --users %d", d.Records)})
	}
	return out
}

var shellSafe = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shellQuote writes a word so that a POSIX shell reads it as it is.
func shellQuote(s string) string {
	if shellSafe.MatchString(s) && !strings.HasPrefix(s, "-") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func count(n int64) string { return chart.Number(float64(n)) }

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + many
}

func orElse(s, otherwise string) string {
	if strings.TrimSpace(s) == "" {
		return otherwise
	}
	return s
}

func orUnknown(s string, known bool) string {
	if !known {
		return "n/a"
	}
	return s
}
