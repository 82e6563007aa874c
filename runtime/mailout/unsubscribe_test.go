package mailout

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/internal/chromium"
	"github.com/briefing-swarm/briefing-swarm/runtime/deliver"
	"github.com/briefing-swarm/briefing-swarm/runtime/telemetry"
)

// rememberedOptOuts are users in memory.
type rememberedOptOuts struct {
	users []string
	err   error
}

func (r *rememberedOptOuts) Add(_ context.Context, userID string) error {
	if r.err == nil {
		r.users = append(r.users, userID)
	}
	return r.err
}

func newUnsubscribe(t testing.TB, optOuts OptOuts) (*Unsubscribe, *lines) {
	t.Helper()
	keys, err := deliver.ParseUnsubscribeKeys("a key of 32 bytes, for tests only")
	if err != nil {
		t.Fatal(err)
	}
	said := &lines{}
	return &Unsubscribe{Keys: keys, OptOuts: optOuts, Brand: "Morning <Desk>", Meter: telemetry.NewMeter(said, "acme", "unsubscribe"), Log: telemetry.NewLogger(said, "INFO")}, said
}

// request is one as a function URL hands it over.
func request(method, target, body string) events.LambdaFunctionURLRequest {
	u, err := url.Parse(target)
	if err != nil {
		panic(err)
	}
	r := events.LambdaFunctionURLRequest{RawPath: u.Path, RawQueryString: u.RawQuery, Body: body, QueryStringParameters: map[string]string{}}
	for name, values := range u.Query() {
		r.QueryStringParameters[name] = strings.Join(values, ",")
	}
	r.RequestContext.HTTP.Method = method
	return r
}

func TestUnsubscribe(t *testing.T) {
	t.Parallel()
	users := &rememberedOptOuts{}
	u, said := newUnsubscribe(t, users)
	const user = "jane@example.com"
	token := u.Keys.Token("run-1", user)
	const click = "List-Unsubscribe=One-Click"
	for _, tc := range []struct {
		name, method, target, body string
		status                     int
		says                       string
		acts                       bool
	}{
		{"one click", "POST", "/?t=" + token, click, 200, "You are unsubscribed", true},
		{"one click by path", "POST", "/u/" + token, click, 200, "You are unsubscribed", true},
		{"one click without a body", "POST", "/?t=" + token, "", 200, "You are unsubscribed", true},
		{"a scanner", "GET", "/?t=" + token, "", 200, "Unsubscribe from these briefings?", false},
		{"a scanner by path", "GET", "/u/" + token, "", 200, `<form method="post">`, false},
		{"a careful scanner", "HEAD", "/?t=" + token, "", 200, "", false},
		{"a forged token", "POST", "/?t=" + token[:len(token)-2] + "AA", click, 404, "not complete", false},
		{"a cut token", "POST", "/?t=" + token[:10], click, 404, "not complete", false},
		{"no token", "POST", "/", click, 404, "not complete", false},
		{"no token to look at", "GET", "/favicon.ico", "", 404, "not complete", false},
		{"another method", "DELETE", "/?t=" + token, "", 405, "opened or posted", false},
		{"no method", "", "/?t=" + token, "", 405, "opened or posted", false},
	} {
		users.users = nil
		response, err := u.Handle(t.Context(), request(tc.method, tc.target, tc.body))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if response.StatusCode != tc.status || !strings.Contains(response.Body, tc.says) || tc.method == "HEAD" && response.Body != "" {
			t.Errorf("%s: status %d, page %s", tc.name, response.StatusCode, response.Body)
		}
		want := []string(nil)
		if tc.acts {
			want = []string{user}
		}
		if diff := cmp.Diff(want, users.users); diff != "" {
			t.Errorf("%s: unsubscribed (-want +got):\n%s", tc.name, diff)
		}
		h := response.Headers
		if !strings.HasPrefix(h["Content-Security-Policy"], "default-src 'none'") || h["Referrer-Policy"] != "no-referrer" || h["Cache-Control"] != "no-store" || (tc.status == 405) != (h["Allow"] != "") {
			t.Errorf("%s: headers %v", tc.name, h)
		}
		if strings.Contains(response.Body, "<Desk>") || strings.Contains(response.Body, token) || strings.Contains(response.Body, "jane") {
			t.Errorf("%s: the page holds what it must not: %s", tc.name, response.Body)
		}
	}
	if n := said.counted(t, telemetry.Unsubscribes); n != 3 {
		t.Errorf("%d are counted, want 3", n)
	}
	users.err = errors.New("throttled")
	response, err := u.Handle(t.Context(), request("POST", "/?t="+token, click))
	if err != nil || response.StatusCode != 503 || response.Headers["Retry-After"] == "" || !strings.Contains(response.Body, "not unsubscribed yet") {
		t.Errorf("with a broken store: %d, %v, %v", response.StatusCode, response.Headers, err)
	}
	for _, secret := range []string{"jane", token} {
		if strings.Contains(said.String(), secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}

// TestUnsubscribeReachesDelivery goes all the way: from the link in a mail to the
// next run, which leaves the user out.
func TestUnsubscribeReachesDelivery(t *testing.T) {
	w := newWorld(t)
	rows := seedRows("run-1", 3)
	if r, err := w.mail(t, t.Context(), eventOf(t, rows)); err != nil || r.Sent != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	u, _ := newUnsubscribe(t, newOptOuts(w.clients, "ledger"))
	message, err := w.composer.Compose(mustRow(t, rows[1]))
	if err != nil {
		t.Fatal(err)
	}
	var target string
	for _, field := range message.Headers {
		if field.Name == "List-Unsubscribe" {
			target = strings.Trim(field.Value, "<>")
		}
	}
	response, err := u.Handle(t.Context(), request("POST", target, "List-Unsubscribe=One-Click"))
	if err != nil || response.StatusCode != 200 {
		t.Fatalf("%d, %v", response.StatusCode, err)
	}
	r, err := w.mail(t, t.Context(), eventOf(t, seedRows("run-2", 3)))
	if err != nil || r.Sent != 2 || r.Skipped != 1 {
		t.Errorf("the next run: %+v, %v", r, err)
	}
}

// TestUnsubscribePage looks at the page on a phone and clicks its button.
func TestUnsubscribePage(t *testing.T) {
	t.Parallel()
	users := &rememberedOptOuts{}
	u, _ := newUnsubscribe(t, users)
	posted := make(chan bool, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response, err := u.Handle(r.Context(), request(r.Method, r.URL.String(), ""))
		if err != nil {
			t.Error(err)
		}
		for name, value := range response.Headers {
			w.Header().Set(name, value)
		}
		w.WriteHeader(response.StatusCode)
		w.Write([]byte(response.Body))
		if r.Method == http.MethodPost {
			posted <- true
		}
	}))
	t.Cleanup(server.Close)
	page := chromium.Open(t)
	page.Navigate(server.URL + "/?t=" + u.Keys.Token("run-1", "user-1"))
	page.SetViewport(390, 844, true)
	if len(users.users) != 0 {
		t.Fatal("opening the page unsubscribed the user")
	}
	shots := os.Getenv("SWARM_KEEP_SCREENSHOTS")
	if shots == "" {
		shots = t.TempDir()
	}
	look := func(name string) {
		t.Helper()
		if pixels, elements := page.HorizontalOverflow(); pixels != 0 {
			t.Errorf("%s: %d px too wide: %q", name, pixels, elements)
		}
		if got := page.ConsoleErrors(); len(got) != 0 {
			t.Errorf("%s: console errors %q", name, got)
		}
		page.Screenshot(filepath.Join(shots, "unsubscribe-"+name+".png"))
	}
	look("ask")
	chromium.Eval[bool](page, "(document.querySelector('button').click(), true)")
	select {
	case <-posted:
	case <-time.After(10 * time.Second):
		t.Fatal("the button posts nothing")
	}
	time.Sleep(500 * time.Millisecond) // a script that runs while the page changes would be lost
	if got := chromium.Eval[string](page, "document.querySelector('h1').textContent"); got != "You are unsubscribed" {
		t.Errorf("after the click the page reads %q", got)
	}
	look("done")
	if diff := cmp.Diff([]string{"user-1"}, users.users); diff != "" {
		t.Errorf("unsubscribed (-want +got):\n%s", diff)
	}
}

func FuzzUnsubscribe(f *testing.F) {
	users := &rememberedOptOuts{}
	u, _ := newUnsubscribe(f, users)
	f.Add("POST", "/"+u.Keys.Token("r", "u"), "")
	f.Add("GET", "/a/b", "t")
	f.Fuzz(func(t *testing.T, method, rawPath, token string) {
		users.users = nil
		r := events.LambdaFunctionURLRequest{RawPath: rawPath, QueryStringParameters: map[string]string{tokenField: token}}
		r.RequestContext.HTTP.Method = method
		response, err := u.Handle(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		_, user, invalid := u.Keys.Verify(tokenOf(r))
		if acted := len(users.users) > 0; acted != (method == http.MethodPost && invalid == nil) || acted && users.users[0] != user {
			t.Errorf("status %d, unsubscribed %q", response.StatusCode, users.users)
		}
	})
}
