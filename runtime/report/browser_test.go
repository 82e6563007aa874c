package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/briefing-swarm/briefing-swarm/internal/chromium"
)

// TestInBrowser looks at every case of a report as people do, on a phone and on
// a desk, by day and by night. With SWARM_SCREENSHOTS set to a folder it leaves
// the pictures there.
func TestInBrowser(t *testing.T) {
	page := chromium.Open(t)
	for name, d := range cases() {
		path := filepath.Join(t.TempDir(), "report.html")
		if err := os.WriteFile(path, []byte(draw(t, d)), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, width := range []int{390, 1280} {
			for _, dark := range []bool{false, true} {
				if name != "typical" && dark != (width > 500) {
					continue // the rest of the cases: a phone by day and a desk by night
				}
				look(t, page, path, fmt.Sprintf("report-%s-%d-dark-%v", strings.ReplaceAll(name, " ", "-"), width, dark), width, dark, d)
			}
		}
	}
}

func look(t *testing.T, page *chromium.Page, path, name string, width int, dark bool, d Data) {
	t.Helper()
	page.SetViewport(width, 900, width < 500)
	page.SetDarkMode(dark)
	page.Navigate(path)
	if got := page.ConsoleErrors(); len(got) > 0 {
		t.Errorf("%s: console errors: %q", name, got)
	}
	if got := page.ExternalRequests(); len(got) > 0 {
		t.Errorf("%s: asks for %q", name, got)
	}
	// Opened tables must not widen the page either.
	chromium.Eval[bool](page, `document.querySelectorAll("details").forEach(d => d.open = true) || true`)
	if px, elements := page.HorizontalOverflow(); px > 0 {
		t.Errorf("%s: %d px wider than the screen: %q", name, px, elements)
	}
	chromium.Eval[bool](page, `document.querySelectorAll("details").forEach(d => d.open = false) || true`)
	text := chromium.Eval[string](page, "document.body.innerText")
	for _, want := range []string{judge(d).Text, "Over time", "Tokens", "Endings and failures"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s: does not say %q", name, want)
		}
	}
	for _, bad := range []string{"NaN", "Inf", "<nil>", "%!"} {
		if strings.Contains(text, bad) {
			t.Errorf("%s: says %q", name, bad)
		}
	}
	if got := chromium.Eval[[]string](page, `[...document.querySelectorAll("figure.chart svg[role=img]")]
		.filter(e => e.getBoundingClientRect().width < 200 || e.getBoundingClientRect().height < 30)
		.map(e => e.querySelector("title").textContent)`); len(got) > 0 {
		t.Errorf("%s: charts without a size: %q", name, got)
	}
	if n := chromium.Eval[int](page, `document.querySelectorAll("figure.chart svg[role=img]").length`); len(d.Timeline) > 10 && n < 6 {
		t.Errorf("%s: %d charts, want at least 6", name, n)
	}
	// Contrast of what is read, against what it stands on.
	if got := chromium.Eval[[]string](page, faintTexts); len(got) > 0 {
		t.Errorf("%s: too faint: %q", name, got)
	}
	if dir := os.Getenv("SWARM_SCREENSHOTS"); dir != "" {
		page.Screenshot(filepath.Join(dir, name+".png"))
	}
}

// faintTexts finds texts whose contrast with their ground is below 4.5:1.
const faintTexts = `(() => {
	const parse = c => (c.match(/[\d.]+/g) || []).map(Number);
	const lum = c => parse(c).slice(0, 3).map(v => v / 255)
		.map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const ground = e => {
		for (; e; e = e.parentElement) {
			const c = getComputedStyle(e).backgroundColor, p = parse(c);
			if (p.length == 3 || p[3] == 1) return c;
		}
		return "rgb(255, 255, 255)";
	};
	const bad = new Set();
	for (const e of document.querySelectorAll("body *")) {
		if (![...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim()) || !e.getClientRects().length) continue;
		const style = getComputedStyle(e), ink = e.closest("svg") ? style.fill : style.color;
		const a = lum(ink), b = lum(ground(e));
		if ((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5) bad.add(e.tagName + " " + e.textContent.slice(0, 30));
	}
	return [...bad].slice(0, 5);
})()`
