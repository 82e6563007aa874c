package deliver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"
)

// ClaimLife is how long whoever claimed a mail may still be about to send it: a
// Lambda invocation lives 15 minutes at most. DynamoLedger retakes older claims
// only.
const ClaimLife = 20 * time.Minute

// dynamoAtOnce bounds the calls that one step of a DynamoLedger makes side by
// side.
const dynamoAtOnce = 16

// Attributes of an item. The table's key is run_id and user_id, and its time to
// live is expires_at.
const (
	attrRun       = "run_id"
	attrUser      = "user_id"
	attrState     = "state" // claimed or sent
	attrSession   = "session"
	attrClaim     = "claim" // the call of Claim that made it
	attrClaimedAt = "claimed_at"
	attrSentAt    = "sent_at"
	attrMessageID = "message_id"
	attrExpiresAt = "expires_at"
)

// DynamoLedger is a Ledger in a DynamoDB table, for any number of processes.
//
// A claim is a conditional put of the item (run_id, user_id), so of all who
// want to send a mail one can. Each mail takes two writes. The client must
// retry what may help; a put whose answer got lost is recognised as our own.
type DynamoLedger struct {
	client  *dynamodb.Client
	table   string
	keepFor time.Duration
	session string
	calls   atomic.Int64
	now     func() time.Time
}

var _ Ledger = (*DynamoLedger)(nil)

// NewDynamoLedger returns a session of the ledger in the table. Its entries
// expire keepFor after they were written: from then on, delivering the same run
// again sends again.
func NewDynamoLedger(client *dynamodb.Client, table string, keepFor time.Duration) *DynamoLedger {
	var id [8]byte
	rand.Read(id[:]) // never fails
	return &DynamoLedger{client: client, table: table, keepFor: keepFor, session: hex.EncodeToString(id[:]), now: time.Now}
}

// Claim implements Ledger.
func (l *DynamoLedger) Claim(ctx context.Context, keys []Key) ([]Claim, error) {
	return l.claimAll(ctx, keys, false)
}

// Retake implements Ledger. Claims younger than ClaimLife stay Unknown.
func (l *DynamoLedger) Retake(ctx context.Context, keys []Key) ([]Claim, error) {
	return l.claimAll(ctx, keys, true)
}

func (l *DynamoLedger) claimAll(ctx context.Context, keys []Key, retake bool) ([]Claim, error) {
	claims := make([]Claim, len(keys))
	call := strconv.FormatInt(l.calls.Add(1), 10)
	first := map[Key]int{}
	var group errgroup.Group
	group.SetLimit(dynamoAtOnce)
	for i, key := range keys {
		if _, twice := first[key]; twice {
			continue
		}
		first[key] = i
		group.Go(func() (err error) {
			claims[i], err = l.claim(ctx, key, call, retake)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		l.giveBack(ctx, keys, claims)
		return nil, fmt.Errorf("claim in sent-ledger: %w", err)
	}
	for i, key := range keys {
		if n := first[key]; n != i {
			if claims[i] = claims[n]; claims[n] == Claimed {
				claims[i] = AlreadyClaimed
			}
		}
	}
	return claims, nil
}

// giveBack releases what a call claimed before it failed, and what it may have
// claimed by a put whose answer never came. What cannot be released is unknown
// to the next session, and that is as much as can be done.
func (l *DynamoLedger) giveBack(ctx context.Context, keys []Key, claims []Claim) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(dynamoAtOnce)
	for i, key := range keys {
		if claims[i] == Claimed || claims[i] == 0 {
			group.Go(func() error {
				_ = l.release(ctx, key)
				return nil
			})
		}
	}
	_ = group.Wait()
}

// claim puts the item where there is none, and else tells whose it is.
func (l *DynamoLedger) claim(ctx context.Context, key Key, call string, retake bool) (Claim, error) {
	put := &dynamodb.PutItemInput{
		TableName: &l.table, Item: l.item(key),
		ConditionExpression:                 aws.String("attribute_not_exists(#run)"),
		ExpressionAttributeNames:            map[string]string{"#run": attrRun},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	put.Item[attrState], put.Item[attrClaim] = text(stateNameClaimed), text(call)
	put.Item[attrClaimedAt] = text(l.now().UTC().Format(time.RFC3339Nano))
	for range 2 {
		there, err := l.put(ctx, put)
		switch {
		case err != nil:
			return 0, err
		case there == nil:
			return Claimed, nil
		}
		claim := l.answer(there, call)
		if claim != Unknown || !retake || l.alive(there) {
			return claim, nil
		}
		// In place of the very claim that was seen, so that of two operators
		// one gets it.
		put.ConditionExpression = aws.String("#state = :claimed AND #session = :session AND #claim = :claim")
		put.ExpressionAttributeNames = map[string]string{"#state": attrState, "#session": attrSession, "#claim": attrClaim}
		put.ExpressionAttributeValues = map[string]types.AttributeValue{
			":claimed": text(stateNameClaimed), ":session": there[attrSession], ":claim": there[attrClaim],
		}
	}
	return Unknown, nil
}

// Names of the states.
const (
	stateNameClaimed = "claimed"
	stateNameSent    = "sent"
)

// put returns the item that is there where the condition does not hold.
func (l *DynamoLedger) put(ctx context.Context, in *dynamodb.PutItemInput) (map[string]types.AttributeValue, error) {
	_, err := l.client.PutItem(ctx, in)
	var there *types.ConditionalCheckFailedException
	if !errors.As(err, &there) {
		return nil, err
	}
	if there.Item == nil {
		// It expired or was released between the check and the answer.
		return map[string]types.AttributeValue{}, nil
	}
	return there.Item, nil
}

// answer tells what an item means to this session; call is the one under way.
func (l *DynamoLedger) answer(item map[string]types.AttributeValue, call string) Claim {
	switch {
	case textOf(item[attrState]) == stateNameSent:
		return AlreadySent
	case textOf(item[attrSession]) != l.session:
		return Unknown
	case textOf(item[attrClaim]) == call:
		return Claimed // the answer to an earlier attempt of this put got lost
	}
	return AlreadyClaimed
}

// alive tells whether whoever made the claim may still be about to send.
func (l *DynamoLedger) alive(item map[string]types.AttributeValue) bool {
	at, err := time.Parse(time.RFC3339Nano, textOf(item[attrClaimedAt]))
	return err != nil || l.now().Sub(at) < ClaimLife
}

// Look implements Ledger.
func (l *DynamoLedger) Look(ctx context.Context, keys []Key) ([]Claim, error) {
	claims := make([]Claim, len(keys))
	var group errgroup.Group
	group.SetLimit(dynamoAtOnce)
	for i, key := range keys {
		group.Go(func() error {
			out, err := l.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &l.table, Key: l.key(key), ConsistentRead: aws.Bool(true)})
			if err != nil {
				return fmt.Errorf("look into sent-ledger: %w", err)
			}
			claims[i] = Claimed
			if len(out.Item) > 0 {
				claims[i] = l.answer(out.Item, "")
			}
			return nil
		})
	}
	return claims, group.Wait()
}

// Settle implements Ledger.
func (l *DynamoLedger) Settle(ctx context.Context, sent []Receipt, released []Key) error {
	var group errgroup.Group
	group.SetLimit(dynamoAtOnce)
	for _, receipt := range sent {
		group.Go(func() error { return l.confirm(ctx, receipt) })
	}
	for _, key := range released {
		group.Go(func() error { return l.release(ctx, key) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("settle in sent-ledger: %w", err)
	}
	return nil
}

// confirm turns the claim into a sent mail.
func (l *DynamoLedger) confirm(ctx context.Context, receipt Receipt) error {
	_, err := l.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &l.table, Key: l.key(receipt.Key),
		UpdateExpression:    aws.String("SET #state = :sent, #id = :id, #at = :at"),
		ConditionExpression: aws.String("#session = :session"),
		ExpressionAttributeNames: map[string]string{
			"#state": attrState, "#id": attrMessageID, "#at": attrSentAt, "#session": attrSession,
		},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":sent": text(stateNameSent), ":id": text(receipt.ID), ":at": text(receipt.Time.UTC().Format(time.RFC3339Nano)), ":session": text(l.session),
		},
	})
	var differs *types.ConditionalCheckFailedException
	if errors.As(err, &differs) {
		return errNotClaimed
	}
	return err
}

// release removes the claim.
func (l *DynamoLedger) release(ctx context.Context, key Key) error {
	_, err := l.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
		TableName: &l.table, Key: l.key(key),
		ConditionExpression:      aws.String("attribute_not_exists(#session) OR (#session = :session AND #state = :claimed)"),
		ExpressionAttributeNames: map[string]string{"#state": attrState, "#session": attrSession},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":session": text(l.session), ":claimed": text(stateNameClaimed),
		},
	})
	var differs *types.ConditionalCheckFailedException
	if errors.As(err, &differs) {
		return errNotClaimed
	}
	return err
}

// item is what every entry holds.
func (l *DynamoLedger) item(key Key) map[string]types.AttributeValue {
	item := l.key(key)
	item[attrSession] = text(l.session)
	item[attrExpiresAt] = &types.AttributeValueMemberN{Value: strconv.FormatInt(l.now().Add(l.keepFor).Unix(), 10)}
	return item
}

func (l *DynamoLedger) key(key Key) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{attrRun: text(keyText(key.RunID)), attrUser: text(keyText(key.UserID))}
}

const (
	// maxKeyBytes is DynamoDB's limit for a sort key.
	maxKeyBytes = 1024
	// hashedPrefix begins the text that stands for an id which no key can be.
	hashedPrefix = "#sha256:"
)

// keyText returns the id as it can stand in a key. The prefix is kept apart, so
// that no id can pass for another one.
func keyText(id string) string {
	if id != "" && len(id) <= maxKeyBytes && utf8.ValidString(id) && !strings.HasPrefix(id, "#") {
		return id
	}
	hash := Key{UserID: id}.hash()
	return hashedPrefix + hex.EncodeToString(hash[:])
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func textOf(v types.AttributeValue) string {
	if s, ok := v.(*types.AttributeValueMemberS); ok {
		return s.Value
	}
	return ""
}
