package policy

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/property"

	"github.com/briefing-swarm/briefing-swarm/plan"
)

var update = flag.Bool("update", false, "rewrite docs/policies.md")

func TestPage(t *testing.T) {
	const file = "../docs/policies.md"
	if *update {
		if err := os.WriteFile(file, []byte(Page()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), Page()); diff != "" {
		t.Errorf("docs/policies.md is not what the policies say; run make policy (-file +policies):\n%s", diff)
	}
}

// TestPolicies: every policy says what the page and the engine show.
func TestPolicies(t *testing.T) {
	names := map[string]bool{}
	for _, p := range All() {
		if !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(p.Name) || names[p.Name] {
			t.Errorf("the name %q is no name, or comes twice", p.Name)
		}
		names[p.Name] = true
		if !strings.HasSuffix(p.Description, ".") || !strings.HasSuffix(p.Remedy, ".") {
			t.Errorf("%s: description and remedy are sentences", p.Name)
		}
		if (p.resource == nil) == (p.stack == nil) {
			t.Errorf("%s: wants exactly one check", p.Name)
		}
		for _, s := range p.Settings {
			if _, isNumber := s.Default.(float64); isNumber && (s.Max <= s.Min || s.Default.(float64) < s.Min || s.Default.(float64) > s.Max) {
				t.Errorf("%s: %s is not within its own bounds", p.Name, s.Name)
			}
			if !strings.HasSuffix(s.Description, ".") {
				t.Errorf("%s: %s has no description", p.Name, s.Name)
			}
		}
	}
}

func values(object map[string]any) property.Map {
	return resource.FromResourcePropertyMap(resource.NewPropertyMapFromMap(object))
}

// settings are a policy's defaults.
func settings(p Policy) Context {
	c := Context{Settings: map[string]any{}}
	for _, s := range p.Settings {
		c.Settings[s.Name] = s.Default
	}
	return c
}

// TestTenants: two swarms need the account's concurrency together.
func TestTenants(t *testing.T) {
	swarm := func(name string, executions float64) Resource {
		return Resource{Type: ComponentType, URN: "urn:pulumi:dev::acme::" + ComponentType + "::" + name, Name: name,
			Properties: values(map[string]any{"quotasNeeded": map[string]any{codeConcurrency: executions}})}
	}
	p, _ := Lookup("lambda-concurrency")
	if f := p.CheckStack(settings(p), Stack{swarm("acme", 905)}); len(f.Violations) != 0 {
		t.Errorf("one tenant is refused: %v", f.Violations)
	}
	f := p.CheckStack(settings(p), Stack{swarm("bolt", 205), swarm("acme", 905)})
	want := "the stack needs 1,110 concurrent executions, over the account's 1,000 (the default of a new account): acme 905, bolt 205\n" + p.Remedy
	if len(f.Violations) != 1 || f.Violations[0].Message != want {
		t.Errorf("two tenants: %v, want %q", f.Violations, want)
	}
}

// TestStates: what is unknown, secret, null or of another type than expected.
func TestStates(t *testing.T) {
	memory, _ := Lookup("lambda-memory")
	c := settings(memory)
	c.Settings["maxMemoryMib"] = 1024.0
	check := func(size property.Value) Findings {
		return memory.CheckResource(c, Resource{Type: lambdaFunction, URN: "urn:pulumi:dev::acme::" + lambdaFunction + "::worker", Name: "worker",
			Properties: property.NewMap(map[string]property.Value{"memorySize": size})})
	}
	if f := check(property.New(4096.0)); len(f.Violations) != 1 || !strings.HasPrefix(f.Violations[0].Message, "memorySize is 4,096 MiB, over the limit of 1,024 (from the policy's configuration)\n") {
		t.Errorf("too much memory: %v", f)
	}
	if f := check(property.New(4096.0).WithSecret(true)); len(f.Violations) != 1 || strings.Contains(f.Violations[0].Message, "4") && !strings.Contains(f.Violations[0].Message, "(secret)") {
		t.Errorf("a secret size is told: %v", f)
	}
	for name, value := range map[string]property.Value{"unknown": property.New(property.Computed), "a text": property.New("4096")} {
		if f := check(value); len(f.Violations) != 0 || Summary(f.Unknown) != "not known yet: memorySize of worker; the update checks it" {
			t.Errorf("%s: %v", name, f)
		}
	}
	if f := check(property.Value{}); len(f.Violations)+len(f.Unknown) != 0 {
		t.Errorf("nothing: %v", f)
	}
}

// TestSecrets puts a marked secret wherever a policy may read: no message has it.
func TestSecrets(t *testing.T) {
	const secret = "s3cr3t"
	text := func(s string) property.Value { return property.New(s).WithSecret(true) }
	document := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:` + secret + `","Resource":"*"},{"Effect":"Allow","Action":"*","Resource":"*"},{"Effect":"Allow","Principal":"*","Action":"s3:` + secret + `"}]}`
	machine := `{"StartAt":"` + secret + `","States":{"` + secret + `":{"Type":"Map","ItemBatcher":{"MaxItemsPerBatch":1},"ItemProcessor":{"ProcessorConfig":{"Mode":"DISTRIBUTED","ExecutionType":"EXPRESS"},"States":{"W":{"Type":"Task","TimeoutSeconds":901}}}}}}`
	properties := map[string]property.Value{
		"policy": text(document), "assumeRolePolicy": text(document), "definition": text(machine), "imageUri": text(secret), "authorizationType": text(secret),
		"principal": text("*"), "acl": text("public-" + secret), "modelSource": text("http://" + secret), "policyArn": text("arn:aws:iam::aws:policy/" + secret + "FullAccess"),
		"name": text(secret), "bucket": text(secret), "planInputs": text(secret), "throughputMode": text(secret),
		"architectures": property.New(property.NewArray([]property.Value{text(secret)})),
		"environment": property.New(property.NewMap(map[string]property.Value{"variables": property.New(property.NewMap(map[string]property.Value{
			"SWARM_HANDLER": property.New(handlerDeliver), "SWARM_UNSUBSCRIBE_URL": text("http://" + secret)}))})),
	}
	var stack Stack
	for _, typ := range types() {
		stack = append(stack, Resource{Type: typ, URN: "urn:pulumi:dev::acme::" + typ + "::x", Name: "x", Properties: property.NewMap(properties)})
	}
	told := 0
	for _, p := range All() {
		findings := p.CheckStack(settings(p), stack)
		for _, r := range stack {
			findings.Violations = append(findings.Violations, p.CheckResource(settings(p), r).Violations...)
		}
		for _, v := range findings.Violations {
			told++
			if strings.Contains(v.Message, secret) {
				t.Errorf("%s tells a secret: %s", p.Name, v.Message)
			}
		}
	}
	if told < 15 {
		t.Errorf("only %d violations were looked at", told)
	}
}

// types are those that some policy looks at.
func types() []string {
	list := []string{ComponentType, bucketPolicy, publicAccessBlock, bucketEncryption, functionURL, lambdaPermission, lambdaProvisioned, lambdaEventSource,
		dockerImage, ecrLifecycle, "aws:iam/rolePolicy:RolePolicy", "aws:iam/policy:Policy", "aws:iam/rolePolicyAttachment:RolePolicyAttachment"}
	for typ := range taggable {
		list = append(list, typ)
	}
	slices.Sort(list)
	return list
}

// FuzzProperties gives all policies stacks of arbitrary properties under the
// names that they read: no policy may panic.
func FuzzProperties(f *testing.F) {
	in, err := json.Marshal(plan.Defaults())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint64(1), `{"Statement":[{"Effect":"Allow","Action":["*"],"Resource":{}}]}`)
	f.Add(uint64(2), `{"StartAt":"A","States":{"A":{"Type":"Map","ItemProcessor":{"ProcessorConfig":{"Mode":"DISTRIBUTED"}}}}}`)
	f.Add(uint64(3), string(in))
	f.Add(uint64(4), "")
	f.Fuzz(func(t *testing.T, seed uint64, text string) {
		random := rand.New(rand.NewPCG(seed, 0))
		stack := arbitraryStack(random, text)
		for _, p := range All() {
			context := settings(p)
			context.Stack = map[string]string{"accountQuotas": text}
			p.CheckStack(context, stack)
			for _, r := range stack {
				Summary(p.CheckResource(context, r).Unknown)
			}
		}
	})
}

// readNames are the properties that policies read, as their source names them.
var readNames = func() []string {
	names := map[string]bool{}
	for _, file := range []string{"cost.go", "estimate.go", "quotas.go", "safety.go", "check.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		for _, match := range regexp.MustCompile(`"([a-zA-Z0-9.]+)"`).FindAllStringSubmatch(string(source), -1) {
			for name := range strings.SplitSeq(match[1], ".") {
				names[name] = true
			}
		}
	}
	var list []string
	for name := range names {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}()

func arbitraryStack(random *rand.Rand, text string) Stack {
	all := types()
	var stack Stack
	for i := range 12 {
		typ := all[random.IntN(len(all))]
		parent := ""
		if len(stack) > 0 && random.IntN(2) == 0 {
			parent = stack[random.IntN(len(stack))].URN
		}
		r := Resource{Type: typ, Name: fmt.Sprintf("r%d", i), URN: fmt.Sprintf("urn:pulumi:dev::acme::%s::r%d", typ, i), Parent: parent, Depends: map[string][]string{}}
		if random.IntN(8) == 0 {
			r.Parent = r.URN // a circle
		}
		if random.IntN(2) == 0 {
			r.URN = fmt.Sprintf("urn:pulumi:dev::acme::%s$%s::r%d", ComponentType, typ, i)
		}
		properties := map[string]property.Value{}
		for range 40 {
			properties[readNames[random.IntN(len(readNames))]] = arbitrary(random, text, 4)
		}
		r.Properties = property.NewMap(properties)
		if random.IntN(3) == 0 {
			r.Inputs = &r.Properties
		}
		if len(stack) > 0 {
			r.Depends["bucket"] = []string{stack[0].URN}
		}
		stack = append(stack, r)
	}
	return stack
}

// arbitrary is a value of any kind, secret or not.
func arbitrary(random *rand.Rand, text string, depth int) property.Value {
	kinds := 9
	if depth == 0 {
		kinds = 7
	}
	var v property.Value
	switch random.IntN(kinds) {
	case 0:
	case 1:
		v = property.New(property.Computed)
	case 2:
		v = property.New(text)
	case 3:
		v = property.New([]string{"", "*", "arn:aws:s3:::x", "arm64", "deliver", "generate", "https://x", "public-read", "bursting"}[random.IntN(9)])
	case 4:
		v = property.New([]float64{0, -1, 1, 900, 1e308, 128.5}[random.IntN(6)])
	case 5:
		v = property.New(random.IntN(2) == 0)
	case 6:
		v = property.New(property.NewArray(nil))
	case 7:
		var list []property.Value
		for range random.IntN(4) {
			list = append(list, arbitrary(random, text, depth-1))
		}
		v = property.New(property.NewArray(list))
	case 8:
		m := map[string]property.Value{}
		for range random.IntN(5) {
			m[readNames[random.IntN(len(readNames))]] = arbitrary(random, text, depth-1)
		}
		v = property.New(property.NewMap(m))
	}
	return v.WithSecret(random.IntN(4) == 0)
}
