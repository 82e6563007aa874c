package component_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// anywhere are the actions that AWS ties to no resource, so that nothing but *
// can be named. See the Service Authorization Reference.
var anywhere = []string{
	"logs:CreateLogDelivery", "logs:DeleteLogDelivery", "logs:DescribeLogGroups", "logs:DescribeResourcePolicies",
	"logs:GetLogDelivery", "logs:ListLogDeliveries", "logs:PutResourcePolicy", "logs:UpdateLogDelivery",
	"ses:GetAccount", "ses:PutSuppressedDestination",
	"ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface", "ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets",
}

type policyDocument struct {
	Version   string
	Statement []struct {
		Effect    string
		Principal any
		Action    any
		Resource  any
		Condition map[string]map[string]any
	}
}

func list(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var l []string
		for _, e := range v {
			l = append(l, e.(string))
		}
		return l
	}
	return nil
}

// TestLeastPrivilege: no role may do all, or something to everything, and each
// function, machine, stream and rule has a role of its own.
func TestLeastPrivilege(t *testing.T) {
	for name, args := range configurations {
		t.Run(name, func(t *testing.T) {
			c, _, err := build(t, false, args())
			if err != nil {
				t.Fatal(err)
			}
			policies := 0
			for _, r := range c.resources {
				if r.Type != "aws:iam/rolePolicy:RolePolicy" {
					continue
				}
				policies++
				var doc policyDocument
				if err := json.Unmarshal([]byte(r.Inputs["policy"].StringValue()), &doc); err != nil {
					t.Fatalf("%s: %v", r.Name, err)
				}
				for _, st := range doc.Statement {
					actions, resources := list(st.Action), list(st.Resource)
					if len(actions) == 0 || len(resources) == 0 {
						t.Errorf("%s has a statement without actions or resources", r.Name)
					}
					if !slices.IsSorted(actions) {
						t.Errorf("%s: %v are not sorted", r.Name, actions)
					}
					for _, action := range actions {
						if strings.Contains(action, "*") {
							t.Errorf("%s allows %s", r.Name, action)
						}
						if slices.Contains(resources, "*") && !slices.Contains(anywhere, action) {
							t.Errorf("%s allows %s on everything", r.Name, action)
						}
					}
					for _, res := range resources {
						if res == "arn:aws:ses:us-east-1:"+account+":identity/*" && st.Condition["StringEquals"]["ses:FromAddress"] == "briefing@acme.example" {
							continue // any recipient, but one sender
						}
						if res == "arn:aws:glue:us-east-1:"+account+":catalog" {
							continue // of which an account has one in a region; the table in it is named
						}
						if res != "*" && (!strings.HasPrefix(res, "arn:aws:") || !strings.Contains(res, "acme")) {
							t.Errorf("%s allows %v on %s", r.Name, actions, res)
						}
					}
				}
			}
			if policies < 7 {
				t.Errorf("only %d policies", policies)
			}
			c.oneRoleEach(t)
		})
	}
}

func (c *cloud) oneRoleEach(t *testing.T) {
	t.Helper()
	holders := map[string][]string{}
	for _, r := range c.resources {
		for _, key := range []resource.PropertyKey{"role", "roleArn"} {
			if v, ok := r.Inputs[key]; ok && v.IsString() && strings.HasPrefix(v.StringValue(), "arn:aws:iam:") {
				holders[v.StringValue()] = append(holders[v.StringValue()], r.Name)
			}
		}
		if s3, ok := r.Inputs["extendedS3Configuration"]; ok {
			arn := s3.ObjectValue()["roleArn"].StringValue()
			holders[arn] = append(holders[arn], r.Name)
		}
	}
	for _, r := range c.resources {
		if access, ok := r.Inputs["s3Config"]; ok {
			arn := access.ObjectValue()["bucketAccessRoleArn"].StringValue()
			holders[arn] = append(holders[arn], r.Name)
		}
	}
	for arn, names := range holders {
		if len(names) != 1 {
			t.Errorf("%s is the role of %v", arn, names)
		}
	}
	for _, r := range c.resources {
		if r.Type == "aws:iam/role:Role" && len(holders["arn:aws:iam::"+account+":role/"+r.ID]) == 0 {
			t.Errorf("nobody has the role %s", r.Name)
		}
	}
}

// TestBuckets: each bucket is private, encrypted, versioned, and refuses what
// does not come over TLS.
func TestBuckets(t *testing.T) {
	c, _, err := build(t, false, full())
	if err != nil {
		t.Fatal(err)
	}
	for _, bucket := range []string{"acme-inputs", "acme-runs", "acme-briefings"} {
		access := c.find(t, bucket+"-private", "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock").Inputs
		for _, key := range []resource.PropertyKey{"blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"} {
			if !access[key].BoolValue() {
				t.Errorf("%s: %s is off", bucket, key)
			}
		}
		status := c.find(t, bucket+"-versions", "aws:s3/bucketVersioningV2:BucketVersioningV2").Inputs["versioningConfiguration"].ObjectValue()["status"]
		if status.StringValue() != "Enabled" {
			t.Errorf("%s: versioning is %s", bucket, status.StringValue())
		}
		c.find(t, bucket+"-encryption", "aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2")
		var doc policyDocument
		text := c.find(t, bucket+"-tls", "aws:s3/bucketPolicy:BucketPolicy").Inputs["policy"].StringValue()
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		if st := doc.Statement[0]; st.Effect != "Deny" || st.Condition["Bool"]["aws:SecureTransport"] != "false" || len(list(st.Resource)) != 2 {
			t.Errorf("%s: policy %s", bucket, text)
		}
		expires := 0
		for _, rule := range c.find(t, bucket+"-lifecycle", "aws:s3/bucketLifecycleConfigurationV2:BucketLifecycleConfigurationV2").Inputs["rules"].ArrayValue() {
			if _, ok := rule.ObjectValue()["expiration"]; ok {
				expires++
			}
		}
		if expires == 0 {
			t.Errorf("nothing in %s ever expires", bucket)
		}
	}
}

// TestLogGroups: whoever logs has a log group that was made before, with a
// retention.
func TestLogGroups(t *testing.T) {
	c, _, err := build(t, false, full())
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string]bool{}
	for _, r := range c.resources {
		if r.Type == "aws:cloudwatch/logGroup:LogGroup" {
			groups[r.Inputs["name"].StringValue()] = r.Inputs["retentionInDays"].NumberValue() == 90
		}
	}
	functions := 0
	for _, r := range c.resources {
		if r.Type != "aws:lambda/function:Function" {
			continue
		}
		functions++
		group := r.Inputs["loggingConfig"].ObjectValue()["logGroup"].StringValue()
		if !groups[group] {
			t.Errorf("%s logs to %q, which has no retention of 90 days", r.Name, group)
		}
		if env := r.Inputs["environment"].ObjectValue()["variables"].ObjectValue(); env["SWARM_HANDLER"].StringValue() == "" || env["SWARM_TENANT"].StringValue() != "Acme Ltd" {
			t.Errorf("%s has the environment %v", r.Name, env)
		}
		if image := r.Inputs["imageUri"].StringValue(); !strings.Contains(image, "@sha256:") {
			t.Errorf("%s runs %s: want a digest", r.Name, image)
		}
	}
	if functions != 8 {
		t.Errorf("%d functions, want 8", functions)
	}
}
