package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/briefing-swarm/briefing-swarm/internal/chromium"
	"github.com/briefing-swarm/briefing-swarm/internal/mailpittest"
	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/deliver"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
	"github.com/briefing-swarm/briefing-swarm/runtime/local"
)

// texts are briefings in several languages; the same user always gets the same.
var texts = []struct{ locale, subject, text string }{
	{"en-US", "Three meetings today", "Good morning. You have three meetings today.\n\n- Review the draft\n- Call back the bank"},
	{"de", "Zwei Termine, und der Zug fällt aus", "Guten Morgen! Heute stehen **zwei Termine** an."},
	{"ar", "ثلاثة اجتماعات اليوم", "صباح الخير. لديك اليوم ثلاثة اجتماعات."},
	{"ja", "本日の会議は三件です", "おはようございます。本日の会議は三件です。"},
	{"", "<script>alert(1)</script>", "<img src=https://evil.example/x.png> & {{.Name}}"},
}

// mailRow is user i of a run. Of twenty users one has no briefing, one no
// address, and two share one.
func mailRow(run string, i int) briefing.Row {
	t := texts[i%len(texts)]
	row := briefing.Row{
		RunID: run, UserID: fmt.Sprintf("user-%04d", i), Email: fmt.Sprintf("u%d+daily@example.com", i), Name: fmt.Sprintf("Üser %d", i), Locale: t.locale,
		Status: briefing.StatusOK, Subject: t.subject, Briefing: t.text, GeneratedAt: time.Date(2026, time.November, 30, 7, 0, 0, 0, time.UTC),
	}
	switch i % 20 {
	case 4:
		row.Status, row.Briefing, row.ErrorCode = briefing.StatusFailed, "", "prompt_too_long"
	case 9:
		row.Email = ""
	case 15:
		row.Email = fmt.Sprintf("u%d+daily@example.com", i-1)
	}
	return row
}

// mailable tells whether a user gets a mail.
func mailable(row briefing.Row) bool { return row.Status == briefing.StatusOK && row.Email != "" }

// briefings writes a folder as `swarm run` leaves it.
func briefings(t testing.TB, run string, users int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	sink, err := gather.OpenParquetDir(filepath.Join(dir, local.BriefingsDir), gather.ParquetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range users {
		if err := sink.Write(mailRow(run, i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := sink.Flush(); err != nil {
		t.Fatal(err)
	}
	return dir
}

const newsletter = "Morning Desk <desk@briefings.example>"

// TestDeliver500 sends 500 users' briefings to a real mail server, reads all of
// them back, and looks at some in a browser.
func TestDeliver500(t *testing.T) {
	const users = 500
	t.Setenv(unsubscribeKeyEnv, "a key of 32 bytes, for tests only")
	dir := briefings(t, "run-500", users)
	server := mailpittest.Start(t)
	args := []string{"deliver", dir, "--to", "smtp://" + server.SMTPAddr, "--from", newsletter, "--reply-to", "help@briefings.example", "--locale", "fr",
		"--unsubscribe-url", "https://briefings.example/u/{token}", "--unsubscribe-mailto", "stop@briefings.example"}
	code, stdout, stderr := swarm(t, args...)
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	golden(t, "deliver/500.txt", stdout)

	subjects := map[string][]string{} // by address
	want := 0
	for i := range users {
		if row := mailRow("run-500", i); mailable(row) {
			want++
			subjects[row.Email] = append(subjects[row.Email], row.Subject)
		}
	}
	messages := server.Messages()
	if len(messages) != want {
		t.Fatalf("the server holds %d mails, want %d", len(messages), want)
	}
	for _, summary := range messages {
		m := server.Message(summary.ID)
		if len(m.To) != 1 || m.From.Address != "desk@briefings.example" || len(m.ReplyTo) != 1 || m.ReplyTo[0].Address != "help@briefings.example" {
			t.Fatalf("mail from %v to %v, reply to %v", m.From, m.To, m.ReplyTo)
		}
		if !take(subjects, m.To[0].Address, m.Subject) {
			t.Errorf("a mail %q to somebody who should get none, or a second one", m.Subject)
		}
		if m.ListUnsubscribe.Errors != "" || m.ListUnsubscribe.HeaderPost != "List-Unsubscribe=One-Click" || len(m.ListUnsubscribe.Links) != 2 {
			t.Errorf("List-Unsubscribe %+v", m.ListUnsubscribe)
		}
		if len(m.Attachments)+len(m.Inline) > 0 || m.Text == "" || m.HTML == "" {
			t.Errorf("parts: %d attachments, %d inline, %d bytes of text, %d of HTML", len(m.Attachments), len(m.Inline), len(m.Text), len(m.HTML))
		}
		headers := server.Headers(summary.ID)
		if headers.Get("Auto-Submitted") != "auto-generated" || headers.Get("Bcc")+headers.Get("Cc") != "" || !strings.HasPrefix(headers.Get("Content-Type"), "multipart/alternative") {
			t.Errorf("headers %v", headers)
		}
	}
	lookAt(t, server, messages[:len(texts)*2])

	// The same again sends nothing.
	code, stdout, _ = swarm(t, args...)
	if code != 0 || len(server.Messages()) != want {
		t.Errorf("again: exit code %d, %d mails", code, len(server.Messages()))
	}
	golden(t, "deliver/500-again.txt", stdout)
}

// take removes one of the subjects that an address is to get.
func take(subjects map[string][]string, address, subject string) bool {
	for i, s := range subjects[address] {
		if s == subject {
			subjects[address] = append(subjects[address][:i:i], subjects[address][i+1:]...)
			return true
		}
	}
	return false
}

// lookAt opens mails as the server has them, on a phone and on a desktop.
func lookAt(t *testing.T, server *mailpittest.Server, messages []mailpittest.Summary) {
	t.Helper()
	page := chromium.Open(t)
	dir := t.TempDir()
	for i, summary := range messages {
		m := server.Message(summary.ID)
		if check := server.HTMLCheck(summary.ID); check.Total.Supported < 85 || check.Total.Unsupported > 6 {
			t.Errorf("mail programs support %.1f%% of the HTML, and not %.1f%%", check.Total.Supported, check.Total.Unsupported)
		}
		file := filepath.Join(dir, fmt.Sprint(i, ".html"))
		if err := os.WriteFile(file, []byte(m.HTML), 0o600); err != nil {
			t.Fatal(err)
		}
		page.Navigate(file)
		for _, view := range []struct {
			width, height int
			mobile        bool
		}{{390, 844, true}, {1280, 800, false}} {
			page.SetViewport(view.width, view.height, view.mobile)
			if pixels, elements := page.HorizontalOverflow(); pixels != 0 {
				t.Errorf("mail %q at %d px is %d px too wide: %q", m.Subject, view.width, pixels, elements)
			}
			if got := page.ExternalRequests(); len(got) != 0 {
				t.Errorf("mail %q asks for %q", m.Subject, got)
			}
			if got := page.ConsoleErrors(); len(got) != 0 {
				t.Errorf("mail %q: console errors %q", m.Subject, got)
			}
		}
	}
}

func TestDeliverDryRun(t *testing.T) {
	dir := briefings(t, "run-dry", 40)
	for _, to := range []string{"smtp://127.0.0.1:1", "eml"} { // nobody listens there
		code, stdout, stderr := swarm(t, "deliver", dir, "--to", to, "--from", newsletter, "--dry-run", "--rate", "1", "--at", "00:00")
		if code != 0 {
			t.Fatalf("%s: exit code %d\n%s", to, code, stderr)
		}
		golden(t, "deliver/dry-run.txt", stdout)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("a dry run left %v, %v", entries, err)
	}
}

func TestDeliverEML(t *testing.T) {
	dir := briefings(t, "run-eml", 40)
	code, stdout, stderr := swarm(t, "deliver", dir, "--to", "eml", "--from", newsletter)
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	mails, err := filepath.Glob(filepath.Join(dir, local.MailDir, "*.eml"))
	if err != nil || len(mails) != 36 {
		t.Errorf("%d mails, %v\n%s", len(mails), err, stdout)
	}
	out := filepath.Join(t.TempDir(), "elsewhere")
	parts, err := gather.Parts(filepath.Join(dir, local.BriefingsDir))
	if err != nil || len(parts) != 1 {
		t.Fatalf("parts %v, %v", parts, err)
	}
	if code, _, stderr := swarm(t, "deliver", parts[0], "--to", "eml", "--from", newsletter, "--out", out); code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	if mails, err := filepath.Glob(filepath.Join(out, "*.eml")); err != nil || len(mails) != 36 {
		t.Errorf("%d mails of one file, %v", len(mails), err)
	}
}

// TestDeliverUnknown plays a process that claimed and vanished: its users are
// listed, and mailed only where an operator says so.
func TestDeliverUnknown(t *testing.T) {
	dir := briefings(t, "run-unknown", 20)
	server := mailpittest.Start(t)
	ledger, err := deliver.OpenFileLedger(filepath.Join(dir, local.LedgerName))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Claim(t.Context(), []deliver.Key{{RunID: "run-unknown", UserID: "user-0002"}, {RunID: "run-unknown", UserID: "user-0007"}}); err != nil {
		t.Fatal(err)
	}
	if err := ledger.Close(); err != nil {
		t.Fatal(err)
	}
	opted := filepath.Join(t.TempDir(), "opted-out.txt")
	if err := os.WriteFile(opted, []byte("user-0001\nuser-0010\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, unknownName)
	for _, step := range []struct {
		name  string
		more  []string
		mails int
		list  int
	}{
		{"first", nil, 14, 2},
		{"again", nil, 14, 2},
		{"preview", []string{"--dry-run"}, 14, 2},
		{"preview-retry", []string{"--retry-unknown", "--dry-run"}, 14, 2},
		{"retry", []string{"--retry-unknown"}, 16, 0},
		{"retry-again", []string{"--retry-unknown"}, 16, 0},
	} {
		args := append([]string{"deliver", dir, "--to", "smtp://" + server.SMTPAddr, "--from", newsletter, "--suppressed", opted}, step.more...)
		code, stdout, stderr := swarm(t, args...)
		if code != 0 {
			t.Fatalf("%s: exit code %d\n%s", step.name, code, stderr)
		}
		golden(t, "deliver/unknown-"+step.name+".txt", strings.ReplaceAll(stdout, dir, "DIR"))
		if n := len(server.Messages()); n != step.mails {
			t.Errorf("%s: %d mails, want %d", step.name, n, step.mails)
		}
		text, err := os.ReadFile(list)
		if step.list == 0 {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: there is a list of nothing: %s, %v", step.name, text, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		var first struct {
			RunID  string `json:"run_id"`
			UserID string `json:"user_id"`
			Code   string
		}
		if err := json.Unmarshal(lines[0], &first); err != nil || len(lines) != step.list || first.RunID != "run-unknown" || first.UserID != "user-0002" || first.Code == "" {
			t.Errorf("%s: list %q, %v", step.name, lines, err)
		}
	}
}

// tap passes connections on to a server and keeps what clients say.
type tap struct {
	mu   sync.Mutex
	said bytes.Buffer
}

func (p *tap) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(b)
}

// count returns how often clients said a line.
func (p *tap) count(line string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Count(p.said.String(), line+"\r\n")
}

// startTap returns a tap and its address.
func startTap(t *testing.T, to string) (p *tap, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	p = &tap{}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			go func() {
				io.Copy(client, server)
				client.Close()
			}()
			go func() {
				io.Copy(io.MultiWriter(server, p), client)
				server.Close()
			}()
		}
	}()
	return p, listener.Addr().String()
}

// TestGoodbye: the connections to a mail server end with a QUIT each, after a
// run as after a delivery.
func TestGoodbye(t *testing.T) {
	t.Parallel()
	server := mailpittest.Start(t)
	dir := briefings(t, "run-bye", 20)
	p, address := startTap(t, server.SMTPAddr)
	if code, _, stderr := swarm(t, "deliver", dir, "--to", "smtp://"+address, "--from", newsletter); code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	if opened, ended := p.count("DATA"), p.count("QUIT"); opened != 18 || ended == 0 || ended > 4 {
		t.Errorf("a delivery of %d mails said goodbye %d times", opened, ended)
	}
	p, address = startTap(t, server.SMTPAddr)
	mustRun(t, "--input", example("users.csv"), "--out", filepath.Join(t.TempDir(), "out"), "--items", "5", "--mail", "smtp://"+address)
	if p.count("DATA") == 0 || p.count("QUIT") == 0 {
		t.Errorf("a run of %d mails said goodbye %d times", p.count("DATA"), p.count("QUIT"))
	}
}

// TestDeliverSES sends the rows of a file from Firehose through SES, with the
// ledger that the deployed delivery has.
func TestDeliverSES(t *testing.T) {
	front := mototest.NewFront(t, mototest.Start(t))
	clients := mototest.Clients(t, front.URL)
	mototest.Sender(t, clients, "briefings.example")
	mototest.Sender(t, clients, "desk@briefings.example")
	mototest.LedgerTable(t, clients, "ledger")
	front.SetAccount(mototest.Account{MaxSendRate: 100, Max24HourSend: 1000, SentLast24Hours: 990})
	var rows []briefing.Row
	for i := range 20 {
		rows = append(rows, mailRow("run-ses", i))
	}
	file := filepath.Join(t.TempDir(), "part.parquet")
	if err := os.WriteFile(file, mototest.Converted(t, rows), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := deliver.NewDynamoOptOuts(clients.DynamoDB, "ledger").Add(t.Context(), "user-0001"); err != nil {
		t.Fatal(err)
	}
	for i, to := range []string{"ses", "ses-bulk"} {
		code, stdout, stderr := swarm(t, "deliver", file, "--to", to, "--from", newsletter, "--ledger-table", "ledger")
		if code != 0 {
			t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
		}
		if !strings.Contains(stderr, "20 rows at 90 mails/s (90 % of the account's 100/s)") || !strings.Contains(stderr, "may send 10 more mails") {
			t.Errorf("it does not say how fast it sends, or that it can't send all: %s", stderr)
		}
		golden(t, fmt.Sprintf("deliver/ses-%d.txt", i+1), stdout)
	}
	if n := len(front.Mails()); n != 17 {
		t.Errorf("SES took %d mails, want 17", n)
	}
	front.SetAccount(mototest.Account{MaxSendRate: 100, Max24HourSend: 1000, Paused: true})
	code, _, stderr := swarm(t, "deliver", file, "--to", "ses", "--from", newsletter, "--ledger-table", "ledger")
	if code != exitFault || !strings.Contains(stderr, "paused") {
		t.Errorf("exit code %d for a paused account: %s", code, stderr)
	}
}

// TestDeliverWaits holds the mails for a time of day and is interrupted.
func TestDeliverWaits(t *testing.T) {
	dir := briefings(t, "run-wait", 5)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var out, said bytes.Buffer
	root := newRootCmd()
	root.SetOut(&out)
	root.SetErr(&said)
	at := time.Now().UTC().Add(2 * time.Hour).Format("15:04")
	root.SetArgs([]string{"deliver", dir, "--to", "smtp://127.0.0.1:1", "--from", newsletter, "--at", at})
	if code := run(ctx, root); code != exitInterrupted {
		t.Errorf("exit code %d\n%s", code, said.String())
	}
	if !strings.Contains(said.String(), "waiting for") || !strings.Contains(said.String(), at+" UTC") || !strings.Contains(said.String(), "before anything was sent") {
		t.Errorf("it said %q", said.String())
	}
}

func TestDeliverUsageFaultsAreNamedAtOnce(t *testing.T) {
	t.Setenv(unsubscribeKeyEnv, "short")
	code, stdout, stderr := swarm(t, "deliver", "absent", "--to", "ftp://localhost", "--rate", "-1", "--at", "8", "--time-zone", "Mars/Olympus", "--ledger", "a", "--ledger-table", "b",
		"--ledger-days", "0", "--out", "c", "--configuration-set", "d", "--suppressed", "absent.txt", "--locale", "?", "--subject-template", "absent.tmpl",
		"--unsubscribe-url", "https://example.com/{token}")
	if code != exitUsage || stdout != "" {
		t.Errorf("exit code %d, stdout %q", code, stdout)
	}
	golden(t, "deliver/usage-faults.txt", stderr)
	empty := t.TempDir()
	for _, args := range [][]string{{"deliver"}, {"deliver", "a", "b"}, {"deliver", empty, "--to", "eml"}, {"deliver", briefings(t, "r", 1), "--to", "eml", "--from", "nobody"}} {
		if code, _, stderr := swarm(t, args...); code != exitUsage || stderr == "" {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
}
