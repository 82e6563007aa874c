package briefing

import (
	"strings"
	"testing"
)

func TestEmailFault(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("d", 63)
	tests := []struct {
		address string
		ok      bool
	}{
		{"ana@example.com", true},
		{"ana.maria+news/2026@mail.example.com", true},
		{"o'brien@example.com", true},
		{"#!$%&'*+-/=?^_`{}|~@example.org", true},
		{`"front desk"@example.com`, true},
		{`"a\"b@c"@example.com`, true},
		{"juergen@bücher.example", true},
		{"info@例え.テスト", true},
		{"info@xn--r8jz45g.example", true},
		{"अजय@डाटा.भारत", true},
		{"zoë@example.com", true},
		{"a@1.com", true},
		{strings.Repeat("a", 64) + "@example.com", true},
		{"a@" + label + ".example", true},
		{"", false},
		{"ana", false},
		{"ana at example.com", false},
		{"@example.com", false},
		{"ana@", false},
		{"ana@example", false},
		{"ana@localhost", false},
		{"ana@@example.com", false},
		{"ana@b@example.com", false},
		{".ana@example.com", false},
		{"ana.@example.com", false},
		{"an..a@example.com", false},
		{"an a@example.com", false},
		{"ana@exam ple.com", false},
		{"ana@example..com", false},
		{"ana@.example.com", false},
		{"ana@example.com.", false},
		{"ana@-example.com", false},
		{"ana@example-.com", false},
		{"ana@exa_mple.com", false},
		{"ana@192.0.2.1", false},
		{"ana@[192.0.2.1]", false},
		{"Ana <ana@example.com>", false},
		{"<ana@example.com>", false},
		{"ana@example.com,ben@example.com", false},
		{"ana@example.com;ben@example.com", false},
		{"ana@example.com\r\nBcc: ben@example.com", false},
		{"ana\u202e@example.com", false},
		{"ana@exam\u200bple.com", false},
		{"ana@example.com😀", false},
		{`"ana@example.com`, false},
		{`"an"a"@example.com`, false},
		{`""@example.com`, false},
		{`"a\"@example.com`, false},
		{"\"a\nb\"@example.com", false},
		{strings.Repeat("a", 65) + "@example.com", false},
		{"a@" + label + "d.example", false},
		{"a@" + strings.Repeat(label+".", 4) + "example", false},
	}
	for _, tt := range tests {
		if why := emailFault(tt.address); (why == "") != tt.ok {
			t.Errorf("emailFault(%q) = %q, want ok %v", tt.address, why, tt.ok)
		}
	}
}

// FuzzEmailFault holds the check against what mail headers need: an address
// that passes has no line ends and exactly one place to split.
func FuzzEmailFault(f *testing.F) {
	for _, seed := range []string{"ana@example.com", `"a b"@example.com`, "a@b.c\r\n", "juergen@bücher.example"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, address string) {
		if emailFault(address) != "" {
			return
		}
		if strings.ContainsAny(address, "\r\n\x00\t") || len(address) > maxEmailBytes {
			t.Errorf("%q passes", address)
		}
		if at := strings.LastIndexByte(address, '@'); at < 1 || !strings.Contains(address[at:], ".") {
			t.Errorf("%q passes", address)
		}
	})
}
