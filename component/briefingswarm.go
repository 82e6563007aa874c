// Package component is what a briefing swarm is on AWS, as one Pulumi component:
// from the bucket that an input file lands in to the mail that goes out. There
// is one file per stage, in the order of the pipeline.
package component

import (
	"fmt"
	"maps"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// Type is the component's type token. It is a constant, so that the same
// component is the same resource from a Go program and from a provider.
const Type = "briefing-swarm:index:BriefingSwarm"

// The tags that every resource has.
const (
	tagTenant = "tenant"
	tagSwarm  = "swarm"
)

// NewBriefingSwarm builds a swarm. Everything it creates is a child of it, named
// after it, and of its provider. All faults of the arguments are in one
// *ArgsError, and nothing is created then.
func NewBriefingSwarm(ctx *pulumi.Context, name string, args *Args, opts ...pulumi.ResourceOption) (*BriefingSwarm, error) {
	region, err := providerRegion(ctx, opts)
	if err != nil {
		return nil, err
	}
	d, err := resolve(name, args, region)
	if err != nil {
		return nil, err
	}
	c := &BriefingSwarm{}
	// The inputs are recorded with their defaults, so that policies and diffs see
	// what was decided, not what was left open.
	if err := ctx.RegisterComponentResourceV2(Type, name, d.Args, c, opts...); err != nil {
		return nil, err
	}
	if err := ctx.Log.Info(d.review(name), &pulumi.LogArgs{Resource: c}); err != nil {
		return nil, fmt.Errorf("show the cost review: %w", err)
	}
	s := &swarm{ctx: ctx, name: name, design: d, parent: c}
	if err := s.build(c); err != nil {
		return nil, err
	}
	c.estimate(d)
	return c, ctx.RegisterResourceOutputs(c, c.Outputs())
}

// providerRegion asks for the region of the provider that the children will
// have. It is empty where a preview can't know it.
func providerRegion(ctx *pulumi.Context, opts []pulumi.ResourceOption) (string, error) {
	// The component is not registered yet, and its children's provider is that of
	// its options, or its parent's.
	o, err := pulumi.NewResourceOptions(opts...)
	if err != nil {
		return "", err
	}
	var invoke []pulumi.InvokeOption
	if o.Parent != nil {
		invoke = append(invoke, pulumi.Parent(o.Parent))
	}
	for _, p := range append(o.Providers, o.Provider) {
		if p, ok := p.(*aws.Provider); ok && p != nil {
			invoke = append(invoke, pulumi.Provider(p))
		}
	}
	region, err := aws.GetRegion(ctx, nil, invoke...)
	if err != nil {
		return "", fmt.Errorf("ask for the AWS provider's region: %w", err)
	}
	return region.Name, nil
}

// swarm is one component while it is built.
type swarm struct {
	*design
	ctx    *pulumi.Context
	name   string
	parent pulumi.Resource
}

// build creates the stages in the order of the pipeline.
func (s *swarm) build(c *BriefingSwarm) error {
	return nil
}

// child is the name of a child: the component's, and what the child is.
func (s *swarm) child(what string) string { return s.name + "-" + what }

// opts are the options of a child.
func (s *swarm) opts(more ...pulumi.ResourceOption) []pulumi.ResourceOption {
	return append([]pulumi.ResourceOption{pulumi.Parent(s.parent)}, more...)
}

// tags are those of every resource.
func (s *swarm) tags() pulumi.StringMap {
	tags := pulumi.ToStringMap(maps.Clone(s.Tags))
	if tags == nil {
		tags = pulumi.StringMap{}
	}
	tags[tagTenant], tags[tagSwarm] = pulumi.String(s.Tenant), pulumi.String(s.name)
	return tags
}
