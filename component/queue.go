package component

import (
	"strconv"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/dynamodb"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/lambda"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/sqs"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// Attributes of the results table.
const (
	resultKey     = "request_id"
	resultExpires = "expires_at"
)

// How often SQS hands a request out before it is a dead letter, and for how long
// dead letters are kept.
const (
	receives       = 3
	deadLetterDays = 14
	daySec         = 86_400
)

// queue takes single requests and answers them into a table.
type queue struct {
	requests, deadLetters *sqs.Queue
	results               *dynamodb.Table
	function              *lambda.Function
}

// queue builds the path of single requests, or nothing where none was asked for.
func (s *swarm) queue(model *recipe) (*queue, error) {
	if !s.Queue {
		return nil, nil
	}
	q := &queue{}
	var err error
	q.deadLetters, err = sqs.NewQueue(s.ctx, s.child("dead-letters"), &sqs.QueueArgs{
		MessageRetentionSeconds: pulumi.Int(deadLetterDays * daySec), SqsManagedSseEnabled: pulumi.Bool(true), Tags: s.tags(),
	}, s.opts()...)
	if err != nil {
		return nil, err
	}
	q.requests, err = sqs.NewQueue(s.ctx, s.child("requests"), &sqs.QueueArgs{
		// AWS asks for six times the function's timeout, for retries of the poller.
		VisibilityTimeoutSeconds: pulumi.Int(6 * s.TimeoutSec),
		MessageRetentionSeconds:  pulumi.Int(4 * daySec),
		SqsManagedSseEnabled:     pulumi.Bool(true),
		RedrivePolicy:            pulumi.JSONMarshal(pulumi.Map{"deadLetterTargetArn": q.deadLetters.Arn, "maxReceiveCount": pulumi.Int(receives)}),
		Tags:                     s.tags(),
	}, s.opts()...)
	if err != nil {
		return nil, err
	}
	if q.results, err = s.table("results", false, resultExpires, resultKey); err != nil {
		return nil, err
	}
	q.function, err = s.function(function{
		what: "queue", handler: "queue", description: "answers the requests of the queue",
		memoryMib: s.MemoryMib, timeoutSec: s.TimeoutSec, tmpMib: s.EphemeralStorageMib,
		env: with(model.env, pulumi.StringMap{
			"SWARM_RESULTS_TABLE": q.results.Name, "SWARM_DEAD_LETTER_QUEUE_URL": q.deadLetters.Url,
			"SWARM_RESULT_DAYS": pulumi.String(strconv.Itoa(s.RetentionDays)),
		}),
		allow: append([]statement{
			allow([]string{"sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"}, s.arn("sqs", "%s", q.requests.Name)),
			allow([]string{"sqs:SendMessage"}, s.arn("sqs", "%s", q.deadLetters.Name)),
			allow([]string{"dynamodb:GetItem", "dynamodb:PutItem"}, s.tableArn(q.results)),
		}, model.allow...),
		network: model.store,
	})
	if err != nil {
		return nil, err
	}
	_, err = lambda.NewEventSourceMapping(s.ctx, s.child("requests-poller"), &lambda.EventSourceMappingArgs{
		EventSourceArn: q.requests.Arn, FunctionName: q.function.Arn,
		// One at a time: a request waits for no other.
		BatchSize:             pulumi.Int(1),
		FunctionResponseTypes: pulumi.ToStringArray([]string{"ReportBatchItemFailures"}),
		ScalingConfig:         lambda.EventSourceMappingScalingConfigArgs{MaximumConcurrency: pulumi.Int(s.QueueConcurrency)},
		Tags:                  s.tags(),
	}, s.opts()...)
	return q, err
}
