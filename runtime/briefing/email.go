package briefing

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The lengths RFC 5321 allows, in bytes.
const (
	maxEmailBytes     = 254
	maxLocalPartBytes = 64
	maxDomainBytes    = 253
	maxLabelBytes     = 63
)

// emailFault says why address is not one mail can be sent to, or is empty. It
// checks the form only: local part and at least two domain labels, with
// internationalised domains, plus tags and quoted local parts allowed; display
// names, comments and address literals are not.
func emailFault(address string) string {
	if len(address) > maxEmailBytes {
		return "is longer than 254 bytes"
	}
	if strings.ContainsAny(address, "<>") && !strings.HasPrefix(address, `"`) {
		return "is not a bare address: write it without a display name and angle brackets"
	}
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return "has no @"
	}
	if fault := localPartFault(address[:at]); fault != "" {
		return fault
	}
	return domainFault(address[at+1:])
}

func localPartFault(local string) string {
	if local == "" {
		return "has nothing before the @"
	}
	if len(local) > maxLocalPartBytes {
		return "has more than 64 bytes before the @"
	}
	if local[0] == '"' {
		return quotedLocalPartFault(local)
	}
	dot := true // a dot may not come first, nor after another
	for _, r := range local {
		switch {
		case r == '.':
			if dot {
				return "has a dot too many before the @"
			}
			dot = true
			continue
		case r == '@':
			return "has more than one @"
		case r < utf8.RuneSelf && !isAtext(byte(r)), r >= utf8.RuneSelf && !unicode.IsPrint(r):
			return "has a character before the @ that is not allowed there"
		}
		dot = false
	}
	if dot {
		return "has a dot too many before the @"
	}
	return ""
}

func quotedLocalPartFault(local string) string {
	const fault = "has a quoted part before the @ that does not end, or holds what it may not"
	if len(local) < 3 || local[len(local)-1] != '"' {
		return fault
	}
	inner := local[1 : len(local)-1]
	for i := 0; i < len(inner); i++ {
		c := inner[i]
		if c == '\\' {
			i++
			if i == len(inner) {
				return fault
			}
			c = inner[i]
		} else if c == '"' {
			return fault
		}
		if c < ' ' || c > '~' {
			return fault
		}
	}
	return ""
}

// isAtext says whether c may stand in an unquoted local part (RFC 5322 atext).
func isAtext(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("!#$%&'*+-/=?^_`{|}~", c) >= 0
}

func domainFault(domain string) string {
	if domain == "" {
		return "has nothing after the @"
	}
	if len(domain) > maxDomainBytes {
		return "has a domain longer than 253 bytes"
	}
	labels, digits := 0, false
	for label := range strings.SplitSeq(domain, ".") {
		labels++
		if label == "" {
			return "has a dot too many in its domain"
		}
		if len(label) > maxLabelBytes {
			return "has a domain label longer than 63 bytes"
		}
		if label[0] == '-' || label[len(label)-1] == '-' {
			return "has a domain label that starts or ends with a hyphen"
		}
		digits = true
		for _, r := range label {
			if r < '0' || r > '9' {
				digits = false
			}
			switch {
			case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-':
			case r >= utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r)):
			case r == '\u200c' || r == '\u200d' || r == '\u00b7' || r == '\u30fb':
				// Joiners and middle dots are part of some scripts' domain names.
			default:
				return "has a character in its domain that is not allowed there"
			}
		}
	}
	if labels < 2 {
		return "has a domain without a dot"
	}
	if digits {
		return "has a domain that ends in a number"
	}
	return ""
}
