package deliver

import (
	"bytes"
	"encoding/base64"
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
		token := links.Token(tc.run, tc.user)
		run, user, err := links.Verify(token)
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
	if links.Token("run-1", "0user") == links.Token("run-10", "user") {
		t.Error("two users share a token")
	}
}

func TestUnsubscribeTampering(t *testing.T) {
	t.Parallel()
	links := testLinks(t, "https://briefings.example/u/{token}")
	other, err := NewUnsubscribeLinks("https://briefings.example/u/{token}", []byte("another key of 32 bytes, for tests"))
	if err != nil {
		t.Fatal(err)
	}
	token := links.Token("run-1", "user-1")
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
		"moved border":  base64.RawURLEncoding.EncodeToString(append([]byte{data[0] + 1}, data[1:]...)),
		"huge length":   base64.RawURLEncoding.EncodeToString(append([]byte{0xff, 0xff, 0xff, 0xff, 0x7f}, data[1:]...)),
		"another token": links.Token("run-1", "user-2")[:16] + token[16:],
	}
	for i := range data {
		flipped := bytes.Clone(data)
		flipped[i] ^= 1
		bad["flipped bit in byte "+string(rune('A'+i))] = base64.RawURLEncoding.EncodeToString(flipped)
	}
	for name, token := range bad {
		if run, user, err := links.Verify(token); err == nil || run != "" || user != "" {
			t.Errorf("%s: token was taken for %q, %q", name, run, user)
		}
	}
}

// TestUnsubscribeKeyIsCopied: whoever wipes the key afterwards changes nothing.
func TestUnsubscribeKeyIsCopied(t *testing.T) {
	t.Parallel()
	key := []byte("sixteen bytes key")
	links, err := NewUnsubscribeLinks("https://briefings.example/u/{token}", key)
	if err != nil {
		t.Fatal(err)
	}
	token := links.Token("r", "u")
	clear(key)
	if _, _, err := links.Verify(token); err != nil {
		t.Error(err)
	}
}

func TestUnsubscribeURLs(t *testing.T) {
	t.Parallel()
	key := bytes.Repeat([]byte("k"), 16)
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
		_, err := NewUnsubscribeLinks(tc.template, key)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%q: error %v, want %q", tc.template, err, tc.want)
		}
	}
	if _, err := NewUnsubscribeLinks("https://briefings.example/{token}", key[:15]); err == nil || !strings.Contains(err.Error(), "15 bytes") {
		t.Errorf("short key: error %v", err)
	}
}

func FuzzVerify(f *testing.F) {
	links := testLinks(f, "https://example.com/{token}")
	f.Add("", "run", "user")
	f.Add(links.Token("run", "user"), "", "")
	f.Fuzz(func(t *testing.T, token, runID, userID string) {
		if run, user, err := links.Verify(token); err == nil && links.Token(run, user) != token {
			t.Errorf("token %q is taken but not the one for %q, %q", token, run, user)
		}
		if run, user, err := links.Verify(links.Token(runID, userID)); err != nil || run != runID || user != userID {
			t.Errorf("Verify(Token(%q, %q)) = %q, %q, %v", runID, userID, run, user, err)
		}
	})
}
