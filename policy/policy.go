// Package policy is the policy pack: what a stack must keep to before anything of
// it is deployed, so that neither a bill nor a quota comes as a surprise. The
// policies are plain functions over the properties of resources; package
// policy/pack serves them to the Pulumi engine.
//
// They look at the component BriefingSwarm and, where a rule makes sense there,
// at plain pulumi-aws resources of any stack.
package policy

import (
	"cmp"
	"slices"
)

// Name and Version are the pack's.
const (
	Name    = "briefing-swarm"
	Version = "0.1.0"
)

// Level is what a violation does.
type Level string

// The levels, by the engine's names.
const (
	Mandatory Level = "mandatory" // the preview or the update fails
	Advisory  Level = "advisory"  // it is shown
)

// Group is what a policy guards.
type Group string

// The groups of policies.
const (
	Cost   Group = "cost"
	Quotas Group = "quotas"
	Safety Group = "safety"
)

// Policy is one rule. Exactly one of its checks is set.
type Policy struct {
	// Name is what configuration files and exceptions call it.
	Name  string
	Group Group
	Level Level
	// Description says what holds where the policy is kept, in one sentence.
	Description string
	// Remedy says what to do about a violation.
	Remedy string
	// Settings are what a configuration file may set, beside the level.
	Settings []Setting

	// resource looks at one resource's inputs, and runs before the resource is
	// made.
	resource func(*Check, Resource)
	// stack looks at all resources together, with their outputs as far as they are
	// known, and runs at the end.
	stack func(*Check, Stack)
}

// PerResource says that the policy looks at one resource at a time.
func (p Policy) PerResource() bool { return p.resource != nil }

// Setting is one property of a policy's configuration.
type Setting struct {
	Name string
	// Default is a float64, a bool or a []string. A number 0 stands for "not set"
	// where Description says so.
	Default     any
	Description string
	// Min and Max bound a number, if Max is not 0.
	Min, Max float64
}

// All are the policies of the pack, sorted by group and name.
func All() []Policy {
	all := slices.Concat(costPolicies(), quotaPolicies(), safetyPolicies())
	order := []Group{Cost, Quotas, Safety}
	slices.SortFunc(all, func(a, b Policy) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Group), slices.Index(order, b.Group)), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Lookup finds a policy by its name.
func Lookup(name string) (Policy, bool) {
	for _, p := range All() {
		if p.Name == name {
			return p, true
		}
	}
	return Policy{}, false
}

// CheckResource runs the policy on one resource. It does nothing for a policy
// that looks at the whole stack.
func (p Policy) CheckResource(context Context, r Resource) Findings {
	c := &Check{Context: context, policy: p}
	if p.resource != nil {
		p.resource(c, r)
	}
	return c.findings
}

// CheckStack runs the policy on all resources. It does nothing for a policy that
// looks at one at a time.
func (p Policy) CheckStack(context Context, s Stack) Findings {
	c := &Check{Context: context, policy: p}
	if p.stack != nil {
		p.stack(c, s.sorted())
	}
	return c.findings
}
