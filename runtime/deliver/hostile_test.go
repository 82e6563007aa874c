package deliver

import (
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/net/html"
)

// TestHeaderInjection puts line ends and more into everything that reaches a header.
func TestHeaderInjection(t *testing.T) {
	t.Parallel()
	for _, evil := range []string{
		"a\r\nBcc: x@example.com", "a\nBcc: x@example.com", "a\rBcc: x@example.com", "a\x00b", "a\r\n\r\nbody", "a\u2028Bcc: x", "a\u0085Bcc: x",
		"\r\n", "a\vb\fc", "a\x7fb", "=?utf-8?q?=0D=0ABcc:_x?=", "\u202eevil", "a\" <x@example.com>, \"b", "a, b <x@example.com>", "(comment", "\\", "\"", "<>", "a;b:c",
	} {
		row := sampleRows()[0]
		row.Name, row.Subject = evil, evil
		composer := testComposer(t, func(s *Settings) { s.Brand = evil })
		message, err := composer.Compose(row)
		if err != nil {
			t.Errorf("%q: %v", evil, err)
			continue
		}
		if fault := soundMail(render(t, composer, row), message, false); fault != "" {
			t.Errorf("%q: %s", evil, fault)
		}
		for _, field := range []string{message.Subject, message.To.Name} {
			if strings.ContainsFunc(field, isControl) || strings.ContainsFunc(field, isReordering) || strings.Contains(field, "=?") {
				t.Errorf("%q became %q", evil, field)
			}
		}
	}
}

func TestLengthLimits(t *testing.T) {
	t.Parallel()
	composer := testComposer(t, nil)
	for _, text := range []string{strings.Repeat("x", 5000), strings.Repeat("word ", 1000), strings.Repeat("今", 5000), strings.Repeat("👨‍👩‍👧‍👦", 1000), "e" + strings.Repeat("\u0301", 5000)} {
		row := sampleRows()[0]
		row.Subject, row.Name = text, text
		message, err := composer.Compose(row)
		if err != nil {
			t.Fatal(err)
		}
		if fault := soundMail(render(t, composer, row), message, false); fault != "" {
			t.Error(fault)
		}
		for _, field := range []struct {
			text  string
			limit int
		}{{message.Subject, maxSubjectRunes}, {message.To.Name, maxNameRunes}} {
			if n := utf8.RuneCountInString(field.text); n > field.limit || !strings.HasSuffix(field.text, "…") {
				t.Errorf("%d characters, limit %d: %q", n, field.limit, field.text)
			}
			if strings.Contains(text, "👨") && strings.Trim(strings.ReplaceAll(field.text, "👨‍👩‍👧‍👦", ""), "…") != "" {
				t.Errorf("a family was taken apart: %q", field.text)
			}
		}
	}
	row := sampleRows()[0]
	row.Briefing = strings.Repeat("x", maxBriefingBytes)
	if _, err := composer.Compose(row); err != nil {
		t.Errorf("a briefing at the limit: %v", err)
	}
	row.Briefing += "x"
	_, err := composer.Compose(row)
	if failure := checkSendError(t, err); failure.Kind != Permanent || failure.Code != CodeTooLong {
		t.Errorf("a byte beyond the limit: %v", err)
	}
}

// TestHTMLIsEscaped: whatever the text holds, the page has our elements only.
func TestHTMLIsEscaped(t *testing.T) {
	t.Parallel()
	for _, evil := range []string{
		"<script>alert(1)</script>", "</title></style></td><img src=x onerror=alert(1)>", "**<b>bold</b>**", "# <h1 onclick=x>", "- <li>", "1. <!-- ", "]]>", "&lt;&amp;&#60;script&#62;",
		"javascript:alert(1)", "{{.Name}} {{template \"line\"}}", "\"><svg onload=alert(1)>", "`${1}`",
	} {
		row := sampleRows()[0]
		row.Briefing, row.Name, row.Subject, row.Locale = evil, evil, evil, evil
		message, err := testComposer(t, func(s *Settings) { s.Brand = evil }).Compose(row)
		if err != nil {
			t.Fatal(err)
		}
		checkHTML(t, message.HTML)
		page, err := html.Parse(strings.NewReader(message.HTML))
		if err != nil {
			t.Fatal(err)
		}
		if got := elementText(page, "h1"); got != message.Subject {
			t.Errorf("the heading reads %q, want %q", got, message.Subject)
		}
	}
}

// TestLanguageAndDirection looks at the page's root, where screen readers and
// mail programs take both from, with values that would end the attribute.
func TestLanguageAndDirection(t *testing.T) {
	t.Parallel()
	for locale, want := range map[string]string{
		"en-US": `lang="en-US" dir="ltr"`, "ar-EG": `lang="ar-EG" dir="rtl"`, "he": `lang="he" dir="rtl"`, "ur-PK": `lang="ur-PK" dir="rtl"`,
		"fa_IR": `lang="fa-IR" dir="rtl"`, "az-Arab": `lang="az-Arab" dir="rtl"`, "ja_JP": `lang="ja-JP" dir="ltr"`, "": `lang="fr" dir="ltr"`,
		`"><script>`: `lang="fr" dir="ltr"`, "en\" onload=\"x": `lang="fr" dir="ltr"`,
	} {
		row := sampleRows()[0]
		row.Locale = locale
		message, err := testComposer(t, func(s *Settings) { s.Locale = "fr" }).Compose(row)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(message.HTML, "<html "+want+">") {
			t.Errorf("%q: the HTML lacks %s: %.80s", locale, want, message.HTML)
		}
	}
}

// ourElements are those of the built-in template.
var ourElements = map[string]bool{
	"html": true, "head": true, "meta": true, "title": true, "style": true, "body": true, "div": true, "table": true, "tbody": true, "tr": true,
	"td": true, "span": true, "bdi": true, "br": true, "h1": true, "h2": true, "p": true, "ul": true, "ol": true, "li": true, "strong": true, "a": true,
}

// checkHTML fails on elements, handlers and links that are not the template's.
func checkHTML(t *testing.T, page string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for node := range root.Descendants() {
		switch {
		case node.Type == html.CommentNode:
			t.Errorf("the HTML has a comment %q", node.Data)
		case node.Type != html.ElementNode:
			continue
		case !ourElements[node.Data]:
			t.Errorf("the HTML has an element %s", node.Data)
		case node.Data == "a":
			links++
		}
		for _, attribute := range node.Attr {
			if strings.HasPrefix(attribute.Key, "on") || attribute.Key == "src" ||
				attribute.Key == "href" && !strings.HasPrefix(attribute.Val, "https://briefings.example/u/") {
				t.Errorf("the HTML has %s=%q on %s", attribute.Key, attribute.Val, node.Data)
			}
		}
	}
	if links != 1 {
		t.Errorf("the HTML has %d links, want 1", links)
	}
}

// elementText returns the text of the first element of the name.
func elementText(root *html.Node, name string) string {
	for node := range root.Descendants() {
		if node.Type == html.ElementNode && node.Data == name {
			var b strings.Builder
			for child := range node.Descendants() {
				if child.Type == html.TextNode {
					b.WriteString(child.Data)
				}
			}
			return b.String()
		}
	}
	return ""
}
