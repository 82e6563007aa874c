package deliver

import (
	"net/mail"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

func TestNewComposerReportsAllFaults(t *testing.T) {
	t.Parallel()
	_, err := NewComposer(Settings{From: "nobody", ReplyTo: "help@192.168.0.1:25"})
	if err == nil || !strings.Contains(err.Error(), "sender (from)") || !strings.Contains(err.Error(), "reply-to") {
		t.Errorf("error %v, want both faults", err)
	}
	if err != nil && (strings.Contains(err.Error(), "nobody") || strings.Contains(err.Error(), "help")) {
		t.Errorf("error quotes an address: %v", err)
	}
	if _, err := NewComposer(Settings{From: "jörg@example.com"}); err == nil {
		t.Error("a sender with a local part beyond ASCII is taken")
	}
	composer, err := NewComposer(Settings{From: "post@bücher.example"})
	if err != nil {
		t.Fatal(err)
	}
	if got := composer.settings.Brand; got != "xn--bcher-kva.example" {
		t.Errorf("brand %q, want the domain", got)
	}
}

func TestComposeRefuses(t *testing.T) {
	t.Parallel()
	good := briefing.Row{RunID: "r", UserID: "u", Email: "a@example.com", Status: briefing.StatusOK, Subject: "s", Briefing: "b"}
	for name, c := range map[string]struct {
		change   func(*briefing.Row)
		settings func(*Settings)
		code     string
	}{
		"no address":       {change: func(r *briefing.Row) { r.Email = "" }, code: CodeAddress},
		"two addresses":    {change: func(r *briefing.Row) { r.Email = "a@example.com, b@example.com" }, code: CodeAddress},
		"line end":         {change: func(r *briefing.Row) { r.Email = "a@example.com\r\nBcc: b@example.com" }, code: CodeAddress},
		"IP address":       {change: func(r *briefing.Row) { r.Email = "a@[192.0.2.1]" }, code: CodeAddress},
		"underscore":       {change: func(r *briefing.Row) { r.Email = "a@exa_mple.com" }, code: CodeAddress},
		"long local part":  {change: func(r *briefing.Row) { r.Email = strings.Repeat("a", 65) + "@example.com" }, code: CodeAddress},
		"a briefing novel": {change: func(r *briefing.Row) { r.Briefing = strings.Repeat("a ", 40_000) }, code: CodeTooLong},
		"http link":        {settings: unsubscribeBy("http://example.com/u"), code: CodeUnsubscribeURL},
		"link with a line": {settings: unsubscribeBy("https://example.com/u\r\nBcc: a@example.com"), code: CodeUnsubscribeURL},
		"link in brackets": {settings: unsubscribeBy("https://example.com/u>,<mailto:a@example.com"), code: CodeUnsubscribeURL},
		"link too long":    {settings: unsubscribeBy("https://example.com/" + strings.Repeat("u", 900)), code: CodeUnsubscribeURL},
		"template fails":   {settings: withTemplates(t, TemplateSources{Text: `{{if eq .Name "Crash"}}{{index .Blocks 99}}{{end}}`}), change: func(r *briefing.Row) { r.Name = "Crash" }, code: CodeTemplate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := good
			if c.change != nil {
				c.change(&row)
			}
			_, err := testComposer(t, c.settings).Compose(row)
			failure := checkSendError(t, err)
			if failure.Code != c.code || failure.Kind != Permanent {
				t.Errorf("error %v, want code %s, permanent", failure, c.code)
			}
			for _, private := range []string{"example.com", "exa_mple", "192.0.2.1", "Crash", "aaaa"} {
				if strings.Contains(err.Error(), private) {
					t.Errorf("error tells %q: %v", private, err)
				}
			}
		})
	}
}

func unsubscribeBy(url string) func(*Settings) {
	return func(s *Settings) { s.UnsubscribeURL = func(briefing.Row) string { return url } }
}

func withTemplates(t testing.TB, sources TemplateSources) func(*Settings) {
	t.Helper()
	templates, err := ParseTemplates(sources)
	if err != nil {
		t.Fatal(err)
	}
	return func(s *Settings) { s.Templates = templates }
}

func TestComposeIsRepeatable(t *testing.T) {
	t.Parallel()
	composer := testComposer(t, nil)
	row := sampleRows()[0]
	first, second := render(t, composer, row), render(t, composer, row)
	if string(first) != string(second) {
		t.Error("the same row gives two different mails")
	}
	message, _ := composer.Compose(row)
	other := row
	other.RunID = "run-2"
	later, _ := composer.Compose(other)
	if message.ID == later.ID {
		t.Error("two runs give the same Message-ID")
	}
}

func TestComposeWithoutUnsubscribe(t *testing.T) {
	t.Parallel()
	composer := testComposer(t, func(s *Settings) { s.UnsubscribeURL = nil })
	raw := string(render(t, composer, sampleRows()[0]))
	if strings.Contains(raw, "List-Unsubscribe") || strings.Contains(raw, "Unsubscribe") {
		t.Error("a mail without a link speaks of one")
	}
}

func TestParseAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"jane@example.com":        "jane@example.com",
		" jane@Example.COM ":      "jane@example.com",
		"Jane <jane@example.com>": "jane@example.com",
		"a+b@example.com":         "a+b@example.com",
		`"a b"@example.com`:       "a b@example.com",
		"jane@example.com.":       "jane@example.com",
		"Jane.DOE@example.com":    "Jane.DOE@example.com",
		"info@bücher.example":     "info@xn--bcher-kva.example",
		"info@BÜCHER.example":     "info@xn--bcher-kva.example",
		"user@例え.テスト":             "user@xn--r8jz45g.xn--zckzah",
		"user@faß.example":        "user@xn--fa-hia.example",
		"jörg@example.com":        "jörg@example.com",
		"":                        "",
		"jane":                    "",
		"@example.com":            "",
		"jane@":                   "",
		"jane@-example.com":       "",
		"jane@example..com":       "",
		"jane@" + strings.Repeat("a", 64) + ".com": "",
		"jane@exa mple.com":                        "",
		"jane@example.com, b@x.com":                "",
		"jane@\u202eexample.com":                   "",
	} {
		got, err := parseAddress(text)
		if got.Address != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", text, got.Address, err, want)
		}
	}
}

func TestDates(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, time.March, 1, 23, 30, 0, 0, time.UTC) // a Sunday
	for text, want := range map[string]struct{ lang, dir, date string }{
		"en-US":   {"en-US", "ltr", "Sunday, March 1, 2026"},
		"en":      {"en", "ltr", "Sunday, March 1, 2026"},
		"en_GB":   {"en-GB", "ltr", "Sunday 1 March 2026"},
		"de":      {"de", "ltr", "Sonntag, 1. März 2026"},
		"de-CH":   {"de-CH", "ltr", "Sonntag, 1. März 2026"},
		"fr":      {"fr", "ltr", "dimanche 1 mars 2026"},
		"es-MX":   {"es-MX", "ltr", "domingo, 1 de marzo de 2026"},
		"it":      {"it", "ltr", "domenica 1 marzo 2026"},
		"pt-BR":   {"pt-BR", "ltr", "domingo, 1 de março de 2026"},
		"nl":      {"nl", "ltr", "zondag 1 maart 2026"},
		"pl":      {"pl", "ltr", "niedziela, 1 marca 2026"},
		"sv":      {"sv", "ltr", "söndag 1 mars 2026"},
		"tr":      {"tr", "ltr", "1 Mart 2026 Pazar"},
		"ru":      {"ru", "ltr", "воскресенье, 1 марта 2026 г."},
		"uk":      {"uk", "ltr", "неділя, 1 березня 2026 р."},
		"ar":      {"ar", "rtl", "الأحد، 1 مارس 2026"},
		"he":      {"he", "rtl", "יום ראשון, 1 במרץ 2026"},
		"iw":      {"he", "rtl", "יום ראשון, 1 במרץ 2026"},
		"hi":      {"hi", "ltr", "रविवार, 1 मार्च 2026"},
		"ja":      {"ja", "ltr", "2026年3月1日日曜日"},
		"ko":      {"ko", "ltr", "2026년 3월 1일 일요일"},
		"zh-CN":   {"zh-CN", "ltr", "2026年3月1日星期日"},
		"zh-TW":   {"zh-TW", "ltr", "2026年3月1日 星期日"},
		"fa":      {"fa", "rtl", "2026-03-01"},
		"sw":      {"sw", "ltr", "2026-03-01"},
		"":        {"nl", "ltr", "zondag 1 maart 2026"},
		"!!":      {"nl", "ltr", "zondag 1 maart 2026"},
		"<b>":     {"nl", "ltr", "zondag 1 maart 2026"},
		"  de  ":  {"de", "ltr", "Sonntag, 1. März 2026"},
		"x-odd":   {"x-odd", "ltr", "2026-03-01"},
		"ur-PK":   {"ur-PK", "rtl", "2026-03-01"},
		"az-Arab": {"az-Arab", "rtl", "2026-03-01"},
	} {
		got := lookupLocale(text, "nl")
		if got.tag != want.lang || got.dir != want.dir || got.formatDate(first) != want.date {
			t.Errorf("%q: %q, %q, %q, want %v", text, got.tag, got.dir, got.formatDate(first), want)
		}
	}
	if got := lookupLocale("!!", "!!"); got.tag != "en" {
		t.Errorf("an unreadable fallback gives %q, want en", got.tag)
	}
	// Every language has what every mail needs.
	for name, words := range languages {
		if n := len(strings.Fields(words.weekdays)); n != 7 {
			t.Errorf("%s has %d weekdays", name, n)
		}
		if n := len(strings.Fields(words.months)); n != 12 && n != 0 {
			t.Errorf("%s has %d months", name, n)
		}
		if strings.Count(words.why, "%s") != 1 || words.unsubscribe == "" || words.yourDay == "" {
			t.Errorf("%s lacks a phrase", name)
		}
		for _, part := range []string{"D", "Y", "M", "W"} {
			if strings.Count(words.date, part) != 1 {
				t.Errorf("%s: date %q has not one %s", name, words.date, part)
			}
		}
	}
}

func TestDateFollowsLocation(t *testing.T) {
	t.Parallel()
	row := sampleRows()[0]
	row.GeneratedAt = time.Date(2026, time.March, 1, 23, 30, 0, 0, time.UTC)
	view := Settings{Location: time.FixedZone("", 3600)}.view(row, "", "")
	if view.Date != "Monday, March 2, 2026" {
		t.Errorf("date %q, want that of the location", view.Date)
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	family := "👨‍👩‍👧‍👦"
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{
		{"short", 10, "short"},
		{"exactly10!", 10, "exactly10!"},
		{"one two three four", 12, "one two…"},
		{"one two three four", 9, "one two…"},
		{"one two three", 8, "one two…"},
		{"a loooooooooooooong", 10, "a loooooo…"},
		{strings.Repeat("x", 20), 10, "xxxxxxxxx…"},
		{strings.Repeat(family, 3), 15, family + family + "…"},
		{strings.Repeat(family, 3), 14, family + "…"},
		{"e\u0301e\u0301e\u0301", 4, "e\u0301…"},
		{"今天的会议很多", 5, "今天的会…"},
	} {
		if got := cut(c.text, c.limit); got != c.want {
			t.Errorf("cut(%q, %d) = %q, want %q", c.text, c.limit, got, c.want)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add("one two three", 5)
	f.Add("👨‍👩‍👧‍👦👨‍👩‍👧‍👦", 8)
	f.Add("e\u0301 \u200f", 1)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		if limit < 1 || limit > 1000 || !utf8.ValidString(text) {
			t.Skip()
		}
		got := cut(text, limit)
		if utf8.RuneCountInString(got) > limit {
			t.Fatalf("cut(%q, %d) = %q is too long", text, limit, got)
		}
		if got == text {
			return
		}
		kept := strings.TrimSuffix(got, "…")
		if !strings.HasPrefix(text, kept) {
			t.Fatalf("cut(%q, %d) = %q is not its beginning", text, limit, got)
		}
		end := 0
		for clusters := graphemes.FromString(text); end < len(kept) && clusters.Next(); {
			end += len(clusters.Value())
		}
		if end != len(kept) {
			t.Fatalf("cut(%q, %d) = %q ends inside a character", text, limit, got)
		}
	})
}

func TestParseBody(t *testing.T) {
	t.Parallel()
	line := func(text string) Line { return Line{{Text: text}} }
	for text, want := range map[string][]Block{
		"":              nil,
		" \n\n \n":      nil,
		"one":           {{Kind: Paragraph, Lines: []Line{line("one")}}},
		"one\ntwo":      {{Kind: Paragraph, Lines: []Line{line("one"), line("two")}}},
		"one\n\ntwo":    {{Kind: Paragraph, Lines: []Line{line("one")}}, {Kind: Paragraph, Lines: []Line{line("two")}}},
		"one\n---\ntwo": {{Kind: Paragraph, Lines: []Line{line("one")}}, {Kind: Paragraph, Lines: []Line{line("two")}}},
		"a:\n- b\n* c":  {{Kind: Paragraph, Lines: []Line{line("a:")}}, {Kind: Bullets, Lines: []Line{line("b"), line("c")}}},
		"2. b\n3) c\n7. g": {
			{Kind: Numbers, Start: 2, Lines: []Line{line("b"), line("c")}},
			{Kind: Numbers, Start: 7, Lines: []Line{line("g")}},
		},
		"2026. a year":      {{Kind: Paragraph, Lines: []Line{line("2026. a year")}}},
		"3.5 percent":       {{Kind: Paragraph, Lines: []Line{line("3.5 percent")}}},
		"## Today ##\nnext": {{Kind: Heading, Lines: []Line{line("Today")}}, {Kind: Paragraph, Lines: []Line{line("next")}}},
		"#hashtag":          {{Kind: Paragraph, Lines: []Line{line("#hashtag")}}},
		"a **b** c":         {{Kind: Paragraph, Lines: []Line{{{Text: "a "}, {Text: "b", Bold: true}, {Text: " c"}}}}},
		"a ** b ** c":       {{Kind: Paragraph, Lines: []Line{line("a ** b ** c")}}},
		"a **b":             {{Kind: Paragraph, Lines: []Line{line("a **b")}}},
		"**** **x**":        {{Kind: Paragraph, Lines: []Line{{{Text: "**** "}, {Text: "x", Bold: true}}}}},
		"-5 degrees":        {{Kind: Paragraph, Lines: []Line{line("-5 degrees")}}},
		"-":                 {{Kind: Paragraph, Lines: []Line{line("-")}}},
	} {
		if diff := cmp.Diff(want, parseBody(text)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestWrap(t *testing.T) {
	t.Parallel()
	long := "https://example.com/" + strings.Repeat("x", 80)
	for _, c := range []struct{ name, text, want string }{
		{"words", strings.Repeat("word ", 20), strings.TrimSpace(strings.Repeat("word ", 14)) + "\n" + strings.TrimSpace(strings.Repeat("word ", 6))},
		{"a link stays whole", "see " + long + " now", "see\n" + long + "\nnow"},
		{"a list hangs", "- " + strings.Repeat("word ", 16), "- " + strings.TrimSpace(strings.Repeat("word ", 14)) + "\n  word word"},
		{"numbers", "9. a\n10. b", "9. a\n10. b"},
		{"wide characters", strings.Repeat("会", 40), strings.Repeat("会", 36) + "\n" + strings.Repeat("会", 4)},
		{"paragraphs", "a\nb\n\nc", "a\nb\n\nc"},
	} {
		if diff := cmp.Diff(c.want, wrapBlocks(parseBody(c.text))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	for line := range strings.Lines(wrapBlocks(parseBody(strings.Repeat("会议 meeting اجتماع 🎉 ", 60)))) {
		if w := displayWidth(strings.TrimSpace(line)); w > wrapColumns {
			t.Errorf("a line of %d columns: %q", w, line)
		}
	}
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sources TemplateSources
		want    []string
	}{
		"syntax":           {TemplateSources{HTML: "<p>\n{{if}}</p>"}, []string{"html:2"}},
		"unknown field":    {TemplateSources{Text: "a\nb\n{{.Nmae}}"}, []string{"text:3", "Nmae"}},
		"unknown function": {TemplateSources{Subject: "{{shout .Subject}}"}, []string{"subject:1", "shout"}},
		"unsafe context":   {TemplateSources{HTML: "<p {{.Subject}}=1 <a"}, []string{"html"}},
		"empty subject":    {TemplateSources{Subject: "{{- /* nothing */ -}}"}, []string{"subject"}},
	} {
		_, err := ParseTemplates(c.sources)
		for _, part := range c.want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %v, want %q in it", name, err, part)
			}
		}
	}

	composer := testComposer(t, withTemplates(t, TemplateSources{
		Subject: "{{.Brand}}:\r\n {{.Subject}}",
		HTML:    `<!doctype html><html lang="{{.Lang}}"><title>{{.Subject}}</title><p>{{.Name}}</p></html>`,
	}))
	message, err := composer.Compose(briefing.Row{Email: "a@example.com", Name: "<b>", Subject: "News", Briefing: "text", Locale: "de"})
	if err != nil {
		t.Fatal(err)
	}
	if message.Subject != "Morning Desk: News" {
		t.Errorf("subject %q", message.Subject)
	}
	if want := `<!doctype html><html lang="de"><title>Morning Desk: News</title><p>&lt;b&gt;</p></html>`; message.HTML != want {
		t.Errorf("HTML %s", message.HTML)
	}
	if !strings.Contains(message.Text, "Abbestellen: https://") {
		t.Errorf("the default text template is not used:\n%s", message.Text)
	}
}

func TestTemplateThatNeverEnds(t *testing.T) {
	t.Parallel()
	for _, sources := range []TemplateSources{
		{Subject: "{{range 100000000}}{{$.Name}}x{{end}}"}, {Text: "{{range 100000000}}long line {{end}}"}, {HTML: "{{range 100000000}}<p>long</p>{{end}}"},
	} {
		if _, err := ParseTemplates(sources); err == nil || !strings.Contains(err.Error(), "gives more than") {
			t.Errorf("%+v: error %v", sources, err)
		}
	}
}

// FuzzHeaderText holds the short way against the long one.
func FuzzHeaderText(f *testing.F) {
	for _, text := range []string{"", " ", "a b", "a  b", "=?x", "= ?", "ü", "a\tb", "?=?", "a "} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := headerText(text)
		if got != cleanLine(text) {
			t.Errorf("%q became %q, and %q the long way", text, got, cleanLine(text))
		}
		if headerText(got) != got || strings.ContainsFunc(got, isControl) || strings.ContainsFunc(got, isReordering) || strings.Contains(got, "=?") {
			t.Errorf("%q became %q", text, got)
		}
	})
}

// FuzzParseAddress: whatever is taken for an address can stand in an envelope
// and a header, and is read there as the same one.
func FuzzParseAddress(f *testing.F) {
	for _, row := range sampleRows() {
		f.Add(row.Email)
	}
	for _, text := range []string{"a@b@c", "<a@b.example>", "a@[127.0.0.1]", "a(comment)@b.example", "group: a@b.example;", "a@b.example, c@d.example", "@b.example", "a@", "a@b..example", "a@-b.example", "\"\r\n\"@b.example", "=?utf-8?q?a?=@b.example"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseAddress(text)
		if err != nil {
			if len(text) > 8 && strings.Contains(err.Error(), text) {
				t.Errorf("the error quotes the address: %v", err)
			}
			return
		}
		at := strings.LastIndexByte(a.Address, '@')
		if at < 1 || at > 64 || strings.ContainsFunc(a.Address, isControl) || needsSMTPUTF8(a.Address[at:]) || strings.HasSuffix(a.Address, ".") {
			t.Fatalf("%q is taken for %q", text, a.Address)
		}
		for _, written := range []string{envelope(a.Address), bareAddress(a.Address), (&mail.Address{Name: displayName(a.Name), Address: a.Address}).String()} {
			if strings.ContainsAny(written, "\r\n") {
				t.Fatalf("%q is written as %q", text, written)
			}
			if back, err := mail.ParseAddress(written); err != nil || back.Address != a.Address {
				t.Errorf("%q is written as %q and read as %v, %v", a.Address, written, back, err)
			}
		}
		if again, err := parseAddress(envelope(a.Address)); err != nil || again.Address != a.Address {
			t.Errorf("%q is read again as %q, %v", a.Address, again.Address, err)
		}
	})
}
