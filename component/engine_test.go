package component_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/briefing-swarm/briefing-swarm/component"
	"github.com/briefing-swarm/briefing-swarm/internal/buildtool"
	"github.com/briefing-swarm/briefing-swarm/internal/enginetest"
)

// swarm is a program with one component.
func swarm(name string, args func() *component.Args) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		c, err := component.NewBriefingSwarm(ctx, name, args())
		if err != nil {
			return err
		}
		for key, value := range c.Outputs() {
			ctx.Export(key, value)
		}
		return nil
	}
}

// TestLifecycle runs each configuration through the real engine: a preview that
// makes nothing, an update, a second one that changes nothing, and a destroy.
// The providers refuse what AWS is known to refuse, and the policy pack is kept.
func TestLifecycle(t *testing.T) {
	for name, args := range configurations {
		t.Run(name, func(t *testing.T) {
			e := enginetest.New(t)
			s := e.Inline("swarm", name, map[string]string{"aws:region": "us-east-1"}, swarm("acme", args))
			s.PolicyPack = buildtool.Own(t, "policy/pack", "briefing-swarm-policies")
			// Mail to more users than the sandbox of SES lets out in a day.
			s.PolicyConfig = policyConfig(t, `{"ses-rate": "advisory"}`)
			preview := s.Preview()
			if preview.Err != nil {
				t.Fatalf("preview: %v", preview.Err)
			}
			for _, call := range e.Calls() {
				if call.Method == "Create" && !call.Preview {
					t.Errorf("the preview made %s", call.URN)
				}
			}
			up := s.Up()
			if up.Err != nil {
				t.Fatalf("up: %v", up.Err)
			}
			for _, p := range preview.Policies {
				if !strings.Contains(p.Message, "not known yet") && !allowed[name][p.PolicyName] {
					t.Errorf("the preview violates %s: %s", p.PolicyName, p.Message)
				}
			}
			for _, p := range up.Policies {
				if !allowed[name][p.PolicyName] {
					t.Errorf("the update violates %s: %s", p.PolicyName, p.Message)
				}
			}
			if diff := cmp.Diff(preview.Steps, up.Steps); diff != "" {
				t.Errorf("the update is not what the preview showed (-preview +update):\n%s", diff)
			}
			if strings.Contains(s.State(), "a key that nobody should be able to read") {
				t.Error("the state has the unsubscribe key in plain text")
			}
			if again := s.Up(); again.Err != nil || len(again.Steps) != 0 {
				t.Errorf("a second update did %v, error %v; want nothing", again.Steps, again.Err)
			}
			if again := s.Preview(); again.Err != nil || len(again.Steps) != 0 {
				t.Errorf("a preview after it shows %v, error %v; want nothing", again.Steps, again.Err)
			}
			if destroyed := s.Destroy(); destroyed.Err != nil || len(destroyed.Steps) != len(up.Steps) {
				t.Errorf("destroy did %d steps, error %v; want %d", len(destroyed.Steps), destroyed.Err, len(up.Steps))
			}
		})
	}
}

// allowed are the advisory policies that a configuration does not keep.
var allowed = map[string]map[string]bool{
	"minimal": {"cheaper-alternative": true},
	"full":    {"cheaper-alternative": true},
	"mounted": {"cheaper-alternative": true},
	"given":   {"cheaper-alternative": true, "ses-rate": true},
}

func policyConfig(t *testing.T, text string) string {
	file := filepath.Join(t.TempDir(), "policy.json")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestTenants puts two swarms into one stack, and changes one at a time: nothing
// of the other may move.
func TestTenants(t *testing.T) {
	e := enginetest.New(t)
	acme, bolt := minimal(), minimal()
	acme.Queue = true
	program := func(ctx *pulumi.Context) error {
		for name, args := range map[string]*component.Args{"acme": acme, "bolt": bolt} {
			if _, err := component.NewBriefingSwarm(ctx, name, args); err != nil {
				return err
			}
		}
		return nil
	}
	s := e.Inline("swarm", "tenants", map[string]string{"aws:region": "eu-west-1"}, program)
	if up := s.Up(); up.Err != nil {
		t.Fatalf("up: %v", up.Err)
	}
	if again := s.Up(); again.Err != nil || len(again.Steps) != 0 {
		t.Errorf("a second update did %v, error %v; want nothing", again.Steps, again.Err)
	}

	// The run's machine has the batch size, and normalise the cost of a record.
	acme.BatchSize = 16
	want := []string{"update acme", "update acme-normalise", "update acme-run"}
	if changed := s.Up(); changed.Err != nil || !slices.Equal(named(changed), want) {
		t.Errorf("another batch size did %v, error %v; want %v", named(changed), changed.Err, want)
	}
	acme.Queue = false
	want = []string{
		"delete acme-dead-letters", "delete acme-dead-letters-there", "delete acme-queue", "delete acme-queue-logs", "delete acme-queue-policy",
		"delete acme-queue-role", "delete acme-requests", "delete acme-requests-poller", "delete acme-results", "update acme",
	}
	if changed := s.Up(); changed.Err != nil || !slices.Equal(named(changed), want) {
		t.Errorf("taking the queue away did %v, error %v; want %v", named(changed), changed.Err, want)
	}
	if destroyed := s.Destroy(); destroyed.Err != nil {
		t.Fatalf("destroy: %v", destroyed.Err)
	}
}

// named lists what was done to which resource, by its name, sorted.
func named(r enginetest.Result) []string {
	var list []string
	for _, step := range r.Steps {
		op, urn, _ := strings.Cut(step, " ")
		list = append(list, op+" "+urn[strings.LastIndex(urn, "::")+2:])
	}
	slices.Sort(list)
	return list
}

// TestHonestAfterTransform changes a worker behind the component's back: the
// estimate is then not that of the resources, and the policy pack says so.
func TestHonestAfterTransform(t *testing.T) {
	e := enginetest.New(t)
	s := e.Inline("swarm", "transformed", map[string]string{"aws:region": "us-east-1"}, func(ctx *pulumi.Context) error {
		_, err := component.NewBriefingSwarm(ctx, "acme", minimal(), pulumi.Transforms([]pulumi.ResourceTransform{
			func(_ context.Context, a *pulumi.ResourceTransformArgs) *pulumi.ResourceTransformResult {
				if a.Name != "acme-generate" {
					return nil
				}
				a.Props["memorySize"] = pulumi.Int(3008) // one thread, and two thirds of a processor idle
				return &pulumi.ResourceTransformResult{Props: a.Props, Opts: a.Opts}
			},
		}))
		return err
	})
	s.PolicyPack = buildtool.Own(t, "policy/pack", "briefing-swarm-policies")
	r := s.Preview()
	if r.Exit() != 1 || !strings.Contains(r.Text, "cost-estimate-honest") || !strings.Contains(r.Text, "the resources make a plan that can't be: memoryMib is 3,008 MiB") {
		t.Errorf("exit code %d:\n%s", r.Exit(), r.Text)
	}
}

// BenchmarkPreview previews the full configuration without the policy pack and
// with it in turn, and reports the fastest of each and what the pack adds: other
// work on the machine makes a preview slower, never faster.
func BenchmarkPreview(b *testing.B) {
	e := enginetest.New(b)
	s := e.Inline("swarm", "full", map[string]string{"aws:region": "us-east-1"}, swarm("acme", full))
	packs := []string{"", buildtool.Own(b, "policy/pack", "briefing-swarm-policies")}
	fastest := []time.Duration{time.Hour, time.Hour}
	for b.Loop() {
		for i, pack := range packs {
			s.PolicyPack = pack
			start := time.Now()
			if r := s.Preview(); r.Err != nil {
				b.Fatal(r.Err)
			}
			fastest[i] = min(fastest[i], time.Since(start))
		}
	}
	b.ReportMetric(fastest[0].Seconds(), "s/preview")
	b.ReportMetric(fastest[1].Seconds(), "s/preview-with-policies")
	b.ReportMetric((fastest[1] - fastest[0]).Seconds(), "s/policies")
}

// TestReadAccountQuotas reads the account's quotas through the provider, once
// for two swarms; what may not be read leaves a warning and the defaults.
func TestReadAccountQuotas(t *testing.T) {
	program := func(ctx *pulumi.Context) error {
		for _, name := range []string{"acme", "bolt"} {
			args := minimal()
			args.ReadAccountQuotas, args.MaxConcurrency = true, 400
			args.AccountQuotas = map[string]float64{"sfnTransitionsPerSec": 800}
			if _, err := component.NewBriefingSwarm(ctx, name, args); err != nil {
				return err
			}
		}
		return nil
	}
	for _, test := range []struct {
		name, quotas string
		exit         int
		want         string
		invokes      int
	}{
		{"just enough", `{"lambda/L-B99A9384": 450}`, 0, "Lambda concurrent executions               405           450", 1},
		{"too little", `{"lambda/L-B99A9384": 10}`, 1, "the account's 10 without", 1},
		{"denied", "denied", 0, "lambdaConcurrency (lambda/L-B99A9384): ", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := enginetest.New(t)
			e.Env["STANDIN_QUOTAS"] = test.quotas
			r := e.Inline("swarm", "quotas", map[string]string{"aws:region": "us-east-1"}, program).Preview()
			if logs := strings.Join(r.Logs, "\n"); r.Exit() != test.exit || !strings.Contains(logs, test.want) {
				t.Errorf("exit code %d, want %d with %q:\n%s", r.Exit(), test.exit, test.want, logs)
			}
			invokes := 0
			for _, call := range e.Calls() {
				if call.Method == "Invoke" && strings.Contains(call.URN, "getServiceQuota") {
					invokes++
				}
			}
			if invokes != test.invokes {
				t.Errorf("Service Quotas was asked %d times, want %d", invokes, test.invokes)
			}
		})
	}
}

// TestRegions puts one swarm into the stack's region and one into another by a
// provider of its own: everything of it must go there.
func TestRegions(t *testing.T) {
	e := enginetest.New(t)
	s := e.Inline("swarm", "regions", map[string]string{"aws:region": "us-east-1"}, func(ctx *pulumi.Context) error {
		if _, err := component.NewBriefingSwarm(ctx, "home", minimal()); err != nil {
			return err
		}
		west, err := aws.NewProvider(ctx, "west", &aws.ProviderArgs{Region: pulumi.String("us-west-2")})
		if err != nil {
			return err
		}
		_, err = component.NewBriefingSwarm(ctx, "away", minimal(), pulumi.Providers(west))
		return err
	})
	if up := s.Up(); up.Err != nil {
		t.Fatal(up.Err)
	}
	made := map[string]int{}
	for _, call := range e.Calls() {
		name := call.URN[strings.LastIndex(call.URN, "::")+2:]
		if call.Method != "Create" || call.Package != "aws" {
			continue
		}
		made[call.Region]++
		if want := map[bool]string{true: "us-west-2", false: "us-east-1"}[strings.HasPrefix(name, "away-")]; call.Region != want {
			t.Errorf("%s was made in %s, want %s", name, call.Region, want)
		}
	}
	if made["us-east-1"] == 0 || made["us-east-1"] != made["us-west-2"] {
		t.Errorf("resources by region: %v, want as many in one as in the other", made)
	}
}
