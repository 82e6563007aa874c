package mailout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/mail"
	"slices"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"
	"github.com/aws/smithy-go"

	"github.com/briefing-swarm/briefing-swarm/runtime/telemetry"
)

// Feedback takes what SES publishes about mails that it had taken, through the
// configuration set and EventBridge: bounces and complaints end in the account's
// suppression list, and all of it is counted.
type Feedback struct {
	SES   *sesv2.Client
	Meter *telemetry.Meter
	Log   *slog.Logger
}

// sesEvent is the part of SES's event that matters here.
type sesEvent struct {
	EventType string `json:"eventType"`
	Mail      struct {
		MessageID string `json:"messageId"`
	} `json:"mail"`
	Bounce *struct {
		Type       string      `json:"bounceType"`
		SubType    string      `json:"bounceSubType"`
		Recipients []recipient `json:"bouncedRecipients"`
	} `json:"bounce"`
	Complaint *struct {
		SubType      *string     `json:"complaintSubType"`
		FeedbackType string      `json:"complaintFeedbackType"`
		Recipients   []recipient `json:"complainedRecipients"`
	} `json:"complaint"`
}

type recipient struct {
	Address string `json:"emailAddress"`
}

const feedbackWant = "an event of aws.ses with an eventType, and the bounce or complaint where it is one"

// suppressedAlready are subtypes by which SES reports that it did not deliver
// because of a suppression list, its own or the account's.
var suppressedAlready = []string{"OnAccountSuppressionList", "Suppressed", "OnTenantSuppressionList"}

// verdict is what an event means.
type verdict struct {
	metric     string // "" for none
	reason     types.SuppressionListReason
	recipients []recipient // to be suppressed
}

// judge tells what an event means.
func judge(e sesEvent) (verdict, error) {
	switch e.EventType {
	case "Bounce":
		if e.Bounce == nil {
			break
		}
		v := verdict{metric: telemetry.Bounces, reason: types.SuppressionListReasonBounce}
		switch {
		case e.Bounce.Type != "Permanent":
			// A full mailbox is no reason to give a user up.
			v.metric = telemetry.TransientBounces
		case !slices.Contains(suppressedAlready, e.Bounce.SubType):
			v.recipients = e.Bounce.Recipients
		}
		return v, nil
	case "Complaint":
		if e.Complaint == nil {
			break
		}
		v := verdict{metric: telemetry.Complaints, reason: types.SuppressionListReasonComplaint}
		switch {
		case e.Complaint.FeedbackType == "not-spam":
			return verdict{}, nil // the user took the mail out of the spam folder
		case e.Complaint.SubType == nil || !slices.Contains(suppressedAlready, *e.Complaint.SubType):
			v.recipients = e.Complaint.Recipients
		}
		return v, nil
	case "Reject", "Rendering Failure":
		return verdict{metric: telemetry.MailRejected}, nil
	case "":
	default:
		return verdict{}, nil // one that the rule could have left out
	}
	return verdict{}, &EventError{"it can't be read", feedbackWant}
}

// Handle takes one event. Where it fails the event can come again: all it does
// may be done twice but for the count.
func (f *Feedback) Handle(ctx context.Context, event events.EventBridgeEvent) error {
	var e sesEvent
	if err := json.Unmarshal(event.Detail, &e); err != nil {
		return &EventError{"its detail can't be read", feedbackWant}
	}
	v, err := judge(e)
	if err != nil {
		return err
	}
	if v.metric == "" {
		return nil
	}
	var faults []error
	for _, r := range v.recipients {
		// SES may name them as the mail's header did.
		address := r.Address
		if parsed, err := mail.ParseAddress(address); err == nil {
			address = parsed.Address
		}
		if _, err := f.SES.PutSuppressedDestination(ctx, &sesv2.PutSuppressedDestinationInput{EmailAddress: &address, Reason: v.reason}); err != nil {
			faults = append(faults, fmt.Errorf("add to the suppression list: %s", codeOf(err)))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	f.Log.InfoContext(ctx, "feedback", "event", e.EventType, "message_id", e.Mail.MessageID, "suppressed", len(v.recipients))
	return f.Meter.Count(map[string]int{v.metric: 1}, map[string]any{"message_id": e.Mail.MessageID})
}

// codeOf names an error of AWS without its message, which can quote an address.
func codeOf(err error) string {
	var answer smithy.APIError
	if errors.As(err, &answer) {
		return answer.ErrorCode()
	}
	return "SES can't be reached"
}
