package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/briefing-swarm/briefing-swarm/internal/chromium"
)

// TestInBrowser looks at every chart the way people do. With SWARM_SCREENSHOTS
// set to a folder it leaves the pictures there.
func TestInBrowser(t *testing.T) {
	var b strings.Builder
	b.WriteString(`<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">` +
		`<link rel="icon" href="data:,"><title>Charts</title><style>` + string(CSS) + string(PageCSS) + `</style><body><main><h1>Charts</h1><div class="pair">`)
	for _, g := range gallery() {
		fmt.Fprintf(&b, "<div class=\"card\">%s</div>\n", g.html)
	}
	b.WriteString("</div></main></body></html>")
	path := filepath.Join(t.TempDir(), "charts.html")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}

	page := chromium.Open(t)
	for _, width := range []int{320, 390, 1280} {
		for _, dark := range []bool{false, true} {
			name := fmt.Sprintf("charts-%d-dark-%v", width, dark)
			page.SetViewport(width, 900, width < 500)
			page.SetDarkMode(dark)
			page.Navigate(path)
			if got := page.ConsoleErrors(); len(got) > 0 {
				t.Errorf("%s: console errors: %q", name, got)
			}
			if px, elements := page.HorizontalOverflow(); px > 0 {
				t.Errorf("%s: %d px wider than the screen: %q", name, px, elements)
			}
			if got := chromium.Eval[[]string](page, meetingTexts); len(got) > 0 {
				t.Errorf("%s: texts meet: %q", name, got)
			}
			if got := chromium.Eval[[]string](page, invisibleShapes); len(got) > 0 {
				t.Errorf("%s: shapes without colour or size: %q", name, got)
			}
			if dir := os.Getenv("SWARM_SCREENSHOTS"); dir != "" {
				page.Screenshot(filepath.Join(dir, name+".png"))
			}
		}
	}
}

// meetingTexts finds texts of one chart that lie over each other, or that stick
// out of their figure.
const meetingTexts = `(() => {
	const bad = [];
	for (const figure of document.querySelectorAll("figure.chart")) {
		const outer = figure.parentElement.getBoundingClientRect();
		const boxes = [...figure.querySelectorAll("svg text")]
			.map(e => ({text: e.textContent, box: e.getBoundingClientRect()}))
			.filter(e => e.box.width > 0);
		boxes.forEach((a, i) => {
			if (a.box.left < outer.left || a.box.right > outer.right) bad.push(a.text + " sticks out");
			for (const b of boxes.slice(i + 1)) {
				const across = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
				const down = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
				if (across > 0 && down > 3) bad.push(a.text + " | " + b.text);
			}
		});
	}
	return bad;
})()`

// invisibleShapes finds charts with nothing in them to see.
const invisibleShapes = `[...document.querySelectorAll("figure.chart")].filter(figure => {
	const marks = [...figure.querySelectorAll(".bar, .part, .bin, .line")];
	return marks.length == 0 || !marks.every(e => {
		const box = e.getBoundingClientRect(), style = getComputedStyle(e);
		const paint = e.classList.contains("line") ? style.stroke : style.fill;
		return box.width > 0 && (box.height > 0 || e.classList.contains("line")) && /^rgb\(/.test(paint) && paint != "rgb(0, 0, 0)";
	});
}).map(figure => figure.querySelector(".chart-title").textContent)`
