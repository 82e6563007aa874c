package generate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/runtime/awsclient"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
	"github.com/briefing-swarm/briefing-swarm/runtime/recipe"
	"github.com/briefing-swarm/briefing-swarm/runtime/telemetry"
)

// messages makes an event out of bodies; their ids are m-0, m-1 and so on.
func messages(bodies ...string) events.SQSEvent {
	var e events.SQSEvent
	for i, body := range bodies {
		e.Records = append(e.Records, events.SQSMessage{MessageId: fmt.Sprint("m-", i), Body: body})
	}
	return e
}

// again returns the ids of the messages that go back.
func again(r events.SQSEventResponse) []string {
	ids := []string{}
	for _, f := range r.BatchItemFailures {
		ids = append(ids, f.ItemIdentifier)
	}
	return ids
}

func results(t *testing.T, c *awsclient.Clients, table string) map[string]map[string]any {
	t.Helper()
	out, err := c.DynamoDB.Scan(t.Context(), &dynamodb.ScanInput{TableName: &table})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]any{}
	for _, item := range out.Items {
		fields := map[string]any{}
		for name, value := range item {
			switch v := value.(type) {
			case *dynamotypes.AttributeValueMemberS:
				fields[name] = v.Value
			case *dynamotypes.AttributeValueMemberN:
				n, err := strconv.ParseFloat(v.Value, 64)
				if err != nil {
					t.Fatal(err)
				}
				fields[name] = n
			default:
				t.Fatalf("%s is a %T", name, value)
			}
		}
		all[fields["request_id"].(string)] = fields
	}
	return all
}

// deadLetters takes all messages out of a queue: body by request id, with the
// reason.
func deadLetters(t *testing.T, c *awsclient.Clients, url string) map[string][2]string {
	t.Helper()
	all := map[string][2]string{}
	for {
		out, err := c.SQS.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"}})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Messages) == 0 {
			return all
		}
		for _, m := range out.Messages {
			all[aws.ToString(m.MessageAttributes["request_id"].StringValue)] = [2]string{aws.ToString(m.Body), aws.ToString(m.MessageAttributes["error_code"].StringValue)}
			if _, err := c.SQS.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestQueue(t *testing.T) {
	server := mototest.Start(t)
	front := mototest.NewFront(t, server)
	c := mototest.Clients(t, front.URL)
	setup := func(t *testing.T, backend engine.Backend) (*Queue, *bytes.Buffer) {
		front.Fail(nil)
		name := strings.ReplaceAll(t.Name(), "/", "-")
		mototest.Table(t, c, name, "request_id")
		var out bytes.Buffer
		return &Queue{
			Worker: worker(t, backend), DynamoDB: c.DynamoDB, SQS: c.SQS, Table: name, DeadLetters: mototest.Queue(t, c, name),
			KeepFor: time.Hour, Meter: telemetry.NewMeter(&out, "acme", "queue"), Log: telemetry.NewLogger(&out, ""),
		}, &out
	}

	t.Run("messages", func(t *testing.T) {
		q, out := setup(t, model(0))
		e := messages(
			`{"user_id":"a","note":"bare","email":"secret@example.com"}`,
			`{"request_id":"mine","record":{"user_id":"b","note":"wrapped"}}`,
			`{"user_id":"c","note":"by attribute"}`,
			`no json, but a <text>`,
			`{"request_id":"bad-mail","record":{"user_id":"d","email":"x@@y"}}`,
			`{"request_id":"long","record":{"user_id":"e","note":"`+strings.Repeat("x", 9000)+`"}}`,
			`{"request_id":"mine","record":{"user_id":"b","note":"wrapped"}}`,
			`{"request_id":7,"record":{"user_id":"f"}}`,
			`{"request_id":"`+strings.Repeat("k", 2000)+`","record":{"user_id":"g"}}`,
		)
		e.Records[2].MessageAttributes = map[string]events.SQSMessageAttribute{"request_id": {DataType: "String", StringValue: aws.String("attr")}}
		response, err := q.Handle(t.Context(), e)
		if err != nil || len(response.BatchItemFailures) > 0 {
			t.Fatalf("%v go back, error %v", again(response), err)
		}
		got := results(t, c, q.Table)
		status := map[string]string{}
		for id, fields := range got {
			code, _ := fields["error_code"].(string)
			status[id] = strings.TrimSpace(fields["status"].(string) + " " + code)
			if fields["status"] == briefing.StatusOK && (fields["briefing"] == "" || fields["subject"] == "" || fields["user_id"] == "") {
				t.Errorf("%s: %v", id, fields)
			}
			if ttl := fields["expires_at"].(float64) - float64(time.Now().Unix()); ttl < 3500 || ttl > 3600 {
				t.Errorf("%s is kept for %.0f s", id, ttl)
			}
		}
		want := map[string]string{
			"m-0": "ok", "mine": "ok", "attr": "ok", "m-3": "failed " + briefing.CodeJSONNotObject, "bad-mail": "failed " + briefing.CodeEmailInvalid,
			"long": "failed " + recipe.CodePromptTooLong, "m-7": "failed " + CodeMessage, "m-8": "failed " + CodeMessage,
		}
		if d := cmp.Diff(want, status); d != "" {
			t.Errorf("results (-want +got):\n%s", d)
		}
		dead := deadLetters(t, c, q.DeadLetters)
		for id, s := range want {
			letter, ok := dead[id]
			if code, failed := strings.CutPrefix(s, "failed "); failed != ok || failed && letter[1] != code {
				t.Errorf("%s is %q, its dead letter %q", id, s, letter)
			}
		}
		if body := dead["m-3"][0]; body != `no json, but a <text>` {
			t.Errorf("the dead letter's body is %q", body)
		}
		if strings.Contains(out.String(), "secret") {
			t.Errorf("personal data in the log:\n%s", out.String())
		}
	})

	t.Run("again_and_again", func(t *testing.T) {
		q, _ := setup(t, model(0))
		e := messages(`{"request_id":"one","record":{"user_id":"a","note":"n"}}`, `broken`)
		if _, err := q.Handle(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		first := results(t, c, q.Table)
		front.Fail(nil)
		time.Sleep(5 * time.Millisecond)
		if _, err := q.Handle(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(first, results(t, c, q.Table)); d != "" {
			t.Errorf("a second delivery changes the result:\n%s", d)
		}
		if n := front.Calls("PutItem") + front.Calls("SendMessage"); n != 0 {
			t.Errorf("%d results or dead letters were written again", n)
		}
	})

	t.Run("two_at_once", func(t *testing.T) {
		q, _ := setup(t, model(0))
		e := messages(`{"request_id":"one","record":{"user_id":"a","note":"n"}}`)
		var slowOut bytes.Buffer
		slow := &Queue{}
		*slow = *q
		slow.Meter, slow.Log = telemetry.NewMeter(&slowOut, "acme", "queue"), telemetry.NewLogger(&slowOut, "")
		slow.Worker = worker(t, model(20*time.Millisecond))
		slow.Worker.recipe.Model = "slow"
		done := make(chan error)
		go func() { _, err := slow.Handle(context.WithoutCancel(t.Context()), e); done <- err }()
		for front.Calls("GetItem") == 0 {
			time.Sleep(time.Millisecond)
		}
		if _, err := q.Handle(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := results(t, c, q.Table); len(got) != 1 || got["one"]["model"] != "fake" {
			t.Errorf("results %v: the first writer is not kept", got)
		}
	})

	t.Run("aws_fails_for_one", func(t *testing.T) {
		q, _ := setup(t, model(0))
		for name, operation := range map[string]string{"m-1": "GetItem", "m-0": "PutItem", "m-2": "SendMessage"} {
			front.Fail(func(call mototest.Call) mototest.Fault {
				match := call.Operation == operation
				if operation == "GetItem" {
					match = match && call.N == 1
				} else if operation == "PutItem" {
					match = match && call.N == 0
				}
				if match {
					return mototest.Denied
				}
				return mototest.None
			})
			e := messages(`{"request_id":"`+operation+`1","record":{"user_id":"a","note":"n"}}`, `{"request_id":"`+operation+`2","record":{"user_id":"b","note":"n"}}`, `{"request_id":"`+operation+`3","record":7}`)
			response, err := q.Handle(t.Context(), e)
			if d := cmp.Diff([]string{name}, again(response)); d != "" || err != nil {
				t.Errorf("%s fails: error %v, back go (-want +got):\n%s", operation, err, d)
			}
			front.Fail(nil)
			if response, err := q.Handle(t.Context(), e); err != nil || len(again(response)) > 0 {
				t.Errorf("%s: %v go back, error %v", operation, again(response), err)
			}
		}
		if n := len(results(t, c, q.Table)); n != 9 {
			t.Errorf("%d results, want 9", n)
		}
		if n := len(deadLetters(t, c, q.DeadLetters)); n != 3 {
			t.Errorf("%d dead letters, want 3", n)
		}
	})

	t.Run("out_of_time", func(t *testing.T) {
		q, _ := setup(t, model(8*time.Millisecond))
		var bodies []string
		for i := range 30 {
			bodies = append(bodies, fmt.Sprintf(`{"user_id":"u-%d","note":"n %d"}`, i, i))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		response, err := q.Handle(ctx, messages(bodies...))
		if err != nil {
			t.Fatal(err)
		}
		got, back := results(t, c, q.Table), again(response)
		if len(back) == 0 || len(back) == 30 {
			t.Errorf("%d go back, want some of 30", len(back))
		}
		// A result whose confirmation came too late is there, and its message goes
		// back all the same: it is found answered when it comes again.
		var lost []string
		for i := range 30 {
			id := fmt.Sprint("m-", i)
			if _, done := got[id]; !done && !slices.Contains(back, id) {
				lost = append(lost, id)
			}
		}
		if len(lost) > 0 {
			t.Errorf("%v neither go back nor have a result", lost)
		}
	})

	t.Run("random_failures", func(t *testing.T) {
		q, _ := setup(t, model(0))
		for seed := range uint64(5) {
			var bodies []string
			for i := range 8 {
				bodies = append(bodies, fmt.Sprintf(`{"request_id":"r-%d-%d","record":{"user_id":"u-%d","note":"n"}}`, seed, i, i))
			}
			bodies = append(bodies, fmt.Sprintf(`{"request_id":"r-%d-x","record":{}}`, seed))
			front.FailAtRandom(seed, 0.2)
			e := messages(bodies...)
			for round := 0; len(e.Records) > 0; round++ {
				if round == 10 {
					t.Fatalf("seed %d: %d messages are never done", seed, len(e.Records))
				}
				response, err := q.Handle(t.Context(), e)
				if err != nil {
					continue
				}
				back := map[string]bool{}
				for _, id := range again(response) {
					back[id] = true
				}
				var rest []events.SQSMessage
				for _, m := range e.Records {
					if back[m.MessageId] {
						rest = append(rest, m)
					}
				}
				e.Records = rest
			}
			front.Fail(nil)
		}
		if n := len(results(t, c, q.Table)); n != 45 {
			t.Errorf("%d results, want 45", n)
		}
		if n := len(deadLetters(t, c, q.DeadLetters)); n != 5 {
			t.Errorf("%d requests have a dead letter, want 5", n)
		}
	})
}

// FuzzMessage: whatever a message holds, it has an id that DynamoDB takes, and
// either a record or a reason.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{`{"user_id":"a"}`, `{"request_id":"r","record":{"user_id":"a"}}`, `{"record":null}`, `{"request_id":["x"],"record":{}}`, ``, `7`, "\x00", `{"record":"user_id"}`} {
		f.Add(seed, "")
	}
	f.Add(`{"user_id":"a"}`, "attribute")
	f.Fuzz(func(t *testing.T, body, attribute string) {
		m := events.SQSMessage{MessageId: "m", Body: body}
		if attribute != "" {
			m.MessageAttributes = map[string]events.SQSMessageAttribute{"request_id": {StringValue: &attribute}}
		}
		got := readMessage(m)
		if got.requestID == "" || len(got.requestID) > maxRequestID {
			t.Errorf("request id %q", got.requestID)
		}
		if (got.reason == "") != (got.item.Record.UserID != "") {
			t.Errorf("reason %q, user %q", got.reason, got.item.Record.UserID)
		}
		if got.reason != "" && (got.row.ErrorCode == "" || got.row.Status != briefing.StatusFailed) {
			t.Errorf("row %+v", got.row)
		}
		if text := sqsText(body, 100); text == "" || len(text) > 100 || !json.Valid([]byte(`"`+strings.Repeat("x", len(text))+`"`)) || strings.ContainsRune(text, 0) {
			t.Errorf("text %q", text)
		}
	})
}
