package briefing

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestSplitSubject(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 200)
	tests := []struct{ name, text, subject, body string }{
		{"with subject", "Subject: Your Tuesday\n\nGood morning.", "Your Tuesday", "Good morning."},
		{"CRLF", "Subject: Your Tuesday\r\n\r\nGood morning.\r\nBye.", "Your Tuesday", "Good morning.\r\nBye."},
		{"other case, bold, quotes", "\n **SUBJECT: \"Your Tuesday\"**\nHi.", "Your Tuesday", "Hi."},
		{"bold label", "**Subject:** Your Tuesday\nHi.", "Your Tuesday", "Hi."},
		{"quotes within stay", `Subject: The "big" day` + "\nHi.", `The "big" day`, "Hi."},
		{"none", "Good morning.\nSubject: later", "", "Good morning.\nSubject: later"},
		{"nothing but the subject", "Subject: Your Tuesday", "", "Subject: Your Tuesday"},
		{"empty subject", "Subject:\nHi.", "", "Hi."},
		{"other word", "Subjects: maths\nHi.", "", "Subjects: maths\nHi."},
		{"empty text", "", "", ""},
		{"control characters", "Subject: a\x00b\tc\u202ed\u2028Bcc: x\nHi.", "a b cd Bcc: x", "Hi."},
		{"too long", "Subject: " + long + "\nHi.", strings.Repeat("é", 120), "Hi."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			subject, body := SplitSubject(tt.text)
			if subject != tt.subject || body != tt.body {
				t.Errorf("SplitSubject = %q, %q, want %q, %q", subject, body, tt.subject, tt.body)
			}
		})
	}
}

func TestSubject(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, want string }{
		{"Ana", "Your briefing, Ana"},
		{"", "Your briefing"},
		{" \n ", "Your briefing"},
		{"Ana\r\nBcc: ben@example.com", "Your briefing, Ana Bcc: ben@example.com"},
		{"עמית", "Your briefing, עמית"},
		{"Léo 👨‍🍳", "Your briefing, Léo 👨‍🍳"},
		{strings.Repeat("é", 100), "Your briefing, " + strings.Repeat("é", 60)},
	}
	for _, tt := range tests {
		if got := Subject(Record{Name: tt.name}); got != tt.want {
			t.Errorf("Subject(%q) = %q, want %q", tt.name, got, tt.want)
		}
	}
}

func FuzzSplitSubject(f *testing.F) {
	for _, seed := range []string{"Subject: a\nb", "subject:\r\n\r\n", "**Subject:** «x»\ny", "Subject: \xff\u202e\nx"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		subject, body := SplitSubject(text)
		if utf8.RuneCountInString(subject) > maxSubjectRunes || !utf8.ValidString(subject) ||
			strings.ContainsFunc(subject, unicode.IsControl) || strings.TrimSpace(subject) != subject {
			t.Fatalf("subject %q", subject)
		}
		if !strings.HasSuffix(text, body) || subject != "" && body == "" {
			t.Fatalf("body %q of %q", body, text)
		}
		if again := Subject(Record{Name: text}); strings.ContainsFunc(again, unicode.IsControl) {
			t.Fatalf("fallback %q", again)
		}
	})
}
