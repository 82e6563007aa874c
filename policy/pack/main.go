// Command pack serves the policy pack to the Pulumi engine. The engine starts
// it: pulumi preview --policy-pack takes this folder, or the program built from
// it.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/blang/semver"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/policyx"

	"github.com/briefing-swarm/briefing-swarm/policy"
)

func main() {
	if err := serve(&pack{}); err != nil {
		fmt.Fprintln(os.Stderr, "policy pack:", err)
		os.Exit(1)
	}
}

// pack is what the policies share during one operation of the engine.
type pack struct {
	mu       sync.Mutex
	settings map[string]map[string]any // by policy
	stack    map[string]string         // the stack's configuration
	inputs   map[string]property.Map   // of components, by URN
	unknown  map[string][]string       // what a policy could not see
}

// policies makes policyx's policies of ours.
func (p *pack) policies(*pulumi.Context) (policyx.PolicyPack, error) {
	var list []policyx.Policy
	for _, own := range policy.All() {
		if own.PerResource() {
			list = append(list, policyx.NewResourceValidationPolicy(own.Name, policyx.ResourceValidationPolicyArgs{
				Description: own.Description, EnforcementLevel: level(own.Level), ConfigSchema: schema(own.Settings),
				ValidateResource: func(_ context.Context, a policyx.ResourceValidationArgs) (err error) {
					defer recovered(own, &err)
					p.report(own, a.Manager, own.CheckResource(p.context(own), p.resource(a.Resource)))
					return nil
				},
			}))
			continue
		}
		list = append(list, policyx.NewStackValidationPolicy(own.Name, policyx.StackValidationPolicyArgs{
			Description: own.Description, EnforcementLevel: level(own.Level), ConfigSchema: schema(own.Settings),
			ValidateStack: func(_ context.Context, a policyx.StackValidationArgs) (err error) {
				defer recovered(own, &err)
				stack := make(policy.Stack, len(a.Resources))
				for i, r := range a.Resources {
					stack[i] = p.resource(r)
				}
				p.report(own, a.Manager, own.CheckStack(p.context(own), stack))
				return nil
			},
		}))
	}
	return policyx.NewPolicyPack(policy.Name, semver.MustParse(policy.Version), policyx.EnforcementLevelMandatory, list)
}

// recovered makes an error of a panic: the engine then says which policy it was
// and stops, where it would otherwise wait for a program that is gone.
func recovered(own policy.Policy, err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("policy %s failed: %v", own.Name, r)
	}
}

// resource is what a policy sees of one of the engine's. A component's inputs
// are what the engine showed when it was registered.
func (p *pack) resource(r policyx.AnalyzerResource) policy.Resource {
	seen := policy.Resource{Type: r.Type, URN: r.URN, Name: r.Name, Parent: r.Parent, Properties: r.Properties, Depends: r.PropertyDependencies}
	p.mu.Lock()
	defer p.mu.Unlock()
	if inputs, ok := p.inputs[r.URN]; ok {
		seen.Inputs = &inputs
	}
	return seen
}

func (p *pack) context(own policy.Policy) policy.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	settings := map[string]any{}
	for _, s := range own.Settings {
		settings[s.Name] = s.Default
	}
	for name, value := range p.settings[own.Name] {
		settings[name] = value
	}
	return policy.Context{Settings: settings, Stack: p.stack}
}

func (p *pack) report(own policy.Policy, manager policyx.PolicyManager, findings policy.Findings) {
	for _, v := range findings.Violations {
		manager.ReportViolation(v.Message, v.URN)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, note := range findings.Unknown {
		if !slices.Contains(p.unknown[own.Name], note) {
			p.unknown[own.Name] = append(p.unknown[own.Name], note)
		}
	}
}

func level(l policy.Level) policyx.EnforcementLevel {
	if l == policy.Advisory {
		return policyx.EnforcementLevelAdvisory
	}
	return policyx.EnforcementLevelMandatory
}

// schema is what the engine checks a configuration file against. It knows
// nothing of names that are not here; see the front's Configure.
func schema(settings []policy.Setting) *policyx.ConfigSchema {
	if len(settings) == 0 {
		return nil
	}
	properties := map[string]map[string]any{}
	for _, s := range settings {
		property := map[string]any{"default": s.Default, "description": s.Description}
		switch value := s.Default.(type) {
		case bool:
			property["type"] = "boolean"
		case float64:
			property["type"] = "number"
			if s.Max != 0 {
				property["minimum"], property["maximum"] = s.Min, s.Max
			}
		case []string:
			// The schema travels as JSON's own types.
			texts := make([]any, len(value))
			for i, text := range value {
				texts[i] = text
			}
			property["type"], property["items"], property["default"] = "array", map[string]any{"type": "string"}, texts
		}
		properties[s.Name] = property
	}
	return &policyx.ConfigSchema{Properties: properties}
}
