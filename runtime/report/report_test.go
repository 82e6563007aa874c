package report

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// typical is a run as most are: nearly everything went well.
func typical() Data {
	start := time.Date(2026, 11, 30, 7, 50, 3, 0, time.UTC)
	d := Data{
		RunID: "2026-11-30T075003Z-4f1c", Title: "examples/users.csv", Model: "SmolLM2-135M-Instruct Q8_0",
		Started: start, Finished: start.Add(48*time.Second + 300*time.Millisecond),
		Host:     "AMD EPYC 9R14, 2 threads, AVX-512 (llama.cpp v0.4.0)",
		Parallel: 16, BatchSize: 200,
		Command: "swarm run --input examples/users.csv --out out --mail smtp://me:s3cret@localhost:1025", OutDir: "out",
		Records: 412, OK: 405, Failed: 7, Rejected: 9, Mailed: 388, NoMail: 17,
		PromptTokens: 128_772, CachedTokens: 74_160, CompletionTokens: 21_204,
		LoadSec: 1.9, PrefillSec: 14.2, DecodeSec: 44.1, EngineSec: 44.9,
		FailuresBy: []Count{
			{Label: briefing.CodeColumnsExtra, N: 5},
			{Label: "prompt_too_long", N: 4},
			{Label: "no_capacity", N: 3, About: "The machine that ran these users went away. Run the failed ones once more."},
			{Label: briefing.CodeUserIDDuplicate, N: 3},
			{Label: briefing.CodeEmailInvalid, N: 1},
		},
		FinishReasons: []Count{{Label: briefing.FinishStop, N: 371}, {Label: briefing.FinishLength, N: 31}, {Label: briefing.FinishDeadline, N: 3}},
		Files: []File{
			{Path: "normalised.jsonl", Bytes: 118_200, About: "the input in the form the swarm works on, one record a line"},
			{Path: "rejects.jsonl", Bytes: 1_403, About: "input rows that could not be used, with reasons"},
			{Path: "briefings/part-00000.parquet", Bytes: 96_411, About: "the results, one row for each user"},
			{Path: "mail", Bytes: 1_204_882, About: "388 messages as .eml files"},
			{Path: "manifest.json", Bytes: 2_310, About: "counts, tokens, seconds and hashes of this run"},
		},
	}
	for i := 1; i <= 46; i++ {
		d.Timeline = append(d.Timeline, Point{Sec: 2 + float64(i), Rows: int64(i * 412 / 46), Tokens: int64(i*21_204/46) + int64(160*math.Sin(float64(i)))})
	}
	for i, n := range []int64{3, 11, 34, 61, 88, 82, 59, 37, 19, 8, 2, 1} {
		d.PromptHist = append(d.PromptHist, Bin{From: 240 + 15*i, To: 255 + 15*i, N: n})
	}
	for i, n := range []int64{1, 4, 12, 31, 58, 77, 84, 61, 46, 31} {
		d.OutputHist = append(d.OutputHist, Bin{From: 8 * i, To: 8*i + 8, N: n})
	}
	sample := func(id, name, locale, subject, text string) {
		d.Samples = append(d.Samples, briefing.Row{
			UserID: id, Name: name, Locale: locale, Email: id + "@example.com", Status: briefing.StatusOK, Subject: subject, Briefing: text,
			FinishReason: briefing.FinishStop, CompletionTokens: 52,
		})
	}
	sample("u1", "Ada Park", "en-GB", "Your Monday in three points", "Good morning Ada.\n\nTwo of your saved searches have new results, and the invoice from last week is still open.\nIt takes one click to settle it.")
	sample("u2", "Jürg Müller", "de-CH", "Dein Montag", "Guten Morgen Jürg. Deine Lieferung ist für 14 Uhr angekündigt, und im Projekt «Kräutergarten» warten drei Kommentare auf dich.")
	sample("u3", "ليلى حداد", "ar", "موجز الصباح", "صباح الخير يا ليلى. لديك ثلاث رسائل جديدة من الفريق، وموعد الاجتماع القادم في الساعة 10:30.\n\nYour plan: Team Pro.")
	sample("u4", "山田 花子", "ja", "今日の予定", "おはようございます、花子さん。今日は新しい通知が三件あります。午後二時に打ち合わせがあります。")
	sample("u5", "Zoë 🦊", "nl", "Goedemorgen", "Zoë, er staat één taak open. Vragen? Schrijf u5@example.com of help@example.org.")
	sample("u6", "", "", "Your week", "You have no open tasks. Enjoy the quiet start.")
	d.Samples[4].FinishReason, d.Samples[4].CompletionTokens = briefing.FinishLength, 80
	d.Samples = append(d.Samples, briefing.Row{
		UserID: "u7", Name: "Sam Rivers", Locale: "en", Email: "sam@example.com", Status: briefing.StatusFailed,
		ErrorCode: "prompt_too_long", ErrorMessage: "prompt of 5,210 tokens does not fit into 4,096",
	})
	return d
}

// cases are the runs that a report must survive, by name.
func cases() map[string]Data {
	start := time.Date(2026, 11, 30, 7, 50, 0, 0, time.UTC)
	allFailed := typical()
	allFailed.OK, allFailed.Mailed, allFailed.NoMail, allFailed.Failed = 0, 0, 0, allFailed.Records
	allFailed.CompletionTokens, allFailed.OutputHist, allFailed.FinishReasons = 0, nil, nil
	allFailed.Samples = allFailed.Samples[6:]

	allGood := typical()
	allGood.OK, allGood.Failed, allGood.Rejected, allGood.FailuresBy = allGood.Records, 0, 0, nil
	allGood.Samples = allGood.Samples[:4]

	huge := typical()
	huge.Records, huge.OK, huge.Failed, huge.Rejected, huge.Mailed = math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, 100_000_000
	huge.PromptTokens, huge.CachedTokens, huge.CompletionTokens = math.MaxInt64, math.MaxInt64-1, math.MaxInt64
	huge.Finished = start.Add(math.MaxInt64)
	huge.EngineSec, huge.DecodeSec, huge.LoadSec = math.MaxFloat64, math.MaxFloat64, 1e300
	huge.Timeline = []Point{{Sec: 1e18, Rows: math.MaxInt64, Tokens: math.MaxInt64}, {Sec: math.NaN()}, {Sec: math.Inf(1)}, {Sec: -1}}
	huge.PromptHist = []Bin{{From: math.MinInt, To: math.MaxInt, N: math.MaxInt64}, {From: 3, To: 3, N: 1}, {From: 5, To: 4, N: 1}}
	huge.FailuresBy = []Count{{Label: "a", N: math.MaxInt64}, {Label: "", N: math.MinInt64}}
	huge.Files = []File{{Path: "all.parquet", Bytes: math.MaxInt64}}

	long := typical()
	long.Model = strings.Repeat("Very-Long-Model-Name-", 30) + "Q4_K_M"
	long.Title = strings.Repeat("deep/folder/", 40) + "users.csv"
	long.Host = strings.Repeat("CPU", 200)
	long.RunID = strings.Repeat("0123456789abcdef", 20)
	long.Command += " --system-prompt " + strings.Repeat("x", 400)
	long.FailuresBy = []Count{{Label: strings.Repeat("some_code_", 30), N: 3}}
	long.FinishReasons = []Count{{Label: strings.Repeat("reason", 60), N: 3}}
	long.Files = []File{{Path: strings.Repeat("p", 300), Bytes: 1, About: strings.Repeat("q", 300)}}
	long.Samples = []briefing.Row{{Name: strings.Repeat("N", 500), Subject: strings.Repeat("S", 500), Briefing: strings.Repeat("long word", 400), Status: briefing.StatusOK}}

	interrupted := typical()
	interrupted.OK, interrupted.Failed = 120, 2

	onePoint := typical()
	onePoint.Timeline = []Point{{Sec: 30, Rows: 412, Tokens: 21_204}}

	return map[string]Data{
		"empty":        {},
		"typical":      typical(),
		"all good":     allGood,
		"all failed":   allFailed,
		"all rejected": {Title: "users.csv", Rejected: 3, FailuresBy: []Count{{Label: briefing.CodeJSONSyntax, N: 3}}},
		"one user":     {Title: "users.csv", Records: 1, OK: 1, Started: start, Finished: start, Timeline: []Point{{Sec: 0, Rows: 1, Tokens: 9}}},
		"huge numbers": huge,
		"long names":   long,
		"interrupted":  interrupted,
		"one point":    onePoint,
		"negative": {Records: -5, OK: -5, Failed: -1, PromptTokens: -3, LoadSec: -1, EngineSec: -1, DecodeSec: math.NaN(),
			Started: start, Finished: start.Add(-time.Hour), PromptHist: []Bin{{From: 0, To: 5, N: -2}}, Timeline: []Point{{Sec: 2, Rows: -1, Tokens: -1}}},
	}
}

func draw(t *testing.T, d Data) string {
	t.Helper()
	var buf bytes.Buffer
	if err := Write(&buf, d); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

func TestGolden(t *testing.T) {
	t.Parallel()
	path := filepath.Join("testdata", "typical.html")
	got := draw(t, typical())
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got), run the test with -update if that is meant:\n%s", path, diff)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		want verdict
	}{
		{"empty", verdict{"warn", "There was nothing to do: the input holds no users."}},
		{"typical", verdict{"warn", "405 of 412 users have a briefing, 7 failed. 9 input rows were rejected."}},
		{"all good", verdict{"good", "All 412 users have a briefing."}},
		{"all failed", verdict{"bad", "No briefing was written: 412 users failed. 9 input rows were rejected."}},
		{"all rejected", verdict{"bad", "No input row could be used: 3 rows were rejected."}},
		{"one user", verdict{"good", "The one user has a briefing."}},
		{"interrupted", verdict{"warn", "Not finished yet: 120 of 412 users have a briefing, 290 still wait. The same command goes on from here. 9 input rows were rejected."}},
	} {
		if diff := cmp.Diff(test.want, judge(cases()[test.name])); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", test.name, diff)
		}
	}
}

func TestHeadlineNumbers(t *testing.T) {
	t.Parallel()
	got := map[string]string{}
	d := typical()
	for _, tile := range append(counts(d), speed(d)...) {
		got[tile.Name] = tile.Value
	}
	// 48.3 s of wall time: 405 briefings and 21,204 tokens.
	if diff := cmp.Diff(map[string]string{
		"Users": "412", "Briefings": "405", "Failed": "7", "Rejected": "9", "Mailed": "388",
		"Wall time": "48.3 s", "Briefings per minute": "503", "Output tokens per second": "439", "Prompt tokens shared": "57.6%",
	}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestMailedBefore: who had a mail from an earlier session is not counted as
// mailed now.
func TestMailedBefore(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		d    Data
		want string
	}{
		{Data{Mailed: 3}, ""},
		{Data{Mailed: 3, NoMail: 1}, "1 briefing without mail"},
		{Data{Mailed: 3, MailedBefore: 1200}, "1,200 more before this session"},
		{Data{Mailed: 3, MailedBefore: 2, NoMail: 4}, "2 more before this session, 4 briefings without mail"},
	} {
		tiles := counts(tc.d)
		if got := tiles[len(tiles)-1]; got.Value != "3" || got.Detail != tc.want {
			t.Errorf("%+v, want the detail %q", got, tc.want)
		}
	}
}

func TestEngineOverhead(t *testing.T) {
	t.Parallel()
	page := draw(t, typical())
	if want := "1.8% of 44.9 s engine time"; !strings.Contains(page, want) { // (44.9 - 44.1) / 44.9
		t.Errorf("page lacks %q", want)
	}
	if page := draw(t, Data{Records: 1, OK: 1}); strings.Contains(page, "Engine overhead") {
		t.Error("an overhead is shown that nobody measured")
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	// 100 tokens a second for 10 s, then 50 for another 10 s.
	points := []Point{{}, {Sec: 5, Tokens: 500}, {Sec: 10, Tokens: 1000}, {Sec: 15, Tokens: 1250}, {Sec: 20, Tokens: 1500}}
	var got []string
	for _, p := range rates(points) {
		got = append(got, fmt.Sprintf("%g:%g", p.X, p.Y))
	}
	if diff := cmp.Diff([]string{"0:100", "2.5:100", "7.5:100", "12.5:50", "17.5:50", "20:50"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	total := 0.0
	var many []Point
	for i := range 1000 {
		many = append(many, Point{Sec: float64(i) * 0.37, Tokens: int64(i * i)})
	}
	all := rates(many)
	width := many[999].Sec / maxWindows
	for _, p := range all[1 : len(all)-1] {
		total += p.Y * width
	}
	if len(all) != maxWindows+2 || math.Abs(total-999*999) > 1 {
		t.Errorf("%d rates that add up to %.1f tokens, want %d and %d", len(all), total, maxWindows+2, 999*999)
	}
	for name, points := range map[string][]Point{"none": nil, "one": {{Sec: 3}}, "no time": {{Sec: 3}, {Sec: 3, Tokens: 5}}} {
		if got := rates(points); got != nil {
			t.Errorf("%s: %v, want none", name, got)
		}
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		bins []Bin
		want float64
		ok   bool
	}{
		{"none", nil, 0, false},
		{"empty bins", []Bin{{0, 10, 0}}, 0, false},
		{"one bin", []Bin{{0, 10, 7}}, 5, true},
		{"between two", []Bin{{0, 10, 3}, {10, 20, 3}}, 10, true},
		{"out of order", []Bin{{20, 30, 1}, {0, 10, 1}, {10, 20, 8}}, 15, true},
	} {
		if got, ok := median(test.bins); got != test.want || ok != test.ok {
			t.Errorf("%s: %v, %v, want %v, %v", test.name, got, ok, test.want, test.ok)
		}
	}
}

func TestNoPersonalAddressAndNoSecret(t *testing.T) {
	t.Parallel()
	d := typical()
	d.Samples[0].Name = "Ada.Park@Example.com"
	d.Samples[0].Email = "ada.park@example.com"
	d.Samples[1].Briefing = "Write to <a.b+c@mail.example.co.uk>, or \"x@y\" at will."
	d.Samples[1].Email = "x@y"
	d.Samples[5].UserID = "someone@example.net"
	page := draw(t, d)
	for _, m := range regexp.MustCompile(`[\w.+-]+@[\w.-]+`).FindAllString(page, -1) {
		if !strings.HasPrefix(m, "@media") && !strings.HasPrefix(m, "@container") && !strings.HasSuffix(m, "@localhost") {
			t.Errorf("the page shows %q", m)
		}
	}
	if strings.Contains(page, "s3cret") || !strings.Contains(page, "smtp://***@localhost:1025") {
		t.Error("the password of the mail server is not masked")
	}
}

func TestTextCannotBreakOut(t *testing.T) {
	t.Parallel()
	evil := `"><script>alert(1)</script><img src=x onerror=alert(2)></style></title>'` + "\x00\xff{{.}}"
	d := typical()
	d.RunID, d.Title, d.Model, d.Host, d.Command, d.OutDir = evil, evil, evil, evil, evil, evil
	d.FailuresBy = []Count{{Label: evil, N: 2, About: evil}}
	d.FinishReasons = []Count{{Label: evil, N: 2, About: evil}, {Label: evil, N: 1}}
	d.Files = []File{{Path: evil, Bytes: 1, About: evil}, {Path: "javascript:alert(3)", Bytes: 2}}
	d.Samples = []briefing.Row{
		{UserID: evil, Name: evil, Locale: evil, Subject: evil, Briefing: evil, Status: briefing.StatusOK, FinishReason: evil},
		{UserID: evil, Status: briefing.StatusFailed, ErrorCode: evil, ErrorMessage: evil},
	}
	page := draw(t, d)
	for _, bad := range []string{"<script", "<img", "</style></title>", `href="javascript:`, "ZgotmplZ", "\x00"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	if n := strings.Count(page, "</style>"); n != 1 {
		t.Errorf("%d ends of the style sheet, want 1", n)
	}
}

func TestSamples(t *testing.T) {
	t.Parallel()
	d := Data{}
	for i := range 14 {
		d.Samples = append(d.Samples, briefing.Row{UserID: strconv.Itoa(i), Status: briefing.StatusOK, Locale: "he_IL", Briefing: strings.Repeat("שלום ", 1000)})
	}
	got, note := samples(d)
	if len(got) != maxSamples || note == "" {
		t.Errorf("%d samples and note %q, want %d and one that says texts are cut", len(got), note, maxSamples)
	}
	if got[0].Lang != "he-IL" || got[0].Name != "User 0" {
		t.Errorf("language %q and name %q, want he-IL and User 0", got[0].Lang, got[0].Name)
	}
	if !strings.Contains(draw(t, d), `<div lang="he-IL" dir="auto">`) {
		t.Error("the text lacks its language and direction")
	}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	d := typical()
	d.OutDir, d.Command = "it's out", "swarm run --input u.csv --out 'it'\\''s out'"
	var got []string
	for _, s := range steps(d) {
		got = append(got, s.Command)
	}
	if diff := cmp.Diff([]string{
		`swarm run --input u.csv --out 'it'\''s out'`,
		`swarm run --input u.csv --out 'it'\''s out' --rerun-failed 'it'\''s out/manifest.json'`,
		`head 'it'\''s out/rejects.jsonl'`,
		`cd 'it'\''s out' && duckdb -c "select status, count(*) from 'briefings/*.parquet' group by status"`,
		`swarm plan --users 412`,
	}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := steps(Data{}); got != nil {
		t.Errorf("a run of nothing has next steps %v", got)
	}
}

// TestEveryCodeIsExplained reads the codes of failed and rejected rows from the
// source of the packages that make them, so that a new one cannot be forgotten
// here.
func TestEveryCodeIsExplained(t *testing.T) {
	t.Parallel()
	var files []string
	for _, dir := range []string{"briefing", "local", "recipe", "generate"} {
		found, err := filepath.Glob("../" + dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 0 {
			t.Fatalf("package %s has no source to read codes from", dir)
		}
		files = append(files, found...)
	}
	codes := 0
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Code") {
				return true
			}
			if value, ok := spec.Values[0].(*ast.BasicLit); ok && value.Kind == token.STRING {
				codes++
				code, _ := strconv.Unquote(value.Value)
				if meanings[code] == "" {
					t.Errorf("meaning.go does not explain %s (%q)", spec.Names[0].Name, code)
				}
			}
			return true
		})
	}
	if codes != len(meanings) {
		t.Errorf("the sources have %d codes, meaning.go explains %d", codes, len(meanings))
	}
}

func TestFailuresWithoutCodesAreNotDenied(t *testing.T) {
	t.Parallel()
	const none = "No user failed"
	if page := draw(t, Data{Records: 5, OK: 4, Failed: 1}); strings.Contains(page, none) {
		t.Error("a run with a failed user is said to have none")
	}
	if page := draw(t, Data{Records: 5, OK: 5}); !strings.Contains(page, none) {
		t.Error("a run without failures does not say so")
	}
}

func TestWriteReturnsTheError(t *testing.T) {
	t.Parallel()
	want := errors.New("disk full")
	if err := Write(failing{want}, typical()); !errors.Is(err, want) {
		t.Errorf("error %v, want one that wraps %v", err, want)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
