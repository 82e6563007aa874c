// Package awsclient makes the AWS clients of the handlers: once a process, with
// timeouts and retries that fit in a Lambda invocation.
package awsclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/firehose"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go/logging"
)

// Bounds of a call. A response's body may take longer than headerTimeout: that
// of a large object does.
const (
	connectTimeout = 5 * time.Second
	headerTimeout  = 20 * time.Second
	// attempts and maxBackoff: callers that can wait longer do so themselves.
	attempts   = 6
	maxBackoff = 5 * time.Second
)

// Clients are the services that handlers call.
type Clients struct {
	S3       *s3.Client
	Firehose *firehose.Client
	DynamoDB *dynamodb.Client
	SQS      *sqs.Client
	SES      *sesv2.Client

	SecretsManager *secretsmanager.Client
}

// New returns clients for the region and credentials of the environment, which
// on Lambda are those of the function. AWS_ENDPOINT_URL, and
// AWS_ENDPOINT_URL_S3 and so on, take the calls elsewhere; buckets are then
// named in the path.
func New(ctx context.Context) (*Clients, error) {
	transport := awshttp.NewBuildableClient().WithDialerOptions(func(d *net.Dialer) {
		d.Timeout = connectTimeout
	}).WithTransportOptions(func(t *http.Transport) {
		t.ResponseHeaderTimeout = headerTimeout
		t.MaxIdleConnsPerHost = 16
	})
	// The clients' own log lines are no JSON and tell of nothing but retries:
	// what matters comes back as an error.
	cfg, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(transport), config.WithLogger(logging.Nop{}), config.WithRetryer(func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.MaxBackoff = attempts, maxBackoff
			// The client-wide budget would stop retrying a whole batch because
			// other calls have failed; what a call may take is bounded above.
			o.RateLimiter = ratelimit.None
		})
	}))
	if err != nil {
		return nil, fmt.Errorf("configure AWS: %w", err)
	}
	if cfg.Region == "" {
		return nil, fmt.Errorf("configure AWS: no region: set AWS_REGION")
	}
	elsewhere := os.Getenv("AWS_ENDPOINT_URL") != "" || os.Getenv("AWS_ENDPOINT_URL_S3") != ""
	return &Clients{
		S3: s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = elsewhere }),
		// The Firehose sink retries by entry, and does its own waiting.
		Firehose:       firehose.NewFromConfig(cfg, func(o *firehose.Options) { o.RetryMaxAttempts = 1 }),
		DynamoDB:       dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) { o.Retryer = brokenAnswers(o.Retryer) }),
		SQS:            sqs.NewFromConfig(cfg),
		SES:            sesv2.NewFromConfig(cfg),
		SecretsManager: secretsmanager.NewFromConfig(cfg),
	}, nil
}

// brokenAnswers returns a retryer that also tries again where an answer broke
// off in its middle, which the SDK takes for one that it can't read. Only for
// calls that do no harm when they are made twice.
func brokenAnswers(r aws.Retryer) aws.Retryer { return brokenAnswerRetryer{r} }

type brokenAnswerRetryer struct{ aws.Retryer }

// IsErrorRetryable implements aws.Retryer.
func (r brokenAnswerRetryer) IsErrorRetryable(err error) bool {
	return r.Retryer.IsErrorRetryable(err) || errors.Is(err, io.ErrUnexpectedEOF)
}
