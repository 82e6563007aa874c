package deliver

import (
	"bytes"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGoldenMails holds whole mails, byte for byte.
func TestGoldenMails(t *testing.T) {
	t.Parallel()
	composer := testComposer(t, nil)
	rows := sampleRows()
	for name, row := range map[string]briefing.Row{
		"english": rows[0], "german": rows[2], "arabic": rows[3], "japanese": rows[5], "emoji": rows[7],
	} {
		t.Run(name, func(t *testing.T) {
			got := render(t, composer, row)
			file := filepath.Join("testdata", name+".eml")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("mail differs from %s, -update rewrites it (-want +got):\n%s", file, diff)
			}
		})
	}
}

func render(t testing.TB, composer *Composer, row briefing.Row) []byte {
	t.Helper()
	message, err := composer.Compose(row)
	if err != nil {
		t.Fatalf("%s: %v", row.UserID, err)
	}
	var raw bytes.Buffer
	n, err := message.WriteTo(&raw)
	if err != nil {
		t.Fatalf("%s: %v", row.UserID, err)
	}
	if n != int64(raw.Len()) {
		t.Errorf("%s: WriteTo says %d bytes, wrote %d", row.UserID, n, raw.Len())
	}
	return raw.Bytes()
}

// TestMailsAreSound reads every sample mail as a receiver does.
func TestMailsAreSound(t *testing.T) {
	t.Parallel()
	composer := testComposer(t, func(s *Settings) { s.ReplyTo = "Hélp <help@briefings.example>" })
	for _, row := range sampleRows() {
		message, err := composer.Compose(row)
		if err != nil {
			t.Errorf("%s: %v", row.UserID, err)
			continue
		}
		raw := render(t, composer, row)
		if fault := soundMail(raw, message, true); fault != "" {
			t.Errorf("%s: %s\n%.1500s", row.UserID, fault, raw)
		}
	}
}

// soundMail returns what is wrong with a mail, "" for nothing.
func soundMail(raw []byte, message Message, replyTo bool) string {
	for i, line := range bytes.Split(raw, []byte("\r\n")) {
		if len(line) > 998 {
			return fmt.Sprintf("line %d has %d bytes", i+1, len(line))
		}
		if bytes.ContainsAny(line, "\r\n\x00") {
			return fmt.Sprintf("line %d holds a bare CR, a bare LF or a NUL", i+1)
		}
		if !needsSMTPUTF8(message.To.Address) && slices.ContainsFunc(line, func(b byte) bool { return b >= 0x80 }) {
			return fmt.Sprintf("line %d is not ASCII", i+1)
		}
	}
	parsed, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return err.Error()
	}
	want := []string{"Auto-Submitted", "Content-Type", "Date", "From", "List-Unsubscribe", "List-Unsubscribe-Post",
		"Message-Id", "Mime-Version", "Subject", "To", "X-Auto-Response-Suppress"}
	if replyTo {
		want = append(want, "Reply-To")
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(parsed.Header)); !slices.Equal(got, want) {
		return fmt.Sprintf("has the headers %q, want %q", got, want)
	}
	for name, values := range parsed.Header {
		if len(values) != 1 {
			return fmt.Sprintf("has %d headers %s", len(values), name)
		}
	}
	decode := new(mime.WordDecoder).DecodeHeader
	if got, err := decode(parsed.Header.Get("Subject")); err != nil || got != message.Subject {
		return fmt.Sprintf("subject reads %q (%v), want %q", got, err, message.Subject)
	}
	if strings.ContainsFunc(message.Subject, isControl) || message.Subject == "" || len([]rune(message.Subject)) > maxSubjectRunes {
		return fmt.Sprintf("subject is %q", message.Subject)
	}
	to, err := parsed.Header.AddressList("To")
	if err != nil || len(to) != 1 || *to[0] != message.To {
		return fmt.Sprintf("To reads %v (%v), want %v", to, err, message.To)
	}
	from, err := parsed.Header.AddressList("From")
	if err != nil || len(from) != 1 || *from[0] != message.From {
		return fmt.Sprintf("From reads %v (%v), want %v", from, err, message.From)
	}
	if date, err := parsed.Header.Date(); err != nil || !date.Equal(message.Date.Truncate(time.Second)) {
		return fmt.Sprintf("Date reads %v (%v), want %v", date, err, message.Date)
	}
	if got := parsed.Header.Get("Message-ID"); got != "<"+message.ID+">" {
		return fmt.Sprintf("Message-ID is %q", got)
	}
	mediaType, params, err := mime.ParseMediaType(parsed.Header.Get("Content-Type"))
	if err != nil || mediaType != "multipart/alternative" {
		return fmt.Sprintf("Content-Type is %q (%v)", mediaType, err)
	}
	parts := multipart.NewReader(parsed.Body, params["boundary"])
	for _, want := range []struct{ contentType, content string }{
		{"text/plain; charset=UTF-8", message.Text}, {"text/html; charset=UTF-8", message.HTML},
	} {
		part, err := parts.NextRawPart()
		if err != nil {
			return err.Error()
		}
		if got := part.Header.Get("Content-Type"); got != want.contentType {
			return fmt.Sprintf("part is %q, want %q", got, want.contentType)
		}
		content, err := io.ReadAll(decodePart(part))
		if err != nil {
			return err.Error()
		}
		if got := strings.ReplaceAll(string(content), "\r\n", "\n"); got != want.content {
			return fmt.Sprintf("%s reads\n%q, want\n%q", want.contentType, got, want.content)
		}
	}
	if _, err := parts.NextRawPart(); err != io.EOF {
		return fmt.Sprintf("has a third part (%v)", err)
	}
	return parity(message)
}

func decodePart(part *multipart.Part) io.Reader {
	switch part.Header.Get("Content-Transfer-Encoding") {
	case "base64":
		return base64.NewDecoder(base64.StdEncoding, part)
	case "quoted-printable":
		return quotedprintable.NewReader(part)
	}
	return strings.NewReader("unknown transfer encoding")
}

// parity compares what a reader of the text part reads to what a reader of the
// HTML part does: the same words, in the same order.
func parity(message Message) string {
	document, err := html.Parse(strings.NewReader(message.HTML))
	if err != nil {
		return err.Error()
	}
	var inHTML []string
	var walk func(*html.Node)
	walk = func(n *html.Node) {
		if n.Type == html.ElementNode {
			if n.Data == "head" || strings.Contains(attribute(n, "style"), "display:none") {
				return
			}
			if n.Data == "script" || n.Data == "img" || n.Data == "link" {
				inHTML = append(inHTML, "ELEMENT "+n.Data)
			}
		}
		if n.Type == html.TextNode {
			inHTML = append(inHTML, n.Data)
		}
		for c := range n.ChildNodes() {
			walk(c)
		}
	}
	walk(document)
	// The text part alone has list marks, the delimiter of the footer, and the
	// link in full. White space is where lines are broken.
	letters := func(text string) string { return strings.Join(strings.Fields(text), "") }
	var inText strings.Builder
	body, footer, _ := strings.Cut(message.Text, "\n-- \n")
	for line := range strings.Lines(body) {
		inText.WriteString(line)
	}
	footer, _, _ = strings.Cut(footer, ": https://")
	got, want := letters(strings.Join(inHTML, "")), letters(inText.String()+footer)
	if stripMarks(got) != stripMarks(want) {
		return fmt.Sprintf("HTML reads\n%s\nand the text\n%s", got, want)
	}
	return ""
}

// stripMarks removes what marks list items and joins the heading in one of the
// two parts.
func stripMarks(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '-', r == ',', r == '.', '0' <= r && r <= '9':
			return -1
		}
		return r
	}, text)
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func TestHostileHTMLStaysText(t *testing.T) {
	t.Parallel()
	composer := testComposer(t, func(s *Settings) { s.Brand = "<i>Brand</i>\" onload=\"x" })
	message, err := composer.Compose(briefing.Row{
		RunID: "r", UserID: "u", Email: "a@example.com", Status: briefing.StatusOK, Locale: `en"><script>`,
		Name: `"><script>`, Subject: `</title><script>alert(1)</script>`,
		Briefing: "</p></td><script>alert(1)</script>\n- <img src=x onerror=alert(1)>\n# <style>*{display:none}</style>\n**<b>**",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, forbidden := range []string{"<script", "<img", "<i>", "<b>", "<style>*", `" onload="`} {
		if strings.Contains(message.HTML, forbidden) {
			t.Errorf("HTML holds %q", forbidden)
		}
	}
	if fault := parity(message); fault != "" {
		t.Error(fault)
	}
}

func TestMessageRefusesBadHeaders(t *testing.T) {
	t.Parallel()
	good := func() Message {
		return Message{
			ID: "1@example.com", From: mail.Address{Address: "a@example.com"}, To: mail.Address{Address: "b@example.com"},
			Date: morning, Subject: "s", Text: "t", HTML: "<p>t</p>",
		}
	}
	for name, change := range map[string]func(*Message){
		"LF in the subject":           func(m *Message) { m.Subject = "a\nBcc: c@example.com" },
		"CR in the subject":           func(m *Message) { m.Subject = "a\rb" },
		"NUL in the name":             func(m *Message) { m.To.Name = "a\x00b" },
		"LF in the address":           func(m *Message) { m.To.Address = "a\n@example.com" },
		"LF in the sender":            func(m *Message) { m.From.Name = "a\nb" },
		"LF in reply-to":              func(m *Message) { m.ReplyTo = &mail.Address{Name: "a\nb", Address: "c@example.com"} },
		"LF in the id":                func(m *Message) { m.ID = "1\n@example.com" },
		"no recipient":                func(m *Message) { m.To = mail.Address{} },
		"LF in a header":              func(m *Message) { m.Headers = []HeaderField{{"X-A", "a\nb"}} },
		"colon in a header name":      func(m *Message) { m.Headers = []HeaderField{{"X-A: b", "c"}} },
		"no header name":              func(m *Message) { m.Headers = []HeaderField{{"", "c"}} },
		"a header too long to fold":   func(m *Message) { m.Headers = []HeaderField{{"X-A", strings.Repeat("x", 901)}} },
		"a subject longer than lines": func(m *Message) { m.Subject = strings.Repeat("x", 4000) },
	} {
		message := good()
		change(&message)
		if _, err := message.WriteTo(io.Discard); err == nil {
			t.Errorf("%s: written", name)
		}
	}
	message := good()
	if _, err := message.WriteTo(io.Discard); err != nil {
		t.Errorf("a good message: %v", err)
	}
}

// FuzzCompose: whatever a row holds, the mail is one that every receiver reads
// as one mail to one user, or it is refused with a reason.
func FuzzCompose(f *testing.F) {
	for _, row := range sampleRows() {
		f.Add(row.RunID, row.UserID, row.Email, row.Name, row.Locale, row.Subject, row.Briefing)
	}
	composer := testComposer(f, nil)
	f.Fuzz(func(t *testing.T, runID, userID, email, name, locale, subject, text string) {
		row := briefing.Row{RunID: runID, UserID: userID, Email: email, Name: name, Locale: locale,
			Status: briefing.StatusOK, Subject: subject, Briefing: text, GeneratedAt: morning}
		message, err := composer.Compose(row)
		if err != nil {
			checkSendError(t, err)
			return
		}
		var raw bytes.Buffer
		if _, err := message.WriteTo(&raw); err != nil {
			t.Fatalf("composed, but not written: %v", err)
		}
		if fault := soundMail(raw.Bytes(), message, false); fault != "" {
			t.Errorf("%s\n%.3000s", fault, raw.Bytes())
		}
	})
}

// checkSendError holds an error to what callers rely on.
func checkSendError(t *testing.T, err error) *SendError {
	t.Helper()
	var failure *SendError
	if !errors.As(err, &failure) {
		t.Fatalf("error %v is no *SendError", err)
	}
	if failure.Kind < Temporary || failure.Kind > Uncertain || failure.Code == "" {
		t.Fatalf("error %+v has no kind or no code", failure)
	}
	return failure
}
