// Package component is what a briefing swarm is on AWS, as one Pulumi component:
// from the bucket that an input file lands in to the mail that goes out. There
// is one file per stage, in the order of the pipeline.
package component

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"strings"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/cloudwatch"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ecr"
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
	provider, err := childProvider(opts)
	if err != nil {
		return nil, err
	}
	region, err := providerRegion(ctx, provider)
	if err != nil {
		return nil, err
	}
	args, unread := withQuotas(ctx, args, provider)
	d, err := resolve(name, args, region)
	if err != nil {
		return nil, err
	}
	if d.UnsubscribeKey != nil {
		d.UnsubscribeKey = pulumi.ToSecret(d.UnsubscribeKey.ToStringPtrOutput()).(pulumi.StringPtrOutput)
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
	if len(unread) > 0 {
		if err := ctx.Log.Warn(unreadQuotas(unread), &pulumi.LogArgs{Resource: c}); err != nil {
			return nil, fmt.Errorf("warn of quotas: %w", err)
		}
	}
	s := &swarm{ctx: ctx, name: name, design: d, parent: c}
	st, err := s.build()
	if err != nil {
		return nil, err
	}
	if err := c.estimate(d); err != nil {
		return nil, err
	}
	c.built(s, st)
	return c, ctx.RegisterResourceOutputs(c, c.Outputs())
}

// childProvider are the options for calls to the provider that the children will
// have: the component is not registered yet, and theirs is that of its options,
// or its parent's.
func childProvider(opts []pulumi.ResourceOption) ([]pulumi.InvokeOption, error) {
	o, err := pulumi.NewResourceOptions(opts...)
	if err != nil {
		return nil, err
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
	return invoke, nil
}

// providerRegion asks for the region of the children's provider. It is empty
// where a preview can't know it.
func providerRegion(ctx *pulumi.Context, provider []pulumi.InvokeOption) (string, error) {
	region, err := aws.GetRegion(ctx, nil, provider...)
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
	// account and partition are those that the AWS provider deploys into.
	account, partition pulumi.StringOutput
	// worker is the address of the image.
	worker pulumi.StringInput
}

// stages are what a swarm consists of. Those that were not asked for are nil.
type stages struct {
	ingest     *ingest
	repository *ecr.Repository
	store      *modelStore
	gather     *gather
	generate   *generate
	deliver    *deliver
	endpoint   *endpoint
	queue      *queue
	topic      pulumi.StringInput
	dashboard  *cloudwatch.Dashboard
}

// build creates the stages in the order of the pipeline.
func (s *swarm) build() (st *stages, err error) {
	s.whereabouts()
	st = &stages{}
	if st.topic, err = s.topic(); err != nil {
		return nil, err
	}
	if st.ingest, err = s.ingest(); err != nil {
		return nil, err
	}
	if s.worker, st.repository, err = s.image(); err != nil {
		return nil, err
	}
	if st.store, err = s.modelStore(st.ingest.runs); err != nil {
		return nil, err
	}
	model, err := s.recipe(st.ingest.runs, st.store)
	if err != nil {
		return nil, err
	}
	if st.gather, err = s.gather(); err != nil {
		return nil, err
	}
	if st.generate, err = s.generate(st.ingest, st.gather, model, st.topic); err != nil {
		return nil, err
	}
	if st.deliver, err = s.deliver(st.ingest, st.gather, st.topic); err != nil {
		return nil, err
	}
	if st.endpoint, err = s.endpoint(model); err != nil {
		return nil, err
	}
	if st.queue, err = s.queue(model); err != nil {
		return nil, err
	}
	st.dashboard, err = s.observe(st)
	return st, err
}

// whereabouts asks who the provider is, for the ARNs of what AWS itself owns.
func (s *swarm) whereabouts() {
	caller := aws.GetCallerIdentityOutput(s.ctx, aws.GetCallerIdentityOutputArgs{}, pulumi.Parent(s.parent))
	s.account = caller.AccountId()
	s.partition = caller.Arn().ApplyT(func(arn string) string {
		if parts := strings.SplitN(arn, ":", 3); len(parts) == 3 {
			return parts[1]
		}
		return "aws"
	}).(pulumi.StringOutput)
}

// child is the name of a child: the component's, and what the child is.
func (s *swarm) child(what string) string { return s.name + "-" + what }

// unique is a name for what has no other way to be told apart from that of
// another stack in the account: the child's, and a hash of the stack.
func (s *swarm) unique(what string) string {
	sum := sha256.Sum256([]byte(s.ctx.Project() + "/" + s.ctx.Stack()))
	return fmt.Sprintf("%s-%x", s.child(what), sum[:4])
}

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
