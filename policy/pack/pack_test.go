package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/efs"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/lambda"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/sqs"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/briefing-swarm/briefing-swarm/component"
	"github.com/briefing-swarm/briefing-swarm/internal/buildtool"
	"github.com/briefing-swarm/briefing-swarm/internal/enginetest"
	"github.com/briefing-swarm/briefing-swarm/policy"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func built(t *testing.T) string { return buildtool.Own(t, "policy/pack", "briefing-swarm-policies") }

// buildContext is a folder that docker.Image takes.
func buildContext(t *testing.T) string {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "Dockerfile"), []byte("FROM scratch\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestNames: what the pack looks for is what the component has.
func TestNames(t *testing.T) {
	if policy.ComponentType != component.Type {
		t.Errorf("the pack looks for %s, the component is %s", policy.ComponentType, component.Type)
	}
	named := 0
	for _, p := range policy.All() {
		for _, s := range p.Settings {
			for _, match := range regexp.MustCompile(`accountQuotas\.(\w+)`).FindAllStringSubmatch(s.Description, -1) {
				named++
				if !slices.Contains(component.AccountQuotaNames(), match[1]) {
					t.Errorf("%s: there is no accountQuotas.%s", p.Name, match[1])
				}
			}
		}
	}
	if named == 0 {
		t.Error("no setting names a quota")
	}
}

// TestKept runs a stack that keeps all policies, in a preview, an update and a
// second update.
func TestKept(t *testing.T) {
	e := enginetest.New(t)
	s := e.Inline("acme", "dev", nil, newFixture(buildContext(t)).program)
	s.PolicyPack = built(t)
	preview := s.Preview()
	if preview.Err != nil {
		t.Fatalf("preview: %v", preview.Err)
	}
	golden(t, "kept-preview", section(preview.Text, s.PolicyPack))
	for _, up := range []enginetest.Result{s.Up(), s.Up()} {
		if up.Err != nil {
			t.Fatalf("up: %v", up.Err)
		}
		for _, p := range up.Policies {
			t.Errorf("up: %s: %s", p.PolicyName, p.Message)
		}
	}
}

// violations are one per policy: what is changed in the fixture.
var violations = map[string]func(*fixture){
	"run-cost-ceiling":     func(f *fixture) { f.inputs["costCeilingUsdPerRun"] = pulumi.Float64(0.5) },
	"monthly-cost-ceiling": func(f *fixture) { f.inputs["costCeilingUsdPerMonth"] = pulumi.Float64(5) },
	"cost-estimate-honest": func(f *fixture) { f.worker.MemorySize = pulumi.Int(8192) },
	"cheaper-alternative":  func(f *fixture) { f.output["usdPerRunElsewhere"] = pulumi.Float64(0.01) },
	"log-retention":        func(f *fixture) { f.logDays = 0 },
	"ecr-lifecycle":        func(f *fixture) { f.lifecycle = false },
	"lambda-concurrency": func(f *fixture) {
		f.function.ReservedConcurrentExecutions = pulumi.Int(1950)
		f.output["quotasNeeded"] = pulumi.Map{"L-B99A9384": pulumi.Float64(319)}
	},
	"lambda-memory":   func(f *fixture) { f.function.MemorySize = pulumi.Int(6144) }, // with maxMemoryMib 4096
	"map-concurrency": func(f *fixture) { f.set("MaxConcurrency", nil) },
	"child-payload": func(f *fixture) {
		f.set("ItemBatcher", map[string]any{"MaxItemsPerBatch": f.plan.BatchSize})
	},
	"child-duration": func(f *fixture) {
		processor := f.generate()["ItemProcessor"].(map[string]any)
		processor["ProcessorConfig"].(map[string]any)["ExecutionType"] = "EXPRESS"
		processor["States"].(map[string]any)["Work"].(map[string]any)["TimeoutSeconds"] = 600
	},
	"firehose-throughput": func(f *fixture) { f.inputs["accountQuotas"].(pulumi.Map)["firehoseRecordsPerSec"] = pulumi.Float64(10) },
	"ses-rate": func(f *fixture) {
		f.inputs["accountQuotas"].(pulumi.Map)["sesRecipientsPer24Hours"] = pulumi.Float64(200)
	},
	"image-size":         func(f *fixture) {}, // with maxGib 1
	"efs-throughput":     func(f *fixture) { f.efs.ThroughputMode = pulumi.String("bursting") },
	"no-public-endpoint": func(f *fixture) { f.url.AuthorizationType = pulumi.String("NONE") },
	"buckets-private":    func(f *fixture) { f.private = false },
	"encryption": func(f *fixture) {
		f.encrypted = false
		f.efs = &efs.FileSystemArgs{ThroughputMode: pulumi.String("elastic")}
		f.queue = &sqs.QueueArgs{SqsManagedSseEnabled: pulumi.Bool(false)}
	},
	"tls-only": func(f *fixture) { f.tls = false },
	"least-privilege": func(f *fixture) {
		f.statement = map[string]any{"Effect": "Allow", "Action": []string{"s3:*", "dynamodb:PutItem", "xray:PutTraceSegments"}, "Resource": "*"}
	},
	"image-digest-pinned": func(f *fixture) {
		f.function.ImageUri = pulumi.String("123456789012.dkr.ecr.eu-west-1.amazonaws.com/reports:latest")
	},
	"image-architecture": func(f *fixture) { f.platform = "linux/amd64" },
	"unsubscribe-header": func(f *fixture) {
		f.deliver.Environment = &lambda.FunctionEnvironmentArgs{Variables: pulumi.ToStringMap(map[string]string{"SWARM_HANDLER": "deliver"})}
	},
	"tenant-tags": func(f *fixture) { f.worker.Tags = pulumi.ToStringMap(map[string]string{"swarm": "acme"}) },
	"model-checksum": func(f *fixture) {
		f.inputs["modelSource"] = pulumi.String("https://models.example/llama.gguf")
	},
}

// configs are configuration files for the cases that need one.
var configs = map[string]string{
	"lambda-memory": `{"lambda-memory": {"maxMemoryMib": 4096}}`,
	"image-size":    `{"image-size": {"maxGib": 1}}`,
}

// generate is the map of the state machine.
func (f *fixture) generate() map[string]any {
	return f.machine["States"].(map[string]any)["Generate"].(map[string]any)
}

func (f *fixture) set(key string, value any) {
	state := f.generate()
	if value == nil {
		delete(state, key)
	} else {
		state[key] = value
	}
}

// TestViolated violates each policy alone: a preview fails with what the golden
// file says and exit code 1, and so does an update without a preview.
func TestViolated(t *testing.T) {
	pack := built(t)
	for _, p := range policy.All() {
		t.Run(p.Name, func(t *testing.T) {
			violate := violations[p.Name]
			if violate == nil {
				t.Fatal("no case violates this policy")
			}
			e := enginetest.New(t)
			f := newFixture(buildContext(t))
			violate(f)
			s := e.Inline("acme", "dev", nil, f.program)
			s.PolicyPack = pack
			if text := configs[p.Name]; text != "" {
				s.PolicyConfig = filepath.Join(t.TempDir(), "policy.json")
				if err := os.WriteFile(s.PolicyConfig, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want := 1
			if p.Level == policy.Advisory {
				want = 0
			}
			preview := s.Preview()
			if preview.Exit() != want {
				t.Errorf("the preview ended with %d, want %d: %v", preview.Exit(), want, preview.Err)
			}
			golden(t, p.Name, section(preview.Text, pack))
			if want == 0 {
				return
			}
			up := s.Up()
			if up.Exit() != 1 {
				t.Errorf("the update ended with %d: %v", up.Exit(), up.Err)
			}
			// What the provider refuses as well never comes to the end of the update.
			if p.Name != "image-architecture" && !strings.Contains(up.Text, p.Name) {
				t.Errorf("the update does not name the policy:\n%s", up.Text)
			}
		})
	}
}

// amount is a price: the plan has its own goldens for those.
var amount = regexp.MustCompile(`\$[0-9,]+(\.[0-9]+)?`)

func golden(t *testing.T, name, got string) {
	t.Helper()
	got = amount.ReplaceAllString(got, "$$(amount)")
	if got == "" {
		t.Fatal("nothing was printed of the policies")
	}
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}
