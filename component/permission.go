package component

import (
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// statement is one of an IAM policy.
type statement struct {
	actions   []string
	resources []pulumi.StringInput
	condition pulumi.Map
}

// allow permits actions on resources.
func allow(actions []string, resources ...pulumi.StringInput) statement {
	return statement{actions: actions, resources: resources}
}

// anywhere permits actions that AWS ties to no resource. Who uses it says so.
func anywhere(actions ...string) statement { return allow(actions, pulumi.String("*")) }

func (s statement) document() pulumi.Map {
	m := pulumi.Map{"Effect": pulumi.String("Allow"), "Action": pulumi.ToStringArray(s.actions), "Resource": pulumi.StringArray(s.resources)}
	if s.condition != nil {
		m["Condition"] = s.condition
	}
	return m
}

// policy is an IAM policy as JSON. Its keys are sorted, so that the same policy
// is the same text.
func policy(statements ...pulumi.Input) pulumi.StringOutput {
	return pulumi.JSONMarshal(pulumi.Map{"Version": pulumi.String("2012-10-17"), "Statement": pulumi.Array(statements)})
}

// role creates the role of one function, machine, stream or rule, with what it
// may do. Who is to wait for the permissions depends on the policy that is
// returned as well.
func (s *swarm) role(what, service string, statements ...statement) (*iam.Role, *iam.RolePolicy, error) {
	trust := pulumi.Map{
		"Effect": pulumi.String("Allow"), "Action": pulumi.String("sts:AssumeRole"),
		"Principal": pulumi.Map{"Service": pulumi.String(service)},
	}
	if service != lambdaService { // which sends no such key
		trust["Condition"] = pulumi.Map{"StringEquals": pulumi.Map{"aws:SourceAccount": s.account}}
	}
	role, err := iam.NewRole(s.ctx, s.child(what+"-role"), &iam.RoleArgs{
		Description:      pulumi.String("briefing swarm " + s.name + ": " + what),
		AssumeRolePolicy: policy(trust),
		Tags:             s.tags(),
	}, s.opts()...)
	if err != nil {
		return nil, nil, err
	}
	p, err := s.permit(what, role, statements...)
	return role, p, err
}

// permit adds a policy to a role.
func (s *swarm) permit(what string, role *iam.Role, statements ...statement) (*iam.RolePolicy, error) {
	list := make([]pulumi.Input, len(statements))
	for i, st := range statements {
		list[i] = st.document()
	}
	return iam.NewRolePolicy(s.ctx, s.child(what+"-policy"), &iam.RolePolicyArgs{Role: role.Name, Policy: policy(list...)}, s.opts()...)
}

// Services that roles are for.
const (
	lambdaService   = "lambda.amazonaws.com"
	statesService   = "states.amazonaws.com"
	eventsService   = "events.amazonaws.com"
	firehoseService = "firehose.amazonaws.com"
	dataSyncService = "datasync.amazonaws.com"
)

// below is the ARN of everything under a prefix of a bucket.
func below(bucketArn pulumi.StringInput, prefix string) pulumi.StringInput {
	return pulumi.Sprintf("%s/%s*", bucketArn, prefix)
}
