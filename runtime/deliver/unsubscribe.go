package deliver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

const (
	// minUnsubscribeKey is the shortest key in bytes: as long as the tag it makes.
	minUnsubscribeKey = 16
	unsubscribeTag    = 16
	// unsubscribeDomain keeps a token from being taken for anything else that
	// is signed with the same key.
	unsubscribeDomain = "briefing-swarm unsubscribe 1\x00"
)

// UnsubscribeLinks makes and checks links that end one user's mails with one
// click (RFC 8058). A token names the run and the user and is signed, so nobody
// can unsubscribe others by guessing; it is not encrypted, and it does not
// expire, since a reader may open an old mail.
type UnsubscribeLinks struct {
	before, after string
	key           []byte
}

// NewUnsubscribeLinks takes a URL with {token} in its path or query, such as
// https://example.com/unsubscribe?t={token}, and a secret key of at least 16
// bytes. The URL must be https: mail programs send the one-click POST to
// nothing else.
func NewUnsubscribeLinks(urlTemplate string, key []byte) (*UnsubscribeLinks, error) {
	before, after, found := strings.Cut(urlTemplate, "{token}")
	if !found || strings.Contains(after, "{token}") {
		return nil, fmt.Errorf("unsubscribe URL %q: needs {token} once, where the signed token goes", urlTemplate)
	}
	if err := checkUnsubscribeURL(before + "x" + after); err != nil {
		return nil, fmt.Errorf("unsubscribe URL %q: %w", urlTemplate, err)
	}
	if u, err := url.Parse(before); err != nil || u.Host == "" || !strings.Contains(strings.TrimPrefix(before, "https://"), "/") {
		return nil, fmt.Errorf("unsubscribe URL %q: {token} must be in the path or the query", urlTemplate)
	}
	if strings.Contains(before, "#") {
		return nil, fmt.Errorf("unsubscribe URL %q: {token} must be in the path or the query, what comes after a # never reaches the server", urlTemplate)
	}
	if len(key) < minUnsubscribeKey {
		return nil, fmt.Errorf("unsubscribe key has %d bytes, needs at least %d random ones", len(key), minUnsubscribeKey)
	}
	return &UnsubscribeLinks{before: before, after: after, key: append([]byte(nil), key...)}, nil
}

// URL returns the link for the row's user.
func (u *UnsubscribeLinks) URL(row briefing.Row) string {
	return u.before + u.Token(row.RunID, row.UserID) + u.after
}

// Token returns the signed token for a run and a user: letters, digits, - and _.
func (u *UnsubscribeLinks) Token(runID, userID string) string {
	payload := binary.AppendUvarint(nil, uint64(len(runID)))
	payload = append(append(payload, runID...), userID...)
	return base64.RawURLEncoding.EncodeToString(append(payload, u.sign(payload)...))
}

// Verify returns the run and the user of a token that Token made with the same
// key, and an error for anything else.
func (u *UnsubscribeLinks) Verify(token string) (runID, userID string, err error) {
	invalid := errors.New("unsubscribe token is not valid")
	// The decoder skips line ends, which would give a token more than one spelling.
	if strings.ContainsAny(token, "\r\n") {
		return "", "", invalid
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(data) < unsubscribeTag {
		return "", "", invalid
	}
	payload, tag := data[:len(data)-unsubscribeTag], data[len(data)-unsubscribeTag:]
	if !hmac.Equal(tag, u.sign(payload)) {
		return "", "", invalid
	}
	length, n := binary.Uvarint(payload)
	if n <= 0 || length > uint64(len(payload)-n) {
		return "", "", invalid
	}
	return string(payload[n : n+int(length)]), string(payload[n+int(length):]), nil
}

func (u *UnsubscribeLinks) sign(payload []byte) []byte {
	mac := hmac.New(sha256.New, u.key)
	mac.Write([]byte(unsubscribeDomain))
	mac.Write(payload)
	return mac.Sum(nil)[:unsubscribeTag]
}

// checkUnsubscribeURL refuses what cannot stand in a List-Unsubscribe header.
func checkUnsubscribeURL(text string) error {
	if len(text) > maxHeaderValue-2 {
		return fmt.Errorf("has %d bytes, the limit is %d", len(text), maxHeaderValue-2)
	}
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '<' || c == '>' || c == '"' {
			return errors.New("holds a space, an angle bracket, a quote, or a byte that is not printable ASCII")
		}
	}
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("does not parse as a URL")
	}
	if u.Scheme != "https" || u.Host == "" {
		return errors.New("must start with https:// and a host name (RFC 8058)")
	}
	return nil
}
