package component_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"

	"github.com/briefing-swarm/briefing-swarm/component"
)

// registered is one resource as the engine was asked for it.
type registered struct {
	Type, Name, ID string
	Inputs         resource.PropertyMap
	RPC            *pulumirpc.RegisterResourceRequest
}

// cloud stands in for the engine and the providers: it records what is asked
// for, and answers with made-up ids and ARNs. It proves wiring only.
type cloud struct {
	mu        sync.Mutex
	region    string
	preview   bool
	resources []registered
	calls     []pulumi.MockCallArgs
}

func (c *cloud) NewResource(a pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := registered{Type: a.TypeToken, Name: a.Name, ID: a.Name + "-0123456", Inputs: a.Inputs.Copy(), RPC: a.RegisterRPC}
	c.resources = append(c.resources, r)
	state := a.Inputs.Copy()
	if c.preview {
		return "", state, nil // what a provider makes up is unknown in a preview
	}
	for key, value := range resource.NewPropertyMapFromMap(computed(a.TypeToken, a.Name, r.ID, c.region)) {
		if _, set := state[key]; !set {
			state[key] = value
		}
	}
	return r.ID, state, nil
}

func (c *cloud) Call(a pulumi.MockCallArgs) (resource.PropertyMap, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, a)
	var answer map[string]any
	switch a.Token {
	case "aws:index/getRegion:getRegion":
		answer = map[string]any{"name": c.region, "id": c.region, "endpoint": "", "description": ""}
	case "aws:index/getCallerIdentity:getCallerIdentity":
		answer = map[string]any{"accountId": account, "arn": "arn:aws:iam::" + account + ":user/ana", "userId": "AIDA", "id": account}
	case "aws:ecr/getAuthorizationToken:getAuthorizationToken":
		answer = map[string]any{"userName": "AWS", "password": "token", "proxyEndpoint": "https://registry", "authorizationToken": "x", "expiresAt": "", "id": c.region}
	case "aws:index/getAvailabilityZones:getAvailabilityZones":
		answer = map[string]any{"names": []any{c.region + "a", c.region + "b", c.region + "c"}, "id": c.region}
	default:
		return nil, fmt.Errorf("no answer to %s is known", a.Token)
	}
	return resource.NewPropertyMapFromMap(answer), nil
}

const account = "123456789012"

// computed are the outputs that the services make up, by type.
func computed(token, name, id, region string) map[string]any {
	arn := func(service, resource string) string {
		return fmt.Sprintf("arn:aws:%s:%s:%s:%s", service, region, account, resource)
	}
	out := map[string]any{"name": id}
	switch token {
	case "aws:s3/bucketV2:BucketV2":
		return map[string]any{"bucket": id, "arn": "arn:aws:s3:::" + id}
	case "aws:dynamodb/table:Table":
		out["arn"] = arn("dynamodb", "table/"+id)
	case "aws:iam/role:Role":
		out["arn"] = "arn:aws:iam::" + account + ":role/" + id
	case "aws:lambda/function:Function":
		out["arn"], out["version"] = arn("lambda", "function:"+id), "7"
		out["qualifiedArn"] = arn("lambda", "function:"+id+":7")
	case "aws:ec2/vpc:Vpc":
		out["mainRouteTableId"] = "rtb-0123456"
	case "aws:ec2/subnet:Subnet":
		out["arn"] = arn("ec2", "subnet/"+id)
	case "aws:ec2/securityGroup:SecurityGroup":
		out["arn"] = arn("ec2", "security-group/"+id)
	case "aws:ec2/vpcEndpoint:VpcEndpoint":
		out["prefixListId"] = "pl-0123456"
	case "aws:efs/fileSystem:FileSystem":
		out["arn"] = arn("elasticfilesystem", "file-system/"+id)
	case "aws:efs/accessPoint:AccessPoint":
		out["arn"] = arn("elasticfilesystem", "access-point/"+id)
	case "aws:datasync/s3Location:S3Location", "aws:datasync/efsLocation:EfsLocation":
		out["arn"] = arn("datasync", "location/"+id)
	case "aws:datasync/task:Task":
		out["arn"] = arn("datasync", "task/"+id)
	case "aws:lambda/functionUrl:FunctionUrl":
		out = map[string]any{"functionUrl": "https://" + name + ".lambda-url." + region + ".on.aws/"}
	case "aws:lambda/alias:Alias":
		out["arn"] = arn("lambda", "function:"+id)
	case "aws:sfn/stateMachine:StateMachine":
		out["arn"] = arn("states", "stateMachine:"+id)
	case "aws:kinesis/firehoseDeliveryStream:FirehoseDeliveryStream":
		out["arn"] = arn("firehose", "deliverystream/"+id)
	case "aws:cloudwatch/logGroup:LogGroup":
		out["arn"] = arn("logs", "log-group:"+id)
	case "aws:cloudwatch/eventRule:EventRule":
		out["arn"] = arn("events", "rule/"+id)
	case "aws:ecr/repository:Repository":
		out["arn"], out["registryId"] = arn("ecr", "repository/"+id), account
		out["repositoryUrl"] = fmt.Sprintf("%s.dkr.ecr.%s.amazonaws.com/%s", account, region, id)
	case "docker:index/image:Image":
		out = map[string]any{"repoDigest": fmt.Sprintf("%s.dkr.ecr.%s.amazonaws.com/worker@sha256:%064x", account, region, 7)}
	case "aws:sqs/queue:Queue":
		out["arn"], out["url"] = arn("sqs", id), fmt.Sprintf("https://sqs.%s.amazonaws.com/%s/%s", region, account, id)
	case "aws:sns/topic:Topic":
		out["arn"] = arn("sns", id)
	case "aws:sesv2/emailIdentity:EmailIdentity":
		out = map[string]any{"arn": arn("ses", "identity/acme.example"), "dkimSigningAttributes": map[string]any{"tokens": []any{"one", "two", "three"}}}
	case "aws:sesv2/configurationSet:ConfigurationSet":
		out["arn"] = arn("ses", "configuration-set/"+id)
	case "aws:secretsmanager/secret:Secret":
		out["arn"] = arn("secretsmanager", "secret:"+id)
	}
	return out
}

// build builds a swarm as an update does or, with preview, as a preview.
func build(t *testing.T, preview bool, args *component.Args, opts ...pulumi.ResourceOption) (*cloud, map[string]any, error) {
	t.Helper()
	outputs := map[string]any{}
	c, err := program(t, preview, func(ctx *pulumi.Context) error {
		swarm, err := component.NewBriefingSwarm(ctx, "acme", args, opts...)
		if err != nil {
			return err
		}
		return collect(ctx, swarm, outputs)
	})
	return c, outputs, err
}

// collect puts the values of a swarm's outputs into a map, as far as they are
// known. It exports them, for which a program waits.
func collect(ctx *pulumi.Context, swarm *component.BriefingSwarm, into map[string]any) error {
	var mu sync.Mutex
	for name, output := range swarm.Outputs() {
		output, ok := output.(pulumi.Output)
		if !ok {
			return fmt.Errorf("%s is no output", name)
		}
		ctx.Export(name, output.ApplyT(func(v any) any {
			mu.Lock()
			defer mu.Unlock()
			into[name] = v
			return v
		}))
	}
	return nil
}

// program runs a Pulumi program against the cloud.
func program(t *testing.T, preview bool, of func(*pulumi.Context) error) (*cloud, error) {
	t.Helper()
	return programIn(t, "us-east-1", preview, of)
}

// programIn has a provider of that region, "" for one that is not known yet.
func programIn(t *testing.T, region string, preview bool, of func(*pulumi.Context) error) (*cloud, error) {
	t.Helper()
	t.Chdir(t.TempDir()) // the build context is staged below the working directory
	c := &cloud{region: region, preview: preview}
	err := pulumi.RunErr(of, pulumi.WithMocks("swarms", "test", c), func(info *pulumi.RunInfo) { info.DryRun = preview })
	slices.SortFunc(c.resources, func(a, b registered) int { return strings.Compare(a.Name+" "+a.Type, b.Name+" "+b.Type) })
	return c, err
}

// find returns the resource of that name and type.
func (c *cloud) find(t *testing.T, name, token string) registered {
	t.Helper()
	for _, r := range c.resources {
		if r.Name == name && r.Type == token {
			return r
		}
	}
	t.Fatalf("there is no %s named %s", token, name)
	return registered{}
}

const modelSum = "6c1a2b41161032677be168d354123594c0e6e67d2b9227c84f296ad037c728ff"

// minimal asks for nothing that has a default.
func minimal() *component.Args { return &component.Args{ModelSha256: modelSum} }

// full asks for everything that can be had together.
func full() *component.Args {
	return &component.Args{
		Tenant: "Acme Ltd", Tags: map[string]string{"team": "growth"},
		ModelSha256: modelSum, SystemPrompt: "Write two sentences.", UserTemplate: "{{.name}}: {{.topics}}", Stop: []string{"\n\n"},
		MemoryMib: 5307, ReservedConcurrency: 900, MaxConcurrency: 600,
		ExpectedUsers: 200_000, DeadlineMinutes: 240, CostCeilingUsdPerRun: 500, CostCeilingUsdPerMonth: 20_000,
		AccountQuotas: map[string]float64{"lambdaConcurrency": 3000, "sesRecipientsPerSec": 400, "sesRecipientsPer24Hours": 500_000},
		Sender:        "Acme <briefing@acme.example>", ReplyTo: "help@acme.example", DeliverAt: "08:00", InputAt: "04:00", TimeZone: "Europe/Berlin",
		DeliveryWindowMinutes: 30, SesRatePerSec: 300, UnsubscribeKey: pulumi.String("a key that nobody should be able to read"), UnsubscribeMailto: "leave@acme.example",
		SubjectTemplate: "{{.Subject}}",
		Endpoint:        true, EndpointConcurrency: 20, ProvisionedConcurrency: 2, Queue: true,
		RetentionDays: 90, AlarmsEmail: "ops@acme.example",
	}
}

// given brings what a swarm makes itself otherwise: image, identity, page. Its
// run is a trial.
func given() *component.Args {
	return &component.Args{
		ImageUri: pulumi.String("123456789012.dkr.ecr.us-east-1.amazonaws.com/swarm@sha256:" + modelSum), Architecture: "x86_64", ParallelSequences: 8,
		Items: 10, ExpectedUsers: 1000, Sender: "briefing@acme.example", SenderIdentityArn: pulumi.String("arn:aws:ses:us-east-1:123456789012:identity/acme.example"),
		UnsubscribeUrl: "https://acme.example/unsubscribe/{token}", UnsubscribeKey: pulumi.String("a key that nobody should be able to read"),
		ForceDestroy: true,
	}
}

// mounted keeps the model on a file system.
func mounted() *component.Args {
	return &component.Args{ModelStore: "efs", MaxConcurrency: 500, Queue: true}
}

// configurations are those whose goldens are kept.
var configurations = map[string]func() *component.Args{"minimal": minimal, "full": full, "given": given, "mounted": mounted}
