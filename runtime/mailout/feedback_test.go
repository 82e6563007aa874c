package mailout

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/runtime/telemetry"
)

// sesEvents are events in the form in which SES publishes them, by what they are
// about.
var sesEvents = map[string]string{
	"hard bounce": `{"eventType":"Bounce","bounce":{"feedbackId":"f","bounceType":"Permanent","bounceSubType":"General",
		"bouncedRecipients":[{"emailAddress":"gone@example.com","action":"failed","status":"5.1.1","diagnosticCode":"smtp; 550 5.1.1 user unknown"}],
		"timestamp":"2026-11-30T08:00:05.000Z","reportingMTA":"dsn; mta.example.com"},
		"mail":{"timestamp":"2026-11-30T08:00:00.000Z","source":"Desk <desk@briefings.example>","messageId":"id-1","destination":["gone@example.com"],
		"tags":{"ses:configuration-set":["briefings"]}}}`,
	"two hard bounces":   `{"eventType":"Bounce","bounce":{"bounceType":"Permanent","bounceSubType":"NoEmail","bouncedRecipients":[{"emailAddress":"a@example.com"},{"emailAddress":"\"B, C\" <b@example.com>"}]},"mail":{"messageId":"id-2"}}`,
	"full mailbox":       `{"eventType":"Bounce","bounce":{"bounceType":"Transient","bounceSubType":"MailboxFull","bouncedRecipients":[{"emailAddress":"full@example.com"}]},"mail":{"messageId":"id-3"}}`,
	"undetermined":       `{"eventType":"Bounce","bounce":{"bounceType":"Undetermined","bounceSubType":"Undetermined","bouncedRecipients":[{"emailAddress":"odd@example.com"}]},"mail":{"messageId":"id-4"}}`,
	"suppressed already": `{"eventType":"Bounce","bounce":{"bounceType":"Permanent","bounceSubType":"OnAccountSuppressionList","bouncedRecipients":[{"emailAddress":"known@example.com"}]},"mail":{"messageId":"id-5"}}`,
	"complaint":          `{"eventType":"Complaint","complaint":{"complainedRecipients":[{"emailAddress":"angry@example.com"}],"complaintSubType":null,"complaintFeedbackType":"abuse","userAgent":"x"},"mail":{"messageId":"id-6"}}`,
	"bare complaint":     `{"eventType":"Complaint","complaint":{"complainedRecipients":[{"emailAddress":"cross@example.com"}]},"mail":{"messageId":"id-7"}}`,
	"no spam after all":  `{"eventType":"Complaint","complaint":{"complainedRecipients":[{"emailAddress":"kind@example.com"}],"complaintFeedbackType":"not-spam"},"mail":{"messageId":"id-8"}}`,
	"virus":              `{"eventType":"Reject","reject":{"reason":"Bad content"},"mail":{"messageId":"id-9"}}`,
	"rendering":          `{"eventType":"Rendering Failure","failure":{"errorMessage":"Attribute missing","templateName":"x"},"mail":{"messageId":"id-10"}}`,
	"delivery":           `{"eventType":"Delivery","delivery":{"recipients":["fine@example.com"]},"mail":{"messageId":"id-11"}}`,
}

func feedbackEvent(detail string) events.EventBridgeEvent {
	return events.EventBridgeEvent{Source: "aws.ses", DetailType: "Email Bounced", Detail: json.RawMessage(detail)}
}

func TestFeedback(t *testing.T) {
	front := mototest.NewFront(t, mototest.Start(t))
	clients := mototest.Clients(t, front.URL)
	said := &lines{}
	f := &Feedback{SES: clients.SES, Meter: telemetry.NewMeter(said, "acme", "feedback"), Log: telemetry.NewLogger(said, "INFO")}
	for name, detail := range sesEvents {
		if err := f.Handle(t.Context(), feedbackEvent(detail)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	want := map[string]string{
		"gone@example.com": "BOUNCE", "a@example.com": "BOUNCE", "b@example.com": "BOUNCE", "angry@example.com": "COMPLAINT", "cross@example.com": "COMPLAINT",
	}
	if diff := cmp.Diff(want, front.Suppressed()); diff != "" {
		t.Errorf("suppressed (-want +got):\n%s", diff)
	}
	for metric, n := range map[string]int{telemetry.Bounces: 3, telemetry.TransientBounces: 2, telemetry.Complaints: 2, telemetry.MailRejected: 2} {
		if got := said.counted(t, metric); got != n {
			t.Errorf("%s is %d, want %d", metric, got, n)
		}
	}
	if strings.Contains(said.String(), "@example.com") {
		t.Errorf("the log holds an address:\n%s", said.String())
	}
	for _, detail := range []string{``, `[]`, `{}`, `"x"`, `{"eventType":5}`, `{"eventType":"Bounce"}`, `{"eventType":"Complaint","bounce":{}}`} {
		var event *EventError
		if err := f.Handle(t.Context(), feedbackEvent(detail)); !errors.As(err, &event) {
			t.Errorf("%s: error %v", detail, err)
		}
	}
	// What can't be suppressed now comes again.
	front.Fail(func(mototest.Call) mototest.Fault { return mototest.Denied })
	err := f.Handle(t.Context(), feedbackEvent(sesEvents["hard bounce"]))
	if err == nil || strings.Contains(err.Error(), "gone@") {
		t.Errorf("without permission: %v", err)
	}
}
