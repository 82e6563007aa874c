package deliver

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/mail"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"
)

// Message is one mail, ready for any Sender. Its header values hold no control
// characters and its addresses have ASCII domains; WriteTo refuses a Message
// that breaks this, whoever made it.
type Message struct {
	// RunID and UserID say whose briefing this is. They are not written into the mail.
	RunID, UserID string

	// ID is the Message-ID without its angle brackets. The same run and user
	// always give the same ID, so that a receiver can tell a repetition.
	ID string

	From    mail.Address
	To      mail.Address
	ReplyTo *mail.Address // nil: replies go to From
	Date    time.Time

	Subject string
	Text    string // lines end in \n
	HTML    string // a whole document

	// Headers are written beside those that follow from the fields above.
	Headers []HeaderField
}

// HeaderField is one more field of a mail's header.
type HeaderField struct{ Name, Value string }

// maxHeaderValue bounds a header value in bytes. A line may have 998
// (RFC 5322, 2.1.1), and a value without a space cannot be folded.
const maxHeaderValue = 900

// WriteTo writes the mail in the form of RFC 5322: multipart/alternative of
// text and HTML, lines ending in CR LF, every byte ASCII unless the recipient's
// local part is not. The same Message always gives the same bytes.
func (m *Message) WriteTo(w io.Writer) (int64, error) {
	if err := m.check(); err != nil {
		return 0, err
	}
	headerEncoding := gomail.EncodingQP
	if mostlyNonASCII(m.Subject) {
		headerEncoding = gomail.EncodingB64
	}
	msg := gomail.NewMsg(
		gomail.WithNoDefaultUserAgent(),
		gomail.WithEncoding(headerEncoding),
		gomail.WithBoundary(m.boundary()),
	)
	msg.FromMailAddress(&m.From)
	msg.ToMailAddress(&m.To)
	if m.ReplyTo != nil {
		msg.ReplyToMailAddress(m.ReplyTo)
	}
	msg.Subject(m.Subject)
	msg.SetDateWithValue(m.Date)
	msg.SetMessageIDWithValue(m.ID)
	for _, field := range m.Headers {
		msg.SetGenHeader(gomail.Header(field.Name), field.Value)
	}
	text, encoding := transferForm(m.Text)
	msg.SetBodyString(gomail.TypeTextPlain, text, gomail.WithPartEncoding(encoding))
	html, encoding := transferForm(m.HTML)
	msg.AddAlternativeString(gomail.TypeTextHTML, html, gomail.WithPartEncoding(encoding))
	return msg.WriteTo(w)
}

// check refuses what could end a header line early or not be sent at all.
func (m *Message) check() error {
	if m.From.Address == "" || m.To.Address == "" {
		return errors.New("write mail: the sender or the recipient is missing")
	}
	values := []HeaderField{
		{"Subject", m.Subject}, {"Message-ID", m.ID},
		{"From", m.From.Name + m.From.Address}, {"To", m.To.Name + m.To.Address},
	}
	if m.ReplyTo != nil {
		values = append(values, HeaderField{"Reply-To", m.ReplyTo.Name + m.ReplyTo.Address})
	}
	for _, field := range append(values, m.Headers...) {
		if strings.ContainsFunc(field.Value, isControl) {
			return fmt.Errorf("write mail: header %s holds a control character", field.Name)
		}
		if len(field.Value) > maxHeaderValue*4 { // a subject of 200 runes has at most 800 bytes
			return fmt.Errorf("write mail: header %s has %d bytes, the limit is %d", field.Name, len(field.Value), maxHeaderValue*4)
		}
	}
	for _, field := range m.Headers {
		if field.Name == "" || strings.ContainsFunc(field.Name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' }) {
			return fmt.Errorf("write mail: %q is not a header name", field.Name)
		}
		if len(field.Value) > maxHeaderValue {
			return fmt.Errorf("write mail: header %s has %d bytes, the limit is %d", field.Name, len(field.Value), maxHeaderValue)
		}
	}
	return nil
}

// boundary separates the parts. It follows from the content, so that no text
// can be written to contain it.
func (m *Message) boundary() string {
	hash := sha256.New()
	for _, part := range []string{m.ID, m.Text, m.HTML} {
		fmt.Fprintf(hash, "%d:", len(part))
		_, _ = io.WriteString(hash, part)
	}
	return "part-" + hex.EncodeToString(hash.Sum(nil)[:18])
}

// transferForm picks the shorter one of the two encodings that survive every
// server on the way, and returns the text as that encoding takes it.
func transferForm(text string) (string, gomail.Encoding) {
	if mostlyNonASCII(text) {
		// Base64 keeps line ends as they are, and those of mail are CR LF.
		return strings.ReplaceAll(text, "\n", "\r\n"), gomail.EncodingB64
	}
	return text, gomail.EncodingQP
}

// mostlyNonASCII tells whether base64, four bytes for three, is shorter than
// quoted-printable, which takes three for every byte beyond ASCII.
func mostlyNonASCII(text string) bool {
	beyond := 0
	for i := range len(text) {
		if text[i] >= 0x80 {
			beyond++
		}
	}
	return beyond*6 > len(text)
}
