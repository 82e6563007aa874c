package main

import (
	"encoding/json"
	"strings"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/cloudwatch"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ecr"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/efs"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/kinesis"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/lambda"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/s3"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/sfn"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/sqs"
	"github.com/pulumi/pulumi-docker/sdk/v4/go/docker"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/briefing-swarm/briefing-swarm/plan"
)

// fixture is a program that keeps all policies: a component of the swarm's type
// with some children, and plain resources beside it. A test changes one thing.
type fixture struct {
	plan   plan.Inputs
	inputs pulumi.Map // of the component
	output pulumi.Map // added to its outputs

	worker    *lambda.FunctionArgs
	deliver   *lambda.FunctionArgs
	machine   map[string]any // the definition
	function  *lambda.FunctionArgs
	url       *lambda.FunctionUrlArgs
	logDays   int
	lifecycle bool
	private   bool
	encrypted bool
	tls       bool
	statement map[string]any // of the plain role's policy
	efs       *efs.FileSystemArgs
	queue     *sqs.QueueArgs
	platform  string
	context   string
	provision int
}

const (
	digest    = "@sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"
	image     = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/acme-worker" + digest
	workerARN = "arn:aws:lambda:eu-west-1:123456789012:function:acme-worker"
	trust     = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"lambda.amazonaws.com"},"Action":"sts:AssumeRole"}]}`
	roleARN   = "arn:aws:iam::123456789012:role/acme"
)

func newFixture(context string) *fixture {
	in := plan.Defaults()
	in.Users, in.Region, in.SesRatePerSec = 10_000, "eu-west-1", 10
	tags := pulumi.ToStringMap(map[string]string{"tenant": "acme", "swarm": "acme"})
	function := func(name, handler string, more map[string]string) *lambda.FunctionArgs {
		variables := map[string]string{"SWARM_HANDLER": handler}
		for key, value := range more {
			variables[key] = value
		}
		return &lambda.FunctionArgs{
			Name: pulumi.String(name), PackageType: pulumi.String("Image"), ImageUri: pulumi.String(image),
			Architectures: pulumi.ToStringArray([]string{"arm64"}), Role: pulumi.String(roleARN),
			MemorySize: pulumi.Int(in.MemoryMib), Timeout: pulumi.Int(900), Tags: tags,
			Environment:   &lambda.FunctionEnvironmentArgs{Variables: pulumi.ToStringMap(variables)},
			LoggingConfig: &lambda.FunctionLoggingConfigArgs{LogFormat: pulumi.String("JSON"), LogGroup: pulumi.String("/swarm/acme")},
		}
	}
	return &fixture{
		plan: in,
		inputs: pulumi.Map{
			"accountQuotas": pulumi.Map{"lambdaConcurrency": pulumi.Float64(2000), "sesRecipientsPerSec": pulumi.Float64(14), "sesRecipientsPer24Hours": pulumi.Float64(50_000)},
		},
		output:  pulumi.Map{},
		worker:  function("acme-worker", "generate", nil),
		deliver: function("acme-deliver", "deliver", map[string]string{"SWARM_UNSUBSCRIBE_URL": "https://acme.example/unsubscribe"}),
		machine: map[string]any{
			"StartAt": "Generate", "States": map[string]any{"Generate": map[string]any{
				"Type": "Map", "End": true, "MaxConcurrency": in.MaxConcurrency,
				"ItemBatcher": map[string]any{"MaxItemsPerBatch": in.BatchSize, "MaxInputBytesPerBatch": 262_144},
				"ItemProcessor": map[string]any{
					"ProcessorConfig": map[string]any{"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}, "StartAt": "Work",
					"States": map[string]any{"Work": map[string]any{"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "End": true,
						"Parameters": map[string]any{"FunctionName": workerARN, "Payload.$": "$"}}},
				},
			}},
		},
		function: &lambda.FunctionArgs{
			Name: pulumi.String("report"), PackageType: pulumi.String("Image"), Architectures: pulumi.ToStringArray([]string{"arm64"}),
			Role: pulumi.String(roleARN), MemorySize: pulumi.Int(512), Timeout: pulumi.Int(60),
			LoggingConfig: &lambda.FunctionLoggingConfigArgs{LogFormat: pulumi.String("JSON"), LogGroup: pulumi.String("/swarm/acme")},
			FileSystemConfig: &lambda.FunctionFileSystemConfigArgs{
				Arn:            pulumi.String("arn:aws:elasticfilesystem:eu-west-1:123456789012:access-point/fsap-0123456789abcdef0"),
				LocalMountPath: pulumi.String("/mnt/models"),
			},
			VpcConfig: &lambda.FunctionVpcConfigArgs{SubnetIds: pulumi.ToStringArray([]string{"subnet-1"}), SecurityGroupIds: pulumi.ToStringArray([]string{"sg-1"})},
		},
		url:       &lambda.FunctionUrlArgs{FunctionName: pulumi.String("report"), AuthorizationType: pulumi.String("AWS_IAM")},
		logDays:   30,
		lifecycle: true, private: true, encrypted: true, tls: true,
		statement: map[string]any{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::reports/*"},
		efs:       &efs.FileSystemArgs{Encrypted: pulumi.Bool(true), ThroughputMode: pulumi.String("elastic")},
		queue:     &sqs.QueueArgs{SqsManagedSseEnabled: pulumi.Bool(true)},
		platform:  "linux/arm64",
		context:   context,
	}
}

// standIn is a component of the swarm's type, without what that does.
type standIn struct{ pulumi.ResourceState }

func (f *fixture) program(ctx *pulumi.Context) error {
	var failed error
	must := func(err error) {
		if failed == nil {
			failed = err
		}
	}
	p, err := plan.Estimate(f.plan)
	if err != nil {
		return err
	}
	text, err := json.Marshal(f.plan)
	if err != nil {
		return err
	}
	needed := pulumi.Map{}
	for _, q := range p.Quotas {
		if q.Code != "" {
			needed[q.Code] = pulumi.Float64(q.Needed.Likely)
		}
	}
	outputs := pulumi.Map{
		"planInputs": pulumi.String(text), "quotasNeeded": needed,
		"usdPerRun": pulumi.Float64(p.Cost.PerRunUsd.Likely), "usdPerRunHigh": pulumi.Float64(p.Cost.PerRunUsd.High),
		"usdPerMonth": pulumi.Float64(p.Cost.PerMonthUsd.Likely), "usdPerRunElsewhere": pulumi.Float64(1000),
	}
	for key, value := range f.output {
		outputs[key] = value
	}

	acme := &standIn{}
	must(ctx.RegisterComponentResourceV2("briefing-swarm:index:BriefingSwarm", "acme", f.inputs, acme))
	child := pulumi.Parent(acme)
	worker, err := lambda.NewFunction(ctx, "acme-worker", f.worker, child)
	must(err)
	_, err = lambda.NewFunction(ctx, "acme-deliver", f.deliver, child)
	must(err)
	definition, err := json.Marshal(f.machine)
	must(err)
	_, err = sfn.NewStateMachine(ctx, "acme-run", &sfn.StateMachineArgs{
		RoleArn: pulumi.String(roleARN), Definition: pulumi.String(definition),
		Tags: pulumi.ToStringMap(map[string]string{"tenant": "acme", "swarm": "acme"}),
	}, child)
	must(err)
	_, err = kinesis.NewFirehoseDeliveryStream(ctx, "acme-rows", &kinesis.FirehoseDeliveryStreamArgs{
		Destination: pulumi.String("extended_s3"), Tags: pulumi.ToStringMap(map[string]string{"tenant": "acme", "swarm": "acme"}),
		ExtendedS3Configuration: &kinesis.FirehoseDeliveryStreamExtendedS3ConfigurationArgs{
			RoleArn: pulumi.String(roleARN), BucketArn: pulumi.String("arn:aws:s3:::reports"),
			BufferingSize: pulumi.Int(f.plan.BufferMib), BufferingInterval: pulumi.Int(f.plan.BufferSec),
		},
	}, child)
	must(err)
	if f.provision > 0 {
		_, err = lambda.NewProvisionedConcurrencyConfig(ctx, "acme-ready", &lambda.ProvisionedConcurrencyConfigArgs{
			FunctionName: pulumi.String("acme-worker"), Qualifier: pulumi.String("1"), ProvisionedConcurrentExecutions: pulumi.Int(f.provision),
		}, child, pulumi.DependsOn([]pulumi.Resource{worker}))
		must(err)
	}
	must(ctx.RegisterResourceOutputs(acme, outputs))

	group := &cloudwatch.LogGroupArgs{Name: pulumi.String("/swarm/acme")}
	if f.logDays > 0 {
		group.RetentionInDays = pulumi.Int(f.logDays)
	}
	_, err = cloudwatch.NewLogGroup(ctx, "logs", group)
	must(err)
	repository, err := ecr.NewRepository(ctx, "reports", &ecr.RepositoryArgs{Name: pulumi.String("reports")})
	must(err)
	if f.lifecycle {
		_, err = ecr.NewLifecyclePolicy(ctx, "reports", &ecr.LifecyclePolicyArgs{Repository: repository.Name, Policy: pulumi.String(
			`{"rules":[{"rulePriority":1,"selection":{"tagStatus":"any","countType":"imageCountMoreThan","countNumber":5},"action":{"type":"expire"}}]}`)})
		must(err)
	}
	built, err := docker.NewImage(ctx, "report", &docker.ImageArgs{
		ImageName: pulumi.Sprintf("%s:latest", repository.RepositoryUrl),
		Build:     &docker.DockerBuildArgs{Context: pulumi.String(f.context), Platform: pulumi.String(f.platform)},
	})
	must(err)
	report := *f.function // the program runs again for the update
	if report.ImageUri == nil {
		report.ImageUri = built.RepoDigest
	}
	_, err = lambda.NewFunction(ctx, "report", &report)
	must(err)
	_, err = lambda.NewFunctionUrl(ctx, "report", f.url)
	must(err)
	_, err = efs.NewFileSystem(ctx, "models", f.efs)
	must(err)
	_, err = sqs.NewQueue(ctx, "requests", f.queue)
	must(err)

	bucket, err := s3.NewBucketV2(ctx, "reports", &s3.BucketV2Args{Bucket: pulumi.String("reports-of-acme")})
	must(err)
	name := pulumi.String("reports-of-acme")
	if f.private {
		_, err = s3.NewBucketPublicAccessBlock(ctx, "reports", &s3.BucketPublicAccessBlockArgs{
			Bucket: bucket.ID(), BlockPublicAcls: pulumi.Bool(true), BlockPublicPolicy: pulumi.Bool(true),
			IgnorePublicAcls: pulumi.Bool(true), RestrictPublicBuckets: pulumi.Bool(true),
		})
		must(err)
	}
	if f.encrypted {
		_, err = s3.NewBucketServerSideEncryptionConfigurationV2(ctx, "reports", &s3.BucketServerSideEncryptionConfigurationV2Args{
			Bucket: bucket.ID(),
			Rules: s3.BucketServerSideEncryptionConfigurationV2RuleArray{&s3.BucketServerSideEncryptionConfigurationV2RuleArgs{
				ApplyServerSideEncryptionByDefault: &s3.BucketServerSideEncryptionConfigurationV2RuleApplyServerSideEncryptionByDefaultArgs{SseAlgorithm: pulumi.String("AES256")},
			}},
		})
		must(err)
	}
	if f.tls {
		_, err = s3.NewBucketPolicy(ctx, "reports", &s3.BucketPolicyArgs{Bucket: name, Policy: pulumi.String(
			`{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:*",` +
				`"Resource":["arn:aws:s3:::reports-of-acme","arn:aws:s3:::reports-of-acme/*"],"Condition":{"Bool":{"aws:SecureTransport":"false"}}}]}`)})
		must(err)
	}
	role, err := iam.NewRole(ctx, "report", &iam.RoleArgs{AssumeRolePolicy: pulumi.String(trust)})
	must(err)
	statement, err := json.Marshal(f.statement)
	must(err)
	_, err = iam.NewRolePolicy(ctx, "report", &iam.RolePolicyArgs{Role: role.Name, Policy: pulumi.String(
		`{"Version":"2012-10-17","Statement":[` + string(statement) + `]}`)})
	must(err)
	return failed
}

// section is the policies' part of what a preview prints, with the pack's own
// path taken out.
func section(text, pack string) string {
	_, rest, found := strings.Cut(text, "Policies:\n")
	if !found {
		return ""
	}
	end := len(rest)
	for _, heading := range []string{"\nDiagnostics:", "\nOutputs:", "\nResources:", "\nDuration:"} {
		if i := strings.Index(rest, heading); i >= 0 {
			end = min(end, i)
		}
	}
	return strings.ReplaceAll(strings.TrimRight(rest[:end], "\n ")+"\n", pack, "PACK")
}
