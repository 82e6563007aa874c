package component_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/briefing-swarm/briefing-swarm/component"
	"github.com/briefing-swarm/briefing-swarm/plan"
	"github.com/briefing-swarm/briefing-swarm/runtime/model"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// testdata is found again from the working directory of a test.
var testdata = func() string {
	dir, err := filepath.Abs("testdata")
	if err != nil {
		panic(err)
	}
	return dir
}()

// golden compares a text with the one that is kept.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join(testdata, name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs; if that is meant, run the test with -update (-kept +new):\n%s", name, diff)
	}
}

// TestInputs holds every input of every child against the ones that are kept.
func TestInputs(t *testing.T) {
	for name, args := range configurations {
		t.Run(name, func(t *testing.T) {
			c, _, err := build(t, false, args())
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, r := range c.resources {
				if _, ok := r.Inputs["definition"]; ok {
					// The document has goldens of its own, see TestMachines.
					r.Inputs["definition"] = resource.NewStringProperty("(a document of package states)")
				}
				text, err := json.MarshalIndent(readable(resource.NewObjectProperty(r.Inputs)), "", "  ")
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&b, "%s %s\n%s\n\n", r.Type, r.Name, text)
			}
			// The build context has the hash of all sources in its name.
			text := contextHash.ReplaceAllString(b.String(), "(hash)")
			// And the plan's figures change with the plan, see TestBudgetGuard.
			golden(t, name+".inputs.txt", planFigure.ReplaceAllString(text, `$1"(of the plan)"`))
		})
	}
}

var planFigure = regexp.MustCompile(`("SWARM_(?:USD|SEC)_PER_RECORD": )"[0-9.]+"`)

var contextHash = regexp.MustCompile(`\b[0-9a-f]{32}(-[0-9a-f]{8})?\b`)

// readable is a value as JSON has it, with JSON in texts unfolded.
func readable(v resource.PropertyValue) any {
	switch {
	case v.IsSecret():
		return map[string]any{"(secret)": readable(v.SecretValue().Element)}
	case v.IsOutput():
		return readable(v.OutputValue().Element)
	case v.IsComputed():
		return "(unknown)"
	case v.IsObject():
		m := map[string]any{}
		for key, value := range v.ObjectValue() {
			m[string(key)] = readable(value)
		}
		return m
	case v.IsArray():
		list := []any{}
		for _, value := range v.ArrayValue() {
			list = append(list, readable(value))
		}
		return list
	case v.IsString():
		var inner map[string]any
		if json.Unmarshal([]byte(v.StringValue()), &inner) == nil {
			return map[string]any{"(JSON)": inner}
		}
		return v.StringValue()
	}
	return v.V
}

// TestURNs holds the names against the ones that are kept: another name is
// another resource, which Pulumi creates anew and deletes the old one with all
// that is in it.
func TestURNs(t *testing.T) {
	for name, args := range configurations {
		t.Run(name, func(t *testing.T) {
			c, _, err := build(t, false, args())
			if err != nil {
				t.Fatal(err)
			}
			urns := make([]string, len(c.resources))
			for i, r := range c.resources {
				parents := ""
				if r.Type != component.Type {
					parents = component.Type + "$"
				}
				urns[i] = "urn:pulumi:test::swarms::" + parents + r.Type + "::" + r.Name
			}
			slices.Sort(urns)
			if again := slices.Compact(slices.Clone(urns)); len(again) != len(urns) {
				t.Error("two resources have one URN")
			}
			golden(t, name+".urns.txt", strings.Join(urns, "\n")+"\n")
		})
	}
}

// TestChildren: whatever is created is the component's, has its tags if it can,
// and no name is chosen by hand that another stack could have.
func TestChildren(t *testing.T) {
	c, _, err := build(t, false, full())
	if err != nil {
		t.Fatal(err)
	}
	tagged := 0
	for _, r := range c.resources {
		if r.Type == component.Type {
			continue
		}
		if want := "urn:pulumi:test::swarms::" + component.Type + "::acme"; r.RPC.GetParent() != want {
			t.Errorf("%s is a child of %q", r.Name, r.RPC.GetParent())
		}
		if !strings.HasPrefix(r.Name, "acme-") {
			t.Errorf("%s %s is not named after the component", r.Type, r.Name)
		}
		if tags, ok := r.Inputs["tags"]; ok {
			tagged++
			got := map[string]string{}
			for key, value := range tags.ObjectValue() {
				got[string(key)] = value.StringValue()
			}
			if diff := cmp.Diff(map[string]string{"tenant": "Acme Ltd", "swarm": "acme", "team": "growth"}, got); diff != "" {
				t.Errorf("tags of %s: %s", r.Name, diff)
			}
		}
	}
	if tagged < 30 {
		t.Errorf("only %d resources have tags", tagged)
	}
}

// TestPreview: a preview knows the estimate, creates the same resources as an
// update, and needs nothing that only AWS can make up.
func TestPreview(t *testing.T) {
	for name, args := range configurations {
		t.Run(name, func(t *testing.T) {
			preview, outputs, err := build(t, true, args())
			if err != nil {
				t.Fatal(err)
			}
			up, all, err := build(t, false, args())
			if err != nil {
				t.Fatal(err)
			}
			names := func(c *cloud) (list []string) {
				for _, r := range c.resources {
					list = append(list, r.Type+" "+r.Name)
				}
				return list
			}
			if diff := cmp.Diff(names(preview), names(up)); diff != "" {
				t.Errorf("a preview shows other resources than an update creates (-preview +update):\n%s", diff)
			}
			for _, known := range []string{
				"usdPerRun", "usdPerRunLow", "usdPerRunHigh", "usdPerMonth", "usdPerMonthLow", "usdPerMonthHigh", "usdPerMonthStanding", "usdPerUser", "usdPerRunElsewhere",
				"minutesPerRun", "minutesPerRunLow", "minutesPerRunHigh", "minutesToLastMail", "quotasNeeded", "quotasShort", "estimateConfidence", "pricesDate", "planInputs", "batchSize",
				"inputPrefix", "briefingsPrefix", "glueTable",
			} {
				if _, ok := outputs[known]; !ok {
					t.Errorf("output %s is not known in a preview", known)
				}
				if diff := cmp.Diff(all[known], outputs[known]); diff != "" {
					t.Errorf("output %s is another one in a preview: %s", known, diff)
				}
			}
			if _, ok := outputs["stateMachineArn"]; ok {
				t.Error("a preview claims to know an ARN")
			}
		})
	}
}

// TestOutputs: every output is there after an update, and those of options that
// were not asked for are null.
func TestOutputs(t *testing.T) {
	fields := reflect.VisibleFields(reflect.TypeFor[component.BriefingSwarm]())
	for name, absent := range map[string][]string{
		"minimal": {"alarmsTopicArn", "configurationSet", "deadLetterQueueUrl", "deliverFunctionArn", "deliveryStateMachineArn", "endpointUrl", "ledgerTable", "minutesToLastMail", "modelCopyTaskArn", "modelUploadTo", "queueUrl", "resultsTable"},
		"full":    {"modelCopyTaskArn", "modelUploadTo"},
		"given":   {"alarmsTopicArn", "deadLetterQueueUrl", "endpointUrl", "modelCopyTaskArn", "modelUploadTo", "queueUrl", "repositoryUrl", "resultsTable"},
		"mounted": {"alarmsTopicArn", "configurationSet", "deliverFunctionArn", "deliveryStateMachineArn", "endpointUrl", "ledgerTable", "minutesToLastMail"},
	} {
		t.Run(name, func(t *testing.T) {
			_, outputs, err := build(t, false, configurations[name]())
			if err != nil {
				t.Fatal(err)
			}
			var null []string
			for _, f := range fields {
				key := f.Tag.Get("pulumi")
				if key == "" || len(f.Index) > 1 { // ResourceState has its own
					continue
				}
				v, ok := outputs[key]
				if !ok {
					t.Errorf("output %s has no value", key)
				}
				if rv := reflect.ValueOf(v); rv.Kind() == reflect.Pointer && rv.IsNil() {
					null = append(null, key)
				}
			}
			slices.Sort(null)
			if diff := cmp.Diff(absent, null); diff != "" {
				t.Errorf("null outputs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTwoRegions: two swarms in one program, each in the region of its
// provider, with everything that they create and ask.
func TestTwoRegions(t *testing.T) {
	c, err := program(t, false, func(ctx *pulumi.Context) error {
		for _, region := range []string{"us-east-1", "us-west-2"} {
			p, err := aws.NewProvider(ctx, region, &aws.ProviderArgs{Region: pulumi.String(region)})
			if err != nil {
				return err
			}
			args := full()
			args.Region = "us-east-1" // what the stand-in answers for any provider
			if _, err := component.NewBriefingSwarm(ctx, "swarm-"+region, args, pulumi.Providers(p)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, r := range c.resources {
		if !strings.HasPrefix(r.Type, "aws:") {
			continue
		}
		region := "us-east-1"
		if strings.HasPrefix(r.Name, "swarm-us-west-2") {
			region = "us-west-2"
		}
		if want := "::pulumi:providers:aws::" + region + "::"; !strings.Contains(r.RPC.GetProvider(), want) {
			t.Errorf("%s has the provider %q", r.Name, r.RPC.GetProvider())
		}
		count[region]++
	}
	if count["us-east-1"] != count["us-west-2"] || count["us-east-1"] < 50 {
		t.Errorf("resources by region: %v", count)
	}
	asked := map[string]int{}
	for _, call := range c.calls {
		for _, region := range []string{"us-east-1", "us-west-2"} {
			if strings.Contains(call.Provider, "::pulumi:providers:aws::"+region+"::") {
				asked[region]++
			}
		}
	}
	if len(c.calls) != 6 || asked["us-east-1"] != 3 || asked["us-west-2"] != 3 {
		t.Errorf("of %d questions to the providers, these had a region: %v", len(c.calls), asked)
	}
}

// A parent that is a component hands its provider down as well.
func TestProviderOfParent(t *testing.T) {
	c, err := program(t, false, func(ctx *pulumi.Context) error {
		p, err := aws.NewProvider(ctx, "west", &aws.ProviderArgs{Region: pulumi.String("us-west-2")})
		if err != nil {
			return err
		}
		var parent pulumi.ResourceState
		if err := ctx.RegisterComponentResource("acme:index:Platform", "platform", &parent, pulumi.Providers(p)); err != nil {
			return err
		}
		_, err = component.NewBriefingSwarm(ctx, "acme", minimal(), pulumi.Parent(&parent))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range c.resources {
		if strings.HasPrefix(r.Type, "aws:") && !strings.Contains(r.RPC.GetProvider(), "::west::") {
			t.Errorf("%s has the provider %q", r.Name, r.RPC.GetProvider())
		}
	}
	for _, call := range c.calls {
		if !strings.Contains(call.Provider, "::west::") {
			t.Errorf("%s asked the provider %q", call.Token, call.Provider)
		}
	}
}

// TestFaults: whatever is wrong is said at once, and nothing is created.
func TestFaults(t *testing.T) {
	for name, args := range map[string]*component.Args{
		"first": {
			Tags: map[string]string{"tenant": "x", "aws:x": "y"}, Region: "eu-west-1", Model: "llama-9", ModelStore: "disk", SystemPrompt: strings.Repeat("x", 2<<20),
			Stop: []string{""}, MaxTokens: 40, ContextTokens: 60, Temperature: 9, TopP: 2, MinP: -1, Seed: -1, Architecture: "riscv", MemoryMib: 64,
			EphemeralStorageMib: 100, TimeoutSec: 1000, MaxConcurrency: 20_000, ReservedConcurrency: 10, BatchSize: 20_000, ParallelSequences: 300,
			ToleratedFailurePercentage: 200, BufferMib: 1, BufferSec: 1, OutputTokens: 50, Items: -1, DeadlineMinutes: -1, CostCeilingUsdPerRun: -1, CostCeilingUsdPerMonth: -1,
			AccountQuotas: map[string]float64{"lambdaConcurency": 1000, "lambdaConcurrency": 1000}, Calibration: "fast", Prices: "{}",
			Sender: "nobody", SenderIdentity: "me", ReplyTo: "x", DeliverAt: "8", TimeZone: "Mars", InputAt: "25:00", DeliveryWindowMinutes: -1, SesRatePerSec: -1,
			UnsubscribeUrl: "http://acme.example", UnsubscribeMailto: "x", Endpoint: true, EndpointAuth: "none", EndpointConcurrency: -1, ProvisionedConcurrency: -1,
			Queue: true, QueueConcurrency: 1, RetentionDays: 31, AlarmsEmail: "ops",
		},
		"together": {
			ModelSha256: modelSum, ModelStore: "efs", ContextTokens: 4096, BatchSize: 500, MaxConcurrency: 10_000, ExpectedUsers: 900_000_000,
			AccountQuotas:       map[string]float64{"lambdaConcurrency": 1000, "sesRecipientsPerSec": 14},
			ReservedConcurrency: 10_000, Sender: "briefing@acme.example", SesRatePerSec: 20, DeliveryWindowMinutes: 10,
			Endpoint: true, EndpointAuth: "NONE", ProvisionedConcurrency: 5,
		},
		"without":   {ModelSha256: modelSum, DeliverAt: "08:00", UnsubscribeMailto: "x@acme.example", ProvisionedConcurrency: 1, QueueConcurrency: 5},
		"ceilings":  {ModelSha256: modelSum, CostCeilingUsdPerRun: 100, CostCeilingUsdPerMonth: 1000},
		"firehose":  {ModelSha256: modelSum, MaxConcurrency: 10_000, Model: "llama-3.2-1b", AccountQuotas: map[string]float64{"firehoseMibPerSec": 1}},
		"templates": {ModelSha256: modelSum, SystemPrompt: "Hello {{.name}}", UserTemplate: "{{.name"},
		"checksum":  {},
		"elsewhere": {Model: "my-own", ModelSource: "https://acme.example/my-own.gguf", ModelSha256: "abc"},
		"file":      {ModelSource: "missing.gguf"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, err := build(t, true, args)
			var fault *component.ArgsError
			if !errors.As(err, &fault) {
				t.Fatalf("got %v, want an ArgsError", err)
			}
			if len(c.resources) > 0 {
				t.Errorf("%d resources were created all the same", len(c.resources))
			}
			golden(t, "faults-"+name+".txt", fault.Error()+"\n")
		})
	}
}

// TestName: names become those of buckets and roles, which are short.
func TestName(t *testing.T) {
	for _, name := range []string{"", "Acme", "1acme", "acme-", "acme_1", strings.Repeat("a", 31)} {
		_, err := program(t, true, func(ctx *pulumi.Context) error {
			_, err := component.NewBriefingSwarm(ctx, name, minimal())
			return err
		})
		var fault *component.ArgsError
		if !errors.As(err, &fault) || !slices.ContainsFunc(fault.Faults, func(f plan.Fault) bool { return f.Field == "name" }) {
			t.Errorf("%q: got %v", name, err)
		}
	}
	long := strings.Repeat("a", 30)
	c, err := program(t, false, func(ctx *pulumi.Context) error {
		_, err := component.NewBriefingSwarm(ctx, long, full())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// Pulumi appends a hyphen and 7 characters.
	limits := map[string]int{"aws:s3/bucketV2:BucketV2": 63, "aws:iam/role:Role": 64, "aws:lambda/function:Function": 64, "aws:sfn/stateMachine:StateMachine": 80,
		"aws:kinesis/firehoseDeliveryStream:FirehoseDeliveryStream": 64, "aws:cloudwatch/eventRule:EventRule": 64, "aws:sqs/queue:Queue": 80}
	for _, r := range c.resources {
		if limit, ok := limits[r.Type]; ok && len(r.Name)+8 > limit {
			t.Errorf("%s %s becomes longer than %d", r.Type, r.Name, limit)
		}
	}
}

// TestRegionNotKnown: a provider whose region comes from another resource can't
// say it in a preview; then the arguments must.
func TestRegionNotKnown(t *testing.T) {
	for region, want := range map[string]string{"": "region", "eu-central-1": ""} {
		args := minimal()
		args.Region = region
		_, err := programIn(t, "", true, func(ctx *pulumi.Context) error {
			_, err := component.NewBriefingSwarm(ctx, "acme", args)
			return err
		})
		var fault *component.ArgsError
		switch errors.As(err, &fault); {
		case want == "" && err != nil:
			t.Errorf("region %q: %v", region, err)
		case want != "" && (fault == nil || len(fault.Faults) != 1 || fault.Faults[0].Field != want):
			t.Errorf("region %q: got %v, want a fault of %s", region, err, want)
		}
	}
}

// TestUnpricedRegion: a region without prices is refused, and taken with a price
// file that has it.
func TestUnpricedRegion(t *testing.T) {
	try := func(prices string) error {
		args := minimal()
		args.Prices = prices
		_, err := programIn(t, "eu-north-1", true, func(ctx *pulumi.Context) error {
			_, err := component.NewBriefingSwarm(ctx, "acme", args)
			return err
		})
		return err
	}
	err := try("")
	if err == nil || !strings.Contains(err.Error(), "swarm prices refresh --region eu-north-1") {
		t.Errorf("without prices: %v", err)
	}
	shipped, err := json.Marshal(plan.ShippedPrices())
	if err != nil {
		t.Fatal(err)
	}
	if err := try(strings.ReplaceAll(string(shipped), "eu-west-1", "eu-north-1")); err != nil {
		t.Errorf("with prices: %v", err)
	}
}

// TestImageURI: a tag is refused, since a function would not notice another image
// behind it.
func TestImageURI(t *testing.T) {
	args := given()
	args.ImageUri = pulumi.String("123456789012.dkr.ecr.us-east-1.amazonaws.com/swarm:latest")
	if _, _, err := build(t, true, args); err == nil || !strings.Contains(err.Error(), "with its digest") {
		t.Errorf("got %v", err)
	}
}

// TestSecrets: the key of the unsubscribe links is a secret wherever it is.
func TestSecrets(t *testing.T) {
	c, _, err := build(t, false, full())
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, r := range c.resources {
		for key, value := range r.Inputs {
			text := fmt.Sprint(value)
			if !strings.Contains(text, "a key that nobody should be able to read") {
				continue
			}
			found++
			if !value.IsSecret() && !value.IsOutput() {
				t.Errorf("%s of %s shows the key", key, r.Name)
			}
		}
	}
	if found != 2 {
		t.Errorf("the key is in %d inputs, want the component's and the secret's", found)
	}
	password := c.find(t, "acme-image", "docker:index/image:Image").Inputs["registry"].ObjectValue()["password"]
	if !password.ContainsSecrets() {
		t.Error("the token for the registry is no secret")
	}
}

// TestTexts: a prompt is an object whose key changes with it, so that warm
// workers do not keep the old one.
func TestTexts(t *testing.T) {
	environment := func(prompt string) string {
		args := minimal()
		args.SystemPrompt = prompt
		c, _, err := build(t, false, args)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.find(t, "acme-system-prompt", "aws:s3/bucketObjectv2:BucketObjectv2").Inputs["content"].StringValue(); got != prompt {
			t.Errorf("the object holds %q", got)
		}
		variables := c.find(t, "acme-generate", "aws:lambda/function:Function").Inputs["environment"].ObjectValue()["variables"].ObjectValue()
		return variables["SWARM_SYSTEM_PROMPT"].StringValue()
	}
	one, two := environment("One."), environment("Two.")
	if one == two || !strings.HasPrefix(one, "s3://acme-runs-0123456/texts/system-prompt-") {
		t.Errorf("the prompts are at %q and %q", one, two)
	}
}

// TestBatchSize: without one, the batch is as large as ends in time.
func TestBatchSize(t *testing.T) {
	for timeout, want := range map[int]float64{900: 32, 500: 0} {
		args := minimal()
		args.TimeoutSec = timeout
		_, outputs, err := build(t, true, args)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := outputs["batchSize"].(int)
		if !ok || want > 0 && got != int(want) || want == 0 && (got >= 32 || got < 1) {
			t.Errorf("within %d s: a batch of %v", timeout, outputs["batchSize"])
		}
	}
}

// TestModelFile: of a model that no catalogue knows, the file itself says how
// large it is and how much memory it needs.
func TestModelFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "my-own.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	tiny, err := model.LookupShape("tiny")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(model.WriteRandom(t.Context(), f, tiny, model.RecipeQ80, 1), f.Close()); err != nil {
		t.Fatal(err)
	}
	args := &component.Args{Model: "my-own", ModelSource: path, MemoryMib: 1769}
	c, outputs, err := build(t, false, args)
	if err != nil {
		t.Fatal(err)
	}
	image := c.find(t, "acme-image", "docker:index/image:Image").Inputs["build"].ObjectValue()
	if _, err := os.Stat(filepath.Join(image["context"].StringValue(), "model", "my-own.gguf")); err != nil {
		t.Errorf("the model is not in the build context: %v", err)
	}
	if got := image["args"].ObjectValue()["MODEL_FILE"].StringValue(); got != "my-own.gguf" {
		t.Errorf("the image's model is %s", got)
	}
	variables := c.find(t, "acme-generate", "aws:lambda/function:Function").Inputs["environment"].ObjectValue()["variables"].ObjectValue()
	if got := variables["SWARM_MODEL_NAME"].StringValue(); !strings.HasPrefix(got, "my-own ") {
		t.Errorf("rows will call the model %q", got)
	}
	if usd := outputs["usdPerRun"].(float64); !(usd > 0) {
		t.Errorf("a run costs %v", usd)
	}
}

// TestBudgetGuard: a run is measured by the estimate that the preview showed.
func TestBudgetGuard(t *testing.T) {
	c, outputs, err := build(t, false, full())
	if err != nil {
		t.Fatal(err)
	}
	variables := c.find(t, "acme-normalise", "aws:lambda/function:Function").Inputs["environment"].ObjectValue()["variables"].ObjectValue()
	number := func(name resource.PropertyKey) float64 {
		v, err := strconv.ParseFloat(variables[name].StringValue(), 64)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return v
	}
	if usd, want := number("SWARM_USD_PER_RECORD"), outputs["usdPerUser"].(float64); math.Abs(usd-want) > want/100 {
		t.Errorf("a record is taken to cost %v, a user of the estimate %v", usd, want)
	}
	if sec := number("SWARM_SEC_PER_RECORD"); !(sec > 0.1 && sec < 60) {
		t.Errorf("a record is taken to need %v s", sec)
	}
	if usd := number("SWARM_CEILING_USD_PER_RUN"); usd != 500 {
		t.Errorf("the ceiling of a run is %v", usd)
	}
}
