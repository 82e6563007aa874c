package policy

import (
	"regexp"
	"slices"
	"strings"
)

const (
	functionURL       = "aws:lambda/functionUrl:FunctionUrl"
	lambdaPermission  = "aws:lambda/permission:Permission"
	bucketV2          = "aws:s3/bucketV2:BucketV2"
	bucketV1          = "aws:s3/bucket:Bucket"
	publicAccessBlock = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
	bucketEncryption  = "aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2"
	bucketPolicy      = "aws:s3/bucketPolicy:BucketPolicy"
	sqsQueue          = "aws:sqs/queue:Queue"
)

func safetyPolicies() []Policy {
	return []Policy{
		{
			Name: "no-public-endpoint", Group: Safety, Level: Mandatory,
			Description: "No function answers calls from anyone.",
			Remedy:      "Set authorizationType AWS_IAM (endpointAuth of the component), or write an exception with its reason.",
			Settings: []Setting{{Name: "public", Default: []string{"unsubscribe"},
				Description: "The functions of a swarm that may be public, by the end of their resource's name. Who unsubscribes has no AWS credentials; that function asks for a signed link instead."}},
			resource: publicEndpoint,
		},
		{
			Name: "buckets-private", Group: Safety, Level: Mandatory,
			Description: "No bucket can be made public.",
			Remedy:      "Add an aws.s3.BucketPublicAccessBlock for the bucket with all four properties true, and grant nothing to everyone.",
			stack:       bucketsPrivate,
		},
		{
			Name: "encryption", Group: Safety, Level: Mandatory,
			Description: "Buckets, file systems and queues are encrypted at rest, and say so.",
			Remedy:      "Set encrypted of the file system, leave sqsManagedSseEnabled of the queue on, or add an aws.s3.BucketServerSideEncryptionConfigurationV2 for the bucket.",
			stack:       encryption,
		},
		{
			Name: "tls-only", Group: Safety, Level: Mandatory,
			Description: "Buckets refuse requests without TLS.",
			Remedy:      "Add a statement to the bucket's policy that denies s3:* where aws:SecureTransport is false.",
			stack:       tlsOnly,
		},
		{
			Name: "least-privilege", Group: Safety, Level: Mandatory,
			Description: "No role may do everything, or something to everything.",
			Remedy:      "Name the actions and the resources. What AWS grants on no single resource, such as xray:PutTraceSegments, is known and needs nothing.",
			Settings: []Setting{{Name: "anyResource", Default: []string{},
				Description: "Further actions that may be allowed on all resources, because AWS has them on no single one."}},
			resource: leastPrivilege,
		},
		{
			Name: "image-digest-pinned", Group: Safety, Level: Mandatory,
			Description: "Functions run an image that cannot change under its name.",
			Remedy:      "Give imageUri with its digest, repository@sha256:…, such as repoDigest of a docker.Image.",
			resource:    digestPinned,
		},
		{
			Name: "image-architecture", Group: Safety, Level: Mandatory,
			Description: "Functions have the architecture that their image was built for.",
			Remedy:      "Build for linux/arm64 for arm64 and linux/amd64 for x86_64; a function that names no architecture is x86_64.",
			stack:       imageArchitecture,
		},
		{
			Name: "unsubscribe-header", Group: Safety, Level: Mandatory,
			Description: "Every mail can be unsubscribed from with one click.",
			Remedy:      "Give unsubscribeUrl, an https address that takes the POST of RFC 8058, or leave it empty for the swarm's own function. Large mailboxes refuse bulk mail without it.",
			stack:       unsubscribe,
		},
		{
			Name: "tenant-tags", Group: Safety, Level: Mandatory,
			Description: "Everything of a swarm says whose it is.",
			Remedy:      "Leave the tags that the component sets; they are what the bill is split by.",
			Settings: []Setting{
				{Name: "tags", Default: []string{"tenant", "swarm"}, Description: "The tags that must be there."},
				{Name: "everything", Default: false, Description: "Look at resources outside of swarms as well."},
			},
			resource: tenantTags,
		},
		{
			Name: "model-checksum", Group: Safety, Level: Mandatory,
			Description: "A model that is fetched is checked against its SHA-256.",
			Remedy:      "Give modelSha256, what sha256sum prints for the file; fetch over https.",
			resource:    modelChecksum,
		},
	}
}

func publicEndpoint(c *Check, r Resource) {
	switch r.Type {
	case functionURL:
		f := r.get("authorizationType")
		if auth, ok := c.text(r, f); ok && auth != "AWS_IAM" && !c.mayBePublic(r) {
			c.violation(r, "authorizationType is %s: anyone who knows the address may call the function", f.show(auth))
		}
	case lambdaPermission:
		principal, ok := c.text(r, r.get("principal"))
		auth, _ := r.get("functionUrlAuthType").text()
		if ok && principal == "*" && auth != "AWS_IAM" && r.get("principalOrgId").state == absent && !c.mayBePublic(r) {
			c.violation(r, "principal is %s: anyone may call the function", r.get("principal").show(principal))
		}
	}
}

// mayBePublic says whether the resource belongs to a function of a swarm that
// the configuration lets be public.
func (c *Check) mayBePublic(r Resource) bool {
	return r.inSwarm() && slices.ContainsFunc(c.list("public"), func(name string) bool {
		// The URL, its permissions and the function share a name up to here.
		return name != "" && strings.Contains(r.Name+"-", "-"+name+"-")
	})
}

// partOf finds the resources of a type that are about a bucket.
func (s Stack) partOf(bucket Resource, typ string) Stack {
	name, _ := bucket.get("bucket").text()
	var parts Stack
	for _, r := range s.of(typ) {
		given, _ := r.get("bucket").text()
		if slices.Contains(r.Depends["bucket"], bucket.URN) || given != "" && given == name {
			parts = append(parts, r)
		}
	}
	return parts
}

func bucketsPrivate(c *Check, s Stack) {
	for _, bucket := range s.of(bucketV2, bucketV1) {
		acl := bucket.get("acl")
		if name, ok := c.text(bucket, acl); ok && strings.HasPrefix(name, "public") {
			c.violation(bucket, "acl is %s", acl.show(name))
		}
		blocks := s.partOf(bucket, publicAccessBlock)
		if len(blocks) == 0 {
			c.violation(bucket, "the bucket has no BucketPublicAccessBlock")
		}
		for _, block := range blocks {
			for _, property := range []string{"blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"} {
				if on, ok := c.truth(block, block.get(property)); !on && (ok || block.get(property).state == absent) {
					c.violation(block, "%s is not true", property)
				}
			}
		}
		for _, p := range s.partOf(bucket, bucketPolicy) {
			doc, ok := c.document(p, p.get("policy"))
			if !ok {
				continue
			}
			for _, st := range statements(doc) {
				if st.effect == "Allow" && st.everyone && !st.conditional {
					c.violation(p, "the bucket's policy allows %s to everyone", p.get("policy").show(strings.Join(st.actions, ", ")))
				}
			}
		}
	}
}

func encryption(c *Check, s Stack) {
	for _, bucket := range s.of(bucketV2, bucketV1) {
		if len(s.partOf(bucket, bucketEncryption)) == 0 && bucket.get("serverSideEncryptionConfiguration.rule").state == absent {
			c.violation(bucket, "the bucket does not say how it is encrypted")
		}
	}
	for _, fs := range s.of(fileSystem) {
		if on, ok := c.truth(fs, fs.get("encrypted")); !on && (ok || fs.get("encrypted").state == absent) {
			c.violation(fs, "encrypted is not true")
		}
	}
	for _, q := range s.of(sqsQueue) {
		if on, ok := c.truth(q, q.get("sqsManagedSseEnabled")); ok && !on && q.get("kmsMasterKeyId").state == absent {
			c.violation(q, "sqsManagedSseEnabled is false, and there is no kmsMasterKeyId")
		}
	}
}

func tlsOnly(c *Check, s Stack) {
	for _, bucket := range s.of(bucketV2, bucketV1) {
		policies := s.partOf(bucket, bucketPolicy)
		if len(policies) == 0 {
			c.violation(bucket, "the bucket has no policy that denies requests without TLS")
		}
		for _, p := range policies {
			doc, ok := c.document(p, p.get("policy"))
			if ok && !slices.ContainsFunc(statements(doc), statement.deniesPlainHTTP) {
				c.violation(p, "the bucket's policy does not deny requests without TLS")
			}
		}
	}
}

func leastPrivilege(c *Check, r Resource) {
	switch r.Type {
	case "aws:iam/rolePolicy:RolePolicy", "aws:iam/policy:Policy":
		c.privileges(r, r.get("policy"))
	case "aws:iam/rolePolicyAttachment:RolePolicyAttachment":
		c.managedPolicy(r, r.get("policyArn"))
	case "aws:iam/role:Role":
		for _, arn := range r.get("managedPolicyArns").elements() {
			c.managedPolicy(r, arn)
		}
		for _, inline := range r.get("inlinePolicies").elements() {
			c.privileges(r, inline.in("policy"))
		}
		f := r.get("assumeRolePolicy")
		doc, ok := c.document(r, f)
		for _, st := range statements(doc) {
			if ok && st.effect == "Allow" && st.everyone && !st.conditional {
				c.violation(r, "everyone may take the role")
			}
		}
	}
}

func (c *Check) managedPolicy(r Resource, f field) {
	arn, ok := c.text(r, f)
	if ok && (strings.HasSuffix(arn, "/AdministratorAccess") || strings.HasSuffix(arn, "/PowerUserAccess") || strings.HasSuffix(arn, "FullAccess")) {
		c.violation(r, "the role has %s", f.show(arn[strings.LastIndex(arn, "/")+1:]))
	}
}

// anyResource are actions that AWS grants on no single resource.
var anyResource = regexp.MustCompile(`^(?:xray:Put(?:TraceSegments|TelemetryRecords)|xray:GetSampling\w+|ecr:GetAuthorizationToken|cloudwatch:(?:PutMetricData|GetMetricData|ListMetrics)|` +
	`logs:(?:CreateLogDelivery|GetLogDelivery|UpdateLogDelivery|DeleteLogDelivery|ListLogDeliveries|PutResourcePolicy|DescribeResourcePolicies|DescribeLogGroups)|` +
	`ec2:(?:CreateNetworkInterface|DescribeNetworkInterfaces|DeleteNetworkInterface|AssignPrivateIpAddresses|UnassignPrivateIpAddresses|DescribeSubnets|DescribeSecurityGroups|DescribeVpcs)|` +
	`ses:(?:GetAccount|GetSendQuota|(?:Put|Get|Delete|List)SuppressedDestinations?)|s3:ListAllMyBuckets|servicequotas:\w+|lambda:ListFunctions|sts:GetCallerIdentity)$`)

func (c *Check) privileges(r Resource, f field) {
	doc, ok := c.document(r, f)
	if !ok {
		return
	}
	for _, st := range statements(doc) {
		if st.effect != "Allow" {
			continue
		}
		if st.inverted {
			c.violation(r, "the policy allows all but something, with NotAction or NotResource")
		}
		every := slices.ContainsFunc(st.resources, isEverything)
		var wide []string
		for _, action := range st.actions {
			_, name, _ := strings.Cut(action, ":")
			if action == "*" || name == "*" {
				c.violation(r, "the policy allows %s", f.show(action))
			} else if every && !anyResource.MatchString(action) && !slices.Contains(c.list("anyResource"), action) {
				wide = append(wide, action)
			}
		}
		if len(wide) > 0 {
			c.violation(r, "the policy allows %s on all resources", f.show(strings.Join(wide, ", ")))
		}
	}
}

// isEverything says whether a resource is all of AWS, or all of a service.
func isEverything(arn string) bool {
	parts := strings.SplitN(arn, ":", 6)
	return strings.Trim(arn, "*") == "" || len(parts) == 6 && strings.Trim(parts[5], "*/:") == ""
}

func digestPinned(c *Check, r Resource) {
	if r.Type != lambdaFunction {
		return
	}
	f := r.get("imageUri")
	if uri, ok := c.text(r, f); ok && !strings.Contains(uri, "@sha256:") {
		c.violation(r, "imageUri is %s: what its tag names can change", f.show(uri))
	}
}

func imageArchitecture(c *Check, s Stack) {
	for _, r := range s.of(lambdaFunction) {
		if r.get("imageUri").state == absent {
			continue
		}
		f := r.get("architectures.0")
		architecture, ok := c.text(r, f)
		if !ok && f.state == unknown {
			continue
		}
		if !ok {
			architecture = "x86_64"
		}
		uri, _ := r.get("imageUri").text()
		for _, image := range s.of(dockerImage) {
			digest, _ := image.get("repoDigest").text()
			if !slices.Contains(r.Depends["imageUri"], image.URN) && (uri == "" || uri != digest) {
				continue
			}
			p := image.get("build.platform")
			platform, ok := c.text(image, p)
			if !ok {
				if p.state == absent {
					c.violation(r, "its image %s is built for whatever machine builds it, the function is %s", image.Name, f.show(architecture))
				}
				continue
			}
			want := map[string]string{"arm64": "linux/arm64", "x86_64": "linux/amd64"}[architecture]
			if strings.TrimSuffix(platform, "/v8") != want {
				c.violation(r, "the function is %s, but its image %s is built for %s", f.show(architecture), image.Name, p.show(platform))
			}
		}
	}
}

func unsubscribe(c *Check, s Stack) {
	for _, f := range s.of(lambdaFunction) {
		if f.handler() != handlerDeliver {
			continue
		}
		address := f.get("environment.variables.SWARM_UNSUBSCRIBE_URL")
		url, ok := c.text(f, address)
		switch {
		case !ok && address.state == absent, ok && url == "":
			c.violation(f, "mails have no List-Unsubscribe address: SWARM_UNSUBSCRIBE_URL is not set")
		case ok && !strings.HasPrefix(url, "https://"):
			c.violation(f, "mails have a List-Unsubscribe address that is not https: %s", address.show(url))
		}
	}
}

// taggable are the types that a swarm is made of and that take tags.
var taggable = map[string]bool{
	lambdaFunction: true, stateMachine: true, firehoseStream: true, fileSystem: true, bucketV2: true, bucketV1: true,
	logGroup: true, ecrRepository: true, sqsQueue: true,
	"aws:dynamodb/table:Table": true, "aws:iam/role:Role": true, "aws:sns/topic:Topic": true, "aws:efs/accessPoint:AccessPoint": true,
	"aws:cloudwatch/eventRule:EventRule": true, "aws:cloudwatch/metricAlarm:MetricAlarm": true, "aws:glue/catalogDatabase:CatalogDatabase": true,
	"aws:secretsmanager/secret:Secret": true, "aws:sesv2/configurationSet:ConfigurationSet": true, "aws:sesv2/emailIdentity:EmailIdentity": true,
	"aws:ec2/vpc:Vpc": true, "aws:ec2/subnet:Subnet": true, "aws:ec2/securityGroup:SecurityGroup": true, "aws:ec2/vpcEndpoint:VpcEndpoint": true,
}

func tenantTags(c *Check, r Resource) {
	if !taggable[r.Type] || !r.inSwarm() && !c.flag("everything") {
		return
	}
	var missing []string
	for _, name := range c.list("tags") {
		f := r.tag(name)
		value, ok := c.text(r, f)
		if !ok && f.state == absent || ok && value == "" {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		c.violation(r, "it has no tag %s", strings.Join(missing, ", "))
	}
}

// tag reads a tag. Its name may have dots, so it is no path.
func (r Resource) tag(name string) field {
	tags := r.get("tags")
	for _, tag := range tags.elements() {
		if tag.path == "tags."+name {
			return tag
		}
	}
	if tags.state == unknown {
		return tags
	}
	return field{path: "tags." + name}
}

var checksum = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

func modelChecksum(c *Check, r Resource) {
	if r.Type != ComponentType {
		return
	}
	f := r.input("modelSource")
	source, ok := c.text(r, f)
	if !ok || !strings.Contains(source, "://") {
		return // a file of the deployer's own, or the catalogue, which has checksums
	}
	if !strings.HasPrefix(source, "https://") {
		c.violation(r, "modelSource is %s, not https", f.show(source))
	}
	s := r.input("modelSha256")
	if sum, ok := s.text(); !ok && s.state != unknown || ok && !checksum.MatchString(sum) {
		c.violation(r, "modelSource is an address, but modelSha256 is not a checksum of 64 hexadecimal digits")
	} else if s.state == unknown {
		c.unsure(r, s.path)
	}
}
