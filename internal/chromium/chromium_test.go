package chromium

import (
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

const wellBehaved = `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<style>body{margin:0;background:#fff} @media (prefers-color-scheme: dark){body{background:#000}}</style>
<title>fine</title><body><p style="height:2000px">Hello</p></body></html>`

const misbehaved = `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>bad</title><body><div id="wide" style="width:900px">wide</div>
<img src="https://images.example.com/pixel.png" alt=""><img src="http://192.0.2.1/pixel.png" alt="">
<script>console.error("told you", 7); new WebSocket("wss://socket.example.com/");</script>
<script>throw new Error("uncaught one")</script></body></html>`

func write(t *testing.T, html string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a page #1.html")
	if err := os.WriteFile(path, []byte(html), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPage(t *testing.T) {
	page := Open(t)

	t.Run("a good page passes", func(t *testing.T) {
		page.SetViewport(390, 844, true)
		page.Navigate(write(t, wellBehaved))
		if got := page.ConsoleErrors(); len(got) != 0 {
			t.Errorf("console errors: %q", got)
		}
		if got := page.ExternalRequests(); len(got) != 0 {
			t.Errorf("external requests: %q", got)
		}
		if pixels, elements := page.HorizontalOverflow(); pixels != 0 {
			t.Errorf("overflow of %d px: %q", pixels, elements)
		}
		if got := Eval[string](page, "document.title"); got != "fine" {
			t.Errorf("title %q", got)
		}
		if got := Eval[int](page, "window.innerWidth"); got != 390 {
			t.Errorf("inner width %d, want 390", got)
		}
	})

	t.Run("a page as wide as a desktop does not overflow", func(t *testing.T) {
		page.SetViewport(1280, 800, false)
		page.Navigate(write(t, misbehaved))
		if pixels, elements := page.HorizontalOverflow(); pixels != 0 {
			t.Errorf("overflow of %d px: %q", pixels, elements)
		}
	})

	t.Run("a screenshot holds the whole page", func(t *testing.T) {
		page.SetViewport(390, 844, true)
		page.Navigate(write(t, wellBehaved))
		path := filepath.Join(t.TempDir(), "page.png")
		page.Screenshot(path)
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		config, err := png.DecodeConfig(file)
		if err != nil {
			t.Fatal(err)
		}
		if config.Width != 780 || config.Height < 4000 {
			t.Errorf("screenshot of %dx%d, want 780 wide and at least 4000 high", config.Width, config.Height)
		}
	})

	t.Run("dark mode reaches the page", func(t *testing.T) {
		page.Navigate(write(t, wellBehaved))
		for dark, want := range map[bool]string{true: "rgb(0, 0, 0)", false: "rgb(255, 255, 255)"} {
			page.SetDarkMode(dark)
			if got := Eval[string](page, "getComputedStyle(document.body).backgroundColor"); got != want {
				t.Errorf("dark %v: background %s, want %s", dark, got, want)
			}
		}
	})

	t.Run("a bad page is caught", func(t *testing.T) {
		for _, mobile := range []bool{true, false} {
			page.SetViewport(390, 844, mobile)
			page.Navigate(write(t, misbehaved))
			errors := strings.Join(page.ConsoleErrors(), "\n")
			for _, want := range []string{"told you", "uncaught one", "pixel.png"} {
				if !strings.Contains(errors, want) {
					t.Errorf("mobile %v: console errors lack %q:\n%s", mobile, want, errors)
				}
			}
			requests := strings.Join(page.ExternalRequests(), "\n")
			for _, want := range []string{"https://images.example.com/pixel.png", "http://192.0.2.1/pixel.png", "wss://socket.example.com/"} {
				if !strings.Contains(requests, want) {
					t.Errorf("mobile %v: external requests lack %q:\n%s", mobile, want, requests)
				}
			}
			pixels, elements := page.HorizontalOverflow()
			if pixels < 500 || !strings.Contains(strings.Join(elements, " "), "div#wide") {
				t.Errorf("mobile %v: overflow of %d px by %q, want at least 500 px by div#wide", mobile, pixels, elements)
			}
		}
	})

	t.Run("a page's own origin is not external, another local one is", func(t *testing.T) {
		var hits atomic.Int32
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/javascript")
		}))
		defer other.Close()
		own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/own.js" {
				hits.Add(1)
				w.Header().Set("Content-Type", "text/javascript")
				return
			}
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte(`<!doctype html><title>x</title><link rel="icon" href="data:,"><script src="/own.js"></script><script src="` + other.URL + `/other.js"></script>`))
		}))
		defer own.Close()
		page.Navigate(own.URL)
		if got := hits.Load(); got != 1 {
			t.Errorf("own script fetched %d times, want 1", got)
		}
		if got := page.ExternalRequests(); len(got) != 1 || got[0] != other.URL+"/other.js" {
			t.Errorf("external requests %q, want the other server's script alone", got)
		}
		if got := page.ConsoleErrors(); len(got) != 0 {
			t.Errorf("console errors: %q", got)
		}
	})
}

func TestFindSaysHowToInstall(t *testing.T) {
	t.Setenv("SWARM_CHROMIUM", "")
	t.Setenv("PATH", t.TempDir())
	_, err := Find()
	if err == nil || !strings.Contains(err.Error(), "apt-get install") {
		t.Errorf("error %v, want one that says how to install a browser", err)
	}
	t.Setenv("SWARM_CHROMIUM", filepath.Join(t.TempDir(), "absent"))
	if _, err = Find(); err == nil || !strings.Contains(err.Error(), "SWARM_CHROMIUM") {
		t.Errorf("error %v, want one that names SWARM_CHROMIUM", err)
	}
}
