package deliver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/mail"
	"net/textproto"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"
)

// SMTPOptions tune an SMTP sender. Zero values stand for the defaults.
type SMTPOptions struct {
	// Hello is the name given in EHLO; "" for the name of this machine.
	Hello string
	// DialTimeout bounds a connection up to the end of the login; 20 s.
	DialTimeout time.Duration
	// CommandTimeout bounds MAIL, RCPT and DATA together; 60 s.
	CommandTimeout time.Duration
	// DataTimeout bounds the transmission and the server's final answer; 5 min,
	// since giving up early leaves a mail whose fate is unknown (RFC 5321, 4.5.3.2).
	DataTimeout time.Duration
	// DialAttempts is how often a connection is tried before the server counts
	// as unreachable, which ends the run; 3.
	DialAttempts int
	// IdleConnections is how many open connections are kept for the next mail; 16.
	IdleConnections int
	// TLS is for servers with a certificate of their own; nil for the system's rules.
	TLS *tls.Config
}

// SMTP is a Sender to a mail server. Connections are kept and used again; each
// carries one mail at a time, so there are as many as callers of Send.
type SMTP struct {
	host, port     string
	user, password string
	implicitTLS    bool
	policy         gomail.TLSPolicy
	options        SMTPOptions

	mu     sync.Mutex
	idle   []*smtp.Client
	closed bool
}

// NewSMTP takes smtp://[user:password@]host[:port], which switches to TLS when
// the server offers it (port 587), or smtps://..., which is TLS from the start
// (port 465). smtp://...?tls=required refuses a server without TLS. Credentials
// travel unencrypted to this machine only. Nothing is dialled yet. The errors do
// not quote the URL, since it can hold a password.
func NewSMTP(rawURL string, options SMTPOptions) (*SMTP, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("SMTP URL does not parse: write smtp://host:port, special characters of a password as %XX")
	}
	s := &SMTP{host: u.Hostname(), port: u.Port(), options: options}
	switch u.Scheme {
	case "smtp":
		s.policy = gomail.TLSOpportunistic
		s.port = cmp.Or(s.port, "587")
	case "smtps":
		// The dialer encrypts already; the policy lets go-mail look and see that.
		s.implicitTLS = true
		s.policy = gomail.TLSOpportunistic
		s.port = cmp.Or(s.port, "465")
	default:
		return nil, fmt.Errorf("SMTP URL has scheme %q: want smtp or smtps", u.Scheme)
	}
	if s.host == "" {
		return nil, errors.New("SMTP URL has no host: write smtp://host:port")
	}
	if u.Path != "" && u.Path != "/" || u.Fragment != "" {
		return nil, errors.New("SMTP URL has more than a host and a port: special characters of a password are written as %XX")
	}
	for name, values := range u.Query() {
		if name != "tls" || len(values) != 1 || values[0] != "required" {
			return nil, errors.New("SMTP URL has an unknown option: the only one is tls=required")
		}
		if !s.implicitTLS {
			s.policy = gomail.TLSMandatory
		}
	}
	if u.User != nil {
		s.user = u.User.Username()
		s.password, _ = u.User.Password()
		if s.user == "" || s.password == "" {
			return nil, errors.New("SMTP URL has half of its credentials: write smtp://user:password@host:port")
		}
	}
	defaults := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	defaults(&s.options.DialTimeout, 20*time.Second)
	defaults(&s.options.CommandTimeout, 60*time.Second)
	defaults(&s.options.DataTimeout, 5*time.Minute)
	if s.options.DialAttempts <= 0 {
		s.options.DialAttempts = 3
	}
	if s.options.IdleConnections <= 0 {
		s.options.IdleConnections = 16
	}
	return s, nil
}

// Close says goodbye on the connections that are kept. A Send that is under way
// ends by itself.
func (s *SMTP) Close() error {
	s.mu.Lock()
	idle := s.idle
	s.idle, s.closed = nil, true
	s.mu.Unlock()
	for _, client := range idle {
		_ = client.UpdateDeadline(time.Second)
		if client.Quit() != nil {
			_ = client.Close()
		}
	}
	return nil
}

// Send transmits the message and returns its Message-ID once the server took
// responsibility for it.
func (s *SMTP) Send(ctx context.Context, message Message) (string, error) {
	var raw bytes.Buffer
	if _, err := message.WriteTo(&raw); err != nil {
		return "", &SendError{Kind: Permanent, Code: CodeMessage, Err: err}
	}
	for {
		client, reused, err := s.connection(ctx)
		if err != nil {
			return "", err
		}
		keep, failure := s.transact(client, &message, raw.Bytes())
		if keep {
			s.put(client)
		} else {
			_ = client.Close()
		}
		if failure == nil {
			return message.ID, nil
		}
		// A server closes a connection that was idle for long. That shows
		// when it is used again and says nothing about this mail, so there
		// is no wait before the next one; a fresh connection ends the loop.
		if reused && failure.Code == CodeConnection {
			continue
		}
		return "", failure
	}
}

// transact sends one mail on a connection and tells whether that can be used
// for another.
func (s *SMTP) transact(client *smtp.Client, message *Message, raw []byte) (keep bool, failure *SendError) {
	broken := &SendError{Kind: Temporary, Code: CodeConnection}
	if client.UpdateDeadline(s.options.CommandTimeout) != nil {
		return false, broken
	}
	needsUTF8 := needsSMTPUTF8(message.To.Address)
	if offered, _ := client.Extension("SMTPUTF8"); needsUTF8 && !offered {
		return true, &SendError{Kind: Permanent, Code: CodeSMTPUTF8}
	}
	// Asked for only where it must be: a relay may refuse to pass such mail on.
	client.SkipSMTPUTF8(!needsUTF8)

	// fail tells apart a reply, after which the connection can go on, from a
	// broken connection.
	fail := func(err error, permanent Kind) (bool, *SendError) {
		failure := replyError(err, permanent)
		if failure == nil {
			return false, broken
		}
		return failure.Code != "smtp_421" && client.Reset() == nil, failure
	}
	if err := client.Mail(envelope(message.From.Address)); err != nil {
		// The sender is the same for everybody.
		return fail(err, Fatal)
	}
	if err := client.Rcpt(envelope(message.To.Address)); err != nil {
		return fail(err, Permanent)
	}
	writer, err := client.Data()
	if err != nil {
		return fail(err, Permanent)
	}
	if client.UpdateDeadline(s.options.DataTimeout) != nil {
		return false, broken
	}
	if _, err := writer.Write(raw); err != nil {
		// The end of the mail was not sent, and without it no server may deliver.
		return false, broken
	}
	if err := writer.Close(); err != nil {
		failure := replyError(err, Permanent)
		if failure == nil {
			return false, &SendError{Kind: Uncertain, Code: CodeUncertain}
		}
		return failure.Code != "smtp_421" && client.Reset() == nil, failure
	}
	return true, nil
}

// envelope writes an address for MAIL and RCPT: quoted where it must be, in
// angle brackets.
func envelope(address string) string {
	return (&mail.Address{Address: address}).String()
}

var enhancedStatus = regexp.MustCompile(`^[245]\.\d{1,3}\.\d{1,3}\b`)

// replyError classifies a server's reply. It returns nil when err is none, so
// the connection broke.
func replyError(err error, permanent Kind) *SendError {
	var reply *textproto.Error
	if !errors.As(err, &reply) {
		return nil
	}
	failure := &SendError{
		Kind:     Temporary,
		Code:     "smtp_" + strconv.Itoa(reply.Code),
		Enhanced: enhancedStatus.FindString(reply.Msg),
	}
	switch {
	case reply.Code >= 400 && reply.Code < 500:
	case reply.Code == 530 || reply.Code == 534 || reply.Code == 535 || reply.Code == 538:
		// Authentication is required, failed or too weak: nobody's mail goes out.
		failure.Kind, failure.Code = Fatal, CodeAuth
		failure.Err = errors.New("the server wants a login or refused the one it got: check user and password of the SMTP URL")
	case reply.Code == 552 || reply.Code == 555:
		// Too large, or a parameter the server does not know: about this mail.
		failure.Kind = Permanent
	case reply.Code >= 500:
		failure.Kind = permanent
		if permanent == Fatal {
			failure.Err = errors.New("the server refuses the sender or this client, whoever the mail is for")
		}
	}
	return failure
}

// connection returns an idle connection or a new one.
func (s *SMTP) connection(ctx context.Context) (client *smtp.Client, reused bool, err error) {
	s.mu.Lock()
	if n := len(s.idle); n > 0 {
		client = s.idle[n-1]
		s.idle = s.idle[:n-1]
	}
	s.mu.Unlock()
	if client != nil {
		return client, true, nil
	}
	for attempt := 1; ; attempt++ {
		client, err = s.dial(ctx)
		if err == nil {
			return client, false, nil
		}
		failure := dialError(err)
		if failure.Code != CodeUnreachable {
			return nil, false, failure
		}
		if ctx.Err() != nil {
			return nil, false, &SendError{Kind: Temporary, Code: CodeConnection, Err: ctx.Err()}
		}
		if attempt >= s.options.DialAttempts {
			failure.Kind = Fatal
			return nil, false, failure
		}
		select {
		case <-ctx.Done():
			return nil, false, &SendError{Kind: Temporary, Code: CodeConnection, Err: ctx.Err()}
		case <-time.After(jitter(500 * time.Millisecond << (attempt - 1))):
		}
	}
}

// put keeps a connection for the next mail.
func (s *SMTP) put(client *smtp.Client) {
	s.mu.Lock()
	keep := !s.closed && len(s.idle) < s.options.IdleConnections
	if keep {
		s.idle = append(s.idle, client)
	}
	s.mu.Unlock()
	if !keep {
		_ = client.UpdateDeadline(time.Second)
		if client.Quit() != nil {
			_ = client.Close()
		}
	}
}

// dial connects, switches to TLS and logs in.
func (s *SMTP) dial(ctx context.Context) (*smtp.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.options.TLS != nil {
		config = s.options.TLS.Clone()
	}
	if config.ServerName == "" {
		config.ServerName = s.host
	}
	port, err := strconv.Atoi(s.port)
	if err != nil {
		return nil, err
	}
	// go-mail forgets the connection when the greeting or the login fails.
	var conn net.Conn
	options := []gomail.Option{
		gomail.WithPort(port),
		gomail.WithTimeout(s.options.DialTimeout),
		gomail.WithTLSConfig(config),
		gomail.WithTLSPolicy(s.policy),
		gomail.WithDialContextFunc(func(ctx context.Context, network, address string) (net.Conn, error) {
			var err error
			if s.implicitTLS {
				conn, err = (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
			} else {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			}
			return conn, err
		}),
	}
	if s.options.Hello != "" {
		options = append(options, gomail.WithHELO(s.options.Hello))
	}
	if s.user != "" {
		options = append(options, gomail.WithUsername(s.user), gomail.WithPassword(s.password))
		if isLoopback(s.host) {
			options = append(options, gomail.WithOpportunisticSMTPAuth(
				gomail.SMTPAuthSCRAMSHA256, gomail.SMTPAuthSCRAMSHA1, gomail.SMTPAuthCramMD5,
				gomail.SMTPAuthPlainNoEnc, gomail.SMTPAuthLoginNoEnc))
		} else {
			options = append(options, gomail.WithSMTPAuth(gomail.SMTPAuthAutoDiscover))
		}
	}
	dialer, err := gomail.NewClient(s.host, options...)
	if err != nil {
		return nil, err
	}
	client, err := dialer.DialToSMTPClientWithContext(ctx)
	if err != nil && conn != nil {
		conn.Close()
	}
	return client, err
}

// dialError classifies what went wrong before a connection was ready.
func dialError(err error) *SendError {
	if failure := replyError(err, Fatal); failure != nil {
		if failure.Kind == Permanent {
			failure.Kind = Fatal // nothing is about one mail yet
		}
		return failure
	}
	var (
		certificate *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError
		hostname    x509.HostnameError
		record      tls.RecordHeaderError
		alert       tls.AlertError
	)
	switch {
	case errors.As(err, &certificate), errors.As(err, &authority), errors.As(err, &hostname),
		errors.As(err, &record), errors.As(err, &alert):
		return &SendError{Kind: Fatal, Code: CodeTLS, Err: err}
	}
	var network net.Error
	var dns *net.DNSError
	if errors.As(err, &network) || errors.As(err, &dns) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &SendError{Kind: Temporary, Code: CodeUnreachable, Err: err}
	}
	if strings.Contains(err.Error(), "STARTTLS") {
		return &SendError{Kind: Fatal, Code: CodeTLS, Err: errors.New("the server does not offer STARTTLS, which tls=required asks for")}
	}
	return &SendError{Kind: Fatal, Code: CodeAuth, Err: errors.New(
		"the server offers no login that is safe on this connection: credentials are not sent unencrypted to another machine")}
}

// isLoopback tells whether the host is this machine, by its name alone.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// jitter returns a time between half of d and d, so that many who wait do not
// all come back at once.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}
