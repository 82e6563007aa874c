package generate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/recipe"
	"github.com/briefing-swarm/briefing-swarm/runtime/telemetry"
)

// Queue is the handler of single requests out of SQS.
//
// A message is a record, or {"request_id": "...", "record": {...}}. Its request
// id is that one, else the message attribute request_id, else SQS's message id.
// The result is an item of the results table under that id. Whoever comes first
// writes it: a message that is received twice has one result.
type Queue struct {
	Worker   *Worker
	DynamoDB *dynamodb.Client
	SQS      *sqs.Client
	// Table is the results table; its key is the string request_id, and its
	// time to live the attribute expires_at.
	Table string
	// DeadLetters is the URL of the queue for messages that can never succeed.
	DeadLetters string
	// KeepFor is how long results are kept.
	KeepFor time.Duration
	Meter   *telemetry.Meter
	Log     *slog.Logger
}

// attributeRequestID is the message attribute with the caller's id.
const attributeRequestID = "request_id"

// CodeMessage is the code of a message that holds no request.
const CodeMessage = "message_invalid"

// ticket is a message on its way.
type ticket struct {
	message   events.SQSMessage
	requestID string
	item      Item
	row       briefing.Row
	// reason why the message can't be read, "" where it can.
	reason string
}

// Handle answers the messages of an event. Those in the response stay in the
// queue and are received again. It fails only where nothing was even begun,
// which puts all of them back.
func (q *Queue) Handle(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
	var response events.SQSEventResponse
	again := func(t *ticket, err error) {
		q.Log.WarnContext(ctx, "message goes back to the queue", "message_id", t.message.MessageId, "error", err.Error())
		response.BatchItemFailures = append(response.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: t.message.MessageId})
	}
	var tickets []*ticket
	seen := map[string]bool{}
	for _, message := range event.Records {
		t := readMessage(message)
		known, err := q.answered(ctx, t.requestID)
		switch {
		case err != nil:
			again(t, err)
		case known:
			q.Log.InfoContext(ctx, "message was answered before", "message_id", message.MessageId)
		case seen[t.requestID]:
			// Received twice at once: the first to be answered is the answer.
		default:
			seen[t.requestID] = true
			tickets = append(tickets, t)
		}
	}
	done, usage, err := q.generate(ctx, tickets)
	if err != nil && len(done) == 0 && len(tickets) == len(event.Records) {
		return events.SQSEventResponse{}, err
	}
	ok, failed := 0, 0
	for i, t := range tickets {
		switch {
		case t.reason != "":
		case !done[i] && err != nil:
			again(t, err)
			continue
		case !done[i]:
			again(t, errors.New("there was no time left for it"))
			continue
		}
		if err := q.settle(ctx, t); err != nil {
			again(t, err)
			continue
		}
		if t.row.Status == briefing.StatusOK {
			ok++
		} else {
			failed++
		}
	}
	q.Log.InfoContext(ctx, "messages", "received", len(event.Records), "ok", ok, "failed", failed, "again", len(response.BatchItemFailures))
	return response, q.Meter.Write(telemetry.Batch{
		Model: usage.Model, FirstToken: usage.FirstToken, TokensPerSec: usage.TokensPerSec, PrefillTokensPerSec: usage.PrefillTokensPerSec,
		ModelLoad: usage.ModelLoad, Briefings: ok, Failed: failed, Properties: map[string]any{"requestId": telemetry.RequestID(ctx)},
	})
}

// generate fills in the rows of tickets and tells which have one.
func (q *Queue) generate(ctx context.Context, tickets []*ticket) (map[int]bool, Usage, error) {
	done := map[int]bool{}
	items := make([]Item, len(tickets))
	var places []int
	for i, t := range tickets {
		items[i] = t.item
		if t.reason == "" {
			places = append(places, i)
		}
	}
	if len(places) == 0 {
		return done, Usage{}, nil
	}
	usage, err := q.Worker.Run(ctx, "", items, places, func(place int, row briefing.Row) error {
		tickets[place].row, done[place] = row, true
		return nil
	})
	return done, usage, err
}

// readMessage finds out what a message asks for.
func readMessage(message events.SQSMessage) *ticket {
	t := &ticket{message: message, requestID: message.MessageId}
	if a, ok := message.MessageAttributes[attributeRequestID]; ok && a.StringValue != nil && *a.StringValue != "" {
		t.requestID = *a.StringValue
	}
	body := bytes.TrimSpace([]byte(message.Body))
	var wrapped struct {
		RequestID *string         `json:"request_id"`
		Record    json.RawMessage `json:"record"`
	}
	// A bare record has a user_id, and may have a context field called record.
	var keys map[string]json.RawMessage
	if json.Unmarshal(body, &keys) == nil {
		if _, bare := keys["user_id"]; !bare && keys["record"] != nil {
			if json.Unmarshal(body, &wrapped) != nil {
				t.reason = "request_id is no string"
			} else {
				body = wrapped.Record
				if wrapped.RequestID != nil && *wrapped.RequestID != "" {
					t.requestID = *wrapped.RequestID
				}
			}
		}
	}
	// A longer key is refused by DynamoDB, at every attempt.
	if len(t.requestID) > maxRequestID {
		t.requestID, t.reason = message.MessageId, fmt.Sprintf("request_id is longer than %d bytes", maxRequestID)
	}
	if t.reason == "" {
		if t.item = ParseItem(body); t.item.Err != nil {
			t.reason = t.item.Err.Error()
		}
	}
	if t.reason != "" {
		t.row = briefing.Row{Status: briefing.StatusFailed, ErrorCode: CodeMessage, ErrorMessage: t.reason, GeneratedAt: recipe.Now()}
		if e := t.item.Err; e != nil {
			t.row.UserID, t.row.ErrorCode = e.UserID, e.Code()
		}
	}
	return t
}

// maxRequestID is well within DynamoDB's 2,048 bytes for a key.
const maxRequestID = 1024

// answered reports whether there is a result.
func (q *Queue) answered(ctx context.Context, requestID string) (bool, error) {
	out, err := q.DynamoDB.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &q.Table, Key: map[string]dynamotypes.AttributeValue{"request_id": str(requestID)},
		ConsistentRead: aws.Bool(true), ProjectionExpression: aws.String("request_id"),
	})
	if err != nil {
		return false, fmt.Errorf("look for an earlier result: %w", err)
	}
	return len(out.Item) > 0, nil
}

// settle tells the dead-letter queue about a failure that stays, then writes the
// result. In this order neither can be missing: where writing fails, both are
// done again.
func (q *Queue) settle(ctx context.Context, t *ticket) error {
	if t.row.Status != briefing.StatusOK {
		if err := q.deadLetter(ctx, t); err != nil {
			return err
		}
	}
	return q.write(ctx, t)
}

// Bounds of a dead letter, which must not be refused for its own size. No good
// message comes near them.
const (
	maxDeadBody   = 192 << 10
	maxDeadReason = 1 << 10
)

func (q *Queue) deadLetter(ctx context.Context, t *ticket) error {
	attribute := func(v string) sqstypes.MessageAttributeValue {
		return sqstypes.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(sqsText(v, maxDeadReason))}
	}
	_, err := q.SQS.SendMessage(ctx, &sqs.SendMessageInput{
		QueueUrl: &q.DeadLetters, MessageBody: aws.String(sqsText(t.message.Body, maxDeadBody)),
		MessageAttributes: map[string]sqstypes.MessageAttributeValue{
			"request_id":    attribute(t.requestID),
			"message_id":    attribute(t.message.MessageId),
			"error_code":    attribute(t.row.ErrorCode),
			"error_message": attribute(t.row.ErrorMessage),
		},
	})
	if err != nil {
		return fmt.Errorf("send to the dead-letter queue: %w", err)
	}
	return nil
}

// sqsText makes s a text that SQS takes: it refuses what is no character of XML,
// and an empty one.
func sqsText(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == '\ufffe' || r == '\uffff' {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "")
	}
	if s == "" {
		return "?"
	}
	return s
}

// write writes the result unless there is one.
func (q *Queue) write(ctx context.Context, t *ticket) error {
	r := t.row
	item := map[string]dynamotypes.AttributeValue{
		"request_id":   str(t.requestID),
		"user_id":      str(r.UserID),
		"status":       str(r.Status),
		"generated_at": str(r.GeneratedAt.Format(time.RFC3339Nano)),
		"expires_at":   num(time.Now().Add(q.KeepFor).Unix()),
	}
	for name, value := range map[string]string{
		"subject": r.Subject, "briefing": r.Briefing, "error_code": r.ErrorCode, "error_message": r.ErrorMessage,
		"finish_reason": r.FinishReason, "model": r.Model,
	} {
		if value != "" {
			item[name] = str(value)
		}
	}
	for name, value := range map[string]int32{"prompt_tokens": r.PromptTokens, "cached_tokens": r.CachedTokens, "completion_tokens": r.CompletionTokens} {
		item[name] = num(int64(value))
	}
	_, err := q.DynamoDB.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &q.Table, Item: item, ConditionExpression: aws.String("attribute_not_exists(request_id)"),
	})
	var there *dynamotypes.ConditionalCheckFailedException
	if err != nil && !errors.As(err, &there) {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

func str(s string) dynamotypes.AttributeValue {
	return &dynamotypes.AttributeValueMemberS{Value: s}
}

func num(n int64) dynamotypes.AttributeValue {
	return &dynamotypes.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}
