package deliver

import (
	"context"
	"encoding/json"
	"errors"
	"net/mail"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"
)

// MaxBulk is how many mails one SendBulkEmail call takes (service quota, read in
// public copies of AWS's documentation on 2026-11-30).
const MaxBulk = 50

// bulkTemplate has nothing in it but what each mail replaces: subject, HTML and
// text come finished. SES's own escaping, whose documentation and Handlebars
// disagree, is kept out of it by the third brace.
var bulkTemplate = &types.EmailTemplateContent{
	Subject: aws.String("{{{subject}}}"), Html: aws.String("{{{html}}}"), Text: aws.String("{{{text}}}"),
}

// SESBulk is a Sender through SES that puts up to MaxBulk mails into one
// SendBulkEmail call. Each call of Send still is about one mail and waits until
// that one's fate is known, so it takes as many callers as mails in a call.
//
// SES writes the Message-ID and the MIME structure itself.
type SESBulk struct {
	client           *sesv2.Client
	configurationSet string
	size             int
	linger           time.Duration

	mu      sync.Mutex
	from    *mail.Address // of the first mail; one call has one sender
	waiting []bulkMail
	flush   *time.Timer
}

var _ Sender = (*SESBulk)(nil)

// bulkMail is a mail that waits for its call.
type bulkMail struct {
	message Message
	entry   types.BulkEmailEntry
	result  chan<- bulkResult
}

type bulkResult struct {
	id  string
	err *SendError
}

// NewSESBulk returns a sender that calls SES when it has size mails, at most
// MaxBulk, or when the first of them has waited as long as linger.
func NewSESBulk(client *sesv2.Client, configurationSet string, size int, linger time.Duration) *SESBulk {
	return &SESBulk{client: client, configurationSet: configurationSet, size: max(1, min(size, MaxBulk)), linger: linger}
}

// Send implements Sender.
func (s *SESBulk) Send(ctx context.Context, message Message) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", &SendError{Kind: Temporary, Code: CodeSESUnreachable, Err: err}
	}
	if needsSMTPUTF8(message.To.Address) {
		return "", &SendError{Kind: Permanent, Code: CodeSMTPUTF8}
	}
	if err := message.check(); err != nil {
		return "", &SendError{Kind: Permanent, Code: CodeMessage, Err: err}
	}
	entry, err := bulkEntry(message)
	if err != nil {
		return "", &SendError{Kind: Permanent, Code: CodeMessage, Err: err}
	}
	result := make(chan bulkResult, 1)
	full, err := s.add(bulkMail{message, entry, result})
	if err != nil {
		return "", &SendError{Kind: Permanent, Code: CodeMessage, Err: err}
	}
	s.send(full)
	r := <-result
	if r.err != nil {
		return "", r.err
	}
	return r.id, nil
}

// add puts a mail among those that wait, and returns all of them where they are
// enough for a call.
func (s *SESBulk) add(m bulkMail) ([]bulkMail, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from == nil {
		s.from = &m.message.From
	}
	if *s.from != m.message.From {
		return nil, errors.New("bulk mail: all mails must have the same sender")
	}
	s.waiting = append(s.waiting, m)
	if len(s.waiting) >= s.size {
		return s.take(), nil
	}
	if len(s.waiting) == 1 {
		s.flush = time.AfterFunc(s.linger, func() {
			s.mu.Lock()
			late := s.take()
			s.mu.Unlock()
			s.send(late)
		})
	}
	return nil, nil
}

// take returns the mails that wait; the caller holds the lock.
func (s *SESBulk) take() []bulkMail {
	if s.flush != nil {
		s.flush.Stop()
		s.flush = nil
	}
	mails := s.waiting
	s.waiting = nil
	return mails
}

// send makes one call and tells each mail what became of it.
func (s *SESBulk) send(mails []bulkMail) {
	if len(mails) == 0 {
		return
	}
	all := func(failure *SendError) {
		for _, m := range mails {
			m.result <- bulkResult{err: failure}
		}
	}
	in := &sesv2.SendBulkEmailInput{
		FromEmailAddress:     aws.String(mails[0].message.From.String()),
		ConfigurationSetName: optional(s.configurationSet),
		DefaultContent:       &types.BulkEmailContent{Template: &types.Template{TemplateContent: bulkTemplate, TemplateData: aws.String("{}")}},
	}
	if to := mails[0].message.ReplyTo; to != nil {
		in.ReplyToAddresses = []string{to.String()}
	}
	for _, m := range mails {
		in.BulkEmailEntries = append(in.BulkEmailEntries, m.entry)
	}
	call, done := startSESCall(context.Background())
	defer done()
	out, err := s.client.SendBulkEmail(call.ctx, in, once)
	if err != nil {
		all(call.failure(err))
		return
	}
	for i, m := range mails {
		if i >= len(out.BulkEmailEntryResults) {
			m.result <- bulkResult{err: &SendError{Kind: Uncertain, Code: CodeSESUncertain}}
			continue
		}
		entry := out.BulkEmailEntryResults[i]
		m.result <- bulkResult{aws.ToString(entry.MessageId), bulkFailure(entry)}
	}
}

func bulkEntry(message Message) (types.BulkEmailEntry, error) {
	data, err := json.Marshal(map[string]string{"subject": message.Subject, "html": message.HTML, "text": message.Text})
	if err != nil {
		return types.BulkEmailEntry{}, err
	}
	entry := types.BulkEmailEntry{
		Destination: &types.Destination{ToAddresses: []string{message.To.String()}},
		ReplacementEmailContent: &types.ReplacementEmailContent{
			ReplacementTemplate: &types.ReplacementTemplate{ReplacementTemplateData: aws.String(string(data))},
		},
	}
	for _, field := range message.Headers {
		entry.ReplacementHeaders = append(entry.ReplacementHeaders, types.MessageHeader{Name: aws.String(field.Name), Value: aws.String(field.Value)})
	}
	return entry, nil
}

// bulkFailure classifies the result of one entry, nil for one that was taken.
func bulkFailure(entry types.BulkEmailEntryResult) *SendError {
	detail := aws.ToString(entry.Error)
	switch entry.Status {
	case types.BulkEmailStatusSuccess:
		return nil
	case types.BulkEmailStatusAccountThrottled:
		return &SendError{Kind: Temporary, Code: CodeSESThrottled}
	case types.BulkEmailStatusTransientFailure:
		return &SendError{Kind: Temporary, Code: CodeSESUnavailable}
	case types.BulkEmailStatusAccountDailyQuotaExceeded:
		return sesFailure("LimitExceededException", "daily quota", 0)
	case types.BulkEmailStatusAccountSuspended:
		return sesFailure("AccountSuspendedException", "", 0)
	case types.BulkEmailStatusAccountSendingPaused, types.BulkEmailStatusConfigurationSetSendingPaused:
		return sesFailure("SendingPausedException", "", 0)
	case types.BulkEmailStatusMailFromDomainNotVerified:
		return sesFailure("MailFromDomainNotVerifiedException", "", 0)
	case types.BulkEmailStatusConfigurationSetNotFound:
		return sesFailure("NotFoundException", "", 0)
	case types.BulkEmailStatusTemplateNotFound, types.BulkEmailStatusInvalidSendingPoolName:
		return &SendError{Kind: Fatal, Code: CodeSESSetup, Err: errors.New("SES does not find the pool of addresses to send from, or the template: check the configuration set")}
	case types.BulkEmailStatusMessageRejected:
		return sesFailure("MessageRejected", detail, 0)
	case types.BulkEmailStatusInvalidParameter, types.BulkEmailStatusFailed:
		return sesFailure("BadRequestException", detail, 0)
	}
	// A status from after this was written: nobody can tell.
	return &SendError{Kind: Uncertain, Code: CodeSESUncertain}
}
