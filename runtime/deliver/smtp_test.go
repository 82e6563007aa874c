package deliver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/internal/mailpittest"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

// TestSMTPToMailpit sends every sample to a real server and reads all of them
// back as that server understood them.
func TestSMTPToMailpit(t *testing.T) {
	t.Parallel()
	server := mailpittest.Start(t)
	composer := testComposer(t, func(s *Settings) { s.ReplyTo = "Help <help@briefings.example>" })
	sender := testSMTP(t, "smtp://"+server.SMTPAddr, SMTPOptions{})
	ledger := testLedger(t)
	rows := sampleRows()

	var mu sync.Mutex
	codes := map[string]string{}
	stats, err := Deliver(t.Context(), rowsOf(rows), Options{
		Composer: composer, Sender: sender, Ledger: ledger,
		OnOutcome: func(o Outcome) {
			mu.Lock()
			defer mu.Unlock()
			if o.Result != Sent {
				codes[o.UserID] = string(o.Result) + " " + o.Code
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	// Mailpit offers SMTPUTF8, so that an umlaut before the @ gets through too.
	if diff := cmp.Diff(map[string]string{}, codes); diff != "" {
		t.Fatalf("not sent (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Stats{Rows: len(rows), Sent: len(rows)}, stats); diff != "" {
		t.Fatalf("stats (-want +got):\n%s", diff)
	}

	received := map[string]mailpittest.Summary{}
	for _, summary := range server.Messages() {
		if _, twice := received[summary.MessageID]; twice {
			t.Errorf("Message-ID %s came twice", summary.MessageID)
		}
		received[summary.MessageID] = summary
	}
	if len(received) != len(rows) {
		t.Errorf("server holds %d mails, want %d", len(received), len(rows))
	}
	for _, row := range rows {
		want, err := composer.Compose(row)
		if err != nil {
			t.Fatal(err)
		}
		summary, ok := received[want.ID]
		if !ok {
			t.Errorf("%s: the server has no mail %s", row.UserID, want.ID)
			continue
		}
		got := server.Message(summary.ID)
		if got.From.Name != "Morning Desk" || got.From.Address != "desk@briefings.example" {
			t.Errorf("%s: From %v", row.UserID, got.From)
		}
		if got.ReturnPath != "desk@briefings.example" {
			t.Errorf("%s: envelope sender %q", row.UserID, got.ReturnPath)
		}
		// Mailpit keeps the quotes of a local part as if they belonged to it, so
		// the standard library reads the field. For the same reason Mailpit adds
		// a recipient whom it does not find in To as Bcc.
		raw := server.Raw(summary.ID)
		to, bcc := readTo(t, row.UserID, raw), ""
		if diff := cmp.Diff([]*mail.Address{&want.To}, to); diff != "" {
			t.Errorf("%s: To (-want +got):\n%s", row.UserID, diff)
		}
		if strings.HasPrefix(row.Email, `"`) {
			bcc = strings.Trim(envelope(want.To.Address), "<>")
		} else if len(got.To) != 1 || *got.To[0] != want.To {
			t.Errorf("%s: Mailpit reads To as %v, want %v", row.UserID, got.To, want.To)
		}
		if len(got.ReplyTo) != 1 || got.ReplyTo[0].Address != "help@briefings.example" {
			t.Errorf("%s: Reply-To %v", row.UserID, got.ReplyTo)
		}
		if got.Subject != want.Subject {
			t.Errorf("%s: Subject %q, want %q", row.UserID, got.Subject, want.Subject)
		}
		if !got.Date.Equal(morning) {
			t.Errorf("%s: Date %v, want %v", row.UserID, got.Date, morning)
		}
		if len(got.Attachments) != 0 || len(got.Inline) != 0 {
			t.Errorf("%s: %d attachments, %d inline parts", row.UserID, len(got.Attachments), len(got.Inline))
		}
		holdsBriefing(t, row, got.Text, got.HTML)

		unsubscribe := testLinks(t, "https://briefings.example/u/{token}").URL(row)
		if diff := cmp.Diff([]string{unsubscribe}, got.ListUnsubscribe.Links); diff != "" || got.ListUnsubscribe.Errors != "" {
			t.Errorf("%s: List-Unsubscribe %s %s", row.UserID, got.ListUnsubscribe.Errors, diff)
		}
		if got.ListUnsubscribe.HeaderPost != "List-Unsubscribe=One-Click" {
			t.Errorf("%s: List-Unsubscribe-Post %q", row.UserID, got.ListUnsubscribe.HeaderPost)
		}
		headers := server.Headers(summary.ID)
		if got := headers.Get("Bcc"); got != bcc || headers.Get("Cc") != "" {
			t.Errorf("%s: header Bcc %q, Cc %q", row.UserID, got, headers.Get("Cc"))
		}
		text, page := alternatives(t, row.UserID, raw)
		if text != want.Text || page != want.HTML {
			t.Errorf("%s: the parts are not what was composed:\n%s", row.UserID, cmp.Diff(want.Text+want.HTML, text+page))
		}
	}
}

// TestMailChecks lets Mailpit rate the HTML against what mail programs support
// and follow the links.
func TestMailChecks(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	site := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/u/") {
			asked.Add(1)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(site.Close)
	server := mailpittest.Start(t, "--allow-internal-http-requests", "--allow-untrusted-tls")
	sender := testSMTP(t, "smtp://"+server.SMTPAddr, SMTPOptions{})
	row := sampleRows()[0]
	for _, linked := range []bool{true, false} {
		composer := testComposer(t, func(s *Settings) {
			s.UnsubscribeURL = nil
			if linked {
				s.UnsubscribeURL = testLinks(t, site.URL+"/u/{token}").URL
			}
		})
		message, err := composer.Compose(row)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sender.Send(t.Context(), message); err != nil {
			t.Fatal(err)
		}
		id := server.Messages()[0].ID // the newest
		links := server.LinkCheck(id)
		headers := server.Headers(id)
		if linked {
			if links.Errors != 0 || len(links.Links) != 1 || links.Links[0].StatusCode != http.StatusOK || asked.Load() == 0 {
				t.Errorf("links: %+v", links)
			}
			check := server.HTMLCheck(id)
			if check.Total.Nodes == 0 || check.Total.Tests == 0 {
				t.Fatalf("HTML check saw nothing: %+v", check.Total)
			}
			t.Logf("HTML support: %.1f%% full, %.1f%% partial, %.1f%% none", check.Total.Supported, check.Total.Partial, check.Total.Unsupported)
			if check.Total.Supported < 85 || check.Total.Unsupported > 6 {
				t.Errorf("HTML support of %.1f%% (none: %.1f%%), want at least 85%% and at most 6%%", check.Total.Supported, check.Total.Unsupported)
				for _, w := range check.Warnings {
					t.Logf("%s %s: %d nodes", w.Category, w.Title, w.Score.Found)
				}
			}
			continue
		}
		if len(links.Links) != 0 {
			t.Errorf("a mail without unsubscribe URL has links: %+v", links.Links)
		}
		for _, name := range []string{"List-Unsubscribe", "List-Unsubscribe-Post"} {
			if value, ok := headers[name]; ok {
				t.Errorf("a mail without unsubscribe URL has %s: %q", name, value)
			}
		}
		if got := server.Message(id); strings.Contains(got.Text+got.HTML, "Unsubscribe") {
			t.Error("a mail without unsubscribe URL speaks of it")
		}
	}
}

// TestSMTPLogin logs in to a server that wants it.
func TestSMTPLogin(t *testing.T) {
	t.Parallel()
	server := mailpittest.Start(t, "--smtp-auth-accept-any", "--smtp-auth-allow-insecure")
	message := testMessage(t)
	if _, err := testSMTP(t, "smtp://user:p%40ss@"+server.SMTPAddr, SMTPOptions{}).Send(t.Context(), message); err != nil {
		t.Fatal(err)
	}
	if got := len(server.Messages()); got != 1 {
		t.Errorf("server holds %d mails, want 1", got)
	}
}

// TestSMTPReplies tells what each reply means for the mail and the run.
func TestSMTPReplies(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		stage string // the command that is answered
		reply string // by this
		want  *SendError
	}{
		{"accepted", "", "", nil},
		{"busy at the sender", "MAIL", "451 4.3.0 busy", &SendError{Kind: Temporary, Code: "smtp_451", Enhanced: "4.3.0"}},
		{"greylisted", "RCPT", "450 4.2.0 later", &SendError{Kind: Temporary, Code: "smtp_450", Enhanced: "4.2.0"}},
		{"busy at the data", "DATA", "451 wait", &SendError{Kind: Temporary, Code: "smtp_451"}},
		{"disk full after the data", ".", "452 4.3.1 full", &SendError{Kind: Temporary, Code: "smtp_452", Enhanced: "4.3.1"}},
		{"closing down", "RCPT", "421 4.3.2 bye", &SendError{Kind: Temporary, Code: "smtp_421", Enhanced: "4.3.2"}},
		{"no such user", "RCPT", "550 5.1.1 <jane.doe@example.com> unknown", &SendError{Kind: Permanent, Code: "smtp_550", Enhanced: "5.1.1"}},
		{"refused for its content", ".", "554 5.7.1 jane.doe@example.com spam", &SendError{Kind: Permanent, Code: "smtp_554", Enhanced: "5.7.1"}},
		{"sender refused", "MAIL", "550 5.7.1 desk@briefings.example no", &SendError{Kind: Fatal, Code: "smtp_550", Enhanced: "5.7.1"}},
		{"too large", "MAIL", "552 5.3.4 too large", &SendError{Kind: Permanent, Code: "smtp_552", Enhanced: "5.3.4"}},
		{"wants a login", "MAIL", "530 5.7.0 login first", &SendError{Kind: Fatal, Code: CodeAuth, Enhanced: "5.7.0"}},
		{"client refused", "CONNECT", "554 5.7.1 go away", &SendError{Kind: Fatal, Code: "smtp_554", Enhanced: "5.7.1"}},
		{"cut at the sender", "MAIL", cutConnection, &SendError{Kind: Temporary, Code: CodeConnection}},
		{"cut at the data", "DATA", cutConnection, &SendError{Kind: Temporary, Code: CodeConnection}},
		{"cut after the data", ".", cutConnection, &SendError{Kind: Uncertain, Code: CodeUncertain}},
		{"nonsense after the data", ".", "what?", &SendError{Kind: Uncertain, Code: CodeUncertain}},
		{"no answer to the recipient", "RCPT", silent, &SendError{Kind: Temporary, Code: CodeConnection}},
		{"no answer after the data", ".", silent, &SendError{Kind: Uncertain, Code: CodeUncertain}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fake := startFakeSMTP(t, func(command string) string {
				if tc.stage != "" && strings.HasPrefix(command, tc.stage) {
					return tc.reply
				}
				return ""
			})
			options := SMTPOptions{}
			if tc.reply == silent {
				options.CommandTimeout, options.DataTimeout = 300*time.Millisecond, 300*time.Millisecond
			}
			_, err := testSMTP(t, fake.url, options).Send(t.Context(), testMessage(t))
			if tc.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var got *SendError
			if !errors.As(err, &got) {
				t.Fatalf("error %v, want a SendError", err)
			}
			if got.Kind != tc.want.Kind || got.Code != tc.want.Code || got.Enhanced != tc.want.Enhanced {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			holdsNobody(t, err)
		})
	}
}

// TestDeliverThroughFaults runs Deliver against a server with each fault once.
func TestDeliverThroughFaults(t *testing.T) {
	t.Parallel()
	rows := sampleRows()[:8]
	rows[3].Email = "gone@example.com"
	var once sync.Map
	first := func(key string) bool {
		_, seen := once.LoadOrStore(key, true)
		return !seen
	}
	fake := startFakeSMTP(t, func(command string) string {
		switch {
		case strings.Contains(command, "RCPT") && strings.Contains(command, "gone@"):
			return "550 5.1.1 <gone@example.com> nobody of this name"
		case strings.HasPrefix(command, "RCPT") && first("rcpt"):
			return "451 4.7.1 greylisted"
		case strings.HasPrefix(command, "DATA") && first("data"):
			return cutConnection
		case command == "." && first("dot"):
			return "452 4.3.1 full"
		}
		return ""
	})
	stats, err := Deliver(t.Context(), rowsOf(rows), Options{
		Composer: testComposer(t, nil), Sender: testSMTP(t, fake.url, SMTPOptions{}), Ledger: testLedger(t),
		Workers: 1, RetryDelay: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Stats{Rows: 8, Sent: 7, Failed: map[string]int{"smtp_550": 1}}
	if diff := cmp.Diff(want, stats); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	if got := fake.accepted(); got != 7 {
		t.Errorf("server took %d mails, want 7", got)
	}
	// One connection, and a second one for the cut.
	if got := fake.count("CONNECT"); got != 2 {
		t.Errorf("%d connections, want 2", got)
	}
}

// TestUncertainIsNotResent cuts the connection when the server may have taken
// the mail: neither this run nor the next one sends it again.
func TestUncertainIsNotResent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	fake := startFakeSMTP(t, func(command string) string {
		if command == "." {
			return cutConnection
		}
		return ""
	})
	for _, code := range []string{CodeUncertain, codeClaimedBefore} {
		ledger, err := OpenFileLedger(path)
		if err != nil {
			t.Fatal(err)
		}
		var outcomes []Outcome
		stats, err := Deliver(t.Context(), rowsOf(sampleRows()[:1]), Options{
			Composer: testComposer(t, nil), Sender: testSMTP(t, fake.url, SMTPOptions{}), Ledger: ledger,
			RetryDelay: time.Millisecond,
			OnOutcome:  func(o Outcome) { outcomes = append(outcomes, o) },
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Stats{Rows: 1, Unknown: 1}, stats); diff != "" {
			t.Errorf("stats (-want +got):\n%s", diff)
		}
		if len(outcomes) != 1 || outcomes[0].Code != code {
			t.Errorf("outcomes %+v, want one with code %s", outcomes, code)
		}
		if err := ledger.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := fake.count("."); got != 1 {
		t.Errorf("the mail went over the wire %d times, want 1", got)
	}
}

func TestUnreachableServerStopsTheRun(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	ledger := testLedger(t)
	rows := sampleRows()
	stats, err := Deliver(t.Context(), rowsOf(rows), Options{
		Composer: testComposer(t, nil), Sender: testSMTP(t, "smtp://"+address, SMTPOptions{DialAttempts: 2}), Ledger: ledger,
	})
	var failure *SendError
	if !errors.As(err, &failure) || failure.Kind != Fatal || failure.Code != CodeUnreachable {
		t.Fatalf("error %v, want fatal %s", err, CodeUnreachable)
	}
	holdsNobody(t, err)
	if stats.Sent != 0 || stats.Unsent != stats.Rows || stats.Rows == 0 {
		t.Errorf("stats %+v, want all rows unsent", stats)
	}
	// The claims were given back: the next run sends all.
	if sent, open, err := ledger.Counts(); sent != 0 || open != 0 || err != nil {
		t.Errorf("ledger has %d sent, %d open, %v", sent, open, err)
	}
}

// TestIdleConnectionClosed lets the server close a connection between two mails.
func TestIdleConnectionClosed(t *testing.T) {
	t.Parallel()
	var mails atomic.Int32
	fake := startFakeSMTP(t, func(command string) string {
		if strings.HasPrefix(command, "MAIL") && mails.Add(1) == 2 {
			return cutConnection
		}
		return ""
	})
	sender := testSMTP(t, fake.url, SMTPOptions{})
	for range 2 {
		if _, err := sender.Send(t.Context(), testMessage(t)); err != nil {
			t.Fatal(err)
		}
	}
	if connections, accepted := fake.count("CONNECT"), fake.accepted(); connections != 2 || accepted != 2 {
		t.Errorf("%d connections, %d mails, want 2 and 2", connections, accepted)
	}
}

func TestTLSRequired(t *testing.T) {
	t.Parallel()
	fake := startFakeSMTP(t, func(string) string { return "" })
	_, err := testSMTP(t, fake.url+"?tls=required", SMTPOptions{}).Send(t.Context(), testMessage(t))
	var failure *SendError
	if !errors.As(err, &failure) || failure.Kind != Fatal || failure.Code != CodeTLS {
		t.Errorf("error %v, want fatal %s", err, CodeTLS)
	}
	if got := fake.count("MAIL"); got != 0 {
		t.Error("a mail was begun without TLS")
	}
}

// TestWrongPassword stops the run and keeps the password to itself.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	fake := startFakeSMTP(t, func(command string) string {
		switch {
		case strings.HasPrefix(command, "EHLO"):
			return "250-fake\r\n250 AUTH PLAIN"
		case strings.HasPrefix(command, "AUTH"):
			return "535 5.7.8 wrong"
		}
		return ""
	})
	_, err := testSMTP(t, strings.Replace(fake.url, "://", "://user:s3cret@", 1), SMTPOptions{}).Send(t.Context(), testMessage(t))
	var failure *SendError
	if !errors.As(err, &failure) || failure.Kind != Fatal || failure.Code != CodeAuth {
		t.Fatalf("error %v, want fatal %s", err, CodeAuth)
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error tells the password: %v", err)
	}
}

func TestSMTPUTF8IsNeeded(t *testing.T) {
	t.Parallel()
	fake := startFakeSMTP(t, func(string) string { return "" }) // does not offer it
	row := sampleRows()[0]
	row.Email = "jörg@example.com"
	message, err := testComposer(t, nil).Compose(row)
	if err != nil {
		t.Fatal(err)
	}
	_, err = testSMTP(t, fake.url, SMTPOptions{}).Send(t.Context(), message)
	var failure *SendError
	if !errors.As(err, &failure) || failure.Kind != Permanent || failure.Code != CodeSMTPUTF8 {
		t.Errorf("error %v, want permanent %s", err, CodeSMTPUTF8)
	}
	holdsNobody(t, err)
}

func TestNewSMTPRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ url, want string }{
		{"http://mail.example", "scheme"},
		{"mail.example:25", "scheme"},
		{"smtp://", "no host"},
		{"smtp://user@mail.example", "half of its credentials"},
		{"smtp://:hunter2@mail.example", "half of its credentials"},
		{"smtp://user:hunter2/x@mail.example", "does not parse"},
		{"smtp://user:hunter2@mail.example/inbox", "more than a host"},
		{"smtp://user:hunter2@mail.example?tls=maybe", "unknown option"},
		{"smtp://user:hunter2@mail.example?starttls=1", "unknown option"},
		{"smtp://user:hunter2%zz@mail.example", "does not parse"},
	} {
		_, err := NewSMTP(tc.url, SMTPOptions{})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.url, err, tc.want)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error tells the password: %v", tc.url, err)
		}
	}
}

// holdsBriefing looks for every word of the briefing in both parts.
func holdsBriefing(t *testing.T, row briefing.Row, text, page string) {
	t.Helper()
	noSpace := func(s string) string { return strings.Join(strings.Fields(s), "") }
	text, page = noSpace(text), noSpace(html.UnescapeString(page))
	for _, word := range strings.FieldsFunc(bodyText(row.Briefing), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsMark(r)
	}) {
		if !strings.Contains(text, word) {
			t.Errorf("%s: the text lacks %q", row.UserID, word)
		}
		if !strings.Contains(page, word) {
			t.Errorf("%s: the HTML lacks %q", row.UserID, word)
		}
	}
}

// alternatives takes a mail apart with the standard library and fails unless it
// is multipart/alternative of text and HTML, in that order.
func alternatives(t testing.TB, name string, raw []byte) (text, page string) {
	t.Helper()
	message, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	kind, params, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/alternative" {
		t.Fatalf("%s: content type %q, %v", name, kind, err)
	}
	reader := multipart.NewReader(message.Body, params["boundary"])
	var parts []string
	for _, want := range []string{"text/plain", "text/html"} {
		part, err := reader.NextRawPart()
		if err != nil {
			t.Fatalf("%s: part %s: %v", name, want, err)
		}
		kind, params, err := mime.ParseMediaType(part.Header.Get("Content-Type"))
		if err != nil || kind != want || !strings.EqualFold(params["charset"], "utf-8") {
			t.Fatalf("%s: part %q of %v, %v, want %s in UTF-8", name, kind, params, err, want)
		}
		var body io.Reader
		switch encoding := part.Header.Get("Content-Transfer-Encoding"); encoding {
		case "quoted-printable":
			body = quotedprintable.NewReader(part)
		case "base64":
			body = base64.NewDecoder(base64.StdEncoding, part)
		default:
			t.Fatalf("%s: encoding %q", name, encoding)
		}
		content, err := io.ReadAll(body)
		if err != nil {
			t.Fatalf("%s: part %s: %v", name, want, err)
		}
		parts = append(parts, strings.ReplaceAll(string(content), "\r\n", "\n"))
	}
	if _, err := reader.NextRawPart(); err != io.EOF {
		t.Fatalf("%s: a third part, %v", name, err)
	}
	return parts[0], parts[1]
}

// readTo reads the To field of a mail with the standard library.
func readTo(t testing.TB, name string, raw []byte) []*mail.Address {
	t.Helper()
	message, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	to, err := message.Header.AddressList("To")
	if err != nil {
		t.Fatalf("%s: To: %v", name, err)
	}
	return to
}

// holdsNobody fails when the error tells anything of the sample people.
func holdsNobody(t *testing.T, err error) {
	t.Helper()
	for _, secret := range []string{"@", "jane", "Jane", "Doe", "jörg", "gone", "meetings"} {
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the error holds %q: %v", secret, err)
		}
	}
}

func testMessage(t testing.TB) Message {
	t.Helper()
	message, err := testComposer(t, nil).Compose(sampleRows()[0])
	if err != nil {
		t.Fatal(err)
	}
	return message
}

func testSMTP(t testing.TB, url string, options SMTPOptions) *SMTP {
	t.Helper()
	sender, err := NewSMTP(url, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sender.Close() })
	return sender
}

func testLedger(t testing.TB) *FileLedger {
	t.Helper()
	ledger, err := OpenFileLedger(filepath.Join(t.TempDir(), "ledger"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ledger.Close() })
	return ledger
}

// Replies of a fakeSMTP that are none.
const (
	cutConnection = "\x00cut"
	silent        = "\x00silent"
)

// fakeSMTP is a server that answers as a test scripts it.
type fakeSMTP struct {
	url   string
	reply func(command string) string

	mu       sync.Mutex
	commands []string
	taken    int
}

// startFakeSMTP asks reply about every command, "CONNECT" before the greeting
// and "." for the end of a mail included; "" stands for the usual answer.
func startFakeSMTP(t testing.TB, reply func(command string) string) *fakeSMTP {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeSMTP{url: "smtp://" + listener.Addr().String(), reply: reply}
	ctx, cancel := context.WithCancel(context.Background())
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				defer context.AfterFunc(ctx, func() { conn.Close() })()
				f.serve(conn)
			})
		}
	})
	t.Cleanup(func() { cancel(); listener.Close(); conns.Wait() })
	return f
}

func (f *fakeSMTP) serve(conn net.Conn) {
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	// answer tells what was said, "" when the connection is to be closed.
	answer := func(command, usual string) string {
		reply := f.reply(command)
		if reply == "" {
			reply = usual
		}
		f.mu.Lock()
		f.commands = append(f.commands, command)
		if command == "." && reply == usual {
			f.taken++
		}
		f.mu.Unlock()
		switch reply {
		case cutConnection:
			return ""
		case silent:
			for lines.Scan() { // until the client gives up
			}
			return ""
		}
		if _, err := fmt.Fprintf(conn, "%s\r\n", reply); err != nil || strings.HasPrefix(reply, "421") {
			return ""
		}
		return reply
	}
	if answer("CONNECT", "220 fake ESMTP") == "" {
		return
	}
	for lines.Scan() {
		command, usual := lines.Text(), "250 ok"
		switch {
		case strings.HasPrefix(command, "EHLO"):
			usual = "250-fake\r\n250 8BITMIME"
		case command == "DATA":
			usual = "354 go on"
		case command == "QUIT":
			usual = "221 bye"
		}
		reply := answer(command, usual)
		if reply == "" || command == "QUIT" {
			return
		}
		if strings.HasPrefix(reply, "354") {
			for lines.Scan() && lines.Text() != "." {
			}
			if answer(".", "250 2.0.0 taken") == "" {
				return
			}
		}
	}
}

// count tells how many commands began with the prefix.
func (f *fakeSMTP) count(prefix string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, command := range f.commands {
		if strings.HasPrefix(command, prefix) {
			n++
		}
	}
	return n
}

// accepted tells how many mails the server took.
func (f *fakeSMTP) accepted() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.taken
}
