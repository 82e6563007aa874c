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
	// unsubscribeVersion is a token's first byte.
	unsubscribeVersion = 1
	// unsubscribeDomain keeps a token from being taken for anything else that
	// is signed with the same key.
	unsubscribeDomain = "briefing-swarm unsubscribe\x00"
)

// UnsubscribeKeys make and check the tokens of unsubscribe links. A token names
// the run and the user and is signed (HMAC-SHA-256), so nobody can unsubscribe
// others by guessing; it is not encrypted, and it does not expire, since a
// reader may open an old mail.
type UnsubscribeKeys struct {
	keys [][]byte
}

// ParseUnsubscribeKeys reads secret keys of at least 16 bytes, one a line. The
// first one signs. The others, its predecessors, are good for checking, so that
// a key can be replaced while old mails are about.
func ParseUnsubscribeKeys(secret string) (*UnsubscribeKeys, error) {
	var keys [][]byte
	for line := range strings.Lines(secret) {
		key := strings.TrimRight(line, "\r\n")
		if key == "" {
			continue
		}
		if len(key) < minUnsubscribeKey {
			return nil, fmt.Errorf("unsubscribe key %d has %d bytes, needs at least %d random ones", len(keys)+1, len(key), minUnsubscribeKey)
		}
		keys = append(keys, []byte(key))
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("unsubscribe key is missing: give at least %d random bytes", minUnsubscribeKey)
	}
	return &UnsubscribeKeys{keys}, nil
}

// Token returns the signed token for a run and a user: letters, digits, - and _.
func (k *UnsubscribeKeys) Token(runID, userID string) string {
	payload := binary.AppendUvarint([]byte{unsubscribeVersion}, uint64(len(runID)))
	payload = append(append(payload, runID...), userID...)
	return base64.RawURLEncoding.EncodeToString(append(payload, sign(k.keys[0], payload)...))
}

// Verify returns the run and the user of a token that Token made with one of
// the keys, and an error for anything else.
func (k *UnsubscribeKeys) Verify(token string) (runID, userID string, err error) {
	invalid := errors.New("unsubscribe token is not valid")
	// The decoder skips line ends, which would give a token more than one spelling.
	if strings.ContainsAny(token, "\r\n") {
		return "", "", invalid
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(data) < 1+unsubscribeTag {
		return "", "", invalid
	}
	payload, tag := data[:len(data)-unsubscribeTag], data[len(data)-unsubscribeTag:]
	signed := false
	for _, key := range k.keys {
		signed = hmac.Equal(tag, sign(key, payload)) || signed
	}
	if !signed || payload[0] != unsubscribeVersion {
		return "", "", invalid
	}
	payload = payload[1:]
	length, n := binary.Uvarint(payload)
	if n <= 0 || length > uint64(len(payload)-n) {
		return "", "", invalid
	}
	return string(payload[n : n+int(length)]), string(payload[n+int(length):]), nil
}

// sign returns the tag of a payload.
func sign(key, payload []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(unsubscribeDomain))
	mac.Write(payload)
	return mac.Sum(nil)[:unsubscribeTag]
}

// UnsubscribeLinks make links that end one user's mails with one click (RFC 8058).
type UnsubscribeLinks struct {
	before, after string
	keys          *UnsubscribeKeys
}

// NewUnsubscribeLinks takes a URL with {token} in its path or query, such as
// https://example.com/unsubscribe?t={token}. It must be https: mail programs
// send the one-click POST to nothing else.
func NewUnsubscribeLinks(urlTemplate string, keys *UnsubscribeKeys) (*UnsubscribeLinks, error) {
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
	return &UnsubscribeLinks{before: before, after: after, keys: keys}, nil
}

// URL returns the link for the row's user.
func (u *UnsubscribeLinks) URL(row briefing.Row) string {
	return u.before + u.keys.Token(row.RunID, row.UserID) + u.after
}

// UnsubscribeMails make links that write a mail asking to end one user's mails,
// for mail programs that know no one-click POST. The token stands in the mail's
// subject; whoever reads that mailbox acts on it.
type UnsubscribeMails struct {
	address string
	keys    *UnsubscribeKeys
}

// NewUnsubscribeMails takes the address of the mailbox.
func NewUnsubscribeMails(address string, keys *UnsubscribeKeys) (*UnsubscribeMails, error) {
	to, err := parseAddress(address)
	if err == nil && (to.Name != "" || needsSMTPUTF8(to.Address)) {
		err = errors.New("it must be a bare ASCII address")
	}
	if err != nil {
		return nil, fmt.Errorf("unsubscribe mailbox: %w", err)
	}
	return &UnsubscribeMails{address: url.PathEscape(to.Address), keys: keys}, nil
}

// URL returns the mailto: link for the row's user.
func (u *UnsubscribeMails) URL(row briefing.Row) string {
	return "mailto:" + u.address + "?subject=unsubscribe%20" + u.keys.Token(row.RunID, row.UserID)
}

// checkUnsubscribeURL refuses what cannot stand in a List-Unsubscribe header as
// a link to post to.
func checkUnsubscribeURL(text string) error {
	if err := checkUnsubscribeText(text); err != nil {
		return err
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

// checkUnsubscribeText refuses what would end the link early.
func checkUnsubscribeText(text string) error {
	if len(text) > maxHeaderValue-2 {
		return fmt.Errorf("has %d bytes, the limit is %d", len(text), maxHeaderValue-2)
	}
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '<' || c == '>' || c == '"' {
			return errors.New("holds a space, an angle bracket, a quote, or a byte that is not printable ASCII")
		}
	}
	return nil
}
