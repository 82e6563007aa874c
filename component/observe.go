package component

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/budgets"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/cloudwatch"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/lambda"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/sns"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// metricsNamespace is that of the workers' own metrics: telemetry.Namespace of
// the runtime, which a component must not import.
const metricsNamespace = "BriefingSwarm"

// topic creates the topic that alarms and runs tell, or an empty ARN where nobody
// is to be told.
func (s *swarm) topic() (pulumi.StringInput, error) {
	if s.AlarmsEmail == "" {
		return pulumi.String(""), nil
	}
	// Not encrypted with SNS's own key, with which CloudWatch could not publish; a
	// message names a run and counts, no user.
	topic, err := sns.NewTopic(s.ctx, s.child("alarms"), &sns.TopicArgs{Tags: s.tags()}, s.opts()...)
	if err != nil {
		return nil, err
	}
	_, err = sns.NewTopicSubscription(s.ctx, s.child("alarms-email"), &sns.TopicSubscriptionArgs{
		Topic: topic.Arn, Protocol: pulumi.String("email"), Endpoint: pulumi.String(s.AlarmsEmail),
	}, s.opts()...)
	return topic.Arn, err
}

// announce permits to publish to the topic, where there is one.
func (s *swarm) announce(topic pulumi.StringInput) []statement {
	if s.AlarmsEmail == "" {
		return nil
	}
	return []statement{allow([]string{"sns:Publish"}, topic)}
}

// observe builds the alarms, the dashboard and the budget.
func (s *swarm) observe(st *stages) (*cloudwatch.Dashboard, error) {
	for _, a := range s.alarms(st) {
		if err := s.alarm(a, st.topic); err != nil {
			return nil, err
		}
	}
	if err := s.budget(); err != nil {
		return nil, err
	}
	return s.dashboard(st)
}

// alarm is one metric and the value from which on somebody should look.
type alarm struct {
	what, description string
	namespace, metric string
	statistic         string // default Sum
	dimensions        pulumi.StringMap
	threshold         float64
	periodSec         int // default 300
}

// failedShare is the part of a run's users whose failure is an alarm.
const failedShare = 0.01

// Shares of mails at which SES itself puts an account under review are 5% of
// bounces and 0.1% of complaints; the alarms are below them.
const (
	bounceShare    = 0.04
	complaintShare = 0.0008
)

func (s *swarm) alarms(st *stages) []alarm {
	name := func(f *lambda.Function) pulumi.StringMap { return pulumi.StringMap{"FunctionName": f.Name} }
	stream := pulumi.StringMap{"DeliveryStreamName": st.gather.stream.Name}
	fresh := float64(2*s.BufferSec + 600)
	list := []alarm{
		{what: "failed-rows", description: "more than 1% of a run's users got no briefing", namespace: metricsNamespace, metric: "Failed",
			dimensions: s.metricDimensions(st.generate.generate), threshold: max(1, failedShare*float64(s.users())), periodSec: 3600},
		{what: "failed-conversion", description: "rows lie below " + errorsPrefix + ": Firehose could not convert them", namespace: "AWS/Firehose", metric: "FailedConversion.Records",
			dimensions: stream, threshold: 1},
		{what: "late-rows", description: "rows wait in Firehose longer than its buffer explains", namespace: "AWS/Firehose", metric: "DeliveryToS3.DataFreshness", statistic: "Maximum",
			dimensions: stream, threshold: fresh},
		{what: "throttled-rows", description: "Firehose refuses rows: workers wait for it, and are billed", namespace: "AWS/Firehose", metric: "ThrottledRecords",
			dimensions: stream, threshold: max(1, failedShare*float64(s.users()))},
		{what: "throttled-workers", description: "Lambda refuses workers: the account's concurrency is used up", namespace: "AWS/Lambda", metric: "Throttles",
			dimensions: name(st.generate.generate), threshold: float64(s.MaxConcurrency)},
		{what: "failed-runs", description: "a run failed, was refused, or left users without a row", namespace: "AWS/States", metric: "ExecutionsFailed",
			dimensions: pulumi.StringMap{"StateMachineArn": st.generate.machine.Arn}, threshold: 1},
		{what: "unstarted-runs", description: "an input landed, but its run could not be started", namespace: "AWS/Events", metric: "FailedInvocations",
			dimensions: pulumi.StringMap{"RuleName": st.generate.rule.Name}, threshold: 1},
	}
	if d := st.deliver; d != nil {
		mail := pulumi.StringMap{"ses:configuration-set": d.configuration.ConfigurationSetName}
		list = append(list,
			alarm{what: "failed-deliveries", description: "a delivery failed", namespace: "AWS/States", metric: "ExecutionsFailed",
				dimensions: pulumi.StringMap{"StateMachineArn": d.machine.Arn}, threshold: 1},
			alarm{what: "unstarted-deliveries", description: "a file of briefings landed, but its delivery could not be started", namespace: "AWS/Events", metric: "FailedInvocations",
				dimensions: pulumi.StringMap{"RuleName": d.rule.Name}, threshold: 1},
			alarm{what: "stopped-mail", description: "SES sends nothing for this account, or not for the sender", namespace: metricsNamespace, metric: "MailStopped",
				dimensions: s.mailDimensions(d.deliver), threshold: 1},
			alarm{what: "bounces", description: "more than 4% of mails bounce", namespace: "AWS/SES", metric: "Reputation.BounceRate", statistic: "Maximum",
				dimensions: mail, threshold: bounceShare, periodSec: 3600},
			alarm{what: "complaints", description: "more than 0.08% of mails are complained of", namespace: "AWS/SES", metric: "Reputation.ComplaintRate", statistic: "Maximum",
				dimensions: mail, threshold: complaintShare, periodSec: 3600},
		)
	}
	if e := st.endpoint; e != nil {
		list = append(list, alarm{what: "endpoint-errors", description: "the endpoint fails", namespace: "AWS/Lambda", metric: "Errors", dimensions: name(e.function), threshold: 1})
	}
	if q := st.queue; q != nil {
		list = append(list, alarm{what: "dead-letters-there", description: "requests could not be answered", namespace: "AWS/SQS", metric: "ApproximateNumberOfMessagesVisible", statistic: "Maximum",
			dimensions: pulumi.StringMap{"QueueName": q.deadLetters.Name}, threshold: 1})
	}
	return list
}

// metricDimensions are those of a function's own metrics.
func (s *swarm) metricDimensions(f *lambda.Function) pulumi.StringMap {
	return pulumi.StringMap{"tenant": pulumi.String(s.Tenant), "model": pulumi.String(s.plan.Inputs.Model.String()), "function": f.Name}
}

// mailDimensions are those of the metrics of delivery.
func (s *swarm) mailDimensions(f *lambda.Function) pulumi.StringMap {
	return pulumi.StringMap{"tenant": pulumi.String(s.Tenant), "function": f.Name}
}

func (s *swarm) alarm(a alarm, topic pulumi.StringInput) error {
	set(&a.statistic, "Sum")
	set(&a.periodSec, 300)
	args := &cloudwatch.MetricAlarmArgs{
		AlarmDescription: pulumi.String("briefing swarm " + s.name + ": " + a.description),
		Namespace:        pulumi.String(a.namespace), MetricName: pulumi.String(a.metric), Statistic: pulumi.String(a.statistic),
		Dimensions: a.dimensions, Period: pulumi.Int(a.periodSec), EvaluationPeriods: pulumi.Int(1),
		ComparisonOperator: pulumi.String("GreaterThanOrEqualToThreshold"), Threshold: pulumi.Float64(a.threshold),
		// Between runs there is nothing to measure.
		TreatMissingData: pulumi.String("notBreaching"),
		Tags:             s.tags(),
	}
	if s.AlarmsEmail != "" {
		args.AlarmActions = pulumi.Array{topic}
	}
	_, err := cloudwatch.NewMetricAlarm(s.ctx, s.child(a.what), args, s.opts()...)
	return err
}

// budget creates the AWS budget of the monthly ceiling. It counts what has the
// tag swarm, once the payer has activated that as a cost allocation tag.
func (s *swarm) budget() error {
	if s.CostCeilingUsdPerMonth == 0 {
		return nil
	}
	args := &budgets.BudgetArgs{
		BudgetType: pulumi.String("COST"), TimeUnit: pulumi.String("MONTHLY"),
		LimitAmount: pulumi.String(fmt.Sprintf("%.2f", s.CostCeilingUsdPerMonth)), LimitUnit: pulumi.String("USD"),
		CostFilters: budgets.BudgetCostFilterArray{budgets.BudgetCostFilterArgs{
			Name: pulumi.String("TagKeyValue"), Values: pulumi.ToStringArray([]string{"user:" + tagSwarm + "$" + s.name}),
		}},
		Tags: s.tags(),
	}
	if s.AlarmsEmail != "" {
		notify := func(kind string, percent float64) budgets.BudgetNotificationArgs {
			return budgets.BudgetNotificationArgs{
				ComparisonOperator: pulumi.String("GREATER_THAN"), NotificationType: pulumi.String(kind),
				Threshold: pulumi.Float64(percent), ThresholdType: pulumi.String("PERCENTAGE"),
				SubscriberEmailAddresses: pulumi.ToStringArray([]string{s.AlarmsEmail}),
			}
		}
		args.Notifications = budgets.BudgetNotificationArray{notify("ACTUAL", 80), notify("ACTUAL", 100), notify("FORECASTED", 100)}
	}
	_, err := budgets.NewBudget(s.ctx, s.child("budget"), args, s.opts()...)
	return err
}

// dashboard creates one page that follows a file through the pipeline.
func (s *swarm) dashboard(st *stages) (*cloudwatch.Dashboard, error) {
	ours := func(metric, stat string, dimensions pulumi.StringMap) pulumi.Array {
		line := pulumi.Array{pulumi.String(metricsNamespace), pulumi.String(metric)}
		for _, key := range slices.Sorted(maps.Keys(dimensions)) {
			line = append(line, pulumi.String(key), dimensions[key])
		}
		return append(line, pulumi.Map{"stat": pulumi.String(stat)})
	}
	own := func(metric, stat string) pulumi.Array {
		return ours(metric, stat, s.metricDimensions(st.generate.generate))
	}
	of := func(namespace, metric, key string, value pulumi.StringInput, stat string) pulumi.Array {
		return pulumi.Array{pulumi.String(namespace), pulumi.String(metric), pulumi.String(key), value, pulumi.Map{"stat": pulumi.String(stat)}}
	}
	worker, stream, run := st.generate.generate.Name, st.gather.stream.Name, st.generate.machine.Arn
	widgets := pulumi.Array{
		s.widget(0, "Runs", of("AWS/States", "ExecutionsStarted", "StateMachineArn", run, "Sum"), of("AWS/States", "ExecutionsSucceeded", "StateMachineArn", run, "Sum"), of("AWS/States", "ExecutionsFailed", "StateMachineArn", run, "Sum")),
		s.widget(1, "Workers at one time", of("AWS/Lambda", "ConcurrentExecutions", "FunctionName", worker, "Maximum"), of("AWS/Lambda", "Throttles", "FunctionName", worker, "Sum")),
		s.widget(2, "Briefings", own("Briefings", "Sum"), own("Failed", "Sum")),
		s.widget(3, "Tokens a second and worker", own("TokensPerSecond", "Average"), own("PrefillTokensPerSecond", "Average")),
		s.widget(4, "Loading the model, and the first token (ms)", own("ModelLoad", "Maximum"), own("TimeToFirstToken", "p90")),
		s.widget(5, "Rows", of("AWS/Firehose", "IncomingRecords", "DeliveryStreamName", stream, "Sum"), of("AWS/Firehose", "SucceedConversion.Records", "DeliveryStreamName", stream, "Sum"),
			of("AWS/Firehose", "FailedConversion.Records", "DeliveryStreamName", stream, "Sum"), of("AWS/Firehose", "ThrottledRecords", "DeliveryStreamName", stream, "Sum")),
	}
	if d := st.deliver; d != nil {
		widgets = append(widgets,
			s.widget(6, "Deliveries", of("AWS/States", "ExecutionsStarted", "StateMachineArn", d.machine.Arn, "Sum"), of("AWS/States", "ExecutionsFailed", "StateMachineArn", d.machine.Arn, "Sum")),
			s.widget(7, "Mails", ours("MailSent", "Sum", s.mailDimensions(d.deliver)), ours("MailFailed", "Sum", s.mailDimensions(d.deliver)), ours("MailUnknown", "Sum", s.mailDimensions(d.deliver)),
				ours("MailSkipped", "Sum", s.mailDimensions(d.deliver)), ours("Bounces", "Sum", s.mailDimensions(d.feedback)), ours("Complaints", "Sum", s.mailDimensions(d.feedback))),
			s.widget(8, "Shares of bounces and complaints", of("AWS/SES", "Reputation.BounceRate", "ses:configuration-set", d.configuration.ConfigurationSetName, "Maximum"),
				of("AWS/SES", "Reputation.ComplaintRate", "ses:configuration-set", d.configuration.ConfigurationSetName, "Maximum")))
	}
	return cloudwatch.NewDashboard(s.ctx, s.child("dashboard"), &cloudwatch.DashboardArgs{
		DashboardName: pulumi.String(s.unique("dashboard")),
		DashboardBody: pulumi.JSONMarshal(pulumi.Map{"widgets": widgets}),
	}, s.opts()...)
}

// widget is one chart of the dashboard, at a place counted from the top left,
// two in a row.
func (s *swarm) widget(place int, title string, metrics ...pulumi.Array) pulumi.Map {
	const width, height = 12, 6 // of 24 columns
	lines := pulumi.Array{}
	for _, m := range metrics {
		lines = append(lines, m)
	}
	return pulumi.Map{
		"type": pulumi.String("metric"), "x": pulumi.Int(place % 2 * width), "y": pulumi.Int(place / 2 * height), "width": pulumi.Int(width), "height": pulumi.Int(height),
		"properties": pulumi.Map{"title": pulumi.String(title), "region": pulumi.String(s.Region), "view": pulumi.String("timeSeries"), "period": pulumi.Int(60), "metrics": lines},
	}
}
