package states

import "fmt"

// Run is the machine that takes one input file through: claim the file,
// normalise it, refuse what would cost too much, generate, wait for the rows,
// reconcile them, tell.
//
// An execution is started by an event of S3 by way of EventBridge ("Object
// Created", as it is), or by hand with one of
//
//	{"bucket": …, "key": …}         as the event would
//	{"redrive": RUN_ID}             what failed in that run, and no others
//
// to which version_id, format (csv, jsonl), limit (the first so many records)
// and again can be added. The run has the name of its execution as run_id. An
// object, by bucket, key and version, is claimed by the first execution that
// comes; another one ends well and does nothing, unless its again is the run_id
// of the execution that has the claim.
//
// Its role must be allowed lambda:InvokeFunction on the functions,
// dynamodb:PutItem and UpdateItem on the table, s3:GetObject, PutObject,
// ListMultipartUploadParts and AbortMultipartUpload below runs/ in the bucket,
// states:StartExecution on the machine itself, DescribeExecution and
// StopExecution on its executions, and sns:Publish on the topic if there is one.
type Run struct {
	// Qualified ARNs of the functions, all of one partition.
	NormaliseFunction, GenerateFunction, ReconcileFunction string
	// Timeouts of these functions, 1 to 900 s.
	NormaliseTimeoutSec, GenerateTimeoutSec, ReconcileTimeoutSec int

	// ClaimsTable has the partition key ClaimKey, a string.
	ClaimsTable string
	// RunsBucket holds the objects of runs, below runs/.
	RunsBucket string

	// MaxConcurrency bounds the batches at one time, 1 to 10,000.
	MaxConcurrency int
	// A batch has at most MaxItemsPerBatch records, 1 to 10,000, and at most
	// MaxInputBytesPerBatch of them, up to 253,952, the default where it is 0: the
	// rest of 256 KiB is for what a child keeps beside them.
	MaxItemsPerBatch, MaxInputBytesPerBatch int
	// ToleratedFailurePercentage of the records may be in batches that failed;
	// beyond that the map ends. 0 to 100.
	ToleratedFailurePercentage int

	// BufferSec is the buffer time of the Firehose stream, 1 to 900 s.
	BufferSec int
	// SettleSec is waited before the first look at the rows, up to 3,600 s; 0 is
	// BufferSec and 30 s more, since conversion and the write to S3 take their
	// time.
	SettleSec int
	// ReconcileAttempts is how often the rows are looked at, with BufferSec
	// between, before a run with missing rows is given up. 1 to 100; 0 is 5.
	ReconcileAttempts int

	// TimeoutSec ends a run from outside, up to a year. Nothing is told or
	// marked then, as after StopExecution: the claim stays as it is, until an
	// execution with again takes it over. 0 is none.
	TimeoutSec int
	// TopicArn is an SNS topic that is told how each run ended; empty is none.
	TopicArn string
	// Comment is a line for people that look at the machine, up to 200
	// characters.
	Comment string
}

// ClaimKey is the partition key of the table of claims. Its value is bucket,
// key and version with # between. Other attributes: run_id, execution, state
// (running, complete, incomplete, refused or failed), error, claimed_at and
// ended_at.
const ClaimKey = "object"

// RunsPrefix is where the objects of runs lie in the runs bucket.
const RunsPrefix = "runs/"

// settleMarginSec is waited for on top of Firehose's buffer.
const settleMarginSec = 30

// defaultReconcileAttempts with the largest buffer are more than an hour.
const defaultReconcileAttempts = 5

// How a run ends, as its claim and the message say.
const (
	stateRunning    = "running"
	stateComplete   = "complete"   // every user has a row
	stateIncomplete = "incomplete" // some have none
	stateRefused    = "refused"    // over the ceiling; nothing was spent
	stateFailed     = "failed"
	stateDuplicate  = "duplicate"
)

// Validate returns a FieldError for each field that can't be, joined.
func (r Run) Validate() error {
	var f faults
	f.functions(map[string]string{
		"NormaliseFunction": r.NormaliseFunction, "GenerateFunction": r.GenerateFunction, "ReconcileFunction": r.ReconcileFunction,
	})
	f.between("NormaliseTimeoutSec", r.NormaliseTimeoutSec, 1, lambdaMaxSec, "s")
	f.between("GenerateTimeoutSec", r.GenerateTimeoutSec, 1, lambdaMaxSec, "s")
	f.between("ReconcileTimeoutSec", r.ReconcileTimeoutSec, 1, lambdaMaxSec, "s")
	f.match("ClaimsTable", r.ClaimsTable, tableName, "the name of a DynamoDB table")
	f.match("RunsBucket", r.RunsBucket, bucketName, "the name of a bucket")
	f.between("MaxConcurrency", r.MaxConcurrency, 1, maxConcurrency, "batches at one time")
	f.between("MaxItemsPerBatch", r.MaxItemsPerBatch, 1, maxItems, "records")
	f.between("MaxInputBytesPerBatch", r.MaxInputBytesPerBatch, 0, maxInputBytes, "bytes")
	f.between("ToleratedFailurePercentage", r.ToleratedFailurePercentage, 0, 100, "percent")
	f.between("BufferSec", r.BufferSec, 1, firehoseBufferMaxSec, "s")
	f.between("SettleSec", r.SettleSec, 0, 3600, "s")
	f.between("ReconcileAttempts", r.ReconcileAttempts, 0, 100, "attempts")
	f.between("TimeoutSec", r.TimeoutSec, 0, executionMaxSec, "s")
	if r.TopicArn != "" {
		f.match("TopicArn", r.TopicArn, topicARN, "the ARN of an SNS topic")
	}
	f.comment("Comment", r.Comment)
	return f.err()
}

// JSON returns the machine's document.
func (r Run) JSON() (string, error) {
	m, err := r.Machine()
	if err != nil {
		return "", err
	}
	return m.Document()
}

// Machine returns the machine, or what Validate returns.
func (r Run) Machine() (Machine, error) {
	if err := r.Validate(); err != nil {
		return Machine{}, fmt.Errorf("state machine of the run: %w", err)
	}
	if r.MaxInputBytesPerBatch == 0 {
		r.MaxInputBytesPerBatch = maxInputBytes
	}
	if r.SettleSec == 0 {
		r.SettleSec = r.BufferSec + settleMarginSec
	}
	if r.ReconcileAttempts == 0 {
		r.ReconcileAttempts = defaultReconcileAttempts
	}
	m := Machine{Comment: r.Comment, StartAt: "How it was started", TimeoutSeconds: r.TimeoutSec, States: map[string]State{}}
	for _, part := range []func(partition) map[string]State{r.start, r.prepare, r.generate, r.settle, r.end} {
		for name, state := range part(partitionOf(r.GenerateFunction)) {
			m.States[name] = state
		}
	}
	return m, nil
}

// start brings the ways to start a run into one form and claims the object.
func (r Run) start(p partition) map[string]State {
	defaults := func(more Template) Template {
		t := Template{"version_id": "", "format": "auto", "limit": 0, "again": ""}
		for k, v := range more {
			t[k] = v
		}
		return t
	}
	event := Template{"bucket.$": "$.detail.bucket.name", "key.$": "$.detail.object.key"}
	versioned := Template{"bucket.$": "$.detail.bucket.name", "key.$": "$.detail.object.key", "version_id.$": "$.detail.object['version-id']"}
	claim := Task{
		Comment:  "Events can come twice. Trying again after an answer that got lost finds the claim of this very run",
		Resource: p.resource(putItem),
		Parameters: Template{
			"TableName": r.ClaimsTable,
			"Item": Template{
				ClaimKey:     Template{"S.$": object},
				"run_id":     Template{"S.$": "$.run_id"},
				"execution":  Template{"S.$": "$$.Execution.Id"},
				"state":      Template{"S": stateRunning},
				"claimed_at": Template{"S.$": "$$.State.EnteredTime"},
			},
			"ConditionExpression":       "attribute_not_exists(#object) OR #run = :run OR #run = :again",
			"ExpressionAttributeNames":  Template{"#object": ClaimKey, "#run": "run_id"},
			"ExpressionAttributeValues": Template{":run": Template{"S.$": "$.run_id"}, ":again": Template{"S.$": "$.input.again"}},
		},
		TimeoutSeconds: 60, ResultPath: Discard,
		Retry: []Retry{database()},
		Catch: []Catch{
			{ErrorEquals: []string{"DynamoDB.ConditionalCheckFailedException"}, ResultPath: "$.failure", Next: "Claimed by another run"},
			{ErrorEquals: []string{"States.ALL"}, ResultPath: "$.failure", Next: "Not claimed"},
		},
		Next: "Normalise",
	}
	return map[string]State{
		"How it was started": Choice{
			Choices: []Rule{
				{And: []Rule{
					{Variable: "$.detail.object.key", IsPresent: new(true)},
					{Variable: "$.detail.object['version-id']", IsPresent: new(true)},
				}, Next: "Event of a version"},
				{Variable: "$.detail.object.key", IsPresent: new(true), Next: "Event"},
				{Variable: "$.redrive", IsPresent: new(true), Next: "Redrive"},
				{And: []Rule{
					{Variable: "$.bucket", IsPresent: new(true)},
					{Variable: "$.key", IsPresent: new(true)},
				}, Next: "Request"},
			},
			Default: "Unknown input",
		},
		"Event of a version": Pass{Parameters: Template{"given": versioned, "defaults": defaults(nil)}, Next: "Input"},
		"Event":              Pass{Parameters: Template{"given": event, "defaults": defaults(nil)}, Next: "Input"},
		"Request":            Pass{Parameters: Template{"given.$": "$", "defaults": defaults(nil)}, Next: "Input"},
		"Redrive": Pass{Parameters: Template{"given.$": "$", "defaults": defaults(Template{
			"bucket": r.RunsBucket, "key.$": "States.Format('" + RunsPrefix + "{}/rerun.jsonl', $.redrive)", "format": "jsonl",
		})}, Next: "Input"},
		"Unknown input": Fail{Error: "EventError", Cause: "the input is no Object Created event and has neither bucket and key nor redrive"},
		"Input": Pass{Parameters: Template{
			"run_id.$": "$$.Execution.Name", "input.$": "States.JsonMerge($.defaults, $.given, false)", "attempt": Template{"n": 1},
		}, Next: "Claim"},
		"Claim": claim,
		"Claimed by another run": Pass{
			Parameters: Template{"state": stateDuplicate, "object.$": object}, ResultPath: "$.outcome", Next: "Duplicate",
		},
		"Duplicate": Succeed{InputPath: "$.outcome"},
	}
}

// object is the key of the claim.
const object = "States.Format('{}#{}#{}', $.input.bucket, $.input.key, $.input.version_id)"

// prepare normalises and guards the budget.
func (r Run) prepare(p partition) map[string]State {
	normalise := p.call(r.NormaliseFunction, r.NormaliseTimeoutSec, Template{
		"run_id.$": "$.run_id", "bucket.$": "$.input.bucket", "key.$": "$.input.key", "version_id.$": "$.input.version_id",
		"format.$": "$.input.format", "limit.$": "$.input.limit",
	}, never(hopeless...), later(6, passing...), crashed())
	normalise.ResultSelector = Template{
		"normalised.$": "$.Payload.normalised", "records.$": "$.Payload.records", "rejected.$": "$.Payload.rejected",
		"limited.$": "$.Payload.limited", "estimate.$": "$.Payload.estimate",
	}
	normalise.ResultPath, normalise.Catch, normalise.Next = "$.normalise", caught("$.failure", "Failed"), "Within the budget"
	return map[string]State{
		"Normalise": normalise,
		"Within the budget": Choice{
			Choices: []Rule{{Variable: "$.normalise.estimate.within_ceiling", BooleanEquals: new(true), Next: "Generate"}},
			Default: "Over the budget",
		},
		"Over the budget": outcome(stateRefused, Template{
			"error": "OverBudgetError", "fails_as": "OverBudgetError",
			"cause.$": "States.Format('{} records would cost {} USD, and the ceiling of a run is {} USD: raise the ceiling, or give a limit', " +
				"$.normalise.records, $.normalise.estimate.usd, $.normalise.estimate.ceiling_usd)",
		}, "Mark"),
	}
}

// generate is the map over the normalised records. Where it fails, what it has
// done is reconciled all the same: a redrive then needs the rest only.
func (r Run) generate(p partition) map[string]State {
	return map[string]State{
		"Generate": Map{
			Label: "generate",
			ItemReader: ItemReader{
				Resource: p.resource(getObject), ReaderConfig: ReaderConfig{InputType: "JSONL"},
				Parameters: Template{"Bucket.$": "$.normalise.normalised.bucket", "Key.$": "$.normalise.normalised.key"},
			},
			ItemBatcher: ItemBatcher{
				MaxItemsPerBatch: r.MaxItemsPerBatch, MaxInputBytesPerBatch: r.MaxInputBytesPerBatch,
				BatchInput: Template{"run_id.$": "$.run_id"},
			},
			ItemProcessor:  p.batch(r.GenerateFunction, r.GenerateTimeoutSec, never(hopeless...), later(8, passing...), crashed()),
			MaxConcurrency: r.MaxConcurrency, ToleratedFailurePercentage: r.ToleratedFailurePercentage,
			ResultWriter: p.results(r.RunsBucket, RunsPrefix+"{}/map"),
			ResultPath:   "$.map", Catch: caught("$.failure", "Let calls end"), Next: "Settle",
		},
		"Let calls end": Wait{
			Comment: "A map that failed leaves calls running. Their rows must be there before anybody says who has none",
			Seconds: r.GenerateTimeoutSec, Next: "Settle",
		},
	}
}

// settle waits until the rows have come, and compares them with the records.
func (r Run) settle(p partition) map[string]State {
	reconcile := p.call(r.ReconcileFunction, r.ReconcileTimeoutSec, Template{"run_id.$": "$.run_id"},
		never(hopeless...), later(6, passing...), crashed())
	reconcile.ResultSelector = Template{
		"complete.$": "$.Payload.complete", "counts.$": "$.Payload.counts", "manifest.$": "$.Payload.manifest",
		"rerun.$": "$.Payload.rerun", "rerun_records.$": "$.Payload.rerun_records",
	}
	reconcile.ResultPath, reconcile.Catch, reconcile.Next = "$.reconcile", caught("$.failure", "Failed"), "All rows there"
	return map[string]State{
		"Settle":    Wait{Comment: "Firehose keeps rows back for as long as its buffer says", Seconds: r.SettleSec, Next: "Reconcile"},
		"Reconcile": reconcile,
		"All rows there": Choice{
			Choices: []Rule{
				{Variable: "$.reconcile.complete", BooleanEquals: new(true), Next: "Complete"},
				{Variable: "$.attempt.n", NumericLessThan: new(float64(r.ReconcileAttempts)), Next: "Next attempt"},
				{Variable: "$.failure", IsPresent: new(true), Next: "Failed"},
			},
			Default: "Incomplete",
		},
		"Next attempt":  Pass{Parameters: Template{"n.$": "States.MathAdd($.attempt.n, 1)"}, ResultPath: "$.attempt", Next: "Wait for rows"},
		"Wait for rows": Wait{Seconds: r.BufferSec, Next: "Reconcile"},
	}
}

// end marks the claim, tells the topic and ends the execution.
func (r Run) end(p partition) map[string]State {
	next := "Outcome"
	if r.TopicArn != "" {
		next = "Notify"
	}
	s := map[string]State{
		"Complete": outcome(stateComplete, Template{"error": "", "cause": "", "counts.$": "$.reconcile.counts", "manifest.$": "$.reconcile.manifest"}, "Mark"),
		"Incomplete": outcome(stateIncomplete, Template{
			"error": "MissingRowsError", "fails_as": "MissingRowsError",
			"cause.$": "States.Format('{} users have no row: start this machine with the input redrive and the run_id {}', " +
				"$.reconcile.counts.missing, $.run_id)",
			"counts.$": "$.reconcile.counts", "manifest.$": "$.reconcile.manifest",
		}, "Mark"),
		"Failed":      failed("RunFailedError", "Mark"),
		"Not claimed": failed("RunFailedError", next),
		"Outcome": Choice{
			Choices: []Rule{{Variable: "$.outcome.state", StringEquals: new(stateComplete), Next: "Done"}},
			Default: "Not done",
		},
		"Done":     Succeed{},
		"Not done": Fail{ErrorPath: "$.outcome.fails_as", CausePath: "$.outcome.cause"},
	}
	if r.TopicArn != "" {
		notify := p.announce(r.TopicArn, "States.Format('Briefings: run {}', $.outcome.state)", "$.outcome")
		notify.Catch, notify.Next = caught("$.untold", "Outcome"), "Outcome"
		s["Notify"] = notify
	}
	s["Mark"] = Task{
		Resource: p.resource(updateItem),
		Parameters: Template{
			"TableName":                r.ClaimsTable,
			"Key":                      Template{ClaimKey: Template{"S.$": object}},
			"UpdateExpression":         "SET #state = :state, #error = :error, #ended = :ended",
			"ConditionExpression":      "#run = :run",
			"ExpressionAttributeNames": Template{"#state": "state", "#error": "error", "#ended": "ended_at", "#run": "run_id"},
			"ExpressionAttributeValues": Template{
				":state": Template{"S.$": "$.outcome.state"}, ":error": Template{"S.$": "$.outcome.error"},
				":ended": Template{"S.$": "$$.State.EnteredTime"}, ":run": Template{"S.$": "$.run_id"},
			},
		},
		TimeoutSeconds: 60, ResultPath: Discard,
		Retry: []Retry{database()},
		Catch: caught("$.unmarked", next),
		Next:  next,
	}
	return s
}

// outcome says how an execution ends, under $.outcome.
func outcome(state string, more Template, next string) Pass {
	t := Template{"state": state, "run_id.$": "$.run_id", "bucket.$": "$.input.bucket", "key.$": "$.input.key"}
	for k, v := range more {
		t[k] = v
	}
	return Pass{Parameters: t, ResultPath: "$.outcome", Next: next}
}

// failed is the outcome after an error under $.failure. An execution may not end
// with the names of errors that the service itself has, so that it ends with
// another, and the error is part of the cause.
func failed(as, next string) Pass {
	return outcome(stateFailed, Template{
		"error.$": "$.failure.Error", "fails_as": as, "cause.$": "States.Format('{}: {}', $.failure.Error, $.failure.Cause)",
	}, next)
}
