package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulumi/pulumi/sdk/v3/go/common/diag"
	"github.com/pulumi/pulumi/sdk/v3/go/common/diag/colors"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/config"
	"github.com/pulumi/pulumi/sdk/v3/go/common/workspace"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/briefing-swarm/briefing-swarm/component"
	"github.com/briefing-swarm/briefing-swarm/internal/inputdoc"
)

var update = flag.Bool("update", false, "rewrite the keys of Pulumi.yaml")

const modelSum = "6c1a2b41161032677be168d354123594c0e6e67d2b9227c84f296ad037c728ff"

func project(t *testing.T) *workspace.Project {
	t.Helper()
	p, err := workspace.LoadProject("Pulumi.yaml") // which validates it
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestProject: every input of the component is a key of Pulumi.yaml, described in
// the component's own words, of a type that fits, and with a default, so that no
// stack has to set it. With -update the keys are written anew; defaults stay.
func TestProject(t *testing.T) {
	fields, err := inputdoc.Read("component/args.go", "Args")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile("Pulumi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(kept), "\nconfig:\n")
	if !ok {
		t.Fatal("Pulumi.yaml has no config section")
	}
	written := head + "\nconfig:\n" + configKeys(t, fields, project(t))
	if *update {
		if err := os.WriteFile("Pulumi.yaml", []byte(written), 0o644); err != nil {
			t.Fatal(err)
		}
		kept = []byte(written)
	}
	if diff := cmp.Diff(string(kept), written); diff != "" {
		t.Errorf("Pulumi.yaml says something else than component.Args; run this test with -update (-kept +source):\n%s", diff)
	}
	p := project(t)
	if len(p.Config) != len(fields) {
		t.Errorf("Pulumi.yaml has %d keys, want %d", len(p.Config), len(fields))
	}
	for key, c := range p.Config {
		if c.Default == nil {
			t.Errorf("%s has no default, so that every stack must set it", key)
		}
	}
}

// schemaTypes are Pulumi.yaml's types, which know no decimals, and the default of
// each that asks for the component's.
var schemaTypes = map[string]struct{ name, zero string }{
	"string": {"string", `""`}, "pulumi.StringPtrInput": {"string", `""`}, "float64": {"string", `"0"`}, "int": {"integer", "0"}, "bool": {"boolean", "false"},
	"[]string": {"array", "[]"}, "map[string]string": {"object", "{}"}, "map[string]float64": {"object", "{}"},
}

// configKeys writes the config section, with the defaults that the project has.
func configKeys(t *testing.T, fields []inputdoc.Field, p *workspace.Project) string {
	t.Helper()
	var b strings.Builder
	for _, f := range fields {
		kind, ok := schemaTypes[f.Type]
		if !ok {
			t.Fatalf("%s has the type %s, which Pulumi.yaml has no word for", f.Key, f.Type)
		}
		value := kind.zero
		if c, ok := p.Config[f.Key]; ok && c.Default != nil {
			text, err := json.Marshal(c.Default)
			if err != nil {
				t.Fatal(err)
			}
			value = string(text)
		}
		fmt.Fprintf(&b, "  %s:\n    type: %s\n", f.Key, kind.name)
		if kind.name == "array" {
			b.WriteString("    items:\n      type: string\n")
		}
		fmt.Fprintf(&b, "    description: >-\n%s    default: %s\n", folded(f.Text), value)
	}
	return b.String()
}

// folded writes a text as a folded scalar of YAML.
func folded(text string) string {
	const indent, width = "      ", 96
	var b strings.Builder
	line := indent
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > width {
			b.WriteString(line + "\n")
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	return b.String() + line + "\n"
}

// swarmInputs runs the program with a configuration and returns what the
// component registers as its inputs.
func swarmInputs(t *testing.T, stack string, configuration map[string]string, secrets ...string) (resource.PropertyMap, error) {
	t.Helper()
	t.Chdir(t.TempDir()) // the build context is staged below the working directory
	c := &cloud{}
	full := map[string]string{}
	for key, value := range configuration {
		if !strings.Contains(key, ":") {
			key = "briefing-swarm:" + key
		}
		full[key] = value
	}
	err := pulumi.RunErr(deploy, pulumi.WithMocks("briefing-swarm", stack, c), func(info *pulumi.RunInfo) {
		info.DryRun, info.Config, info.ConfigSecretKeys = true, full, secrets
	})
	return c.inputs, err
}

// cloud answers as little as a preview of the program needs.
type cloud struct{ inputs resource.PropertyMap }

func (c *cloud) NewResource(a pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	if a.TypeToken == component.Type {
		c.inputs = a.Inputs
	}
	return "", a.Inputs, nil
}

func (c *cloud) Call(a pulumi.MockCallArgs) (resource.PropertyMap, error) {
	return resource.NewPropertyMapFromMap(map[string]any{
		"name": "eu-west-1", "accountId": "123456789012", "arn": "arn:aws:iam::123456789012:user/ana", "userName": "AWS", "password": "x",
	}), nil
}

// TestDefaults: the defaults of Pulumi.yaml are those of the component.
func TestDefaults(t *testing.T) {
	p := project(t)
	configuration := map[string]string{"modelSha256": modelSum}
	want, err := swarmInputs(t, "acme", configuration)
	if err != nil {
		t.Fatal(err)
	}
	for key, c := range p.Config {
		if key == "modelSha256" {
			continue
		}
		if text, ok := c.Default.(string); ok {
			configuration[key] = text
			continue
		}
		text, err := json.Marshal(c.Default)
		if err != nil {
			t.Fatal(err)
		}
		configuration[key] = string(text)
	}
	got, err := swarmInputs(t, "acme", configuration)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plain(want), plain(got)); diff != "" {
		t.Errorf("Pulumi.yaml says another default than the component has (-component +Pulumi.yaml):\n%s", diff)
	}
}

// plain is a map as JSON has it. What is empty is as good as what is not there.
func plain(m resource.PropertyMap) map[string]any {
	values := m.Mappable()
	maps.DeleteFunc(values, func(_ string, v any) bool {
		rv := reflect.ValueOf(v)
		return (rv.Kind() == reflect.Slice || rv.Kind() == reflect.Map) && rv.Len() == 0
	})
	return values
}

// TestDevStack: the stack that comes with the project can be built.
func TestDevStack(t *testing.T) {
	p := project(t)
	sink := diag.DefaultSink(io.Discard, io.Discard, diag.FormatOptions{Color: colors.Never})
	stack, err := workspace.LoadProjectStack(sink, p, "Pulumi.dev.yaml")
	if err != nil {
		t.Fatal(err)
	}
	configuration := map[string]string{}
	for key, value := range stack.Config {
		text, err := value.Value(config.NopDecrypter)
		if err != nil {
			t.Fatal(err)
		}
		configuration[key.String()] = text
	}
	inputs, err := swarmInputs(t, "dev", configuration)
	if err != nil {
		t.Fatal(err)
	}
	if got := inputs["items"]; !got.IsNumber() || got.NumberValue() != 10 {
		t.Errorf("the dev stack's items are %v", got)
	}
}

func TestConfig(t *testing.T) {
	prompt := filepath.Join(t.TempDir(), "prompt.txt")
	if err := os.WriteFile(prompt, []byte("Write one sentence."), 0o600); err != nil {
		t.Fatal(err)
	}
	inputs, err := swarmInputs(t, "acme", map[string]string{
		"modelSha256": modelSum, "systemPrompt": "@" + prompt, "memoryMib": "5307", "temperature": "0.7", "queue": "true", "stop": `["a","b"]`,
		"tags": `{"team":"growth"}`, "accountQuotas": `{"lambdaConcurrency":3000,"firehoseMibPerSec":"7.5"}`,
		"sender": "briefing@acme.example", "unsubscribeKey": "a key that nobody should be able to read",
	}, "briefing-swarm:unsubscribeKey")
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[resource.PropertyKey]any{
		"tenant": "acme", "systemPrompt": "Write one sentence.", "memoryMib": 5307.0, "temperature": 0.7, "queue": true, "stop": []any{"a", "b"},
		"tags": map[string]any{"team": "growth"}, "accountQuotas": map[string]any{"lambdaConcurrency": 3000.0, "firehoseMibPerSec": 7.5},
	} {
		if diff := cmp.Diff(want, inputs[key].Mappable()); diff != "" {
			t.Errorf("%s: %s", key, diff)
		}
	}
	if !inputs["unsubscribeKey"].ContainsSecrets() {
		t.Error("the key is recorded in plain text")
	}
}

// TestConfigFaults: all that is wrong is said at once.
func TestConfigFaults(t *testing.T) {
	all, err := json.Marshal(map[string]string{"briefing-swarm:memoryMb": "1", "briefing-swarm:model": "x", "aws:region": "eu-west-1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(pulumi.EnvConfig, string(all))
	_, err = swarmInputs(t, "acme", map[string]string{
		"memoryMib": "4 GB", "temperature": "warm", "queue": "maybe", "stop": "a", "tags": "[]", "accountQuotas": `{"lambdaConcurrency":"many"}`,
		"grammar": "@missing.gbnf", "unsubscribeKey": "in plain text",
	})
	if err == nil {
		t.Fatal("no fault was found")
	}
	want := []string{
		`briefing-swarm:memoryMib is "4 GB", want a whole number`, `briefing-swarm:temperature is "warm", want a number`, `briefing-swarm:queue is "maybe", want true or false`,
		`briefing-swarm:stop is "a", want a list of strings`, `briefing-swarm:tags is "[]", want an object of strings`,
		`briefing-swarm:accountQuotas is "{\"lambdaConcurrency\":\"many\"}", want an object of numbers`, "briefing-swarm:grammar names a file that can't be read",
		"briefing-swarm:unsubscribeKey is stored in plain text: set it with pulumi config set --secret unsubscribeKey", "briefing-swarm:memoryMb is not known",
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error lacks %q", part)
		}
	}
	if n := strings.Count(err.Error(), "\n- "); n != len(want) {
		t.Errorf("%d faults, want %d:\n%v", n, len(want), err)
	}
}
