package deliver

import (
	"context"
	"io"
	"strconv"
)

// Sender hands mails over. Implementations are safe for concurrent use.
//
// Send returns the id under which the mail is known from here on, or a
// *SendError. Whoever implements it must be honest about Uncertain: any other
// kind promises that the mail was not sent. A Sender looks at ctx before it
// starts to transmit and then goes on to the end, within time limits of its
// own; a mail broken off half-way is one that nobody knows the fate of.
type Sender interface {
	Send(ctx context.Context, message Message) (id string, err error)
}

// Kind says what an error means for the mail, the user and the run.
type Kind int

// Kinds of a SendError.
const (
	// Temporary: not sent; the same mail may get through later.
	Temporary Kind = iota + 1
	// Permanent: not sent, and it will not be for this user.
	Permanent
	// Fatal: not sent, and no other mail will be. The run stops.
	Fatal
	// Uncertain: it may have been sent. Sending it again could give the user two.
	Uncertain
)

// String returns the kind in lower case.
func (k Kind) String() string {
	switch k {
	case Temporary:
		return "temporary"
	case Permanent:
		return "permanent"
	case Fatal:
		return "fatal"
	case Uncertain:
		return "uncertain"
	}
	return "kind " + strconv.Itoa(int(k))
}

// Codes of a SendError, beside "smtp_" and the number of a server's reply.
const (
	CodeAddress        = "address_invalid"     // the address is none that mail can be sent to
	CodeTooLong        = "briefing_too_long"   // the text is longer than a mail should be
	CodeTemplate       = "template"            // a template failed on this row
	CodeUnsubscribeURL = "unsubscribe_invalid" // the link for this user cannot stand in a header
	CodeMessage        = "message_invalid"     // the message could not be written
	CodeWrite          = "file_write"          // an .eml file could not be written
	CodeUnreachable    = "smtp_unreachable"    // no connection after several attempts
	CodeConnection     = "smtp_connection"     // the connection broke before the mail was handed over
	CodeAuth           = "smtp_auth"           // the server does not take the credentials
	CodeTLS            = "smtp_tls"            // no encrypted connection could be made
	CodeSMTPUTF8       = "smtp_utf8"           // the address needs SMTPUTF8, which the server lacks
	CodeUncertain      = "smtp_uncertain"      // the connection broke while the server took the mail
)

// SendError says why a mail was not sent. It holds no address, no name and no
// text: a server's reply often quotes the address, so only its codes are kept.
type SendError struct {
	Kind Kind
	// Code is stable, lower-case, and good as a key to count by.
	Code string
	// Enhanced is the status code of RFC 3463 that came with a reply, such as
	// "5.1.1"; "" if none did.
	Enhanced string
	// Err is the cause where it is safe to tell, or nil.
	Err error
}

// Error returns the code and what is known beyond it.
func (e *SendError) Error() string {
	text := "send mail: " + e.Code
	if e.Enhanced != "" {
		text += " (" + e.Enhanced + ")"
	}
	text += ", " + e.Kind.String()
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *SendError) Unwrap() error { return e.Err }

// Null is a Sender for benchmarks and dry runs: it writes every mail in full
// and throws it away.
type Null struct{}

// Send writes the message to nowhere.
func (Null) Send(_ context.Context, message Message) (string, error) {
	if _, err := message.WriteTo(io.Discard); err != nil {
		return "", &SendError{Kind: Permanent, Code: CodeMessage, Err: err}
	}
	return message.ID, nil
}
