// Package mailpittest runs a real Mailpit, an SMTP server that keeps what it is
// sent, and reads the mails back through its API. Every server has its own
// ports on the loopback address, its own empty store, and ends with its test.
package mailpittest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/mail"
	"net/textproto"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/briefing-swarm/briefing-swarm/internal/buildtool"
	"github.com/briefing-swarm/briefing-swarm/internal/said"
)

// startTimeout bounds the start of a server, which takes 200 ms when the
// machine has nothing else to do.
const startTimeout = 30 * time.Second

// Server is one running Mailpit.
type Server struct {
	t testing.TB

	// SMTPAddr is host:port for mail, URL the root of the API and pages.
	SMTPAddr string
	URL      string
}

// Start runs a server and returns once it takes mail. Extra arguments are
// passed on, such as "--smtp-auth-file" or "--smtp-tls-cert". The test ends
// when Mailpit cannot be had or does not start; the error says what to do.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	program := buildtool.Path(t, "mailpit")
	// A port found free can be taken by somebody else before Mailpit binds it.
	var failure string
	for range 3 {
		server, output, ok := start(t, program, args)
		if ok {
			return server
		}
		failure = output
	}
	t.Fatalf("mailpit did not start; it said:\n%s", failure)
	return nil
}

func start(t testing.TB, program string, args []string) (server *Server, output string, ok bool) {
	t.Helper()
	smtpAddr, httpAddr := freeAddr(t), freeAddr(t)
	var said said.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, append([]string{
		"--smtp", smtpAddr,
		"--listen", httpAddr,
		"--database", filepath.Join(t.TempDir(), "mailpit.db"),
		"--max", "0", // keep all
		"--disable-version-check",
		"--smtp-disable-rdns",
	}, args...)...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatalf("start mailpit: %v", err)
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	t.Cleanup(func() { cancel(); <-exited })

	s := &Server{t: t, SMTPAddr: smtpAddr, URL: "http://" + httpAddr}
	deadline := time.Now().Add(startTimeout)
	for time.Now().Before(deadline) {
		select {
		case <-exited:
			return nil, said.String(), false
		case <-time.After(20 * time.Millisecond):
		}
		if s.ready() {
			return s, "", true
		}
	}
	return nil, said.String(), false
}

// ready tells whether both ports answer; Mailpit's own readiness covers the
// API alone.
func (s *Server) ready() bool {
	response, err := http.Get(s.URL + "/readyz")
	if err != nil {
		return false
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return false
	}
	conn, err := net.DialTimeout("tcp", s.SMTPAddr, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

func freeAddr(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("find a free port: %v", err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// Summary is one mail in the list of what the server holds.
type Summary struct {
	ID        string
	MessageID string
	Subject   string
	To        []*mail.Address
}

// Message is one mail as Mailpit understood it.
type Message struct {
	ID              string
	MessageID       string
	From            *mail.Address
	To              []*mail.Address
	ReplyTo         []*mail.Address
	ReturnPath      string
	Subject         string
	Date            time.Time
	Text            string
	HTML            string
	Size            int
	Inline          []json.RawMessage
	Attachments     []json.RawMessage
	ListUnsubscribe struct {
		Header     string
		HeaderPost string
		Links      []string
		Errors     string // what Mailpit holds against the header, "" when it is sound
	}
}

// HTMLCheck is what Mailpit knows about the support of a mail's HTML and CSS
// in mail programs.
type HTMLCheck struct {
	Warnings []struct {
		Slug, Title, Category string
		Score                 struct{ Found int }
	}
	Total struct {
		Tests, Nodes                    int
		Supported, Partial, Unsupported float64 // percent, weighted
	}
}

// LinkCheck is what became of the links of a mail when Mailpit followed them.
type LinkCheck struct {
	Errors int
	Links  []struct {
		URL        string
		StatusCode int
		Status     string
	}
}

// Messages returns all mails the server holds, newest first.
func (s *Server) Messages() []Summary {
	s.t.Helper()
	var all []Summary
	for {
		var page struct {
			Total    int       `json:"total"`
			Messages []Summary `json:"messages"`
		}
		s.get("/api/v1/messages?limit=500&start="+strconv.Itoa(len(all)), &page)
		all = append(all, page.Messages...)
		if len(page.Messages) == 0 || len(all) >= page.Total {
			return all
		}
	}
}

// Message returns the mail with the ID of a Summary.
func (s *Server) Message(id string) Message {
	s.t.Helper()
	var message Message
	s.get("/api/v1/message/"+url.PathEscape(id), &message)
	return message
}

// Raw returns the mail's bytes as they were received, after the trace headers
// that Mailpit puts before them.
func (s *Server) Raw(id string) []byte {
	s.t.Helper()
	return s.fetch("/api/v1/message/" + url.PathEscape(id) + "/raw")
}

// Headers returns the mail's header fields.
func (s *Server) Headers(id string) textproto.MIMEHeader {
	s.t.Helper()
	var headers map[string][]string
	s.get("/api/v1/message/"+url.PathEscape(id)+"/headers", &headers)
	return headers
}

// HTMLCheck rates the mail's HTML against what mail programs support.
func (s *Server) HTMLCheck(id string) HTMLCheck {
	s.t.Helper()
	var check HTMLCheck
	s.get("/api/v1/message/"+url.PathEscape(id)+"/html-check", &check)
	return check
}

// LinkCheck follows every link of the mail with a HEAD request. Links to this
// machine need the server started with "--allow-internal-http-requests", and
// "--allow-untrusted-tls" for a test's own certificate.
func (s *Server) LinkCheck(id string) LinkCheck {
	s.t.Helper()
	var check LinkCheck
	s.get("/api/v1/message/"+url.PathEscape(id)+"/link-check", &check)
	return check
}

func (s *Server) get(path string, value any) {
	s.t.Helper()
	if err := json.Unmarshal(s.fetch(path), value); err != nil {
		s.t.Fatalf("mailpit %s: %v", path, err)
	}
}

func (s *Server) fetch(path string) []byte {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatalf("mailpit %s: %v", path, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s: %s", response.Status, bytes.TrimSpace(body))
	}
	if err != nil {
		s.t.Fatalf("mailpit %s: %v", path, err)
	}
	return body
}
