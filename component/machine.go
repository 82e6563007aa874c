package component

import (
	"encoding/json"
	"fmt"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/cloudwatch"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/sfn"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// machine is a state machine, and the permission without which its first
// execution would fail.
type machine struct {
	*sfn.StateMachine
	children *iam.RolePolicy
}

// machine creates a state machine with its log group and its role, allowed to
// run the children of its Distributed Map beside what the statements say.
func (s *swarm) machine(what string, definition pulumi.StringInput, statements ...statement) (*machine, error) {
	// Log groups of this name need no policy of their own, which has a limit.
	logs, err := s.logs("/aws/vendedlogs/states/", what)
	if err != nil {
		return nil, err
	}
	// AWS has no resource for setting up the delivery of logs.
	statements = append(statements, anywhere("logs:CreateLogDelivery", "logs:DeleteLogDelivery", "logs:DescribeLogGroups", "logs:DescribeResourcePolicies",
		"logs:GetLogDelivery", "logs:ListLogDeliveries", "logs:PutResourcePolicy", "logs:UpdateLogDelivery"))
	role, permissions, err := s.role(what, statesService, statements...)
	if err != nil {
		return nil, err
	}
	created, err := sfn.NewStateMachine(s.ctx, s.child(what), &sfn.StateMachineArgs{
		Type: pulumi.String("STANDARD"), RoleArn: role.Arn, Definition: definition,
		LoggingConfiguration: sfn.StateMachineLoggingConfigurationArgs{
			Level: pulumi.String("ERROR"), LogDestination: pulumi.Sprintf("%s:*", logs.Arn),
			// The items are users: they do not belong into a log.
			IncludeExecutionData: pulumi.Bool(false),
		},
		Tags: s.tags(),
	}, s.opts(pulumi.DependsOn([]pulumi.Resource{permissions}))...)
	if err != nil {
		return nil, err
	}
	// Children are executions of the machine itself, whose name is known now:
	// executions are named NAME:ID, and those of a Distributed Map NAME/LABEL:ID.
	children, err := s.permit(what+"-children", role,
		allow([]string{"states:StartExecution"}, s.machineArn(created)),
		allow([]string{"states:DescribeExecution", "states:StopExecution"}, s.arn("states", "execution:%s:*", created.Name), s.arn("states", "execution:%s/*", created.Name)),
		allow([]string{"states:DescribeMapRun"}, s.arn("states", "mapRun:%s/*", created.Name)),
	)
	return &machine{StateMachine: created, children: children}, err
}

// started creates a rule that starts a machine for every object that appears in
// a bucket under a name of the pattern and is not empty. input replaces the event where it is not
// nil.
func (s *swarm) started(what string, bucket pulumi.StringInput, pattern string, m *machine, input cloudwatch.EventTargetInputTransformerPtrInput) (*cloudwatch.EventRule, error) {
	rule, err := cloudwatch.NewEventRule(s.ctx, s.child(what), &cloudwatch.EventRuleArgs{
		Description: pulumi.String("briefing swarm " + s.name + ": " + what),
		EventPattern: pulumi.JSONMarshal(pulumi.Map{
			"source": pulumi.ToStringArray([]string{"aws.s3"}), "detail-type": pulumi.ToStringArray([]string{"Object Created"}),
			"detail": pulumi.Map{
				"bucket": pulumi.Map{"name": pulumi.StringArray{bucket}},
				// The S3 console makes folders as empty objects: those start nothing.
				"object": pulumi.Map{
					"key":  pulumi.Array{pulumi.Map{"wildcard": pulumi.String(pattern)}},
					"size": pulumi.Array{pulumi.Map{"numeric": pulumi.Array{pulumi.String(">"), pulumi.Int(0)}}},
				},
			},
		}),
		Tags: s.tags(),
	}, s.opts()...)
	if err != nil {
		return nil, err
	}
	role, permissions, err := s.role(what, eventsService, allow([]string{"states:StartExecution"}, s.machineArn(m.StateMachine)))
	if err != nil {
		return nil, err
	}
	_, err = cloudwatch.NewEventTarget(s.ctx, s.child(what+"-target"), &cloudwatch.EventTargetArgs{
		Rule: rule.Name, Arn: m.Arn, RoleArn: role.Arn, InputTransformer: input,
	}, s.opts(pulumi.DependsOn([]pulumi.Resource{permissions, m.children}))...)
	return rule, err
}

// document makes a machine's definition from outputs that are strings.
func document(of func(values []string) (string, error), outputs ...any) pulumi.StringOutput {
	return pulumi.All(outputs...).ApplyT(func(values []any) (string, error) {
		texts := make([]string, len(values))
		for i, v := range values {
			text, ok := v.(string)
			if id, isID := v.(pulumi.ID); isID {
				text, ok = string(id), true
			}
			if !ok {
				return "", fmt.Errorf("part %d of a state machine is a %T, not a string", i, v)
			}
			texts[i] = text
		}
		return of(texts)
	}).(pulumi.StringOutput)
}

// limited is an event's input with a limit of records.
func limited(records int) (cloudwatch.EventTargetInputTransformerPtrInput, error) {
	if records == 0 {
		return nil, nil
	}
	limit, err := json.Marshal(records)
	if err != nil {
		return nil, err
	}
	return cloudwatch.EventTargetInputTransformerArgs{
		InputPaths: pulumi.StringMap{
			"bucket": pulumi.String("$.detail.bucket.name"), "key": pulumi.String("$.detail.object.key"), "version": pulumi.String("$.detail.object.version-id"),
		},
		InputTemplate: pulumi.String(`{"bucket":<bucket>,"key":<key>,"version_id":<version>,"limit":` + string(limit) + `}`),
	}, nil
}
