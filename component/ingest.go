package component

import (
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/dynamodb"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/s3"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/briefing-swarm/briefing-swarm/component/states"
)

// inputsPrefix is where an input file starts a run.
const inputsPrefix = "inputs/"

// textsPrefix is beside states.RunsPrefix and DeliveriesPrefix in the runs
// bucket.
const textsPrefix = "texts/"

// ingest is where input files land, and where it is kept which of them were
// seen.
type ingest struct {
	inputs, runs *s3.BucketV2
	claims       *dynamodb.Table
}

func (s *swarm) ingest() (*ingest, error) {
	inputs, err := s.bucket("inputs", true, inputsPrefix)
	if err != nil {
		return nil, err
	}
	runs, err := s.bucket("runs", false, states.RunsPrefix, states.DeliveriesPrefix)
	if err != nil {
		return nil, err
	}
	// Claims do not expire: an old event that comes again must not start a run.
	claims, err := s.table("claims", true, "", states.ClaimKey)
	if err != nil {
		return nil, err
	}
	return &ingest{inputs: inputs, runs: runs, claims: claims}, nil
}

// table creates a table with keys that are strings. Where it is a memory, it can
// be restored to any minute of the last 35 days. Where expires names an
// attribute, items disappear at its time.
func (s *swarm) table(what string, memory bool, expires string, keys ...string) (*dynamodb.Table, error) {
	args := &dynamodb.TableArgs{
		BillingMode: pulumi.String("PAY_PER_REQUEST"), HashKey: pulumi.String(keys[0]),
		PointInTimeRecovery:       dynamodb.TablePointInTimeRecoveryArgs{Enabled: pulumi.Bool(memory)},
		DeletionProtectionEnabled: pulumi.Bool(!s.ForceDestroy),
		Tags:                      s.tags(),
	}
	attributes := dynamodb.TableAttributeArray{}
	for _, key := range keys {
		attributes = append(attributes, dynamodb.TableAttributeArgs{Name: pulumi.String(key), Type: pulumi.String("S")})
	}
	args.Attributes = attributes
	if len(keys) > 1 {
		args.RangeKey = pulumi.String(keys[1])
	}
	if expires != "" {
		args.Ttl = dynamodb.TableTtlArgs{AttributeName: pulumi.String(expires), Enabled: pulumi.Bool(true)}
	}
	return dynamodb.NewTable(s.ctx, s.child(what), args, s.opts()...)
}
