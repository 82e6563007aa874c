package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

func init() {
	maps.Copy(rules, map[string]func(*inputs){
		"aws:cloudwatch/eventRule:EventRule":                                          eventRule,
		"aws:cloudwatch/eventTarget:EventTarget":                                      eventTarget,
		"aws:cloudwatch/logGroup:LogGroup":                                            logGroup,
		"aws:cloudwatch/logStream:LogStream":                                          logStream,
		"aws:cloudwatch/logMetricFilter:LogMetricFilter":                              logMetricFilter,
		"aws:cloudwatch/logResourcePolicy:LogResourcePolicy":                          logResourcePolicy,
		"aws:cloudwatch/metricAlarm:MetricAlarm":                                      metricAlarm,
		"aws:cloudwatch/compositeAlarm:CompositeAlarm":                                compositeAlarm,
		"aws:cloudwatch/dashboard:Dashboard":                                          dashboard,
		"aws:scheduler/schedule:Schedule":                                             schedulerSchedule,
		"aws:sqs/queue:Queue":                                                         sqsQueue,
		"aws:sqs/queuePolicy:QueuePolicy":                                             sqsPolicy,
		"aws:sqs/redrivePolicy:RedrivePolicy":                                         sqsRedrive,
		"aws:sqs/redriveAllowPolicy:RedriveAllowPolicy":                               sqsRedriveAllow,
		"aws:sns/topic:Topic":                                                         snsTopic,
		"aws:sns/topicPolicy:TopicPolicy":                                             snsPolicy,
		"aws:sns/topicSubscription:TopicSubscription":                                 snsSubscription,
		"aws:sesv2/emailIdentity:EmailIdentity":                                       sesIdentity,
		"aws:sesv2/configurationSet:ConfigurationSet":                                 sesConfigurationSet,
		"aws:sesv2/configurationSetEventDestination:ConfigurationSetEventDestination": sesEventDestination,
		"aws:sesv2/emailIdentityFeedbackAttributes:EmailIdentityFeedbackAttributes":   sesFeedback,
		"aws:sesv2/emailIdentityMailFromAttributes:EmailIdentityMailFromAttributes":   sesMailFrom,
		"aws:ses/configurationSet:ConfigurationSet":                                   func(in *inputs) { in.match("name", sesName, "1 to 64 letters, digits, _ and -") },
		"aws:ses/emailIdentity:EmailIdentity":                                         func(in *inputs) { in.match("email", mailAddress, "an address") },
		"aws:ses/eventDestination:EventDestination":                                   func(in *inputs) { in.match("name", sesName, "1 to 64 letters, digits, _ and -") },
	})
}

func eventRule(in *inputs) {
	in.match("name", `[.\-_A-Za-z0-9]{1,64}`, "1 to 64 letters, digits and .-_")
	in.length("description", 0, 512)
	in.oneOf("state", "ENABLED", "DISABLED", "ENABLED_WITH_ALL_CLOUDTRAIL_MANAGEMENT_EVENTS")
	in.arn("roleArn", "iam")
	if !in.has("eventPattern") && !in.has("scheduleExpression") {
		in.fault("eventPattern", "is missing, and so is scheduleExpression")
	}
	in.schedule("scheduleExpression")
	doc, ok := in.document("eventPattern")
	if !ok {
		return
	}
	object, ok := doc.(map[string]any)
	if !ok || len(object) == 0 {
		in.fault("eventPattern", "is not an object with something in it")
		return
	}
	known := []string{"source", "detail-type", "detail", "account", "region", "resources", "id", "time", "version", "$or"}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(known, key) {
			in.fault("eventPattern", "matches on %q, which no event has", key)
		}
	}
	in.eventPattern("eventPattern", object)
}

// contentFilters are what a pattern can ask of a value beside being equal.
var contentFilters = []string{"prefix", "suffix", "anything-but", "numeric", "cidr", "exists", "equals-ignore-case", "wildcard"}

func (in *inputs) eventPattern(path string, object map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		switch value := object[key].(type) {
		case map[string]any:
			in.eventPattern(path, value)
		case []any:
			if len(value) == 0 {
				in.fault(path, "matches %q with an empty list: never", key)
			}
			for _, element := range value {
				filter, ok := element.(map[string]any)
				if !ok || key == "$or" {
					continue
				}
				for _, name := range slices.Sorted(maps.Keys(filter)) {
					if !slices.Contains(contentFilters, name) {
						in.fault(path, "asks %q of %q, want one of %s", name, key, strings.Join(contentFilters, ", "))
					}
				}
			}
		default:
			in.fault(path, "matches %q with %v, want a list", key, value)
		}
	}
}

func (in *inputs) schedule(path string) {
	if s, ok := in.text(path); ok && s != "" && !compiled(`^(?:rate\((?:1 (?:minute|hour|day)|(?:[2-9]|[1-9]\d+) (?:minutes|hours|days))\)|cron\(\S+(?: \S+){5}\)|at\(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\))$`).MatchString(s) {
		in.fault(path, "%q is not rate(2 hours), cron(0 6 * * ? *) or at(2026-01-02T03:04:05)", s)
	}
}

func eventTarget(in *inputs) {
	in.match("targetId", `[.\-_A-Za-z0-9]{1,64}`, "1 to 64 letters, digits and .-_")
	in.match("rule", `[.\-_A-Za-z0-9]{1,64}`, "a rule")
	in.arn("arn")
	in.arn("roleArn", "iam")
	in.arn("deadLetterConfig.arn", "sqs")
	in.between("retryPolicy.maximumEventAgeInSeconds", 60, 86400)
	in.between("retryPolicy.maximumRetryAttempts", 0, 185)
	if target, ok := in.text("arn"); ok && strings.Contains(target, ":states:") && !in.has("roleArn") {
		in.fault("roleArn", "is missing: EventBridge starts a state machine by a role")
	}
	given := 0
	for _, source := range []string{"input", "inputPath", "inputTransformer"} {
		if in.has(source) {
			given++
		}
	}
	if given > 1 {
		in.fault("input", "is given beside another input")
	}
	in.document("input")
	paths, _ := in.get("inputTransformer.inputPaths")
	object, _ := paths.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if path, _ := object[name].(string); !strings.HasPrefix(path, "$.") {
			in.fault("inputTransformer.inputPaths."+name, "%q is no path such as $.detail", object[name])
		}
	}
	if template, ok := in.text("inputTransformer.inputTemplate"); ok {
		in.length("inputTransformer.inputTemplate", 1, 8192)
		for _, match := range compiled(`<([^<>\s]+)>`).FindAllStringSubmatch(template, -1) {
			if _, ok := object[match[1]]; !ok && !strings.HasPrefix(match[1], "aws.events.") {
				in.fault("inputTransformer.inputTemplate", "uses <%s>, which inputPaths does not have", match[1])
			}
		}
	}
}

const logGroupName = `[.\-_/#A-Za-z0-9]{1,512}`

func logGroup(in *inputs) {
	in.match("name", logGroupName, "1 to 512 letters, digits and .-_/#")
	in.oneOfNumbers("retentionInDays", 0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653)
	in.oneOf("logGroupClass", "STANDARD", "INFREQUENT_ACCESS", "DELIVERY")
	in.arn("kmsKeyId", "kms")
}

func logStream(in *inputs) {
	in.match("logGroupName", logGroupName, "a log group")
	in.match("name", `[^:*]{1,512}`, "1 to 512 characters without : and *")
}

func logMetricFilter(in *inputs) {
	in.match("logGroupName", logGroupName, "a log group")
	in.length("pattern", 0, 1024)
	in.match("metricTransformation.namespace", `[^:*$]{1,255}`, "1 to 255 characters without : * $")
}

func logResourcePolicy(in *inputs) {
	in.policy("policyDocument", resourcePolicy)
	in.length("policyDocument", 1, 5120)
}

var alarmStatistics = []string{"SampleCount", "Average", "Sum", "Minimum", "Maximum"}

func metricAlarm(in *inputs) {
	in.length("name", 1, 255)
	in.oneOf("comparisonOperator", "GreaterThanOrEqualToThreshold", "GreaterThanThreshold", "LessThanThreshold", "LessThanOrEqualToThreshold",
		"LessThanLowerOrGreaterThanUpperThreshold", "LessThanLowerThreshold", "GreaterThanUpperThreshold")
	in.between("evaluationPeriods", 1, 1e6)
	in.oneOf("statistic", alarmStatistics...)
	in.match("extendedStatistic", `p\d{1,2}(?:\.\d+)?|p100|(?:TM|TC|TS|WM|PR|IQM).*`, "a statistic such as p99")
	in.oneOf("treatMissingData", "missing", "ignore", "breaching", "notBreaching")
	in.match("namespace", `[^:][^:]{0,254}|AWS/\S+`, "a namespace")
	in.one("metricName", "metricQueries")
	if in.has("metricName") {
		in.require("namespace", "period")
		in.one("statistic", "extendedStatistic")
	}
	if !in.has("threshold") && !in.has("thresholdMetricId") {
		in.fault("threshold", "is missing")
	}
	period, isKnown := in.number("period")
	if isKnown && period != 10 && period != 20 && period != 30 && (period < 60 || int(period)%60 != 0) {
		in.fault("period", "%v is not 10, 20, 30 or a multiple of 60", period)
	}
	periods, _ := in.number("evaluationPeriods")
	if isKnown && period*periods > 604_800 {
		in.fault("evaluationPeriods", "cover %v seconds, want at most a week", period*periods)
	}
	if points, ok := in.number("datapointsToAlarm"); ok && (points < 1 || points > periods) {
		in.fault("datapointsToAlarm", "%v is not within 1 to evaluationPeriods %v", points, periods)
	}
	for _, actions := range []string{"alarmActions", "okActions", "insufficientDataActions"} {
		in.arns(actions)
		in.count(actions, 0, 5)
	}
	ids := map[string]bool{}
	returning := 0
	queries := in.each("metricQueries")
	for _, query := range queries {
		query.require("id")
		query.match("id", `[a-z][a-zA-Z0-9_]*`, "a lower-case letter, then letters, digits and _")
		if id, ok := query.text("id"); ok {
			if ids[id] {
				query.fault("id", "%q comes twice", id)
			}
			ids[id] = true
		}
		if query.truth("returnData") {
			returning++
		}
		query.one("expression", "metric")
		if query.has("metric") {
			query.require("metric.metricName", "metric.period", "metric.stat")
		}
	}
	if len(queries) > 0 && returning != 1 {
		in.fault("metricQueries", "%d of them return data, want exactly one", returning)
	}
}

func compositeAlarm(in *inputs) {
	in.length("alarmName", 1, 255)
	in.match("alarmRule", `(?s).*(?:ALARM|OK|INSUFFICIENT_DATA)\(.+\).*|TRUE|FALSE`, "a rule such as ALARM(name)")
}

func dashboard(in *inputs) {
	in.match("dashboardName", `[A-Za-z0-9_-]{1,255}`, "1 to 255 letters, digits, _ and -")
	doc, ok := in.document("dashboardBody")
	if !ok {
		return
	}
	object, _ := doc.(map[string]any)
	widgets, ok := object["widgets"].([]any)
	if !ok {
		in.fault("dashboardBody", "has no widgets")
		return
	}
	if len(widgets) > 500 {
		in.fault("dashboardBody", "has %d widgets, want at most 500", len(widgets))
	}
	for i, element := range widgets {
		values, _ := element.(map[string]any)
		widget := &inputs{in.name, values, fmt.Sprintf("dashboardBody.widgets[%d]", i), in.faults}
		widget.require("type", "properties")
		widget.oneOf("type", "metric", "text", "log", "alarm", "explorer")
		widget.between("x", 0, 23)
		widget.between("width", 1, 24)
		widget.between("height", 1, 1000)
		x, _ := widget.number("x")
		if width, ok := widget.number("width"); ok && x+width > 24 {
			widget.fault("width", "reaches column %v, want at most 24", x+width)
		}
		switch typ, _ := widget.text("type"); typ {
		case "metric":
			widget.require("properties.region")
			if !widget.has("properties.metrics") && !widget.has("properties.annotations") {
				widget.fault("properties.metrics", "is missing")
			}
			widget.oneOf("properties.view", "timeSeries", "singleValue", "gauge", "bar", "pie", "table")
			metrics, _ := widget.get("properties.metrics")
			for j, metric := range asList(metrics) {
				if line, ok := metric.([]any); !ok || len(line) == 0 {
					widget.fault("properties.metrics", "%d is not a list", j)
				}
			}
		case "text":
			widget.require("properties.markdown")
		case "log":
			widget.require("properties.query", "properties.region")
		case "alarm":
			widget.require("properties.alarms")
		}
	}
}

func schedulerSchedule(in *inputs) {
	in.match("name", `[0-9a-zA-Z-_.]{1,64}`, "1 to 64 letters, digits and -_.")
	in.schedule("scheduleExpression")
	in.oneOf("flexibleTimeWindow.mode", "OFF", "FLEXIBLE")
	in.arn("target.arn")
	in.arn("target.roleArn", "iam")
}

func sqsQueue(in *inputs) {
	in.match("name", `[A-Za-z0-9_-]{1,75}(?:[A-Za-z0-9_-]{0,5}|\.fifo)`, "1 to 80 letters, digits, _ and -")
	if name, ok := in.text("name"); ok && strings.HasSuffix(name, ".fifo") != in.truth("fifoQueue") {
		in.fault("fifoQueue", "and a name that ends with .fifo go together")
	}
	in.between("visibilityTimeoutSeconds", 0, 43_200)
	in.between("messageRetentionSeconds", 60, 1_209_600)
	in.between("maxMessageSize", 1024, 1<<20)
	in.between("delaySeconds", 0, 900)
	in.between("receiveWaitTimeSeconds", 0, 20)
	if in.truth("sqsManagedSseEnabled") {
		in.forbid("with sqsManagedSseEnabled", "kmsMasterKeyId")
	}
	sqsRedrive(in)
	sqsRedriveAllow(in)
	if in.has("policy") {
		in.policy("policy", resourcePolicy)
	}
}

func sqsRedrive(in *inputs) {
	doc, ok := in.document("redrivePolicy")
	if !ok {
		return
	}
	object, _ := doc.(map[string]any)
	policy := &inputs{in.name, object, "redrivePolicy", in.faults}
	policy.require("deadLetterTargetArn", "maxReceiveCount")
	policy.arn("deadLetterTargetArn", "sqs")
	if n, ok := numberOf(object["maxReceiveCount"]); object["maxReceiveCount"] != nil && (!ok || n < 1 || n > 1000) {
		policy.fault("maxReceiveCount", "%v is not within 1 to 1000", object["maxReceiveCount"])
	}
}

func sqsRedriveAllow(in *inputs) {
	doc, ok := in.document("redriveAllowPolicy")
	if !ok {
		return
	}
	object, _ := doc.(map[string]any)
	policy := &inputs{in.name, object, "redriveAllowPolicy", in.faults}
	policy.oneOf("redrivePermission", "allowAll", "denyAll", "byQueue")
	policy.arns("sourceQueueArns", "sqs")
}

func sqsPolicy(in *inputs) {
	in.match("queueUrl", `https://sqs\.[a-z0-9-]+\.amazonaws\.com/\d{12}/\S+`, "the address of a queue")
	in.policy("policy", resourcePolicy)
}

func snsTopic(in *inputs) {
	in.match("name", `[A-Za-z0-9_-]{1,256}`, "1 to 256 letters, digits, _ and -")
	in.length("displayName", 0, 100)
	if in.has("policy") {
		in.policy("policy", resourcePolicy)
	}
}

func snsPolicy(in *inputs) {
	in.arn("arn", "sns")
	in.policy("policy", resourcePolicy)
}

// mailAddress is what SES and SNS take, without a name.
const mailAddress = `[^\s@<>"]{1,64}@(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?\.)+[a-zA-Z]{2,}`

func snsSubscription(in *inputs) {
	in.arn("topic", "sns")
	in.oneOf("protocol", "sqs", "sms", "lambda", "firehose", "application", "email", "email-json", "http", "https")
	if protocol, _ := in.text("protocol"); strings.HasPrefix(protocol, "email") {
		in.match("endpoint", mailAddress, "a mail address")
	} else if protocol == "https" {
		in.match("endpoint", `https://\S+`, "an address that starts with https://")
	}
}

const (
	sesName    = `[A-Za-z0-9_-]{1,64}`
	domainName = `(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?\.)+[a-zA-Z]{2,}`
)

func sesIdentity(in *inputs) {
	in.match("emailIdentity", mailAddress+"|"+domainName, "an address or a domain")
	in.match("configurationSetName", sesName, "a configuration set")
	in.oneOf("dkimSigningAttributes.nextSigningKeyLength", "RSA_1024_BIT", "RSA_2048_BIT")
}

func sesConfigurationSet(in *inputs) {
	in.match("configurationSetName", sesName, "1 to 64 letters, digits, _ and -")
	in.oneOf("deliveryOptions.tlsPolicy", "REQUIRE", "OPTIONAL")
	in.between("deliveryOptions.maxDeliverySeconds", 300, 50_400)
	in.allOneOf("suppressionOptions.suppressedReasons", "BOUNCE", "COMPLAINT")
	in.match("trackingOptions.customRedirectDomain", domainName, "a domain")
	in.oneOf("vdmOptions.dashboardOptions.engagementMetrics", "ENABLED", "DISABLED")
}

func sesEventDestination(in *inputs) {
	in.match("configurationSetName", sesName, "a configuration set")
	in.match("eventDestinationName", sesName, "1 to 64 letters, digits, _ and -")
	for _, destination := range in.each("eventDestination") {
		destination.count("matchingEventTypes", 1, 10)
		destination.allOneOf("matchingEventTypes", "SEND", "REJECT", "BOUNCE", "COMPLAINT", "DELIVERY", "OPEN", "CLICK",
			"RENDERING_FAILURE", "DELIVERY_DELAY", "SUBSCRIPTION")
		destination.one("cloudWatchDestination", "eventBridgeDestination", "kinesisFirehoseDestination", "pinpointDestination", "snsDestination")
		destination.arn("eventBridgeDestination.eventBusArn", "events")
		destination.match("eventBridgeDestination.eventBusArn", `.*:event-bus/default`, "the default event bus, the only one SES writes to")
		destination.arn("snsDestination.topicArn", "sns")
	}
}

func sesFeedback(in *inputs) {
	in.match("emailIdentity", mailAddress+"|"+domainName, "an address or a domain")
}

func sesMailFrom(in *inputs) {
	sesFeedback(in)
	in.match("mailFromDomain", domainName, "a domain")
	in.oneOf("behaviorOnMxFailure", "USE_DEFAULT_VALUE", "REJECT_MESSAGE")
}
