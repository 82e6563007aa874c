package component

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"strconv"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/cloudwatch"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/lambda"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/s3"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// function is one Lambda function. All of them run the same image and differ in
// what SWARM_HANDLER says.
type function struct {
	// what is the end of its name, and handler its SWARM_HANDLER.
	what, handler, description string
	memoryMib, timeoutSec      int
	tmpMib                     int // 0 is Lambda's least
	// reserved is concurrency that only this function has; 0 is none.
	reserved int
	env      pulumi.StringMap
	allow    []statement
	// network is where the model's file system is; nil without.
	network *modelStore
	after   []pulumi.Resource
}

// logLevel of every function: one line a batch, and what went wrong.
const logLevel = "info"

// function creates a function with its log group and its role.
func (s *swarm) function(f function) (*lambda.Function, error) {
	logs, err := s.logs("/aws/lambda/", f.what)
	if err != nil {
		return nil, err
	}
	statements := append([]statement{
		allow([]string{"logs:CreateLogStream", "logs:PutLogEvents"}, s.arn("logs", "log-group:%s:*", logs.Name)),
	}, f.allow...)
	if f.network != nil {
		statements = append(statements, f.network.statements()...)
	}
	role, permissions, err := s.role(f.what, lambdaService, statements...)
	if err != nil {
		return nil, err
	}
	env := pulumi.StringMap{
		"SWARM_HANDLER": pulumi.String(f.handler), "SWARM_TENANT": pulumi.String(s.Tenant), "SWARM_LOG_LEVEL": pulumi.String(logLevel),
	}
	maps.Copy(env, f.env)
	args := &lambda.FunctionArgs{
		Description:   pulumi.String("briefing swarm " + s.name + ": " + f.description),
		PackageType:   pulumi.String("Image"),
		ImageUri:      s.worker,
		Architectures: pulumi.ToStringArray([]string{s.Architecture}),
		MemorySize:    pulumi.Int(f.memoryMib),
		Timeout:       pulumi.Int(f.timeoutSec),
		Role:          role.Arn,
		// State machines call versions: a run that is under way keeps its code.
		Publish:       pulumi.Bool(true),
		Environment:   lambda.FunctionEnvironmentArgs{Variables: env},
		LoggingConfig: lambda.FunctionLoggingConfigArgs{LogFormat: pulumi.String("Text"), LogGroup: logs.Name},
		Tags:          s.tags(),
	}
	if f.tmpMib > 0 {
		args.EphemeralStorage = lambda.FunctionEphemeralStorageArgs{Size: pulumi.Int(f.tmpMib)}
	}
	if f.reserved > 0 {
		args.ReservedConcurrentExecutions = pulumi.Int(f.reserved)
	}
	if f.network != nil {
		f.network.mount(args)
		f.after = append(f.after, f.network.ready...)
	}
	return lambda.NewFunction(s.ctx, s.child(f.what), args, s.opts(pulumi.DependsOn(append(f.after, permissions)))...)
}

// logs creates a log group under a name that nobody else's stack has. Who writes
// to it is created after it, or AWS makes one without retention.
func (s *swarm) logs(prefix, what string) (*cloudwatch.LogGroup, error) {
	return cloudwatch.NewLogGroup(s.ctx, s.child(what+"-logs"), &cloudwatch.LogGroupArgs{
		Name:            pulumi.String(prefix + path.Join(s.ctx.Project(), s.ctx.Stack(), s.child(what))),
		RetentionInDays: pulumi.Int(s.RetentionDays),
		Tags:            s.tags(),
	}, s.opts()...)
}

// invoke permits to call any version of a function.
func (s *swarm) invoke(f *lambda.Function) statement {
	return allow([]string{"lambda:InvokeFunction"}, s.arn("lambda", "function:%s:*", f.Name))
}

// recipe is what the functions that generate have in common: their environment,
// the permission to read their texts, and where the model lies beside the image.
type recipe struct {
	env   pulumi.StringMap
	allow []statement
	store *modelStore
}

func (s *swarm) recipe(runs *s3.BucketV2, store *modelStore) (*recipe, error) {
	env := pulumi.StringMap{
		"SWARM_MODEL_NAME":     pulumi.String(s.plan.Inputs.Model.String()),
		"SWARM_MAX_TOKENS":     pulumi.String(strconv.Itoa(s.MaxTokens)),
		"SWARM_TEMPERATURE":    decimal(s.Temperature),
		"SWARM_TOP_P":          decimal(s.TopP),
		"SWARM_MIN_P":          decimal(s.MinP),
		"SWARM_SEED":           pulumi.String(strconv.Itoa(s.Seed)),
		"SWARM_PARALLEL":       pulumi.String(strconv.Itoa(min(s.ParallelSequences, s.BatchSize))),
		"SWARM_CONTEXT_TOKENS": pulumi.String(strconv.Itoa(s.ContextTokens)),
	}
	if len(s.Stop) > 0 {
		list, err := json.Marshal(s.Stop)
		if err != nil {
			return nil, fmt.Errorf("stop: %w", err)
		}
		env["SWARM_STOP"] = pulumi.String(list)
	}
	if store != nil {
		env["SWARM_MODEL"] = pulumi.String(store.path(s.model.File)) // in the image, the image says where
	}
	texts, read, err := s.storeTexts(runs, s.promptTexts())
	return &recipe{env: with(env, texts), allow: read, store: store}, err
}

func decimal(v float64) pulumi.String { return pulumi.String(strconv.FormatFloat(v, 'f', -1, 64)) }

// storeTexts puts texts into the runs bucket and returns the variables that name
// them. Their keys change with their content, so that workers which are warm
// already do not keep the old one.
func (s *swarm) storeTexts(runs *s3.BucketV2, texts []text) (pulumi.StringMap, []statement, error) {
	env := pulumi.StringMap{}
	for _, t := range texts {
		sum := sha256.Sum256([]byte(t.content))
		object, err := s3.NewBucketObjectv2(s.ctx, s.child(t.object), &s3.BucketObjectv2Args{
			Bucket: runs.ID(), Key: pulumi.Sprintf("%s%s-%x.txt", textsPrefix, t.object, sum[:8]),
			Content: pulumi.String(t.content), ContentType: pulumi.String("text/plain; charset=utf-8"),
		}, s.opts()...)
		if err != nil {
			return nil, nil, err
		}
		env[t.env] = pulumi.Sprintf("s3://%s/%s", runs.ID(), object.Key)
	}
	if len(texts) == 0 {
		return env, nil, nil
	}
	return env, []statement{allow([]string{"s3:GetObject"}, below(s.bucketArn(runs), textsPrefix))}, nil
}
