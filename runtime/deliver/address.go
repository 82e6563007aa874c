package deliver

import (
	"errors"
	"net/mail"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// domains turns international domains into the ASCII form that servers route
// by, with the rules that browsers apply to what people type.
var domains = idna.New(
	idna.MapForLookup(),
	idna.Transitional(false),
	idna.BidiRule(),
	idna.StrictDomainName(true),
	idna.VerifyDNSLength(true),
)

// parseAddress reads a bare address or one with a display name. The domain
// comes back in ASCII without a trailing dot, the local part as it was. The
// errors do not quote the address.
func parseAddress(text string) (mail.Address, error) {
	// The root's dot is legal in DNS but not in an address, and people paste it.
	parsed, err := mail.ParseAddress(strings.TrimSuffix(strings.TrimSpace(text), "."))
	if err != nil {
		return mail.Address{}, errors.New("it does not parse as an address")
	}
	at := strings.LastIndexByte(parsed.Address, '@')
	local, domain := parsed.Address[:max(at, 0)], parsed.Address[at+1:]
	switch {
	case at < 1:
		return mail.Address{}, errors.New("it has nothing before the @")
	case len(local) > 64:
		return mail.Address{}, errors.New("its part before the @ has more than 64 bytes")
	case strings.ContainsFunc(local, isControl):
		return mail.Address{}, errors.New("it holds a control character")
	case strings.HasPrefix(domain, "["):
		return mail.Address{}, errors.New("its domain is an IP address")
	}
	ascii, err := domains.ToASCII(domain)
	if err != nil {
		return mail.Address{}, errors.New("its domain is not a valid host name")
	}
	return mail.Address{Name: parsed.Name, Address: local + "@" + ascii}, nil
}

// needsSMTPUTF8 tells whether the address has a local part that only servers
// with the SMTPUTF8 extension (RFC 6531) can take.
func needsSMTPUTF8(address string) bool {
	for i := range len(address) {
		if address[i] >= utf8.RuneSelf {
			return true
		}
	}
	return false
}
