// Package chromium drives a headless Chromium in tests, so that the pages and
// mails this project writes are looked at by the engine that shows them to
// people. It needs no driver program, only the browser itself.
//
// Every page starts a browser of its own with an empty profile. All traffic
// but that to this machine is cut off, and what a page tried to fetch is kept
// for the test to judge.
package chromium

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// stepTimeout bounds one command. A page that is fine answers in milliseconds;
// the room is for a machine that compiles on every core at the same time.
const stepTimeout = 90 * time.Second

// executables are the names under which distributions install the browser, in
// order of preference.
var executables = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// Page is one tab of a browser that belongs to one test. It is not safe for
// concurrent use. Every method ends the test at once when the browser fails,
// so a caller has no errors to check.
type Page struct {
	t     testing.TB
	ctx   context.Context
	width int // of the viewport, in CSS pixels

	mu       sync.Mutex
	origin   string // scheme://host of the page that was asked for, "" for a file
	errors   []string
	requests []string
}

// Find returns the path of the browser: the environment variable
// SWARM_CHROMIUM, or the first of chromium, chromium-browser and google-chrome
// that is in PATH. The error says how to install one.
func Find() (string, error) {
	if path := os.Getenv("SWARM_CHROMIUM"); path != "" {
		found, err := exec.LookPath(path)
		if err != nil {
			return "", fmt.Errorf("SWARM_CHROMIUM names no program that can be run: %w", err)
		}
		return found, nil
	}
	for _, name := range executables {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no browser in PATH (looked for %s): on Debian run "+
		"\"apt-get install -y --no-install-recommends chromium fonts-noto-core fonts-noto-color-emoji\", "+
		"or point SWARM_CHROMIUM at one, or set SWARM_SKIP_BROWSER=1 to leave the browser tests out",
		strings.Join(executables, ", "))
}

// Open starts a browser with an empty profile and returns its blank page, at
// 1280x800 and in light mode. The browser ends with the test. Without a browser
// on the machine the test fails and says how to install one; with
// SWARM_SKIP_BROWSER=1 it is skipped and says so.
func Open(t testing.TB) *Page {
	t.Helper()
	if os.Getenv("SWARM_SKIP_BROWSER") == "1" {
		t.Skip("SWARM_SKIP_BROWSER=1: not looked at in a browser")
	}
	path, err := Find()
	if err != nil {
		t.Fatal(err)
	}

	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path),
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("hide-scrollbars", true),
		// Port 9 of this machine answers nobody, and a browser reaches
		// loopback addresses without its proxy: nothing can leave.
		chromedp.ProxyServer("http://127.0.0.1:9"),
	)
	if os.Getuid() == 0 {
		// Chromium's sandbox refuses to run as root.
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeTab := chromedp.NewContext(allocator)
	t.Cleanup(func() { closeTab(); stop() })

	page := &Page{t: t, ctx: ctx}
	// The first command starts the browser and ties it to the context it is
	// given, so this one must not carry the timeout of a step.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	if err := chromedp.Listen(ctx, page.record); err != nil {
		t.Fatalf("listen to the browser: %v", err)
	}
	page.SetViewport(1280, 800, false)
	page.SetDarkMode(false)
	return page
}

// record keeps what a test asks for later. The browser's events arrive in the
// order in which they happened and before the command that caused them ends.
func (p *Page) record(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	case *network.EventWebSocketCreated:
		p.requests = append(p.requests, e.URL)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeAssert {
			var words []string
			for _, arg := range e.Args {
				if arg.Description != "" {
					words = append(words, arg.Description)
				} else {
					words = append(words, string(arg.Value))
				}
			}
			p.errors = append(p.errors, "console: "+strings.Join(words, " "))
		}
	case *runtime.EventExceptionThrown:
		p.errors = append(p.errors, (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			p.errors = append(p.errors, strings.TrimSpace("log: "+e.Entry.Text+" "+e.Entry.URL))
		}
	}
}

// run ends the test if the action fails or takes longer than stepTimeout.
func run[T any](p *Page, what string, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, stepTimeout)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
	return value
}

// SetViewport sets the size of the page in CSS pixels. A mobile viewport obeys
// the page's viewport tag as a phone does, takes touches, and has two device
// pixels to a CSS pixel.
func (p *Page) SetViewport(width, height int, mobile bool) {
	p.t.Helper()
	options := []chromedp.EmulateViewportOption{chromedp.EmulateLandscape}
	if mobile {
		options = []chromedp.EmulateViewportOption{
			chromedp.EmulatePortrait, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulateScale(2),
		}
	}
	p.width = width
	run(p, "set viewport", chromedp.EmulateViewport(int64(width), int64(height), options...))
}

// SetDarkMode sets what the page sees as prefers-color-scheme.
func (p *Page) SetDarkMode(dark bool) {
	p.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	ctx, cancel := context.WithTimeout(p.ctx, stepTimeout)
	defer cancel()
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		p.t.Fatalf("set colour scheme: %v", err)
	}
}

// Navigate opens an http, https, file, data or about URL, or a file by its
// path, and returns when it is loaded, its fonts are there and a frame was
// painted. What ConsoleErrors and ExternalRequests return starts anew.
func (p *Page) Navigate(target string) {
	p.t.Helper()
	address, err := pageURL(target)
	if err != nil {
		p.t.Fatalf("navigate: %v", err)
	}
	p.mu.Lock()
	p.origin, p.errors, p.requests = "", nil, nil
	if address.Scheme == "http" || address.Scheme == "https" {
		p.origin = address.Scheme + "://" + address.Host
	}
	p.mu.Unlock()

	ctx, cancel := context.WithTimeout(p.ctx, stepTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Navigate(address.String())); err != nil {
		p.t.Fatalf("navigate: %v", err)
	}
	// Two frames, because scripts that run at load draw in the first one.
	Eval[bool](p, `document.fonts.ready.then(() => new Promise(done =>
		requestAnimationFrame(() => requestAnimationFrame(() => done(true)))))`)
}

// pageURL turns what a test names into a URL.
func pageURL(target string) (*url.URL, error) {
	u, err := url.Parse(target)
	if err == nil && slices.Contains([]string{"http", "https", "file", "data", "about"}, u.Scheme) {
		return u, nil
	}
	path, err := filepath.Abs(target)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "file", Path: filepath.ToSlash(path)}, nil
}

// Screenshot writes the whole page, not only what fits the viewport, as PNG to
// the path, whose folder must exist.
func (p *Page) Screenshot(path string) {
	p.t.Helper()
	png := run(p, "take screenshot", chromedp.FullScreenshot(100))
	if err := os.WriteFile(path, png, 0o644); err != nil {
		p.t.Fatalf("write screenshot: %v", err)
	}
}

// Eval runs an expression in the page and returns its value by way of JSON; a
// promise is waited for. A free function, because a method cannot be generic.
func Eval[T any](p *Page, js string) T {
	p.t.Helper()
	return run(p, "evaluate", chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
}

// ConsoleErrors returns what went wrong in the page since Navigate: calls of
// console.error, uncaught exceptions, and what the browser itself logs as an
// error, such as a resource that did not load.
func (p *Page) ConsoleErrors() []string {
	p.t.Helper()
	Eval[bool](p, "true") // all that happened before this command is recorded when it ends
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.errors)
}

// ExternalRequests returns the URLs that the page tried to fetch since
// Navigate from anywhere but itself: not file:, data:, blob: or about:, and not
// the origin that was navigated to. They were all blocked unless they went to
// this machine.
func (p *Page) ExternalRequests() []string {
	p.t.Helper()
	Eval[bool](p, "true")
	p.mu.Lock()
	defer p.mu.Unlock()
	var external []string
	for _, request := range p.requests {
		u, err := url.Parse(request)
		switch {
		case err != nil:
		case slices.Contains([]string{"file", "data", "blob", "about"}, u.Scheme):
			continue
		case p.origin != "" && u.Scheme+"://"+u.Host == p.origin:
			continue
		}
		external = append(external, request)
	}
	return external
}

// HorizontalOverflow returns by how many CSS pixels the page is wider than its
// viewport, 0 when nobody has to scroll sideways, and the elements that stick
// out, outermost first, each as its tag with id and classes.
func (p *Page) HorizontalOverflow() (pixels int, elements []string) {
	p.t.Helper()
	type overflow struct {
		Pixels   int      `json:"pixels"`
		Elements []string `json:"elements"`
	}
	found := Eval[overflow](p, `(() => {
		// A phone widens its layout to what sticks out, so innerWidth may
		// have grown with the fault: what was asked for is the width to hold
		// against. (The emulated screen's own width says nothing on a desktop.)
		const width = Math.min(window.innerWidth, document.documentElement.clientWidth, `+strconv.Itoa(p.width)+`);
		const root = document.documentElement;
		const body = document.body ? document.body.scrollWidth : 0;
		const elements = [];
		for (const e of document.querySelectorAll("body *")) {
			const box = e.getBoundingClientRect();
			if (box.width > 0 && (box.right > width + 1 || box.left < -1)) {
				elements.push(e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") +
					[...e.classList].map(c => "." + c).join(""));
			}
		}
		return {pixels: Math.max(0, Math.max(root.scrollWidth, body) - width), elements: elements.slice(0, 10)};
	})()`)
	if found.Pixels == 0 {
		return 0, nil
	}
	return found.Pixels, found.Elements
}
