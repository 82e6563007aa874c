package chart

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"html/template"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// gallery has one of everything, as the report and the plan page use it.
func gallery() []struct {
	name string
	html template.HTML
} {
	var rows, tokens []Point
	for i := range 60 {
		x := float64(i) * 11
		rows = append(rows, Point{X: x, Y: 17 * x})
		tokens = append(tokens, Point{X: x, Y: 900 + 160*math.Sin(float64(i)/4)})
	}
	var bins []Bin
	for i := range 24 {
		bins = append(bins, Bin{From: float64(180 + i*10), To: float64(190 + i*10), N: int64(9000 * math.Exp(-math.Pow(float64(i)-9, 2)/22))})
	}
	var sensitivity, flat []Point
	for _, n := range []float64{100, 200, 500, 1000, 2000, 5000, 10000} {
		sensitivity = append(sensitivity, Point{X: n, Y: 3e6 / n, Low: 2.2e6 / n, High: 4.4e6 / n})
		flat = append(flat, Point{X: n, Y: 4000})
	}
	return []struct {
		name string
		html template.HTML
	}{
		{"stacked bars", Bars{
			Title: "Cost of one run", Caption: "1,000,000 users, arm64", Of: "Service", Value: Axis{Label: "cost", Format: USD},
			Rows: []Bar{
				{Label: "Lambda", Note: "77%", Parts: []Part{{Label: "Prefill", Value: 121.3}, {Label: "Decode", Value: 160}, {Label: "Model load", Value: 38.1}, {Label: "Requests", Value: .2}}},
				{Label: "Mail", Note: "24%", Parts: []Part{{Label: "Mail", Value: 100}}},
				{Label: "Gathering the results into Parquet, with format conversion and 5 KB rounding of each record", Parts: []Part{{Label: "Firehose", Value: 24.9}}},
			},
		}.HTML()},
		{"ranges", Bars{
			Title: "Cost by choice", Value: Axis{Label: "cost", Format: USD},
			Rows: []Bar{
				{Label: "arm64, 4 GiB", Value: 312.4, Low: 220, High: 480},
				{Label: "x86_64, 8 GiB", Value: 398.1, Low: 396, High: 401, Tone: Warn},
				{Label: "g5.xlarge by the hour", Value: 44.26, Tone: Good},
				{Label: "not known", Value: math.NaN()},
			},
		}.HTML()},
		{"histogram", Histogram{Title: "Prompt tokens per user", X: Axis{Label: "prompt tokens", Format: Number}, Unit: "users", Bins: bins, Marks: []Mark{{At: 272, Label: "median 272"}}}.HTML()},
		{"line", Line{Title: "Users done over time", X: Axis{Label: "time since the start", Time: true}, Y: Axis{Label: "users"}, Area: true, Series: []Series{{Label: "Users", Points: rows}}}.HTML()},
		{"two lines", Line{Title: "Tokens per second", X: Axis{Label: "time since the start", Time: true}, Series: []Series{{Label: "Output", Points: tokens}, {Label: "Prompt", Points: rows[:30]}}}.HTML()},
		{"band on a log axis", Line{
			Title: "Duration by concurrency", Caption: "low, likely and high", X: Axis{Label: "functions at a time", Log: true}, Y: Axis{Label: "duration", Time: true},
			Series: []Series{{Label: "Duration", Points: sensitivity, Band: true}, {Label: "Deadline", Points: flat, Tone: Bad}}, Marks: []Mark{{At: 1000, Label: "your quota"}},
		}.HTML()},
		{"lanes", Lanes{
			Title: "Time line of a run", Caption: "1,000,000 users",
			Rows: []Lane{
				{Label: "Normalise", Spans: []Span{{From: 0, To: 22}}},
				{Label: "Start functions", Spans: []Span{{From: 22, To: 132}}},
				{Label: "Write briefings", Spans: []Span{{From: 24, To: 610, Latest: 900, Label: "waves 1 to 4"}}, Tone: Plain},
				{Label: "Gather into Parquet", Spans: []Span{{From: 84, To: 150}, {From: 160, To: 300}, {From: 340, To: 690, Latest: 980}}},
				{Label: "Send mail", Spans: []Span{{From: 690, To: 1420}}, Note: "at 1,400 a second"},
			},
			Marks: []Mark{{At: 600, Label: "8:00 deadline", Tone: Bad}, {At: 690, Label: "last briefing, p50"}, {At: 900, Label: "last briefing, p99"}, {At: 120, Label: "all started"}},
		}.HTML()},
	}
}

// wellFormed parses markup strictly, as XML.
func wellFormed(h template.HTML) error {
	d := xml.NewDecoder(strings.NewReader("<page>" + string(h) + "</page>"))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// badNumber finds what no attribute or text may hold after formatting.
var badNumber = regexp.MustCompile(`="[^"]*(NaN|Inf)[^"]*"|"-[0-9.]+%"`)

func TestGolden(t *testing.T) {
	t.Parallel()
	for _, g := range gallery() {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join("testdata", strings.ReplaceAll(g.name, " ", "-")+".html")
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(g.html+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(g.html)+"\n"); diff != "" {
				t.Errorf("%s differs (-want +got), run the test with -update if that is meant:\n%s", path, diff)
			}
			if err := wellFormed(g.html); err != nil {
				t.Errorf("not well formed: %v", err)
			}
		})
	}
}

func TestEveryChartIsAccessible(t *testing.T) {
	t.Parallel()
	for _, g := range gallery() {
		for _, want := range []string{`role="img"`, "<title>", "<desc>", "<details", `scope="col"`, `scope="row"`, "<summary>"} {
			if !strings.Contains(string(g.html), want) {
				t.Errorf("%s lacks %s", g.name, want)
			}
		}
	}
}

func TestNothingToShow(t *testing.T) {
	t.Parallel()
	nan, inf := math.NaN(), math.Inf(1)
	for name, h := range map[string]template.HTML{
		"bars":                Bars{Title: "T"}.HTML(),
		"histogram":           Histogram{Title: "T"}.HTML(),
		"histogram, zeros":    Histogram{Title: "T", Bins: []Bin{{0, 1, 0}, {1, 2, 0}}}.HTML(),
		"histogram, no width": Histogram{Title: "T", Bins: []Bin{{1, 1, 5}, {nan, 2, 5}, {0, inf, 5}, {0, 1, -5}}}.HTML(),
		"line":                Line{Title: "T"}.HTML(),
		"line, no numbers":    Line{Title: "T", Series: []Series{{Points: []Point{{X: nan}, {Y: inf}}}}}.HTML(),
		"line, log of zero":   Line{Title: "T", X: Axis{Log: true}, Series: []Series{{Points: []Point{{X: 0, Y: 1}, {X: -1, Y: 1}}}}}.HTML(),
		"lanes":               Lanes{Title: "T"}.HTML(),
		"lanes, no spans":     Lanes{Title: "T", Rows: []Lane{{Label: "a", Spans: []Span{{From: 2, To: 1}, {From: -1, To: 1}, {From: nan, To: 1}}}}}.HTML(),
	} {
		if !strings.Contains(string(h), "No data.") || strings.Contains(string(h), "<svg") {
			t.Errorf("%s: want a figure that says there is no data, got %s", name, h)
		}
		if err := wellFormed(h); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTextCannotBreakOut(t *testing.T) {
	t.Parallel()
	evil := "\"><script>alert(1)</script><!--\x00\x1b]]>' & \u202e\xff"
	h := allCharts(evil, evil, []float64{1, 2, 3, 4, 5}, 3)
	if strings.Contains(string(h), "<script") || strings.Contains(string(h), "<!--") {
		t.Errorf("markup got through:\n%s", h)
	}
	if err := wellFormed(h); err != nil {
		t.Error(err)
	}
}

// allCharts puts the same input into every chart.
func allCharts(title, label string, v []float64, flags uint16) template.HTML {
	on := func(bit int) bool { return flags&(1<<bit) != 0 }
	format := []Format{nil, Number, Compact, Percent, USD, Bytes, Seconds}[int(flags>>8)%7]
	axis := Axis{Label: label, Format: format, Time: on(0), Log: on(1)}
	tone := []Tone{Plain, Good, Bad, Tone(label)}[int(flags>>6)%4]
	at := func(i int) float64 { return v[i%len(v)] }
	var points []Point
	var bins []Bin
	var bars []Bar
	var lanes []Lane
	for i := range v {
		points = append(points, Point{X: at(i), Y: at(i + 1), Low: at(i + 2), High: at(i + 3)})
		bins = append(bins, Bin{From: at(i), To: at(i + 1), N: toInt(at(i + 2))})
		bar := Bar{Label: label, Value: at(i), Note: title, Tone: tone, Low: at(i + 1), High: at(i + 2)}
		if on(2) {
			bar.Parts = []Part{{Label: title, Value: at(i)}, {Label: label, Value: at(i + 3), Tone: tone}}
		}
		bars = append(bars, bar)
		lanes = append(lanes, Lane{Label: label, Tone: tone, Spans: []Span{{From: at(i), To: at(i + 1), Latest: at(i + 2), Label: title}}})
	}
	marks := []Mark{{At: at(0), Label: label, Tone: tone}}
	return Bars{Title: title, Caption: label, Value: axis, Of: label, Rows: bars}.HTML() +
		Histogram{Title: title, X: axis, Unit: label, Bins: bins, Marks: marks}.HTML() +
		Line{Title: title, X: axis, Y: Axis{Label: label, Format: format, Time: on(5)}, Area: on(3), Marks: marks,
			Series: []Series{{Label: label, Tone: tone, Band: on(4), Points: points}, {Label: title, Points: points[:len(points)/2]}}}.HTML() +
		Lanes{Title: title, Rows: lanes, Marks: marks}.HTML()
}

func toInt(v float64) int64 {
	switch {
	case math.IsNaN(v):
		return 0
	case v >= math.MaxInt64:
		return math.MaxInt64
	case v <= math.MinInt64:
		return math.MinInt64
	}
	return int64(v)
}

func FuzzCharts(f *testing.F) {
	f.Add("Title", "label", 1.0, 2.0, 3.0, 4.0, uint16(0), uint8(5))
	f.Add("", "", 0.0, 0.0, 0.0, 0.0, uint16(0xffff), uint8(1))
	f.Add("<b>", "\x00\"'", math.NaN(), math.Inf(1), math.Inf(-1), -1.0, uint16(7), uint8(9))
	f.Add("é\xff", "]]>", math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, 1e308, uint16(0x1ff), uint8(200))
	f.Add("T", "l", 1e16, 1e16+2, 1e16+4, 1e-300, uint16(2), uint8(30))
	f.Add("T", "l", 0.1, 0.3, 1e5, 86400.0, uint16(0x603), uint8(60))
	f.Fuzz(func(t *testing.T, title, label string, a, b, c, d float64, flags uint16, n uint8) {
		v := []float64{a, b, c, d}
		for i := range int(n) {
			v = append(v, a+b*float64(i)+c/float64(i+1))
		}
		h := allCharts(title, label, v, flags)
		if err := wellFormed(h); err != nil {
			t.Fatalf("not well formed: %v", err)
		}
		shapes := stripText(string(h))
		if m := badNumber.FindString(shapes); m != "" {
			t.Fatalf("a number that cannot be drawn: %s", m)
		}
		if again := allCharts(title, label, v, flags); again != h {
			t.Fatal("the same input gave other bytes")
		}
	})
}

// stripText leaves only elements and those attributes that place things.
func stripText(s string) string {
	var b strings.Builder
	d := xml.NewDecoder(strings.NewReader("<page>" + s + "</page>"))
	for {
		token, err := d.Token()
		if err != nil {
			return b.String()
		}
		if e, ok := token.(xml.StartElement); ok {
			for _, a := range e.Attr {
				if a.Name.Local != "aria-label" {
					fmt.Fprintf(&b, "%s=%q ", a.Name.Local, a.Value)
				}
			}
		}
	}
}

func TestThinKeepsPeaksAndEnds(t *testing.T) {
	t.Parallel()
	points := make([]Point, 100_000)
	for i := range points {
		points[i] = Point{X: float64(i), Y: 1}
	}
	points[41_234].Y = 50
	points[77_777].Y = -3
	got := thin(points, maxLinePoints)
	if len(got) > maxLinePoints {
		t.Errorf("%d points, want at most %d", len(got), maxLinePoints)
	}
	if got[0].X != 0 || got[len(got)-1].X != 99_999 {
		t.Errorf("ends are %v and %v", got[0].X, got[len(got)-1].X)
	}
	seen := map[float64]bool{}
	for i, p := range got {
		seen[p.Y] = true
		if i > 0 && p.X <= got[i-1].X {
			t.Fatalf("point %d is not after the one before", i)
		}
	}
	if !seen[50] || !seen[-3] {
		t.Error("a peak was lost")
	}
}

func TestLargeInputStaysSmall(t *testing.T) {
	t.Parallel()
	points := make([]Point, 200_000)
	for i := range points {
		points[i] = Point{X: float64(i), Y: float64(i % 977)}
	}
	if n := len(Line{Title: "T", Series: []Series{{Points: points}}}.HTML()); n > 60_000 {
		t.Errorf("a line of 200,000 points takes %d bytes, want at most 60,000", n)
	}
	bars := make([]Bar, 5_000)
	for i := range bars {
		bars[i] = Bar{Label: fmt.Sprint("bar ", i), Value: float64(i)}
	}
	if n := len(Bars{Title: "T", Rows: bars}.HTML()); n > 60_000 {
		t.Errorf("5,000 bars take %d bytes, want at most 60,000", n)
	}
}

func TestStackedBarsFillTheirTotal(t *testing.T) {
	t.Parallel()
	h := string(Bars{Title: "T", Value: Axis{Format: USD}, Rows: []Bar{
		{Label: "a", Parts: []Part{{"x", 30, Plain}, {"y", 10, Plain}, {"gone", -4, Plain}}},
		{Label: "b", Parts: []Part{{"y", 20, Plain}}},
	}}.HTML())
	for _, want := range []string{
		`class="part c1" x="0%" width="75%"`,
		`class="part c2" x="75%" width="25%"`,
		`class="part c2" x="0%" width="50%"`, // the same part, the same colour
		"$40.00", "x: $30.00 (75%)",
	} {
		if !strings.Contains(h, want) {
			t.Errorf("lacks %q:\n%s", want, h)
		}
	}
	if strings.Contains(h, "gone") {
		t.Error("a negative part is shown")
	}
}

func TestColumnsAndClip(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		in    string
		room  int
		want  string
		width int
	}{
		{"short", 10, "short", 5},
		{"exactly ten", 11, "exactly ten", 11},
		{"somewhat longer", 9, "somewhat…", 15},
		{"日本語のとても長い名前", 9, "日本語の…", 22},
		{"a\xffb", 9, "a\xffb", 3},
		{"", 0, "", 0},
	} {
		if got := columns(test.in); got != test.width {
			t.Errorf("columns(%q) = %d, want %d", test.in, got, test.width)
		}
		if got := clip(test.in, test.room); got != test.want {
			t.Errorf("clip(%q, %d) = %q, want %q", test.in, test.room, got, test.want)
		}
	}
}

func TestCSSKeepsContrast(t *testing.T) {
	t.Parallel()
	schemes := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(string(CSS), -1)
	if len(schemes) != 2 {
		t.Fatalf("%d colour schemes in the style sheet, want light and dark", len(schemes))
	}
	for i, name := range []string{"light", "dark"} {
		colours := map[string]float64{}
		for _, m := range regexp.MustCompile(`--([a-z0-9-]+): #([0-9a-f]{6});`).FindAllStringSubmatch(schemes[i][1], -1) {
			colours[m[1]] = luminance(t, m[2])
		}
		check := func(a, b string, least float64) {
			if _, ok := colours[a]; !ok {
				t.Errorf("%s: no colour --%s", name, a)
				return
			}
			light, dark := math.Max(colours[a], colours[b]), math.Min(colours[a], colours[b])
			if got := (light + 0.05) / (dark + 0.05); got < least {
				t.Errorf("%s: --%s on --%s has a contrast of %.2f:1, want %.1f:1", name, a, b, got, least)
			}
		}
		for _, text := range []string{"ink", "muted", "good", "warn", "bad", "accent"} {
			for _, ground := range []string{"surface", "page"} {
				check(text, ground, 4.5)
			}
		}
		check("ink", "sunken", 4.5)
		for n := range paletteSize {
			check(fmt.Sprintf("chart-%d", n+1), "surface", 3)
		}
	}
}

// luminance is the relative luminance of WCAG 2.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	var r, g, b uint8
	if _, err := fmt.Sscanf(hex, "%02x%02x%02x", &r, &g, &b); err != nil {
		t.Fatal(err)
	}
	linear := func(c uint8) float64 {
		v := float64(c) / 255
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(r) + 0.7152*linear(g) + 0.0722*linear(b)
}
