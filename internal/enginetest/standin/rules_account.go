package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strconv"
)

func init() {
	maps.Copy(rules, map[string]func(*inputs){
		"aws:iam/role:Role":                                         iamRole,
		"aws:iam/policy:Policy":                                     iamPolicy,
		"aws:iam/rolePolicy:RolePolicy":                             iamRolePolicy,
		"aws:iam/rolePolicyAttachment:RolePolicyAttachment":         iamAttachment,
		"aws:budgets/budget:Budget":                                 budget,
		"aws:secretsmanager/secret:Secret":                          secret,
		"aws:secretsmanager/secretVersion:SecretVersion":            secretVersion,
		"aws:kms/key:Key":                                           kmsKey,
		"aws:kms/alias:Alias":                                       kmsAlias,
		"aws:ssm/parameter:Parameter":                               ssmParameter,
		"aws:ec2/vpc:Vpc":                                           ec2Vpc,
		"aws:ec2/subnet:Subnet":                                     ec2Subnet,
		"aws:ec2/securityGroup:SecurityGroup":                       ec2SecurityGroup,
		"aws:ec2/securityGroupRule:SecurityGroupRule":               ec2SecurityGroupRule,
		"aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": vpcSecurityGroupRule,
		"aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule":   vpcSecurityGroupRule,
		"aws:ec2/vpcEndpoint:VpcEndpoint":                           ec2VpcEndpoint,
		"docker:index/image:Image":                                  dockerImage,
	})
}

func iamRole(in *inputs) {
	in.match("name", `[\w+=,.@-]{1,64}`, "1 to 64 letters, digits and _+=,.@-")
	in.match("path", `/|/[\x21-\x7e]+/`, "a path such as /swarm/")
	in.length("description", 0, 1000)
	in.between("maxSessionDuration", 3600, 43_200)
	in.policy("assumeRolePolicy", trustPolicy)
	in.length("assumeRolePolicy", 1, 2048)
	in.arns("managedPolicyArns")
	in.arn("permissionsBoundary", "iam")
	for _, inline := range in.each("inlinePolicies") {
		inline.match("name", `[\w+=,.@-]{1,128}`, "1 to 128 letters, digits and _+=,.@-")
		inline.policy("policy", identityPolicy)
	}
}

func iamPolicy(in *inputs) {
	in.match("name", `[\w+=,.@-]{1,128}`, "1 to 128 letters, digits and _+=,.@-")
	in.policy("policy", identityPolicy)
	in.length("policy", 1, 6144)
}

func iamRolePolicy(in *inputs) {
	in.match("name", `[\w+=,.@-]{1,128}`, "1 to 128 letters, digits and _+=,.@-")
	in.match("role", `[\w+=,.@-]{1,64}`, "the name of a role")
	in.policy("policy", identityPolicy)
	in.length("policy", 1, 10_240)
}

func iamAttachment(in *inputs) {
	in.match("role", `[\w+=,.@-]{1,64}`, "the name of a role")
	in.match("policyArn", `arn:aws[a-z-]*:iam::(?:aws|\d{12}):policy/\S+`, "the ARN of a policy")
}

func budget(in *inputs) {
	in.match("name", `[^:\\]{1,100}`, "1 to 100 characters without : and \\")
	in.oneOf("budgetType", "COST", "USAGE", "RI_UTILIZATION", "RI_COVERAGE", "SAVINGS_PLANS_UTILIZATION", "SAVINGS_PLANS_COVERAGE")
	in.oneOf("timeUnit", "MONTHLY", "QUARTERLY", "ANNUALLY", "DAILY")
	in.match("limitUnit", `[A-Z]{3}|GB|[A-Za-z-]+`, "a unit such as USD")
	if amount, ok := in.text("limitAmount"); ok {
		if n, err := strconv.ParseFloat(amount, 64); err != nil || n <= 0 {
			in.fault("limitAmount", "%q is not an amount above 0", amount)
		}
	}
	for _, notification := range in.each("notifications") {
		notification.require("comparisonOperator", "notificationType", "threshold", "thresholdType")
		notification.oneOf("comparisonOperator", "LESS_THAN", "EQUAL_TO", "GREATER_THAN")
		notification.oneOf("notificationType", "ACTUAL", "FORECASTED")
		notification.oneOf("thresholdType", "PERCENTAGE", "ABSOLUTE_VALUE")
		for _, address := range notification.texts("subscriberEmailAddresses") {
			if !compiled("^" + mailAddress + "$").MatchString(address) {
				notification.fault("subscriberEmailAddresses", "%q is not a mail address", address)
			}
		}
		notification.arns("subscriberSnsTopicArns", "sns")
		if !notification.has("subscriberEmailAddresses") && !notification.has("subscriberSnsTopicArns") {
			notification.fault("subscriberEmailAddresses", "is missing, and so is subscriberSnsTopicArns")
		}
	}
}

func secret(in *inputs) {
	in.match("name", `[A-Za-z0-9/_+=.@-]{1,512}`, "1 to 512 letters, digits and /_+=.@-")
	if days, ok := in.number("recoveryWindowInDays"); ok && days != 0 && (days < 7 || days > 30) {
		in.fault("recoveryWindowInDays", "%v is neither 0 nor within 7 to 30", days)
	}
}

func secretVersion(in *inputs) {
	in.one("secretString", "secretBinary")
	in.length("secretString", 1, 65_536)
}

func kmsKey(in *inputs) {
	in.between("deletionWindowInDays", 7, 30)
	in.oneOf("keyUsage", "ENCRYPT_DECRYPT", "SIGN_VERIFY", "GENERATE_VERIFY_MAC")
	if in.has("policy") {
		in.policy("policy", resourcePolicy)
	}
}

func kmsAlias(in *inputs) {
	in.match("name", `alias/[a-zA-Z0-9/_-]+`, "a name that starts with alias/")
}

func ssmParameter(in *inputs) {
	in.match("name", `[a-zA-Z0-9_.\-/]+`, "letters, digits and _.-/")
	in.oneOf("type", "String", "StringList", "SecureString")
	in.oneOf("tier", "Standard", "Advanced", "Intelligent-Tiering")
}

func ec2Vpc(in *inputs) {
	in.cidr("cidrBlock")
	in.oneOf("instanceTenancy", "default", "dedicated")
}

func ec2Subnet(in *inputs) {
	in.cidr("cidrBlock")
	in.match("vpcId", `vpc-[0-9a-f]+`, "a VPC")
	in.match("availabilityZone", `[a-z]{2}(?:-[a-z]+)+-\d[a-z]`, "an availability zone")
}

const groupText = `[a-zA-Z0-9 ._\-:/()#,@\[\]+=&;{}!$*]{0,255}`

func ec2SecurityGroup(in *inputs) {
	in.match("name", groupText, "at most 255 letters, digits, spaces and ._-:/()#,@[]+=&;{}!$*")
	in.match("description", groupText, "at most 255 letters, digits, spaces and ._-:/()#,@[]+=&;{}!$*")
	in.match("vpcId", `vpc-[0-9a-f]+`, "a VPC")
	for _, list := range []string{"ingress", "egress"} {
		for _, rule := range in.each(list) {
			rule.ports()
		}
	}
}

func ec2SecurityGroupRule(in *inputs) {
	in.oneOf("type", "ingress", "egress")
	in.ports()
}

func (in *inputs) ports() {
	in.match("protocol", `-1|tcp|udp|icmp|icmpv6|all|\d{1,3}`, "a protocol")
	in.between("fromPort", -1, 65_535)
	in.between("toPort", -1, 65_535)
	from, _ := in.number("fromPort")
	if to, ok := in.number("toPort"); ok && to < from {
		in.fault("toPort", "%v is under fromPort %v", to, from)
	}
}

func vpcSecurityGroupRule(in *inputs) {
	in.match("ipProtocol", `-1|tcp|udp|icmp|icmpv6|\d{1,3}`, "a protocol")
	in.one("cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId")
	in.cidr("cidrIpv4")
	if protocol, _ := in.text("ipProtocol"); protocol == "-1" {
		in.forbid("with protocol -1", "fromPort", "toPort")
	}
	in.between("fromPort", -1, 65_535)
	in.between("toPort", -1, 65_535)
}

func ec2VpcEndpoint(in *inputs) {
	in.match("vpcId", `vpc-[0-9a-f]+`, "a VPC")
	in.match("serviceName", `com\.amazonaws\.[a-z0-9-]+\.[a-z0-9.-]+`, "a service such as com.amazonaws.eu-west-1.s3")
	in.oneOf("vpcEndpointType", "Gateway", "Interface", "GatewayLoadBalancer")
	if kind, _ := in.text("vpcEndpointType"); kind == "Interface" {
		in.require("subnetIds")
		in.forbid("with Interface", "routeTableIds")
	} else if in.known("vpcEndpointType") {
		in.forbid("with Gateway", "subnetIds", "securityGroupIds", "privateDnsEnabled")
	}
	if in.has("policy") {
		in.policy("policy", resourcePolicy)
	}
}

func dockerImage(in *inputs) {
	in.match("imageName", `(?:[a-z0-9.-]+(?::\d+)?/)?`+registryName+`(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?`, "an image such as registry/name:tag")
	in.match("build.platform", `linux/(?:arm64|amd64)(?:/v8)?`, "linux/arm64 or linux/amd64")
	in.oneOf("build.builderVersion", "BuilderV1", "BuilderBuildKit")
	if in.has("registry") {
		in.require("registry.server", "registry.username", "registry.password")
	}
	folder, ok := in.text("build.context")
	if !ok {
		return
	}
	folder = fromProgram(folder)
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		in.fault("build.context", "%q is not a folder", folder)
		return
	}
	dockerfile, given := in.text("build.dockerfile")
	if given {
		dockerfile = fromProgram(dockerfile)
	} else {
		dockerfile = filepath.Join(folder, "Dockerfile")
	}
	if _, err := os.Stat(dockerfile); err != nil && in.known("build.dockerfile") {
		in.fault("build.dockerfile", "%q is not a file", dockerfile)
	}
}

// fromProgram makes a path of the program's one of this process: a provider runs
// in the folder of the project, and a program that is a test in its own, which
// STANDIN_PROGRAM_DIR names.
func fromProgram(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(os.Getenv("STANDIN_PROGRAM_DIR"), path)
}

// platforms is what the docker stand-in tells the aws one: the platform of each
// image it has built, by digest.
type platforms map[string]string

func readPlatforms(dir string) platforms {
	p := platforms{}
	if data, err := os.ReadFile(filepath.Join(dir, "platforms.json")); dir != "" && err == nil {
		_ = json.Unmarshal(data, &p) // half a file is none: then nothing is compared
	}
	return p
}

func (p platforms) write(dir string) error {
	if dir == "" {
		return nil
	}
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "platforms.json"), data, 0o644)
}
