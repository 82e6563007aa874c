package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// made is what AWS answers to a creation.
type made struct {
	id      string
	outputs map[string]any
}

// make answers with outputs of the shapes that the services give, the same for
// the same resource every time.
func (s *standin) make(typ, name, urn string, in map[string]any) made {
	s.mu.Lock()
	region, defaults := s.region, s.defaultTags
	s.mu.Unlock()
	sum := sha256.Sum256([]byte(urn))
	digits := hex.EncodeToString(sum[:])
	text := func(property, otherwise string) string {
		if v, ok := in[property].(string); ok && v != "" {
			return v
		}
		return otherwise
	}
	service := strings.SplitN(strings.TrimPrefix(typ, s.pkg+":"), "/", 2)[0]
	own := text("name", text("bucket", name+"-"+digits[:7]))
	arn := func(service, rest string) string {
		return "arn:aws:" + service + ":" + region + ":" + account + ":" + rest
	}

	m := made{id: own, outputs: map[string]any{}}
	for _, output := range alsoComputed[typ] {
		m.outputs[output] = own + "-" + output
	}
	for output, kind := range known().Resources[typ].Outputs {
		switch kind {
		case "string":
			m.outputs[output] = own + "-" + output
		case "int", "number":
			m.outputs[output] = 0.0
		case "bool":
			m.outputs[output] = false
		case "{string}":
			m.outputs[output] = map[string]any{}
		case "[string]", "[any]":
			m.outputs[output] = []any{}
		default:
			delete(m.outputs, output)
		}
	}
	set := func(values map[string]any) {
		for key, value := range values {
			if slices.Contains(computed(typ), key) {
				m.outputs[key] = value
			}
		}
	}
	set(map[string]any{"arn": arn(service, strings.ToLower(typ[strings.LastIndex(typ, ":")+1:])+"/"+own)})
	tags := map[string]any{}
	for key, value := range defaults {
		tags[key] = value
	}
	if given, ok := in["tags"].(map[string]any); ok {
		for key, value := range given {
			if value != (unknown{}) {
				tags[key] = value
			}
		}
	}
	set(map[string]any{"tagsAll": tags})

	switch typ {
	case "aws:lambda/function:Function":
		f := arn("lambda", "function:"+own)
		version := "$LATEST"
		if in["publish"] == true {
			version = "1"
		}
		set(map[string]any{
			"arn": f, "version": version, "qualifiedArn": f + ":" + version,
			"invokeArn":          "arn:aws:apigateway:" + region + ":lambda:path/2015-03-31/functions/" + f + "/invocations",
			"qualifiedInvokeArn": "arn:aws:apigateway:" + region + ":lambda:path/2015-03-31/functions/" + f + ":" + version + "/invocations",
			"lastModified":       "2026-01-02T03:04:05.000+0000",
			"codeSha256":         base64.StdEncoding.EncodeToString(sum[:]),
		})
	case "aws:lambda/alias:Alias":
		f := text("functionName", "function")
		if !strings.HasPrefix(f, "arn:") {
			f = arn("lambda", "function:"+f)
		}
		set(map[string]any{"arn": f + ":" + own})
		m.id = f + ":" + own
	case "aws:lambda/functionUrl:FunctionUrl":
		id := digits[:32]
		set(map[string]any{
			"functionArn": arn("lambda", "function:"+lastPart(text("functionName", own))),
			"functionUrl": "https://" + id + ".lambda-url." + region + ".on.aws/", "urlId": id,
		})
		m.id = lastPart(text("functionName", own))
	case "aws:lambda/eventSourceMapping:EventSourceMapping":
		uuid := uuidOf(digits)
		set(map[string]any{"uuid": uuid, "arn": arn("lambda", "event-source-mapping:"+uuid), "state": "Enabled",
			"functionArn": arn("lambda", "function:"+lastPart(text("functionName", own)))})
		m.id = uuid
	case "aws:lambda/permission:Permission":
		m.id = text("statementId", own)
	case "aws:sfn/stateMachine:StateMachine":
		machine := arn("states", "stateMachine:"+own)
		set(map[string]any{"arn": machine, "status": "ACTIVE", "creationDate": "2026-01-02T03:04:05Z", "revisionId": uuidOf(digits),
			"stateMachineVersionArn": machine + ":1"})
		m.id = machine
	case "aws:s3/bucketV2:BucketV2", "aws:s3/bucket:Bucket":
		set(map[string]any{
			"arn": "arn:aws:s3:::" + own, "bucketDomainName": own + ".s3.amazonaws.com", "region": region,
			"bucketRegionalDomainName": own + ".s3." + region + ".amazonaws.com", "hostedZoneId": "Z21DNDUVLTQW6Q",
		})
	case "aws:s3/bucketObject:BucketObject", "aws:s3/bucketObjectv2:BucketObjectv2":
		set(map[string]any{"arn": "arn:aws:s3:::" + text("bucket", own) + "/" + text("key", name), "versionId": digits[:32], "etag": digits[:32]})
		m.id = text("key", name)
	case "aws:iam/role:Role":
		set(map[string]any{"arn": "arn:aws:iam::" + account + ":role" + text("path", "/") + own, "uniqueId": "AROA" + strings.ToUpper(digits[:17]),
			"createDate": "2026-01-02T03:04:05Z"})
	case "aws:iam/policy:Policy":
		policy := "arn:aws:iam::" + account + ":policy" + text("path", "/") + own
		set(map[string]any{"arn": policy, "policyId": "ANPA" + strings.ToUpper(digits[:17])})
		m.id = policy
	case "aws:iam/rolePolicy:RolePolicy":
		m.id = text("role", "role") + ":" + own
	case "aws:dynamodb/table:Table":
		set(map[string]any{"arn": arn("dynamodb", "table/"+own)})
	case "aws:kinesis/firehoseDeliveryStream:FirehoseDeliveryStream":
		stream := arn("firehose", "deliverystream/"+own)
		set(map[string]any{"arn": stream, "destinationId": "destinationId-000000000001", "versionId": "1"})
		m.id = stream
	case "aws:glue/catalogDatabase:CatalogDatabase":
		set(map[string]any{"arn": arn("glue", "database/"+own)})
		m.id = account + ":" + own
	case "aws:glue/catalogTable:CatalogTable":
		set(map[string]any{"arn": arn("glue", "table/"+text("databaseName", "default")+"/"+own)})
		m.id = account + ":" + text("databaseName", "default") + ":" + own
	case "aws:ecr/repository:Repository":
		set(map[string]any{"arn": arn("ecr", "repository/"+own), "registryId": account,
			"repositoryUrl": account + ".dkr.ecr." + region + ".amazonaws.com/" + own})
	case "aws:cloudwatch/logGroup:LogGroup":
		set(map[string]any{"arn": arn("logs", "log-group:"+own)})
	case "aws:cloudwatch/logStream:LogStream":
		set(map[string]any{"arn": arn("logs", "log-group:"+text("logGroupName", "")+":log-stream:"+own)})
	case "aws:cloudwatch/eventRule:EventRule":
		set(map[string]any{"arn": arn("events", "rule/"+own)})
	case "aws:cloudwatch/metricAlarm:MetricAlarm":
		set(map[string]any{"arn": arn("cloudwatch", "alarm:"+own)})
	case "aws:cloudwatch/dashboard:Dashboard":
		m.id = text("dashboardName", own)
		set(map[string]any{"dashboardArn": "arn:aws:cloudwatch::" + account + ":dashboard/" + m.id})
	case "aws:sqs/queue:Queue":
		url := "https://sqs." + region + ".amazonaws.com/" + account + "/" + own
		set(map[string]any{"arn": arn("sqs", own), "url": url})
		m.id = url
	case "aws:sns/topic:Topic":
		set(map[string]any{"arn": arn("sns", own), "owner": account})
		m.id = arn("sns", own)
	case "aws:sns/topicSubscription:TopicSubscription":
		m.id = text("topic", arn("sns", own)) + ":" + uuidOf(digits)
		set(map[string]any{"arn": m.id, "ownerId": account, "pendingConfirmation": true})
	case "aws:sesv2/emailIdentity:EmailIdentity":
		m.id = text("emailIdentity", own)
		set(map[string]any{"arn": arn("ses", "identity/"+m.id), "identityType": map[bool]string{true: "EMAIL_ADDRESS", false: "DOMAIN"}[strings.Contains(m.id, "@")]})
	case "aws:sesv2/configurationSet:ConfigurationSet":
		m.id = text("configurationSetName", own)
		set(map[string]any{"arn": arn("ses", "configuration-set/"+m.id)})
	case "aws:sesv2/configurationSetEventDestination:ConfigurationSetEventDestination":
		m.id = text("configurationSetName", "") + "|" + text("eventDestinationName", own)
	case "aws:efs/fileSystem:FileSystem":
		m.id = "fs-" + digits[:17]
		set(map[string]any{"arn": arn("elasticfilesystem", "file-system/"+m.id), "ownerId": account, "name": "",
			"dnsName": m.id + ".efs." + region + ".amazonaws.com"})
	case "aws:efs/accessPoint:AccessPoint":
		m.id = "fsap-" + digits[:17]
		set(map[string]any{"arn": arn("elasticfilesystem", "access-point/"+m.id), "ownerId": account})
	case "aws:datasync/s3Location:S3Location", "aws:datasync/efsLocation:EfsLocation":
		m.id = arn("datasync", "location/loc-"+digits[:17])
		set(map[string]any{"arn": m.id, "uri": "s3://" + own})
	case "aws:datasync/task:Task":
		m.id = arn("datasync", "task/task-"+digits[:17])
		set(map[string]any{"arn": m.id})
	case "aws:efs/mountTarget:MountTarget":
		m.id = "fsmt-" + digits[:17]
	case "aws:ec2/vpc:Vpc":
		m.id = "vpc-" + digits[:17]
		set(map[string]any{"arn": arn("ec2", "vpc/"+m.id), "defaultSecurityGroupId": "sg-" + digits[17:34], "ownerId": account,
			"mainRouteTableId": "rtb-" + digits[:17], "defaultRouteTableId": "rtb-" + digits[:17], "defaultNetworkAclId": "acl-" + digits[:17]})
	case "aws:ec2/subnet:Subnet":
		m.id = "subnet-" + digits[:17]
		set(map[string]any{"arn": arn("ec2", "subnet/"+m.id), "ownerId": account})
	case "aws:ec2/securityGroup:SecurityGroup":
		m.id = "sg-" + digits[:17]
		set(map[string]any{"arn": arn("ec2", "security-group/"+m.id), "ownerId": account})
	case "aws:ec2/routeTable:RouteTable":
		m.id = "rtb-" + digits[:17]
		set(map[string]any{"arn": arn("ec2", "route-table/"+m.id), "ownerId": account})
	case "aws:ec2/vpcEndpoint:VpcEndpoint":
		m.id = "vpce-" + digits[:17]
		set(map[string]any{"arn": arn("ec2", "vpc-endpoint/"+m.id), "ownerId": account, "state": "available"})
	case "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule":
		m.id = "sgr-" + digits[:17]
		set(map[string]any{"arn": arn("ec2", "security-group-rule/"+m.id), "securityGroupRuleId": m.id})
	case "aws:secretsmanager/secret:Secret":
		m.id = arn("secretsmanager", "secret:"+own+"-"+digits[:6])
		set(map[string]any{"arn": m.id})
	case "aws:secretsmanager/secretVersion:SecretVersion":
		m.id = text("secretId", own) + "|" + uuidOf(digits)
		set(map[string]any{"arn": text("secretId", own), "versionId": uuidOf(digits)})
	case "aws:kms/key:Key":
		m.id = uuidOf(digits)
		set(map[string]any{"arn": arn("kms", "key/"+m.id), "keyId": m.id})
	case "aws:budgets/budget:Budget":
		set(map[string]any{"arn": "arn:aws:budgets::" + account + ":budget/" + own})
		m.id = account + ":" + own
	case "docker:index/image:Image":
		s.image(&m, urn, in, set)
	}
	return m
}

// image gives a digest that changes when what was built does.
func (s *standin) image(m *made, urn string, in map[string]any, set func(map[string]any)) {
	build, _ := in["build"].(map[string]any)
	content := sha256.Sum256(fmt.Appendf(nil, "%v %v %v %v", urn, in["contextDigest"], build["platform"], build["args"]))
	digest := "sha256:" + hex.EncodeToString(content[:])
	reference, _ := in["imageName"].(string)
	repository := reference
	if slash, colon := strings.LastIndex(reference, "/"), strings.LastIndex(reference, ":"); colon > slash {
		repository = reference[:colon]
	}
	registry, _ := in["registry"].(map[string]any)
	platform, _ := build["platform"].(string)
	if platform == "" {
		platform = "linux/amd64"
	}
	set(map[string]any{
		"baseImageName": reference, "repoDigest": repository + "@" + digest, "platform": strings.TrimSuffix(platform, "/v8"),
		"context": build["context"], "dockerfile": build["dockerfile"], "registryServer": registry["server"],
	})
	m.id = digest
}

// lastPart is the name of a function in a name or an ARN.
func lastPart(ref string) string {
	_, name, found := strings.Cut(ref, ":function:")
	if !found {
		name = ref
	}
	name, _, _ = strings.Cut(name, ":")
	return name
}

func uuidOf(digits string) string {
	return digits[:8] + "-" + digits[8:12] + "-" + digits[12:16] + "-" + digits[16:20] + "-" + digits[20:32]
}
