package deliver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/briefing-swarm/briefing-swarm/internal/chromium"
)

// TestMailsInBrowser looks at the mails as a reader does: on a phone and on a
// desktop, light and dark. SWARM_KEEP_SCREENSHOTS=folder keeps the pictures.
func TestMailsInBrowser(t *testing.T) {
	t.Parallel()
	composer := testComposer(t, nil)
	page := chromium.Open(t)
	shots := os.Getenv("SWARM_KEEP_SCREENSHOTS")
	keep := shots != ""
	if !keep {
		shots = t.TempDir()
	} else if err := os.MkdirAll(shots, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i, row := range sampleRows() {
		message, err := composer.Compose(row)
		if err != nil {
			t.Fatalf("%s: %v", row.UserID, err)
		}
		file := filepath.Join(dir, row.UserID+".html")
		if err := os.WriteFile(file, []byte(message.HTML), 0o644); err != nil {
			t.Fatal(err)
		}
		page.Navigate(file) // once: size and colours change under the page, as on a device
		for _, view := range []struct {
			name          string
			width, height int
			mobile, dark  bool
		}{
			{"phone-light", 390, 844, true, false},
			{"phone-dark", 390, 844, true, true},
			{"desktop-light", 1280, 800, false, false},
			{"desktop-dark", 1280, 800, false, true},
		} {
			page.SetViewport(view.width, view.height, view.mobile)
			page.SetDarkMode(view.dark)
			name := row.UserID + " " + view.name
			if got := page.ConsoleErrors(); len(got) != 0 {
				t.Errorf("%s: console errors %q", name, got)
			}
			if got := page.ExternalRequests(); len(got) != 0 {
				t.Errorf("%s: external requests %q", name, got)
			}
			if pixels, elements := page.HorizontalOverflow(); pixels != 0 {
				t.Errorf("%s: %d px too wide: %q", name, pixels, elements)
			}
			// In either direction of writing the card stands in the middle.
			if off := chromium.Eval[float64](page, offCentre); off > 1 {
				t.Errorf("%s: the card is %.0f px off the middle", name, off)
			}
			// Text must stand out from its card: 4.5 is what WCAG AA asks for.
			if got := chromium.Eval[float64](page, lowestContrast); got < 4.5 {
				t.Errorf("%s: contrast of %.2f, want at least 4.5", name, got)
			}
			if keep || i < 4 {
				page.Screenshot(filepath.Join(shots, row.UserID+"-"+view.name+".png"))
			}
		}
	}
}

// offCentre is by how many pixels the card's margins differ.
const offCentre = `(() => {
	const card = document.querySelector('.card').getBoundingClientRect();
	return Math.abs(card.left - (document.documentElement.clientWidth - card.right));
})()`

// lowestContrast is the lowest contrast ratio of any text on its background.
const lowestContrast = `(() => {
	const parse = c => { const n = c.match(/[\d.]+/g).map(Number); return {rgb: n.slice(0, 3), alpha: n.length > 3 ? n[3] : 1}; };
	const luminance = rgb => { const [r, g, b] = rgb.map(v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
		return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const background = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.alpha === 1) return c.rgb; } return [255, 255, 255]; };
	let lowest = 21;
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walker.nextNode()) {
		const e = walker.currentNode.parentElement;
		if (!walker.currentNode.data.trim() || e.offsetParent === null) continue;
		const a = luminance(parse(getComputedStyle(e).color).rgb), b = luminance(background(e));
		lowest = Math.min(lowest, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
	}
	return lowest;
})()`
