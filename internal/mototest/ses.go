package mototest

import (
	"encoding/json"
	"net/http"
	"net/mail"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sesv2"

	"github.com/briefing-swarm/briefing-swarm/runtime/awsclient"
)

// Mail is one mail that SES took.
type Mail struct {
	To   *mail.Address
	Raw  []byte // of SendEmail
	Time time.Time
	// Of SendBulkEmail, whose mails SES writes itself:
	Subject, HTML, Text string
	Headers             map[string]string
}

// Account is what GetAccount answers. The zero value is an account that may
// send a thousand mails a second.
type Account struct {
	MaxSendRate, Max24HourSend, SentLast24Hours float64
	Paused, Sandbox                             bool
}

// ses is what a Front does of SES, since moto knows SendEmail alone: it
// answers for the account and the suppression list, and sends the mails of a
// SendBulkEmail one by one. It also notes what was taken.
type ses struct {
	account    Account
	mails      []Mail
	suppressed map[string]string // reason by address
}

// Sender makes an address or domain one that SES sends for.
func Sender(t testing.TB, c *awsclient.Clients, identity string) {
	t.Helper()
	if _, err := c.SES.CreateEmailIdentity(t.Context(), &sesv2.CreateEmailIdentityInput{EmailIdentity: &identity}); err != nil {
		t.Fatal(err)
	}
}

// SetAccount makes GetAccount answer so.
func (f *Front) SetAccount(a Account) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ses.account = a
}

// Mails returns what SES took, in order.
func (f *Front) Mails() []Mail {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Mail(nil), f.ses.mails...)
}

// Suppressed returns the account's suppression list: reasons by address.
func (f *Front) Suppressed() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := map[string]string{}
	for address, reason := range f.ses.suppressed {
		list[address] = reason
	}
	return list
}

const sesPath = "/v2/email/"

// sesOperation names what a request to SES asks for.
func sesOperation(r *http.Request) string {
	switch r.Method + " " + strings.TrimPrefix(r.URL.Path, sesPath) {
	case "POST outbound-emails":
		return "SendEmail"
	case "POST outbound-bulk-emails":
		return "SendBulkEmail"
	case "GET account":
		return "GetAccount"
	case "PUT suppression/addresses":
		return "PutSuppressedDestination"
	}
	return r.Method + " " + r.URL.Path
}

type sesDestination struct{ ToAddresses []string }

type sesEmail struct {
	FromEmailAddress string
	Destination      sesDestination
	Content          struct {
		Raw    *struct{ Data []byte } `json:",omitempty"`
		Simple *sesSimple             `json:",omitempty"`
	}
}

type sesText struct{ Data string }

type sesSimple struct {
	Subject sesText
	Body    struct{ Html, Text sesText }
}

// answerSES answers what moto can't. partial refuses about half of a bulk.
func (f *Front) answerSES(r *http.Request, c Call, body []byte, partial bool) (int, http.Header, []byte) {
	switch c.Operation {
	case "GetAccount":
		return jsonAnswer(f.accountAnswer())
	case "PutSuppressedDestination":
		var in struct{ EmailAddress, Reason string }
		mustDecode(body, &in)
		f.mu.Lock()
		if f.ses.suppressed == nil {
			f.ses.suppressed = map[string]string{}
		}
		f.ses.suppressed[in.EmailAddress] = in.Reason
		f.mu.Unlock()
		return jsonAnswer(struct{}{})
	case "SendBulkEmail":
		return f.sendBulk(r, body, partial)
	case "SendEmail":
		status, header, answer := f.forward(r, body)
		if status == http.StatusOK {
			var in sesEmail
			mustDecode(body, &in)
			f.note(Mail{To: mustParse(in.Destination.ToAddresses), Raw: in.Content.Raw.Data, Time: time.Now()})
		}
		return status, header, answer
	}
	return f.forward(r, body)
}

func (f *Front) note(m Mail) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ses.mails = append(f.ses.mails, m)
}

func (f *Front) accountAnswer() any {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.ses.account
	if a.MaxSendRate == 0 {
		a.MaxSendRate, a.Max24HourSend = 1000, -1
	}
	return map[string]any{
		"SendingEnabled": !a.Paused, "ProductionAccessEnabled": !a.Sandbox, "EnforcementStatus": "HEALTHY",
		"SendQuota": map[string]float64{"Max24HourSend": a.Max24HourSend, "MaxSendRate": a.MaxSendRate, "SentLast24Hours": a.SentLast24Hours},
	}
}

// bulkEntry is one mail of a SendBulkEmail.
type bulkEntry struct {
	Destination             sesDestination
	ReplacementEmailContent struct {
		ReplacementTemplate struct{ ReplacementTemplateData string }
	}
	ReplacementHeaders []struct{ Name, Value string }
}

// refusals are what a partial SendBulkEmail answers for the mails it does not
// take.
var refusals = []string{"ACCOUNT_THROTTLED", "TRANSIENT_FAILURE"}

// sendBulk has moto send each mail, as SES does it with an inline template.
func (f *Front) sendBulk(r *http.Request, body []byte, partial bool) (int, http.Header, []byte) {
	var in struct {
		FromEmailAddress string
		BulkEmailEntries []bulkEntry
		DefaultContent   struct {
			Template struct {
				TemplateContent struct{ Subject, Html, Text string }
			}
		}
	}
	mustDecode(body, &in)
	type result struct {
		Status, Error, MessageId string
	}
	results := []result{}
	for i, entry := range in.BulkEmailEntries {
		if partial {
			f.mu.Lock()
			refused := f.rng.IntN(2) == 0
			f.mu.Unlock()
			if refused {
				results = append(results, result{Status: refusals[i%len(refusals)], Error: "on demand"})
				continue
			}
		}
		var data map[string]string
		mustDecode([]byte(entry.ReplacementEmailContent.ReplacementTemplate.ReplacementTemplateData), &data)
		fill := func(template string) string {
			for name, value := range data {
				template = strings.ReplaceAll(template, "{{{"+name+"}}}", value)
			}
			return template
		}
		m := Mail{To: mustParse(entry.Destination.ToAddresses), Time: time.Now(), Headers: map[string]string{}}
		t := in.DefaultContent.Template.TemplateContent
		m.Subject, m.HTML, m.Text = fill(t.Subject), fill(t.Html), fill(t.Text)
		for _, h := range entry.ReplacementHeaders {
			m.Headers[h.Name] = h.Value
		}
		// moto can't read every name that may stand before an address.
		one := sesEmail{FromEmailAddress: in.FromEmailAddress, Destination: sesDestination{[]string{m.To.Address}}}
		one.Content.Simple = &sesSimple{Subject: sesText{m.Subject}}
		one.Content.Simple.Body.Html, one.Content.Simple.Body.Text = sesText{m.HTML}, sesText{m.Text}
		text, err := json.Marshal(one)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		single := r.Clone(r.Context())
		single.URL.Path = sesPath + "outbound-emails"
		single.Header.Set("Content-Length", strconv.Itoa(len(text)))
		status, header, answer := f.forward(single, text)
		if status >= http.StatusInternalServerError {
			return status, header, answer
		}
		if status != http.StatusOK {
			results = append(results, result{Status: "INVALID_PARAMETER", Error: "moto refuses it"})
			continue
		}
		var sent struct{ MessageId string }
		mustDecode(answer, &sent)
		f.note(m)
		results = append(results, result{Status: "SUCCESS", MessageId: sent.MessageId})
	}
	return jsonAnswer(map[string]any{"BulkEmailEntryResults": results})
}

func jsonAnswer(v any) (int, http.Header, []byte) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return http.StatusOK, http.Header{"Content-Type": {"application/json"}}, text
}

func mustDecode(text []byte, v any) {
	if err := json.Unmarshal(text, v); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func mustParse(addresses []string) *mail.Address {
	if len(addresses) != 1 {
		panic(http.ErrAbortHandler)
	}
	a, err := mail.ParseAddress(addresses[0])
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return a
}
