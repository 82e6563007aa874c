package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/mail"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/runtime/mailout"
)

// TestMailFunctions calls the functions of delivery with events as AWS writes
// them: a file is planned and mailed, a reader unsubscribes, a mail bounces, and
// the next file leaves the reader out.
func TestMailFunctions(t *testing.T) {
	front := mototest.NewFront(t, mototest.Start(t))
	clients := mototest.Clients(t, front.URL)
	mototest.Sender(t, clients, "briefings.example")
	mototest.Sender(t, clients, "desk@briefings.example")
	mototest.LedgerTable(t, clients, "ledger")
	mototest.Bucket(t, clients, "templates")
	mototest.Put(t, clients, "templates", "acme/subject.tmpl", []byte("Acme: {{.Subject}}"))
	name, key := "unsubscribe", "a key of 32 bytes, for tests only"
	secret, err := clients.SecretsManager.CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{Name: &name, SecretString: &key})
	if err != nil {
		t.Fatal(err)
	}
	common := map[string]string{
		"SWARM_TENANT": "acme", mailout.EnvLedgerTable: "ledger", mailout.EnvFrom: "Desk <desk@briefings.example>", mailout.EnvUnsubscribeURL: "https://f.lambda-url.us-east-1.on.aws/",
		mailout.EnvUnsubscribeKey: *secret.ARN, mailout.EnvSubject: "s3://templates/acme/subject.tmpl", mailout.EnvDeliverAt: "08:00", mailout.EnvTimeZone: "Europe/Berlin",
	}
	logs := &countingLog{t: t}
	start := func(handler string, more ...string) lambda.Handler {
		env := maps.Clone(common)
		env["SWARM_HANDLER"] = handler
		for i := 0; i < len(more); i += 2 {
			env[more[i]] = more[i+1]
		}
		return function(t, env, logs)
	}
	call := func(f lambda.Handler, event string) (string, error) {
		answer, err := f.Invoke(lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "request"}), []byte(event))
		return string(answer), err
	}
	row := func(run string, n int) string {
		return fmt.Sprintf(`{"run_id":%q,"user_id":"u%d","email":"u%d@example.com","name":"User","locale":"de","status":"ok","subject":"Hallo","briefing":"Kurz.","error_code":null,`+
			`"prompt_tokens":12,"generated_at":"2026-11-30T06:50:00.000Z","attributes":"{}"}`, run, n, n)
	}
	batch := func(run string) string {
		return `{"BatchInput":{"bucket":"briefings","key":"briefings/x.parquet"},"Items":[` + row(run, 1) + "," + row(run, 2) + "]}"
	}

	delivery := start("deliver")
	plan, err := call(delivery, `{"schedule":{"bucket":"briefings","key":"briefings/x.parquet"}}`)
	if err != nil || !strings.Contains(plan, `"workers":1,"rate_per_sec":900,"batch_size":100`) || !strings.Contains(plan, `"wait_until":"20`) {
		t.Errorf("plan %s, %v", plan, err)
	}
	receipt, err := call(delivery, batch("run-1"))
	if err != nil || !strings.HasPrefix(receipt, `{"items":2,"sent":2,"already_sent":0,"skipped":0,"failed":0,"unknown":0,"remaining":[],"remaining_items":0,`) {
		t.Fatalf("receipt %s, %v", receipt, err)
	}
	raw := string(front.Mails()[0].Raw)
	if !strings.Contains(raw, "Subject: Acme: Hallo\r\n") {
		t.Errorf("the mail is not as the settings say:\n%s", raw)
	}

	// The link of the first mail's user, as its program reads it.
	message, err := mail.ReadMessage(strings.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSuffix(strings.TrimPrefix(message.Header.Get("List-Unsubscribe"), "<https://f.lambda-url.us-east-1.on.aws/?t="), ">")
	reader := strings.TrimSuffix(front.Mails()[0].To.Address, "@example.com")
	unsubscribe := start("unsubscribe")
	request := func(method string) string {
		return `{"version":"2.0","rawPath":"/","rawQueryString":"t=` + token + `","queryStringParameters":{"t":"` + token + `"},"headers":{"content-type":"application/x-www-form-urlencoded"},` +
			`"requestContext":{"http":{"method":"` + method + `","path":"/"}},"body":"TGlzdC1VbnN1YnNjcmliZT1PbmUtQ2xpY2s=","isBase64Encoded":true}`
	}
	for method, says := range map[string]string{"GET": "Unsubscribe from these", "POST": "You are unsubscribed"} {
		answer, err := call(unsubscribe, request(method))
		var page struct {
			StatusCode int
			Body       string
		}
		if err != nil || json.Unmarshal([]byte(answer), &page) != nil || page.StatusCode != 200 || !strings.Contains(page.Body, says) {
			t.Errorf("%s: %s, %v", method, answer, err)
		}
	}
	receipt, err = call(start("deliver"), batch("run-2"))
	if err != nil || !strings.HasPrefix(receipt, `{"items":2,"sent":1,"already_sent":0,"skipped":1,`) || front.Mails()[2].To.Address == reader+"@example.com" {
		t.Errorf("receipt %s, %v after %s unsubscribed", receipt, err, reader)
	}

	if _, err := call(start("feedback"), `{"version":"0","id":"x","detail-type":"Email Bounced","source":"aws.ses","time":"2026-11-30T07:00:05Z","region":"us-east-1","resources":[],"detail":`+
		`{"eventType":"Bounce","bounce":{"bounceType":"Permanent","bounceSubType":"General","bouncedRecipients":[{"emailAddress":"u2@example.com"}]},"mail":{"messageId":"m"}}}`); err != nil {
		t.Error(err)
	}
	if front.Suppressed()["u2@example.com"] != "BOUNCE" {
		t.Errorf("suppressed %v", front.Suppressed())
	}

	// The state machine tells errors by their names.
	for name, tc := range map[string]struct {
		account mototest.Account
		event   string
	}{
		"StoppedError":   {mototest.Account{MaxSendRate: 1, Max24HourSend: 200, Paused: true}, batch("run-3")},
		"EventError":     {mototest.Account{}, `{"Items":5}`},
		"ThrottledError": {mototest.Account{}, batch("run-4")},
	} {
		front.SetAccount(tc.account)
		front.Fail(func(c mototest.Call) mototest.Fault {
			if name == "ThrottledError" && c.Operation == "GetAccount" {
				return mototest.Denied
			}
			return mototest.None
		})
		_, err := call(start("deliver"), tc.event)
		if err == nil || reflect.TypeOf(err).Kind() != reflect.Pointer || reflect.TypeOf(err).Elem().Name() != name {
			t.Errorf("%T: %v, want a %s", err, err, name)
		}
	}
	if logs.metrics != 5 {
		t.Errorf("%d lines of metrics", logs.metrics)
	}
}
