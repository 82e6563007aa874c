package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// The kinds of policy documents: what a role may do, who may take a role, and
// what a resource lets others do.
const (
	identityPolicy = "identity"
	trustPolicy    = "trust"
	resourcePolicy = "resource"
	// bareResourcePolicy is a resource policy without Resource, as ECR wants it.
	bareResourcePolicy = "bare resource"
)

// actions are the actions that the stand-in knows, by service. A name that is
// not here is more often misspelt than new; who knows better adds it.
var actions = map[string]string{
	"cloudwatch": "PutMetricData GetMetricData GetMetricStatistics ListMetrics DescribeAlarms",
	"dynamodb": "PutItem GetItem UpdateItem DeleteItem Query Scan BatchGetItem BatchWriteItem ConditionCheckItem " +
		"DescribeTable DescribeTimeToLive",
	"ec2": "CreateNetworkInterface DescribeNetworkInterfaces DeleteNetworkInterface AssignPrivateIpAddresses " +
		"UnassignPrivateIpAddresses DescribeSubnets DescribeSecurityGroups DescribeVpcs",
	"ecr": "BatchGetImage GetDownloadUrlForLayer BatchCheckLayerAvailability PutImage InitiateLayerUpload UploadLayerPart " +
		"CompleteLayerUpload GetAuthorizationToken DescribeImages DescribeRepositories ListImages SetRepositoryPolicy " +
		"GetRepositoryPolicy DeleteRepositoryPolicy",
	"elasticfilesystem": "ClientMount ClientWrite ClientRootAccess DescribeMountTargets DescribeFileSystems DescribeAccessPoints",
	"events":            "PutEvents PutRule PutTargets DescribeRule DeleteRule RemoveTargets",
	"firehose":          "PutRecord PutRecordBatch DescribeDeliveryStream",
	"glue":              "GetTable GetTableVersion GetTableVersions GetDatabase GetPartition GetPartitions BatchCreatePartition GetSchemaVersion",
	"iam":               "PassRole GetRole",
	"kms":               "Encrypt Decrypt GenerateDataKey GenerateDataKeyWithoutPlaintext DescribeKey ReEncryptFrom ReEncryptTo CreateGrant",
	"lambda":            "InvokeFunction InvokeFunctionUrl GetFunction GetFunctionConfiguration ListFunctions",
	"logs": "CreateLogGroup CreateLogStream PutLogEvents DescribeLogGroups DescribeLogStreams CreateLogDelivery GetLogDelivery " +
		"UpdateLogDelivery DeleteLogDelivery ListLogDeliveries PutResourcePolicy DescribeResourcePolicies PutRetentionPolicy",
	"s3": "GetObject GetObjectVersion GetObjectTagging GetObjectAttributes PutObject PutObjectAcl PutObjectTagging DeleteObject " +
		"DeleteObjectVersion ListBucket ListBucketVersions GetBucketLocation ListBucketMultipartUploads ListMultipartUploadParts " +
		"AbortMultipartUpload GetBucketNotification PutBucketNotification GetEncryptionConfiguration GetBucketVersioning",
	"secretsmanager": "GetSecretValue DescribeSecret PutSecretValue",
	"servicequotas":  "GetServiceQuota ListServiceQuotas GetAWSDefaultServiceQuota",
	"ses": "SendEmail SendRawEmail SendTemplatedEmail SendBulkEmail SendBulkTemplatedEmail GetAccount GetSendQuota " +
		"PutSuppressedDestination GetSuppressedDestination DeleteSuppressedDestination ListSuppressedDestinations " +
		"GetEmailIdentity GetConfigurationSet PutAccountSuppressionAttributes",
	"sns": "Publish Subscribe GetTopicAttributes",
	"sqs": "SendMessage ReceiveMessage DeleteMessage ChangeMessageVisibility GetQueueAttributes GetQueueUrl PurgeQueue",
	"ssm": "GetParameter GetParameters GetParametersByPath PutParameter",
	"states": "StartExecution StopExecution DescribeExecution StartSyncExecution RedriveExecution SendTaskSuccess SendTaskFailure " +
		"SendTaskHeartbeat GetExecutionHistory DescribeMapRun ListMapRuns UpdateMapRun ListExecutions",
	"sts":  "AssumeRole TagSession SetSourceIdentity GetCallerIdentity",
	"xray": "PutTraceSegments PutTelemetryRecords GetSamplingRules GetSamplingTargets GetSamplingStatisticSummaries",
}

// unscoped are actions that AWS grants on all resources or not at all.
var unscoped = map[string]bool{
	"ecr:GetAuthorizationToken": true, "xray:PutTraceSegments": true, "xray:PutTelemetryRecords": true,
	"xray:GetSamplingRules": true, "xray:GetSamplingTargets": true, "xray:GetSamplingStatisticSummaries": true,
	"cloudwatch:PutMetricData": true, "ses:GetAccount": true, "ses:GetSendQuota": true,
}

// bucketActions are the actions of S3 on a bucket; all others are on its objects.
var bucketActions = map[string]bool{
	"ListBucket": true, "ListBucketVersions": true, "GetBucketLocation": true, "ListBucketMultipartUploads": true,
	"GetBucketNotification": true, "PutBucketNotification": true, "GetEncryptionConfiguration": true, "GetBucketVersioning": true,
}

var (
	actionShape    = regexp.MustCompile(`^([a-z0-9-]+):([A-Za-z0-9]*[*?]?[A-Za-z0-9*?]*)$`)
	resourceShape  = regexp.MustCompile(`^arn:(?:aws|aws-cn|aws-us-gov|\*|\$\{aws:Partition\}):([a-z0-9-]+):([a-z0-9-]*|\*):(\d{12}|\*|aws|):(\S.*)$`)
	servicePrinc   = regexp.MustCompile(`^[a-z0-9.-]+\.amazonaws\.com$`)
	accountPrinc   = regexp.MustCompile(`^(\d{12}|arn:aws[a-z-]*:(iam|sts)::\d{12}:\S+|\*)$`)
	sidShape       = regexp.MustCompile(`^[A-Za-z0-9]*$`)
	conditionShape = regexp.MustCompile(`^(?:ForAllValues:|ForAnyValue:)?(?:(?:String|Arn)(?:Not)?(?:Equals|Like)|` +
		`StringEqualsIgnoreCase|StringNotEqualsIgnoreCase|Numeric(?:Not)?Equals|Numeric(?:Less|Greater)Than(?:Equals)?|` +
		`Date(?:Not)?Equals|Date(?:Less|Greater)Than(?:Equals)?|Bool|BinaryEquals|(?:Not)?IpAddress)(?:IfExists)?$|^Null$`)
	conditionKey = regexp.MustCompile(`^[A-Za-z0-9-]+:[A-Za-z0-9_/:.\-]+$`)
)

// policy asks for a policy document in the grammar of IAM, with actions that
// exist, each on a resource of its own service.
func (in *inputs) policy(path, kind string) {
	doc, ok := in.document(path)
	if !ok {
		return
	}
	object, ok := doc.(map[string]any)
	if !ok {
		in.fault(path, "is not a policy: not an object")
		return
	}
	p := policyCheck{in: in, path: path, kind: kind}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if key != "Version" && key != "Id" && key != "Statement" {
			p.fault("", "has no key %s", key)
		}
	}
	if object["Version"] != "2012-10-17" {
		p.fault("", "has Version %v, want 2012-10-17", object["Version"])
	}
	statements := asList(object["Statement"])
	if len(statements) == 0 {
		p.fault("", "has no Statement")
	}
	sids := map[string]bool{}
	for i, s := range statements {
		at := fmt.Sprintf("Statement[%d]", i)
		statement, ok := s.(map[string]any)
		if !ok {
			p.fault(at, "is not an object")
			continue
		}
		if sid, _ := statement["Sid"].(string); sid != "" {
			if sids[sid] {
				p.fault(at, "Sid %q comes twice", sid)
			}
			sids[sid] = true
		}
		p.statement(at, statement)
	}
}

type policyCheck struct {
	in         *inputs
	path, kind string
}

func (p policyCheck) fault(at, format string, args ...any) {
	if at != "" {
		format = at + " " + format
	}
	p.in.fault(p.path, "policy "+format, args...)
}

func (p policyCheck) statement(at string, s map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if !slices.Contains([]string{"Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Principal", "NotPrincipal", "Condition"}, key) {
			p.fault(at, "has no key %s", key)
		}
	}
	if sid, ok := s["Sid"]; ok {
		if text, isText := sid.(string); !isText || !sidShape.MatchString(text) {
			p.fault(at, "Sid %v is not letters and digits", sid)
		}
	}
	if s["Effect"] != "Allow" && s["Effect"] != "Deny" {
		p.fault(at, "Effect %v is neither Allow nor Deny", s["Effect"])
	}
	exactlyOne := func(a, b string) {
		_, hasA := s[a]
		_, hasB := s[b]
		if hasA == hasB {
			p.fault(at, "wants exactly one of %s and %s", a, b)
		}
	}
	exactlyOne("Action", "NotAction")

	used := p.actions(at, s["Action"])
	switch p.kind {
	case trustPolicy, bareResourcePolicy:
		if s["Resource"] != nil || s["NotResource"] != nil {
			p.fault(at, "has a Resource, which a %s policy has not", p.kind)
		}
	default:
		exactlyOne("Resource", "NotResource")
		p.resources(at, s, used)
	}
	switch p.kind {
	case identityPolicy:
		if s["Principal"] != nil || s["NotPrincipal"] != nil {
			p.fault(at, "has a Principal, which the policy of a role has not")
		}
	default:
		exactlyOne("Principal", "NotPrincipal")
		p.principal(at, s["Principal"])
	}
	p.condition(at, s["Condition"])
}

// actions checks them and returns those that name one action of a service.
func (p policyCheck) actions(at string, value any) []string {
	var used []string
	for _, a := range asList(value) {
		action, ok := a.(string)
		if !ok {
			p.fault(at, "Action %v is not text", a)
			continue
		}
		if action == "*" {
			continue
		}
		match := actionShape.FindStringSubmatch(action)
		if match == nil {
			p.fault(at, "Action %q is not of the form service:Name", action)
			continue
		}
		names, ok := actions[match[1]]
		switch {
		case !ok:
			p.fault(at, "Action %q: the stand-in knows no service %q", action, match[1])
		case strings.ContainsAny(match[2], "*?"):
			used = append(used, action)
		case !slices.Contains(strings.Fields(names), match[2]):
			p.fault(at, "Action %q: the stand-in knows no such action of %s; if there is one, add it to its list", action, match[1])
		default:
			used = append(used, action)
		}
		if p.kind == trustPolicy && match[1] != "sts" {
			p.fault(at, "Action %q in a trust policy, want sts:AssumeRole", action)
		}
	}
	if p.kind == trustPolicy && len(used) == 0 {
		p.fault(at, "allows no sts:AssumeRole")
	}
	return used
}

func (p policyCheck) resources(at string, s map[string]any, used []string) {
	buckets, objects, all := false, false, false
	services := map[string]bool{}
	for _, r := range asList(s["Resource"]) {
		text, ok := r.(string)
		if !ok || text == "" {
			p.fault(at, "Resource %v is not text", r)
			continue
		}
		if text == "*" {
			all = true
			continue
		}
		match := resourceShape.FindStringSubmatch(text)
		if match == nil {
			p.fault(at, "Resource %q is not an ARN", text)
			continue
		}
		services[match[1]] = true
		if match[1] == "s3" {
			if match[2] != "" || match[3] != "" {
				p.fault(at, "Resource %q has a region or an account, ARNs of S3 have none", text)
			}
			if strings.Contains(match[4], "/") {
				objects = true
			} else {
				buckets = true
			}
		} else if match[1] != "iam" && (match[2] == "" || match[3] == "") {
			p.fault(at, "Resource %q lacks its region or its account", text)
		}
	}
	if all || s["NotResource"] != nil || s["Effect"] == "Deny" {
		return
	}
	for _, action := range used {
		service, name, _ := strings.Cut(action, ":")
		switch {
		case unscoped[action]:
			p.fault(at, "Action %q is granted on named resources, AWS has it on * only", action)
		case action == "iam:PassRole" || service == "sts":
		case !services[service]:
			p.fault(at, "Action %q, but no Resource is one of %s", action, service)
		case service == "s3" && !strings.ContainsAny(name, "*?") && bucketActions[name] && !buckets:
			p.fault(at, "Action %q works on a bucket, but Resource names objects only", action)
		case service == "s3" && !strings.ContainsAny(name, "*?") && !bucketActions[name] && !objects:
			p.fault(at, "Action %q works on objects, but Resource names a bucket only", action)
		}
	}
}

func (p policyCheck) principal(at string, value any) {
	if value == nil || value == "*" {
		return
	}
	object, ok := value.(map[string]any)
	if !ok || len(object) == 0 {
		p.fault(at, "Principal %v is neither * nor an object", value)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		var shape *regexp.Regexp
		switch key {
		case "Service":
			shape = servicePrinc
		case "AWS":
			shape = accountPrinc
		case "Federated", "CanonicalUser":
		default:
			p.fault(at, "Principal has no key %s", key)
		}
		for _, v := range asList(object[key]) {
			text, ok := v.(string)
			if !ok || shape != nil && !shape.MatchString(text) {
				p.fault(at, "Principal %s %q is none", key, v)
			}
		}
	}
}

func (p policyCheck) condition(at string, value any) {
	if value == nil {
		return
	}
	operators, ok := value.(map[string]any)
	if !ok || len(operators) == 0 {
		p.fault(at, "Condition is not an object of operators")
		return
	}
	for _, operator := range slices.Sorted(maps.Keys(operators)) {
		if !conditionShape.MatchString(operator) {
			p.fault(at, "Condition has no operator %s", operator)
		}
		keys, ok := operators[operator].(map[string]any)
		if !ok || len(keys) == 0 {
			p.fault(at, "Condition %s is not an object of keys", operator)
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if !conditionKey.MatchString(key) {
				p.fault(at, "Condition key %q is not of the form service:Name", key)
			}
			for _, v := range asList(keys[key]) {
				switch v.(type) {
				case string, bool, float64:
				default:
					p.fault(at, "Condition %s %s has a value that is no text", operator, key)
				}
			}
		}
	}
}

// asList gives the elements of a list, or the one value that stands for it.
func asList(value any) []any {
	switch value := value.(type) {
	case nil:
		return nil
	case []any:
		return value
	}
	return []any{value}
}
