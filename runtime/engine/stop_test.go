package engine

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// feed writes text in pieces whose lengths come from cuts, and returns what the
// listener heard and the final text.
func feed(text string, stops []string, cuts []byte) (heard, final string, parts []string) {
	s := newTextStream(stops, func(p string) { parts = append(parts, p) })
	rest := []byte(text)
	for i := 0; len(rest) > 0; i++ {
		n := 1
		if len(cuts) > 0 {
			n = min(len(rest), 1+int(cuts[i%len(cuts)])%7)
		}
		if s.write(rest[:n]) {
			break
		}
		rest = rest[n:]
	}
	final = s.finish()
	return strings.Join(parts, ""), final, parts
}

func TestTextStream(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		stops      []string
		want       string
	}{
		{"plain", "good morning", nil, "good morning"},
		{"stop inside", "good morning. END more", []string{"END"}, "good morning. "},
		{"the earlier of two stops", "one STOP two END", []string{"END", "STOP"}, "one "},
		{"stop that only begins", "one EN", []string{"END"}, "one EN"},
		{"stop that begins twice", "aab aaab", []string{"aaab"}, "aab "},
		{"stop at the start", "ENDless", []string{"END"}, ""},
		{"empty stop is none", "text", []string{""}, "text"},
		{"emoji", "rain ☔ and 👩‍🚀 🇨🇭", nil, "rain ☔ and 👩‍🚀 🇨🇭"},
		{"stop of more bytes than runes", "dort 天気です", []string{"気で"}, "dort 天"},
		{"invalid bytes", "a\xffb\xe5\xa4", nil, "a\uFFFDb\uFFFD"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, cuts := range [][]byte{nil, {1}, {2}, {0, 3}, {6}} {
				heard, final, parts := feed(tt.text, tt.stops, cuts)
				if final != tt.want || heard != final {
					t.Errorf("cuts %v: text %q, heard %q, want %q", cuts, final, heard, tt.want)
				}
				for _, p := range parts {
					if !utf8.ValidString(p) {
						t.Errorf("cuts %v: let out %q", cuts, p)
					}
				}
			}
		})
	}
}

func FuzzTextStream(f *testing.F) {
	f.Add("good morning 👩‍🚀 END", "END", []byte{1, 2, 3})
	f.Add("天気です", "気", []byte{0})
	f.Add("aaaab", "aab", []byte{5})
	f.Fuzz(func(t *testing.T, text, stop string, cuts []byte) {
		if !utf8.ValidString(stop) {
			return
		}
		var stops []string
		if stop != "" {
			stops = []string{stop}
		}
		heard, final, parts := feed(text, stops, cuts)
		want := text
		if i := strings.Index(text, stop); stop != "" && i >= 0 {
			want = text[:i]
		}
		if heard != final {
			t.Fatalf("heard %q, final %q", heard, final)
		}
		if utf8.ValidString(text) && final != want {
			t.Fatalf("text %q stop %q: got %q, want %q", text, stop, final, want)
		}
		for _, p := range parts {
			if !utf8.ValidString(p) {
				t.Fatalf("let out %q", p)
			}
		}
	})
}
