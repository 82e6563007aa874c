package deliver

import (
	"bytes"
	"encoding/base64"
	"html"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

func TestUnsubscribeToken(t *testing.T) {
	t.Parallel()
	links := testLinks(t, "https://briefings.example/u?t={token}&lang=en")
	for _, tc := range []struct{ run, user string }{
		{"run-1", "user-1"},
		{"", ""},
		{"run", "jane+x@example.com"},
		{"run", "名前 with space/slash?&=#"},
		{strings.Repeat("r", 200), strings.Repeat("u", 300)},
		{"\x00", "\xff\r\n"},
	} {
		token := links.keys.Token(tc.run, tc.user)
		run, user, err := links.keys.Verify(token)
		if err != nil || run != tc.run || user != tc.user {
			t.Errorf("%q, %q came back as %q, %q, %v", tc.run, tc.user, run, user, err)
		}
		if strings.Trim(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Errorf("token %q cannot stand in a URL as it is", token)
		}
		link := links.URL(briefing.Row{RunID: tc.run, UserID: tc.user})
		u, err := url.Parse(link)
		if err != nil || u.Query().Get("t") != token || u.Query().Get("lang") != "en" {
			t.Errorf("link %q, %v", link, err)
		}
		if err := checkUnsubscribeURL(link); err != nil {
			t.Errorf("link of %d bytes: %v", len(link), err)
		}
	}
	if links.keys.Token("run-1", "0user") == links.keys.Token("run-10", "user") {
		t.Error("two users share a token")
	}
}

func TestUnsubscribeTampering(t *testing.T) {
	t.Parallel()
	links := testLinks(t, "https://briefings.example/u/{token}")
	other := testKeys(t, "another key of 32 bytes, for tests")
	token := links.keys.Token("run-1", "user-1")
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	bad := map[string]string{
		"empty":         "",
		"another key":   other.Token("run-1", "user-1"),
		"cut":           token[:len(token)-2],
		"longer":        token + "AA",
		"padded":        token + "=",
		"line end":      token[:8] + "\n" + token[8:],
		"not base64":    "!!!!",
		"tag alone":     base64.RawURLEncoding.EncodeToString(data[len(data)-unsubscribeTag:]),
		"another user":  base64.RawURLEncoding.EncodeToString(bytes.Replace(data, []byte("user-1"), []byte("user-2"), 1)),
		"moved border":  base64.RawURLEncoding.EncodeToString(append([]byte{data[0], data[1] + 1}, data[2:]...)),
		"huge length":   base64.RawURLEncoding.EncodeToString(append([]byte{data[0], 0xff, 0xff, 0xff, 0xff, 0x7f}, data[2:]...)),
		"version 2":     base64.RawURLEncoding.EncodeToString(append([]byte{2}, data[1:]...)),
		"another token": links.keys.Token("run-1", "user-2")[:20] + token[20:],
	}
	for i := range data {
		flipped := bytes.Clone(data)
		flipped[i] ^= 1
		bad["flipped bit in byte "+string(rune('A'+i))] = base64.RawURLEncoding.EncodeToString(flipped)
	}
	for name, token := range bad {
		if run, user, err := links.keys.Verify(token); err == nil || run != "" || user != "" {
			t.Errorf("%s: token was taken for %q, %q", name, run, user)
		}
	}
}

func TestUnsubscribeKeys(t *testing.T) {
	t.Parallel()
	const first, second = "the first key of the service", "the second key, its successor"
	old := testKeys(t, first).Token("run", "user")
	for name, keys := range map[string]*UnsubscribeKeys{"alone": testKeys(t, first), "replaced": testKeys(t, second+"\n"+first+"\n"), "with CR LF": testKeys(t, second+"\r\n\r\n"+first)} {
		if run, user, err := keys.Verify(old); err != nil || run != "run" || user != "user" {
			t.Errorf("%s: %q, %q, %v", name, run, user, err)
		}
	}
	if testKeys(t, second+"\n"+first).Token("run", "user") != testKeys(t, second).Token("run", "user") {
		t.Error("the first key is not the one that signs")
	}
	if _, _, err := testKeys(t, second).Verify(old); err == nil {
		t.Error("a key that was given up still counts")
	}
	for secret, want := range map[string]string{"": "is missing", "\n\n": "is missing", "fifteen bytes!!": "has 15 bytes", first + "\nshort": "key 2 has 5 bytes"} {
		if _, err := ParseUnsubscribeKeys(secret); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", secret, err, want)
		}
	}
}

func TestUnsubscribeHeaders(t *testing.T) {
	t.Parallel()
	keys := testKeys(t, "a key of 32 bytes, for tests only")
	mails, err := NewUnsubscribeMails("stop+briefings@bücher.example", keys)
	if err != nil {
		t.Fatal(err)
	}
	post := testLinks(t, "https://briefings.example/u/{token}").URL
	row := sampleRows()[0]
	long := row
	long.UserID = strings.Repeat("u", 400)
	for _, tc := range []struct {
		name       string
		url, mail  func(briefing.Row) string
		row        briefing.Row
		list, post string
		shown      string
	}{
		{"none", nil, nil, row, "", "", ""},
		{"post", post, nil, row, "<" + post(row) + ">", "List-Unsubscribe=One-Click", post(row)},
		{"mail", nil, mails.URL, row, "<" + mails.URL(row) + ">", "", mails.URL(row)},
		{"both", post, mails.URL, row, "<" + post(row) + ">, <" + mails.URL(row) + ">", "List-Unsubscribe=One-Click", post(row)},
		{"too long for both", post, mails.URL, long, "<" + post(long) + ">", "List-Unsubscribe=One-Click", post(long)},
	} {
		composer := testComposer(t, func(s *Settings) { s.UnsubscribeURL, s.UnsubscribeMail = tc.url, tc.mail })
		message, err := composer.Compose(tc.row)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, field := range message.Headers {
			got[field.Name] = field.Value
		}
		if got["List-Unsubscribe"] != tc.list || got["List-Unsubscribe-Post"] != tc.post {
			t.Errorf("%s: headers %q", tc.name, got)
		}
		if tc.shown != "" && (!strings.Contains(html.UnescapeString(message.HTML), `href="`+tc.shown+`"`) || !strings.Contains(message.Text, tc.shown)) {
			t.Errorf("%s: the mail does not show %s", tc.name, tc.shown)
		}
		if _, err := message.WriteTo(io.Discard); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	u, err := url.Parse(mails.URL(row))
	if err != nil || u.Opaque != "stop+briefings@xn--bcher-kva.example" || u.Query().Get("subject") != "unsubscribe "+keys.Token(row.RunID, row.UserID) {
		t.Errorf("link %v, %v", u, err)
	}
	for _, address := range []string{"", "nobody", "Stop <stop@example.com>", "jörg@example.com"} {
		if _, err := NewUnsubscribeMails(address, keys); err == nil {
			t.Errorf("%q is taken for a mailbox", address)
		}
	}
}

func TestUnsubscribeURLs(t *testing.T) {
	t.Parallel()
	keys := testKeys(t, strings.Repeat("k", 16))
	for _, tc := range []struct{ template, want string }{
		{"https://briefings.example/u/{token}", ""},
		{"https://briefings.example:8443/u?t={token}&x=1", ""},
		{"https://briefings.example/u", "needs {token} once"},
		{"https://briefings.example/{token}/{token}", "needs {token} once"},
		{"http://briefings.example/{token}", "must start with https://"},
		{"mailto:stop@briefings.example?subject={token}", "must start with https://"},
		{"javascript:alert('{token}')", "must start with https://"},
		{"https:///u/{token}", "must start with https://"},
		{"https://{token}.briefings.example/u", "in the path or the query"},
		{"https://briefings.example/u?{token}", ""},
		{"https://briefings.example{token}", "in the path or the query"},
		{"https://briefings.example/a b/{token}", "holds a space"},
		{"https://briefings.example/>,<http://evil.example/{token}", "holds a space, an angle bracket"},
		{"https://briefings.example/\r\nBcc:x@example.com/{token}", "holds a space"},
		{"https://bücher.example/{token}", "not printable ASCII"},
		{"https://briefings.example/%zz/{token}", "does not parse"},
		{"https://briefings.example/" + strings.Repeat("x", 900) + "/{token}", "the limit is"},
		{"https://briefings.example/u#{token}", "in the path or the query"},
	} {
		_, err := NewUnsubscribeLinks(tc.template, keys)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%q: error %v, want %q", tc.template, err, tc.want)
		}
	}
}

func FuzzVerify(f *testing.F) {
	links := testLinks(f, "https://example.com/{token}")
	f.Add("", "run", "user")
	f.Add(links.keys.Token("run", "user"), "", "")
	f.Fuzz(func(t *testing.T, token, runID, userID string) {
		if run, user, err := links.keys.Verify(token); err == nil && links.keys.Token(run, user) != token {
			t.Errorf("token %q is taken but not the one for %q, %q", token, run, user)
		}
		if run, user, err := links.keys.Verify(links.keys.Token(runID, userID)); err != nil || run != runID || user != userID {
			t.Errorf("Verify(Token(%q, %q)) = %q, %q, %v", runID, userID, run, user, err)
		}
	})
}
