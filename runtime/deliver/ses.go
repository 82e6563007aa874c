package deliver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Codes of the SES senders.
const (
	CodeSESThrottled   = "ses_throttled"             // the account's rate is used up for the moment
	CodeSESUnavailable = "ses_unavailable"           // SES failed by itself
	CodeSESRejected    = "ses_rejected"              // SES does not take this mail
	CodeSESInvalid     = "ses_invalid"               // SES holds the request for malformed
	CodeSESQuota       = "ses_daily_quota"           // the account has sent all it may in 24 hours
	CodeSESPaused      = "ses_paused"                // the account or the configuration set is paused
	CodeSESUnverified  = "ses_identity_not_verified" // SES does not know the sender, or the account is in the sandbox
	CodeSESSetup       = "ses_setup"                 // something that the call names does not exist, or may not be used
	CodeSESUnreachable = "ses_unreachable"           // no connection
	CodeSESUncertain   = "ses_uncertain"             // SES was asked and its answer did not come
)

// sesTimeout bounds one call of SES. Giving up leaves a mail of unknown fate.
const sesTimeout = 30 * time.Second

// SES is a Sender through SES: one SendEmail call a mail, with the very bytes
// that SMTP and EML write. It never tries a mail again by itself, since the SDK
// can't tell whether SES took it.
type SES struct {
	client           *sesv2.Client
	configurationSet string
}

var _ Sender = (*SES)(nil)

// NewSES returns a sender. configurationSet names where bounces and complaints
// are published; "" for the account's default.
func NewSES(client *sesv2.Client, configurationSet string) *SES {
	return &SES{client, configurationSet}
}

// Send implements Sender. The id is the one that SES's events name.
func (s *SES) Send(ctx context.Context, message Message) (string, error) {
	if needsSMTPUTF8(message.To.Address) {
		return "", &SendError{Kind: Permanent, Code: CodeSMTPUTF8}
	}
	var raw bytes.Buffer
	if _, err := message.WriteTo(&raw); err != nil {
		return "", &SendError{Kind: Permanent, Code: CodeMessage, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return "", &SendError{Kind: Temporary, Code: CodeSESUnreachable, Err: err}
	}
	call, done := startSESCall(ctx)
	defer done()
	out, err := s.client.SendEmail(call.ctx, &sesv2.SendEmailInput{
		FromEmailAddress:     aws.String(message.From.String()),
		Destination:          &types.Destination{ToAddresses: []string{bareAddress(message.To.Address)}},
		Content:              &types.EmailContent{Raw: &types.RawMessage{Data: raw.Bytes()}},
		ConfigurationSetName: optional(s.configurationSet),
	}, once)
	if err != nil {
		return "", call.failure(err)
	}
	return aws.ToString(out.MessageId), nil
}

// once keeps the SDK from trying again.
func once(o *sesv2.Options) { o.Retryer = aws.NopRetryer{} }

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// bareAddress writes an address without angle brackets, quoted where it must be.
func bareAddress(address string) string { return strings.Trim(envelope(address), "<>") }

// sesCall is one call under way.
type sesCall struct {
	ctx   context.Context
	begun atomic.Bool // something of the request may have reached SES
}

// startSESCall returns a call that goes on when ctx is cancelled after it began,
// as a Sender must.
func startSESCall(ctx context.Context) (call *sesCall, done func()) {
	call = &sesCall{}
	inner, cancel := context.WithTimeout(context.WithoutCancel(ctx), sesTimeout)
	call.ctx = httptrace.WithClientTrace(inner, &httptrace.ClientTrace{WroteHeaders: func() { call.begun.Store(true) }})
	return call, cancel
}

// failure tells what an error of the call means.
func (c *sesCall) failure(err error) *SendError {
	var answer smithy.APIError
	var status *awshttp.ResponseError
	code := 0
	if errors.As(err, &status) {
		code = status.HTTPStatusCode()
	}
	switch {
	case code >= 200 && code < 300:
		// Taken, but the rest of the answer did not come.
		return &SendError{Kind: Uncertain, Code: CodeSESUncertain}
	case code == http.StatusBadGateway || code == http.StatusGatewayTimeout:
		// Somebody between us and SES gave up waiting for it.
		return &SendError{Kind: Uncertain, Code: CodeSESUncertain}
	case code != 0:
		// Who is busy does not always answer in JSON.
		if errors.As(err, &answer) {
			return sesFailure(answer.ErrorCode(), answer.ErrorMessage(), code)
		}
		return sesFailure("", "", code)
	case c.begun.Load():
		return &SendError{Kind: Uncertain, Code: CodeSESUncertain}
	}
	// Not even the head of the request was written.
	var network *smithyhttp.RequestSendError
	if errors.As(err, &network) {
		return &SendError{Kind: Temporary, Code: CodeSESUnreachable}
	}
	return &SendError{Kind: Fatal, Code: CodeSESSetup, Err: errors.New("the call of SES could not be made: check the credentials and the region")}
}

// sesFailure classifies an answer of SES. Its messages quote addresses, so none
// of them is kept.
func sesFailure(name, message string, status int) *SendError {
	message = strings.ToLower(message)
	unverified := strings.Contains(message, "not verified") || strings.Contains(message, "did not have authority")
	switch {
	case strings.Contains(message, "quota") && (strings.Contains(message, "daily") || strings.Contains(message, "24")):
		return &SendError{Kind: Fatal, Code: CodeSESQuota, Err: errors.New("the account has sent all that it may in 24 hours: " +
			"wait, or ask AWS for a higher sending quota")}
	case name == "TooManyRequestsException" || name == "Throttling" || name == "ThrottlingException" || name == "RequestThrottled" || status == http.StatusTooManyRequests:
		return &SendError{Kind: Temporary, Code: CodeSESThrottled}
	case name == "LimitExceededException":
		return &SendError{Kind: Fatal, Code: CodeSESQuota, Err: errors.New("SES reports that a limit of the account is reached: look at its sending quotas")}
	case name == "AccountSuspendedException":
		return &SendError{Kind: Fatal, Code: CodeSESPaused, Err: errors.New("AWS has suspended the account's sending for good: talk to AWS")}
	case name == "SendingPausedException":
		return &SendError{Kind: Fatal, Code: CodeSESPaused, Err: errors.New("sending is paused for the account or the configuration set: " +
			"look at its reputation, then resume it")}
	case name == "MailFromDomainNotVerifiedException", unverified:
		return &SendError{Kind: Fatal, Code: CodeSESUnverified, Err: errors.New("SES has not verified the sender, or the account is in the sandbox, " +
			"where every recipient must be verified too: verify the sender's domain and ask for production access")}
	case name == "NotFoundException":
		return &SendError{Kind: Fatal, Code: CodeSESSetup, Err: errors.New("SES does not know the configuration set: check its name and region")}
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		return &SendError{Kind: Fatal, Code: CodeSESSetup, Err: fmt.Errorf("SES refuses the credentials or lacks a permission (%s): allow ses:SendEmail and ses:SendRawEmail, for ses-bulk ses:SendBulkEmail and ses:SendBulkTemplatedEmail, on identity/*", name)}
	case name == "MessageRejected":
		return &SendError{Kind: Permanent, Code: CodeSESRejected}
	case name == "ConflictException" || name == "ConcurrentModificationException":
		return &SendError{Kind: Temporary, Code: CodeSESUnavailable}
	case status >= 500:
		return &SendError{Kind: Temporary, Code: CodeSESUnavailable}
	}
	return &SendError{Kind: Permanent, Code: CodeSESInvalid}
}
