package component

import (
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/dynamodb"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/s3"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/sfn"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// arn is the ARN of a resource of this account and region, made of its name: the
// name of a new resource is known in a preview, its own arn is not, and what is
// not known no policy can look at before the deployment.
func (s *swarm) arn(service, format string, names ...any) pulumi.StringOutput {
	return pulumi.Sprintf("arn:%s:%s:%s:%s:%s", s.partition, service, s.Region, s.account, pulumi.Sprintf(format, names...))
}

// bucketArn is that of a bucket, which has neither region nor account.
func (s *swarm) bucketArn(b *s3.BucketV2) pulumi.StringOutput {
	return pulumi.Sprintf("arn:%s:s3:::%s", s.partition, b.Bucket)
}

func (s *swarm) tableArn(t *dynamodb.Table) pulumi.StringOutput {
	return s.arn("dynamodb", "table/%s", t.Name)
}

func (s *swarm) machineArn(m *sfn.StateMachine) pulumi.StringOutput {
	return s.arn("states", "stateMachine:%s", m.Name)
}
