package page

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/internal/chromium"
	"github.com/briefing-swarm/briefing-swarm/plan"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// samples are the default plan, and one with everything.
func samples(t *testing.T) map[string]*plan.Plan {
	t.Helper()
	full := plan.Defaults()
	full.Region, full.Architecture, full.ModelStore, full.MemoryMib = "eu-central-1", plan.X8664, plan.StoreEFS, 5376
	full.MaxConcurrency, full.DeadlineMinutes, full.BatchSize = 5000, 60, 48
	full.EndpointRequestsPerMonth, full.QueueRequestsPerMonth, full.ProvisionedConcurrency = 100_000, 200_000, 4
	full.Quotas = plan.Quotas{LambdaConcurrency: 3000, SesRecipientsPerSec: 90, SesRecipientsPer24Hours: 2_000_000}
	full.Model.Name = `<script>alert("x")</script>&` // whatever a file calls itself
	given := plan.Defaults()
	given.SecPerUser, given.Mail, given.Users = 3, false, 1
	list := map[string]*plan.Plan{}
	for name, in := range map[string]plan.Inputs{"default": plan.Defaults(), "full": full, "given": given} {
		p, err := plan.Estimate(in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := p.AddSensitivity(); err != nil {
			t.Fatal(err)
		}
		list[name] = p
	}
	tuning, err := plan.Tune(full, plan.MinimiseCost, 3600)
	if err != nil {
		t.Fatal(err)
	}
	list["full"].Tuning = tuning
	return list
}

func TestGoldenPage(t *testing.T) {
	for name, p := range samples(t) {
		var got bytes.Buffer
		if err := Write(&got, p); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(got.String(), "<script") {
			t.Errorf("%s: the page holds a script", name)
		}
		path := filepath.Join("testdata", name+".html")
		if *update {
			if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("%s differs (-want +got), go test -update rewrites it:\n%s", path, diff)
		}
	}
}

// TestInBrowser opens the pages in a real browser, at both widths, light and
// dark. SWARM_SCREENSHOTS=DIR keeps the pictures.
func TestInBrowser(t *testing.T) {
	tab := chromium.Open(t)
	for name, p := range samples(t) {
		path := filepath.Join(t.TempDir(), name+".html")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := Write(f, p); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		for _, width := range []int{390, 1280} {
			for _, dark := range []bool{false, true} {
				shot := fmt.Sprintf("plan-%s-%d-dark-%v", name, width, dark)
				tab.SetViewport(width, 900, width < 500)
				tab.SetDarkMode(dark)
				tab.Navigate(path)
				if got := tab.ConsoleErrors(); len(got) > 0 {
					t.Errorf("%s: console errors: %q", shot, got)
				}
				if got := tab.ExternalRequests(); len(got) > 0 {
					t.Errorf("%s: it asks for %q", shot, got)
				}
				if px, elements := tab.HorizontalOverflow(); px > 0 {
					t.Errorf("%s: %d px wider than the screen: %q", shot, px, elements)
				}
				if n, want := chromium.Eval[int](tab, `document.querySelectorAll("figure.chart").length`), 5+curveCount(p); n != want {
					t.Errorf("%s: %d charts, want %d", shot, n, want)
				}
				if n := chromium.Eval[int](tab, `document.querySelectorAll(".chart-none").length`); n > 0 {
					t.Errorf("%s: %d charts have no data", shot, n)
				}
				if dir := os.Getenv("SWARM_SCREENSHOTS"); dir != "" {
					tab.Screenshot(filepath.Join(dir, shot+".png"))
				}
			}
		}
	}
}

func curveCount(p *plan.Plan) (n int) {
	for _, c := range p.Sensitivity {
		n += len(curves(c))
	}
	return n
}
