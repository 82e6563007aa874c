package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// faultsOf checks properties as the engine would send them.
func faultsOf(typ string, properties map[string]any) []string {
	in := newInputs("x", resource.NewPropertyMapFromMap(properties))
	(&standin{}).check(typ, in)
	var texts []string
	for _, f := range *in.faults {
		texts = append(texts, f.path+" "+f.text)
	}
	return texts
}

// TestRefused holds one fault against each rule: a resource that is right, one
// property changed, and the fault that must be told.
func TestRefused(t *testing.T) {
	const (
		role     = "arn:aws:iam::123456789012:role/worker"
		function = "aws:lambda/function:Function"
		stream   = "aws:kinesis/firehoseDeliveryStream:FirehoseDeliveryStream"
		machine  = "aws:sfn/stateMachine:StateMachine"
		table    = "aws:dynamodb/table:Table"
		policy   = "aws:iam/rolePolicy:RolePolicy"
		bucket   = "aws:s3/bucketV2:BucketV2"
		alarm    = "aws:cloudwatch/metricAlarm:MetricAlarm"
		rule     = "aws:cloudwatch/eventRule:EventRule"
	)
	right := map[string]map[string]any{
		function: {
			"name": "worker", "packageType": "Image", "role": role, "memorySize": 4096, "timeout": 900, "architectures": []any{"arm64"},
			"imageUri":    "123456789012.dkr.ecr.eu-west-1.amazonaws.com/worker@sha256:" + strings.Repeat("0a", 32),
			"environment": map[string]any{"variables": map[string]any{"SWARM_HANDLER": "generate"}},
		},
		stream: {
			"name": "rows", "destination": "extended_s3", "extendedS3Configuration": map[string]any{
				"roleArn": role, "bucketArn": "arn:aws:s3:::briefings", "bufferingSize": 128, "bufferingInterval": 60,
				"prefix": "rows/!{timestamp:yyyy}/", "errorOutputPrefix": "errors/!{firehose:error-output-type}/",
				"dataFormatConversionConfiguration": map[string]any{
					"inputFormatConfiguration":  map[string]any{"deserializer": map[string]any{"openXJsonSerDe": map[string]any{}}},
					"outputFormatConfiguration": map[string]any{"serializer": map[string]any{"parquetSerDe": map[string]any{"blockSizeBytes": 64 << 20}}},
					"schemaConfiguration":       map[string]any{"databaseName": "swarm", "tableName": "rows", "roleArn": role},
				},
			},
		},
		machine: {"name": "run", "roleArn": role, "definition": `{"StartAt":"A","States":{"A":{"Type":"Pass","Next":"B"},"B":{"Type":"Succeed"}}}`},
		table: {
			"name": "ledger", "billingMode": "PAY_PER_REQUEST", "hashKey": "run_id", "attributes": []any{map[string]any{"name": "run_id", "type": "S"}},
		},
		policy: {"role": "worker", "policy": `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:GetObject"],"Resource":["arn:aws:s3:::briefings/*"]}]}`},
		bucket: {"bucket": "briefings-of-acme"},
		alarm: {
			"comparisonOperator": "GreaterThanThreshold", "evaluationPeriods": 1, "threshold": 1, "metricName": "Errors", "namespace": "AWS/Lambda",
			"period": 300, "statistic": "Sum",
		},
		rule:                                          {"eventPattern": `{"source":["aws.s3"],"detail":{"object":{"key":[{"prefix":"inputs/"}]}}}`},
		"aws:cloudwatch/logGroup:LogGroup":            {"name": "/swarm/worker", "retentionInDays": 30},
		"aws:glue/catalogTable:CatalogTable":          {"name": "rows", "databaseName": "swarm", "storageDescriptor": map[string]any{"columns": []any{map[string]any{"name": "user_id", "type": "struct<a:array<int>,b:map<string,decimal(10,2)>>"}}}},
		"aws:lambda/functionUrl:FunctionUrl":          {"functionName": "worker", "authorizationType": "AWS_IAM", "invokeMode": "RESPONSE_STREAM"},
		"aws:ecr/lifecyclePolicy:LifecyclePolicy":     {"repository": "worker", "policy": `{"rules":[{"rulePriority":1,"selection":{"tagStatus":"any","countType":"imageCountMoreThan","countNumber":5},"action":{"type":"expire"}}]}`},
		"aws:efs/fileSystem:FileSystem":               {"encrypted": true, "throughputMode": "elastic"},
		"aws:sqs/queue:Queue":                         {"name": "requests", "redrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:eu-west-1:123456789012:dead","maxReceiveCount":3}`},
		"aws:cloudwatch/eventTarget:EventTarget":      {"rule": "landed", "arn": "arn:aws:states:eu-west-1:123456789012:stateMachine:run", "roleArn": role},
		"aws:sesv2/configurationSet:ConfigurationSet": {"configurationSetName": "mail", "deliveryOptions": map[string]any{"tlsPolicy": "REQUIRE"}},
		"aws:iam/role:Role":                           {"name": "worker", "assumeRolePolicy": `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"lambda.amazonaws.com"},"Action":"sts:AssumeRole"}]}`},
		"docker:index/image:Image":                    {"imageName": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/worker:v1", "build": map[string]any{"platform": "linux/arm64"}},
	}
	for typ, properties := range right {
		if faults := faultsOf(typ, properties); len(faults) > 0 {
			t.Errorf("%s is refused: %s", typ, strings.Join(faults, "; "))
		}
	}
	for _, test := range []struct {
		typ, path string
		value     any
		want      string
	}{
		{function, "memorySize", 127, "memorySize 127 is not within 128 to 10240"},
		{function, "memorySize", 4096.5, "memorySize is a number, want int"},
		{function, "memorySize", "4096", "memorySize is a string, want int"},
		{function, "memory", 4096, "memory is no property of it"},
		{function, "timeout", 901, "timeout 901 is not within 1 to 900"},
		{function, "ephemeralStorage", map[string]any{"size": 511}, "ephemeralStorage.size 511 is not within 512 to 10240"},
		{function, "architectures", []any{"arm64", "x86_64"}, "architectures has 2 elements, want 1 to 1"},
		{function, "role", "worker", `role "worker" is not an ARN`},
		{function, "role", nil, "role is missing"},
		{function, "name", "a b", `name "a b" is not 1 to 64 letters, digits, - and _`},
		{function, "environment.variables.AWS_REGION", "x", "environment.variables.AWS_REGION is a name that Lambda keeps to itself"},
		{function, "environment.variables.LONG", strings.Repeat("x", 4096), "environment.variables have 4121 bytes, want at most 4096"},
		{function, "fileSystemConfig", map[string]any{"arn": "arn:aws:elasticfilesystem:eu-west-1:123456789012:access-point/fsap-1", "localMountPath": "/mnt/m"}, "fileSystemConfig needs a vpcConfig"},
		{function, "fileSystemConfig", map[string]any{"arn": "arn:aws:elasticfilesystem:eu-west-1:123456789012:access-point/fsap-1", "localMountPath": "/models"}, `fileSystemConfig.localMountPath "/models" is not a path such as /mnt/models`},
		{function, "tags", map[string]any{"aws:x": "y"}, "tags key \"aws:x\" is not 1 to 128"},
		{stream, "extendedS3Configuration.bufferingSize", 32, "extendedS3Configuration.bufferingSize 32 is not within 64 to 128"},
		{stream, "extendedS3Configuration.bufferingInterval", 901, "extendedS3Configuration.bufferingInterval 901 is not within 0 to 900"},
		{stream, "extendedS3Configuration.errorOutputPrefix", nil, "extendedS3Configuration.errorOutputPrefix is missing, but prefix has expressions"},
		{stream, "extendedS3Configuration.errorOutputPrefix", "errors/!{timestamp:yyyy}/", "has expressions, but not !{firehose:error-output-type}"},
		{stream, "extendedS3Configuration.prefix", "rows/!{year}/", "has the unknown expression !{year}"},
		{stream, "extendedS3Configuration.compressionFormat", "GZIP", "extendedS3Configuration.compressionFormat GZIP is not allowed with format conversion"},
		{stream, "extendedS3Configuration.dataFormatConversionConfiguration.outputFormatConfiguration.serializer.parquetSerDe.blockSizeBytes", 1 << 20, "blockSizeBytes 1.048576e+06 is not within"},
		{machine, "definition", `{"StartAt":"A","States":{"A":{"Type":"Pass","Next":"C"},"B":{"Type":"Succeed"}}}`, `state A goes to "C", which is no state`},
		{machine, "definition", `{"StartAt":"B","States":{"A":{"Type":"Pass","Next":"B"},"B":{"Type":"Succeed"}}}`, "state A cannot be reached"},
		{machine, "definition", `{"StartAt":"A","States":{"A":{"Type":"Pass"}}}`, "state A wants exactly one of Next and End"},
		{machine, "definition", `{"StartAt":"A"`, "definition is not JSON"},
		{machine, "definition", `{"StartAt":"A","StartAt":"A","States":{"A":{"Type":"Succeed"}}}`, `key "StartAt" comes twice`},
		{machine, "definition", `{"StartAt":"A","States":{"A":{"Type":"Map","End":true,"MaxConcurrency":10001,"ItemProcessor":{"ProcessorConfig":{"Mode":"DISTRIBUTED","ExecutionType":"STANDARD"},"StartAt":"W","States":{"W":{"Type":"Succeed"}}}}}}`, "state A has MaxConcurrency 10001, want 0 to 10000"},
		{table, "attributes", []any{map[string]any{"name": "run_id", "type": "S"}, map[string]any{"name": "user", "type": "S"}}, `"user" is defined, but no key uses it`},
		{table, "rangeKey", "user_id", `attributes lack the key "user_id"`},
		{table, "readCapacity", 5, "readCapacity is not allowed with PAY_PER_REQUEST"},
		{policy, "policy", `{"Version":"2012-10-17","Statement":[{"Effect":"allow","Action":"s3:GetObject","Resource":"*"}]}`, "Statement[0] Effect allow is neither Allow nor Deny"},
		{policy, "policy", `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObjects","Resource":"*"}]}`, `Action "s3:GetObjects": the stand-in knows no such action of s3`},
		{policy, "policy", `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::briefings"}]}`, `Action "s3:GetObject" works on objects, but Resource names a bucket only`},
		{policy, "policy", `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:ListBucket","Resource":"arn:aws:s3:::briefings/*"}]}`, `Action "s3:ListBucket" works on a bucket, but Resource names objects only`},
		{policy, "policy", `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"dynamodb:PutItem","Resource":"arn:aws:s3:::briefings/*"}]}`, `Action "dynamodb:PutItem", but no Resource is one of dynamodb`},
		{policy, "policy", `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"xray:PutTraceSegments","Resource":"arn:aws:xray:eu-west-1:123456789012:x"}]}`, "AWS has it on * only"},
		{policy, "policy", `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject","Resource":"*","Condition":{"StringEqual":{"aws:x":"y"}}}]}`, "Condition has no operator StringEqual"},
		{policy, "policy", `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject","Resource":"*","Principal":"*"}]}`, "has a Principal, which the policy of a role has not"},
		{policy, "policy", `{"Statement":[{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}]}`, "has Version <nil>, want 2012-10-17"},
		{bucket, "bucket", "Briefings", `bucket "Briefings" is not 3 to 63 lower-case letters`},
		{bucket, "bucket", "10.0.0.1", `bucket "10.0.0.1" is an IP address`},
		{alarm, "period", 90, "period 90 is not 10, 20, 30 or a multiple of 60"},
		{alarm, "comparisonOperator", "MoreThan", `comparisonOperator "MoreThan" is not one of`},
		{alarm, "datapointsToAlarm", 2, "datapointsToAlarm 2 is not within 1 to evaluationPeriods 1"},
		{rule, "eventPattern", `{"source":"aws.s3"}`, `eventPattern matches "source" with aws.s3, want a list`},
		{rule, "eventPattern", `{"sources":["aws.s3"]}`, `eventPattern matches on "sources", which no event has`},
		{rule, "eventPattern", `{"detail":{"key":[{"begins":"x"}]}}`, `eventPattern asks "begins" of "key"`},
		{rule, "scheduleExpression", "rate(1 hours)", `scheduleExpression "rate(1 hours)" is not rate(2 hours)`},
		{"aws:cloudwatch/logGroup:LogGroup", "retentionInDays", 31, "retentionInDays 31 is not one of"},
		{"aws:glue/catalogTable:CatalogTable", "storageDescriptor.columns", []any{map[string]any{"name": "a", "type": "text"}}, `type "text" is no type of Glue`},
		{"aws:glue/catalogTable:CatalogTable", "storageDescriptor.columns", []any{map[string]any{"name": "a", "type": "array<int"}}, `type "array<int" is no type of Glue`},
		{"aws:lambda/functionUrl:FunctionUrl", "authorizationType", "IAM", `authorizationType "IAM" is not one of AWS_IAM, NONE`},
		{"aws:ecr/lifecyclePolicy:LifecyclePolicy", "policy", `{"rules":[{"rulePriority":1,"selection":{"tagStatus":"tagged","countType":"imageCountMoreThan","countNumber":5},"action":{"type":"expire"}}]}`, "0 of selection.tagPrefixList, selection.tagPatternList are given"},
		{"aws:efs/fileSystem:FileSystem", "throughputMode", "fast", `throughputMode "fast" is not one of`},
		{"aws:sqs/queue:Queue", "redrivePolicy", `{"deadLetterTargetArn":"dead"}`, "redrivePolicy.maxReceiveCount is missing"},
		{"aws:cloudwatch/eventTarget:EventTarget", "roleArn", nil, "roleArn is missing"},
		{"aws:cloudwatch/eventTarget:EventTarget", "inputTransformer", map[string]any{"inputTemplate": `{"a":<b>}`}, "uses <b>, which inputPaths does not have"},
		{"aws:sesv2/configurationSet:ConfigurationSet", "deliveryOptions.tlsPolicy", "Require", `deliveryOptions.tlsPolicy "Require" is not one of REQUIRE, OPTIONAL`},
		{"aws:iam/role:Role", "assumeRolePolicy", `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"lambda"},"Action":"sts:AssumeRole"}]}`, `Principal Service "lambda" is none`},
		{"docker:index/image:Image", "build.platform", "arm64", `build.platform "arm64" is not linux/arm64 or linux/amd64`},
		{"aws:rds/instance:Instance", "x", "y", "the stand-in does not know type aws:rds/instance:Instance"},
	} {
		properties := clone(right[test.typ]).(map[string]any)
		set(properties, test.path, test.value)
		faults := faultsOf(test.typ, properties)
		if !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, test.want) }) {
			t.Errorf("%s with %s = %v: told %q, want %q", test.typ, test.path, test.value, faults, test.want)
		}
	}
}

// TestRulesSurvive gives every property of every type a value of its type, and
// then of another: whatever comes, a rule answers.
func TestRulesSurvive(t *testing.T) {
	values := []any{"x", 1, true, []any{"x", map[string]any{"y": 1}}, map[string]any{"variables": []any{1}}, nil, `{"Statement":[1,{"Action":{}}],"States":{"A":[]},"rules":[{}],"widgets":[{}]}`}
	for typ, r := range known().Resources {
		for _, value := range values {
			properties := map[string]any{}
			for name := range r.Inputs {
				properties[name] = value
			}
			faultsOf(typ, properties)
		}
		properties := resource.PropertyMap{}
		object := map[string]any{}
		for name, kind := range r.Inputs {
			object[name] = sample(kind, 0)
			properties[resource.PropertyKey(name)] = resource.MakeComputed(resource.NewStringProperty(""))
		}
		faultsOf(typ, object)
		in := newInputs("x", properties)
		(&standin{}).check(typ, in)
		for _, f := range *in.faults {
			if !strings.Contains(f.text, "exactly one") && !strings.Contains(f.text, "not allowed") && !strings.Contains(f.text, "beside") && !strings.Contains(f.text, "is a service without") {
				t.Errorf("%s with nothing known yet: %s %s", typ, f.path, f.text)
			}
		}
	}
}

// sample is a value of a property type of the schema.
func sample(kind string, depth int) any {
	switch {
	case depth > 4:
		return nil
	case kind == "string" || kind == "any":
		return "x"
	case kind == "int" || kind == "number":
		return 1
	case kind == "bool":
		return true
	case kind == "asset":
		return nil
	case kind[0] == '[':
		return []any{sample(kind[1:len(kind)-1], depth+1)}
	case kind[0] == '{':
		return map[string]any{"x": sample(kind[1:len(kind)-1], depth+1)}
	}
	object := map[string]any{}
	for name, typ := range known().Objects[kind[1:]] {
		object[name] = sample(typ, depth+1)
	}
	return object
}

func clone(value any) any {
	switch value := value.(type) {
	case map[string]any:
		object := map[string]any{}
		for key, v := range value {
			object[key] = clone(v)
		}
		return object
	case []any:
		list := make([]any, len(value))
		for i, v := range value {
			list[i] = clone(v)
		}
		return list
	}
	return value
}

func set(object map[string]any, path string, value any) {
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		object = object[name].(map[string]any)
	}
	if last := names[len(names)-1]; value == nil {
		delete(object, last)
	} else {
		object[last] = value
	}
}
