package states

import "fmt"

// Delivery is the machine that mails the rows of one Parquet file: ask when and
// how fast, wait until then, send, count, tell. An execution is started by an
// event of S3 by way of EventBridge ("Object Created", as it is), or by hand
// with {"bucket": …, "key": …}, to which "retry_unknown": true can be added for
// mails of which nobody knows whether they were sent. To start it twice for one
// file is safe: the ledger of the function knows who has been mailed.
//
// Its role must be allowed lambda:InvokeFunction on the function, s3:GetObject
// on the Parquet files, s3:PutObject, GetObject, ListMultipartUploadParts and
// AbortMultipartUpload below deliveries/ in the bucket of runs,
// states:StartExecution on the machine itself, DescribeExecution and
// StopExecution on its executions, states:DescribeMapRun on its map runs, and
// sns:Publish on the topic if there is one.
type Delivery struct {
	// DeliverFunction is a qualified ARN. Its answer to a schedule event says how
	// many workers send and how many rows a batch has.
	DeliverFunction string
	// DeliverTimeoutSec is the timeout of this function, 1 to 900 s.
	DeliverTimeoutSec int
	// RunsBucket gets the receipts of the batches, below deliveries/.
	RunsBucket string
	// MaxInputBytesPerBatch bounds a batch beside the number of rows, as that of
	// Run.
	MaxInputBytesPerBatch int
	// ToleratedFailurePercentage of the rows may be in batches that failed. A
	// mail that can't be sent fails no batch, so that 0 is a good choice: SES that
	// refuses to send for this account then ends the map with the first batch.
	ToleratedFailurePercentage int
	// WindowSec is how long a call is tried again while the sending rate or the
	// concurrency of the function is used up, as by the delivery of another file,
	// 60 to 86,400 s.
	WindowSec int
	// TimeoutSec ends a delivery from outside, up to a year; nothing is told
	// then. The wait until the time of delivery is part of it. 0 is none.
	TimeoutSec int
	// TopicArn is an SNS topic that is told how each delivery ended; empty is
	// none.
	TopicArn string
	// Comment is a line for people that look at the machine, up to 200
	// characters.
	Comment string
}

// DeliveriesPrefix is where the receipts of deliveries lie in the runs bucket.
const DeliveriesPrefix = "deliveries/"

// stateDelivered is how a delivery ends that sent what could be sent.
const stateDelivered = "delivered"

// Validate returns a FieldError for each field that can't be, joined.
func (d Delivery) Validate() error {
	var f faults
	f.functions(map[string]string{"DeliverFunction": d.DeliverFunction})
	f.between("DeliverTimeoutSec", d.DeliverTimeoutSec, 1, lambdaMaxSec, "s")
	f.match("RunsBucket", d.RunsBucket, bucketName, "the name of a bucket")
	f.between("MaxInputBytesPerBatch", d.MaxInputBytesPerBatch, 0, maxInputBytes, "bytes")
	f.between("ToleratedFailurePercentage", d.ToleratedFailurePercentage, 0, 100, "percent")
	f.between("WindowSec", d.WindowSec, 60, 24*3600, "s")
	f.between("TimeoutSec", d.TimeoutSec, 0, executionMaxSec, "s")
	if d.TopicArn != "" {
		f.match("TopicArn", d.TopicArn, topicARN, "the ARN of an SNS topic")
	}
	f.comment("Comment", d.Comment)
	return f.err()
}

// JSON returns the machine's document.
func (d Delivery) JSON() (string, error) {
	m, err := d.Machine()
	if err != nil {
		return "", err
	}
	return m.Document()
}

// Machine returns the machine, or what Validate returns.
func (d Delivery) Machine() (Machine, error) {
	if err := d.Validate(); err != nil {
		return Machine{}, fmt.Errorf("state machine of the delivery: %w", err)
	}
	if d.MaxInputBytesPerBatch == 0 {
		d.MaxInputBytesPerBatch = maxInputBytes
	}
	m := Machine{Comment: d.Comment, StartAt: "How it was started", TimeoutSeconds: d.TimeoutSec, States: map[string]State{}}
	for _, part := range []func(partition) map[string]State{d.start, d.deliver, d.end} {
		for name, state := range part(partitionOf(d.DeliverFunction)) {
			m.States[name] = state
		}
	}
	return m, nil
}

// start brings the ways to start a delivery into one form, and waits until its
// time.
func (d Delivery) start(p partition) map[string]State {
	schedule := p.call(d.DeliverFunction, d.DeliverTimeoutSec, Template{
		"schedule": Template{"bucket.$": "$.input.bucket", "key.$": "$.input.key"},
	}, never(unsendable...), later(d.attempts(), passing...), crashed())
	defaults := Template{"retry_unknown": false}
	schedule.ResultSelector = Template{
		"wait_until.$": "$.Payload.wait_until", "workers.$": "$.Payload.workers", "batch_size.$": "$.Payload.batch_size",
		"rate_per_sec.$": "$.Payload.rate_per_sec",
	}
	schedule.ResultPath, schedule.Catch, schedule.Next = "$.schedule", caught("$.failure", "Failed"), "Wait until its time"
	return map[string]State{
		"How it was started": Choice{
			Choices: []Rule{
				{Variable: "$.detail.object.key", IsPresent: new(true), Next: "Event"},
				{And: []Rule{
					{Variable: "$.bucket", IsPresent: new(true)},
					{Variable: "$.key", IsPresent: new(true)},
				}, Next: "Request"},
			},
			Default: "Unknown input",
		},
		"Event": Pass{Parameters: Template{
			"given": Template{"bucket.$": "$.detail.bucket.name", "key.$": "$.detail.object.key"}, "defaults": defaults,
		}, Next: "Input"},
		"Request": Pass{Parameters: Template{"given.$": "$", "defaults": defaults}, Next: "Input"},
		"Input": Pass{Parameters: Template{
			"run_id.$": "$$.Execution.Name", "input.$": "States.JsonMerge($.defaults, $.given, false)",
		}, Next: "Schedule"},
		"Unknown input":       Fail{Error: "EventError", Cause: "the input is no Object Created event and has no bucket and key"},
		"Schedule":            schedule,
		"Wait until its time": Wait{TimestampPath: "$.schedule.wait_until", Next: "Deliver"},
	}
}

// unsendable errors of the deliver function come again whatever is done.
var unsendable = append([]string{"StoppedError"}, hopeless...)

// deliver is the map over the rows.
func (d Delivery) deliver(p partition) map[string]State {
	summary := Task{
		Comment:        "How many rows were in batches that ended well, and in others; what became of each mail is in the receipts",
		Resource:       p.resource(describeMapRun),
		Parameters:     Template{"MapRunArn.$": "$.map.MapRunArn"},
		ResultSelector: Template{"items.$": "$.ItemCounts", "batches.$": "$.ExecutionCounts"},
		TimeoutSeconds: 60, ResultPath: "$.summary",
		Retry: []Retry{later(4, "States.TaskFailed", "States.Timeout")},
		Catch: caught("$.uncounted", "Delivered uncounted"),
		Next:  "Delivered",
	}
	return map[string]State{
		"Deliver": Map{
			Label: "deliver",
			ItemReader: ItemReader{
				Resource: p.resource(getObject), ReaderConfig: ReaderConfig{InputType: "PARQUET"},
				Parameters: Template{"Bucket.$": "$.input.bucket", "Key.$": "$.input.key"},
			},
			ItemBatcher: ItemBatcher{
				MaxItemsPerBatchPath: "$.schedule.batch_size", MaxInputBytesPerBatch: d.MaxInputBytesPerBatch,
				BatchInput: Template{"bucket.$": "$.input.bucket", "key.$": "$.input.key", "retry_unknown.$": "$.input.retry_unknown"},
			},
			ItemProcessor: p.batch(d.DeliverFunction, d.DeliverTimeoutSec,
				never(unsendable...), later(d.attempts(), passing...), crashed()),
			MaxConcurrencyPath: "$.schedule.workers", ToleratedFailurePercentage: d.ToleratedFailurePercentage,
			ResultWriter: p.results(d.RunsBucket, DeliveriesPrefix+"{}"),
			ResultPath:   "$.map", Catch: caught("$.failure", "Failed"), Next: "Summary",
		},
		"Summary": summary,
	}
}

// attempts fill the window: most waits are drawn from 0 to 60 s.
func (d Delivery) attempts() int { return 6 + d.WindowSec/30 }

// end tells the topic and ends the execution.
func (d Delivery) end(p partition) map[string]State {
	next := "Outcome"
	if d.TopicArn != "" {
		next = "Notify"
	}
	s := map[string]State{
		"Delivered":           outcome(stateDelivered, Template{"error": "", "cause": "", "summary.$": "$.summary", "receipts.$": "$.map.ResultWriterDetails"}, next),
		"Delivered uncounted": outcome(stateDelivered, Template{"error": "", "cause": "", "receipts.$": "$.map.ResultWriterDetails"}, next),
		"Failed":              failed("DeliveryFailedError", next),
		"Outcome": Choice{
			Choices: []Rule{{Variable: "$.outcome.state", StringEquals: new(stateDelivered), Next: "Done"}},
			Default: "Not done",
		},
		"Done":     Succeed{},
		"Not done": Fail{ErrorPath: "$.outcome.fails_as", CausePath: "$.outcome.cause"},
	}
	if d.TopicArn != "" {
		notify := p.announce(d.TopicArn, "States.Format('Briefings: delivery {}', $.outcome.state)", "$.outcome")
		notify.Catch, notify.Next = caught("$.untold", "Outcome"), "Outcome"
		s["Notify"] = notify
	}
	return s
}
