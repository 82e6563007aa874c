package states

// Services of the optimised and the SDK integrations, as the last part of a
// Resource.
const (
	invokeLambda   = "lambda:invoke"
	putItem        = "dynamodb:putItem"
	updateItem     = "dynamodb:updateItem"
	publish        = "sns:publish"
	describeMapRun = "aws-sdk:sfn:describeMapRun"
	getObject      = "s3:getObject"
	putObject      = "s3:putObject"
)

// partition is aws, aws-cn or aws-us-gov: of the ARNs in a document that are no
// resource of an account.
type partition string

// partitionOf returns that of a function.
func partitionOf(arn string) partition {
	if parts := functionARN.FindStringSubmatch(arn); parts != nil {
		return partition(parts[1])
	}
	return "aws"
}

func (p partition) resource(service string) string {
	return "arn:" + string(p) + ":states:::" + service
}

// Errors of the handlers, by the names that Lambda gives them.
var (
	// hopeless ones come again whatever is done.
	hopeless = []string{"EventError", "InputError", "NotFoundError", "ChangedError"}
	// passing ones of the handlers and of Lambda end by themselves.
	passing = []string{
		"ThrottledError", "LoadingError", "UndeliveredError",
		"Lambda.TooManyRequestsException", "Lambda.ServiceException", "Lambda.AWSLambdaException", "Lambda.SdkClientException",
	}
)

// never forbids to retry errors.
func never(errors ...string) Retry { return Retry{ErrorEquals: errors} }

// later retries with waits that double up to a minute. Each is drawn from 0 to
// that, so that thousands of children do not come back together.
func later(attempts int, errors ...string) Retry {
	return Retry{ErrorEquals: errors, IntervalSeconds: 2, BackoffRate: 2, MaxDelaySeconds: 60, MaxAttempts: attempts, JitterStrategy: "FULL"}
}

// crashed is for a function that ended or ran out of time: all errors that the
// retriers before it have not named. A second try may meet a healthy machine; a
// third would mostly cost money.
func crashed() Retry {
	return Retry{ErrorEquals: []string{"States.TaskFailed", "States.Timeout"}, IntervalSeconds: 5, BackoffRate: 2, MaxDelaySeconds: 60, MaxAttempts: 2, JitterStrategy: "FULL"}
}

// functionMarginSec is how long a task waits beyond the timeout of its function,
// so that it is the function that ends first and says so.
const functionMarginSec = 30

// call invokes a function.
func (p partition) call(function string, timeoutSec int, payload any, retry ...Retry) Task {
	parameters := Template{"FunctionName": function}
	if path, ok := payload.(Path); ok {
		parameters["Payload.$"] = path
	} else {
		parameters["Payload"] = payload
	}
	return Task{Resource: p.resource(invokeLambda), Parameters: parameters, TimeoutSeconds: timeoutSec + functionMarginSec, Retry: retry}
}

// database retries what DynamoDB refuses for a moment.
func database() Retry {
	return later(6, "DynamoDB.ProvisionedThroughputExceededException", "DynamoDB.RequestLimitExceeded", "DynamoDB.ThrottlingException",
		"DynamoDB.InternalServerErrorException", "DynamoDB.InternalServerError", "DynamoDB.ServiceUnavailable", "DynamoDB.SdkClientException", "States.Timeout")
}

// announce publishes a subject and what is at a path.
func (p partition) announce(topic, subject string, what Path) Task {
	return Task{
		Resource: p.resource(publish),
		Parameters: Template{
			"TopicArn": topic, "Subject.$": subject,
			"Message.$": "States.JsonToString(" + string(what) + ")",
		},
		TimeoutSeconds: 60, ResultPath: Discard,
		Retry: []Retry{later(4, "States.TaskFailed", "States.Timeout")},
	}
}

// caught catches all errors.
func caught(at Path, next string) []Catch {
	return []Catch{{ErrorEquals: []string{"States.ALL"}, ResultPath: at, Next: next}}
}
