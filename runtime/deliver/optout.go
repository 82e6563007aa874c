package deliver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// optOutRun is the run_id under which the ledger's table keeps who unsubscribed.
// No run has it: keyText writes a # at the start of an id as something else.
const optOutRun = "#opt-out"

// DynamoOptOuts are the users who unsubscribed, in the table of the DynamoLedger.
// They do not expire.
type DynamoOptOuts struct {
	client *dynamodb.Client
	table  string
}

var _ Suppressed = (*DynamoOptOuts)(nil)

// NewDynamoOptOuts returns the ones in the table.
func NewDynamoOptOuts(client *dynamodb.Client, table string) *DynamoOptOuts {
	return &DynamoOptOuts{client, table}
}

// Add records that the user unsubscribed. Doing it again changes nothing.
func (o *DynamoOptOuts) Add(ctx context.Context, userID string) error {
	item := o.key(userID)
	item["opted_out_at"] = text(time.Now().UTC().Format(time.RFC3339))
	if _, err := o.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &o.table, Item: item}); err != nil {
		return fmt.Errorf("record that a user unsubscribed: %w", err)
	}
	return nil
}

func (o *DynamoOptOuts) key(userID string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{attrRun: text(optOutRun), attrUser: text(keyText(userID))}
}

// maxBatchGet is how many items one call of BatchGetItem takes.
const maxBatchGet = 100

// Suppressed implements Suppressed.
func (o *DynamoOptOuts) Suppressed(ctx context.Context, userIDs []string) ([]bool, error) {
	found := map[string]bool{}
	asked := map[string]bool{}
	var keys []map[string]types.AttributeValue
	for i, id := range userIDs {
		if name := keyText(id); !asked[name] {
			asked[name] = true
			keys = append(keys, o.key(id))
		}
		if len(keys) == maxBatchGet || i == len(userIDs)-1 && len(keys) > 0 {
			if err := o.get(ctx, keys, found); err != nil {
				return nil, fmt.Errorf("look who unsubscribed: %w", err)
			}
			keys = nil
		}
	}
	suppressed := make([]bool, len(userIDs))
	for i, id := range userIDs {
		suppressed[i] = found[keyText(id)]
	}
	return suppressed, nil
}

// get notes which of the keys are there. DynamoDB may answer for some of them
// only, and wants to be asked again for the others.
func (o *DynamoOptOuts) get(ctx context.Context, keys []map[string]types.AttributeValue, found map[string]bool) error {
	ask := map[string]types.KeysAndAttributes{o.table: {Keys: keys, ProjectionExpression: aws.String(attrUser)}}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		out, err := o.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: ask})
		if err != nil {
			return err
		}
		for _, item := range out.Responses[o.table] {
			found[textOf(item[attrUser])] = true
		}
		if len(out.UnprocessedKeys) == 0 {
			return nil
		}
		ask = out.UnprocessedKeys
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(jitter(wait)):
		}
	}
}

// OptOutList are users who are to get no mail, from a file.
type OptOutList map[string]bool

var _ Suppressed = OptOutList{}

// ReadOptOuts reads one user_id per line; blank lines do not count.
func ReadOptOuts(r io.Reader) (OptOutList, error) {
	list := OptOutList{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if id := lines.Text(); id != "" {
			list[id] = true
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read who unsubscribed: %w", err)
	}
	return list, nil
}

// Suppressed implements Suppressed.
func (l OptOutList) Suppressed(_ context.Context, userIDs []string) ([]bool, error) {
	suppressed := make([]bool, len(userIDs))
	for i, id := range userIDs {
		suppressed[i] = l[id]
	}
	return suppressed, nil
}
