package component

import (
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/s3"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// bucket creates a bucket that is private, encrypted and versioned, is spoken to
// over TLS only, and forgets after RetentionDays what lies below the expiring
// prefixes. With events, EventBridge hears of what happens in it.
func (s *swarm) bucket(what string, events bool, expiring ...string) (*s3.BucketV2, error) {
	b, err := s3.NewBucketV2(s.ctx, s.child(what), &s3.BucketV2Args{ForceDestroy: pulumi.Bool(s.ForceDestroy), Tags: s.tags()}, s.opts()...)
	if err != nil {
		return nil, err
	}
	private, err := s3.NewBucketPublicAccessBlock(s.ctx, s.child(what+"-private"), &s3.BucketPublicAccessBlockArgs{
		Bucket:          b.ID(),
		BlockPublicAcls: pulumi.Bool(true), BlockPublicPolicy: pulumi.Bool(true),
		IgnorePublicAcls: pulumi.Bool(true), RestrictPublicBuckets: pulumi.Bool(true),
	}, s.opts()...)
	if err != nil {
		return nil, err
	}
	if _, err := s3.NewBucketOwnershipControls(s.ctx, s.child(what+"-owner"), &s3.BucketOwnershipControlsArgs{
		Bucket: b.ID(),
		Rule:   s3.BucketOwnershipControlsRuleArgs{ObjectOwnership: pulumi.String("BucketOwnerEnforced")},
	}, s.opts()...); err != nil {
		return nil, err
	}
	if _, err := s3.NewBucketServerSideEncryptionConfigurationV2(s.ctx, s.child(what+"-encryption"), &s3.BucketServerSideEncryptionConfigurationV2Args{
		Bucket: b.ID(),
		Rules: s3.BucketServerSideEncryptionConfigurationV2RuleArray{s3.BucketServerSideEncryptionConfigurationV2RuleArgs{
			ApplyServerSideEncryptionByDefault: s3.BucketServerSideEncryptionConfigurationV2RuleApplyServerSideEncryptionByDefaultArgs{SseAlgorithm: pulumi.String("AES256")},
		}},
	}, s.opts()...); err != nil {
		return nil, err
	}
	versions, err := s3.NewBucketVersioningV2(s.ctx, s.child(what+"-versions"), &s3.BucketVersioningV2Args{
		Bucket:                  b.ID(),
		VersioningConfiguration: s3.BucketVersioningV2VersioningConfigurationArgs{Status: pulumi.String("Enabled")},
	}, s.opts()...)
	if err != nil {
		return nil, err
	}
	if _, err := s3.NewBucketLifecycleConfigurationV2(s.ctx, s.child(what+"-lifecycle"), &s3.BucketLifecycleConfigurationV2Args{
		Bucket: b.ID(), Rules: s.lifecycle(expiring),
	}, s.opts(pulumi.DependsOn([]pulumi.Resource{versions}))...); err != nil {
		return nil, err
	}
	if events {
		if _, err := s3.NewBucketNotification(s.ctx, s.child(what+"-events"), &s3.BucketNotificationArgs{
			Bucket: b.ID(), Eventbridge: pulumi.Bool(true),
		}, s.opts()...); err != nil {
			return nil, err
		}
	}
	deny := pulumi.Map{
		"Effect": pulumi.String("Deny"), "Principal": pulumi.String("*"), "Action": pulumi.String("s3:*"),
		"Resource":  pulumi.StringArray{s.bucketArn(b), pulumi.Sprintf("%s/*", s.bucketArn(b))},
		"Condition": pulumi.Map{"Bool": pulumi.Map{"aws:SecureTransport": pulumi.String("false")}},
	}
	_, err = s3.NewBucketPolicy(s.ctx, s.child(what+"-tls"), &s3.BucketPolicyArgs{Bucket: b.ID(), Policy: policy(deny)},
		s.opts(pulumi.DependsOn([]pulumi.Resource{private}))...) // two changes of a bucket's access at a time are refused
	return b, err
}

// Days after which S3 clears away what nobody will use.
const (
	uploadDays  = 2 // an upload that was never completed; no run lasts as long
	versionDays = 7 // a version that was replaced or deleted
)

func (s *swarm) lifecycle(expiring []string) s3.BucketLifecycleConfigurationV2RuleArray {
	rules := s3.BucketLifecycleConfigurationV2RuleArray{s3.BucketLifecycleConfigurationV2RuleArgs{
		Id: pulumi.String("clear-away"), Status: pulumi.String("Enabled"), Filter: s3.BucketLifecycleConfigurationV2RuleFilterArgs{Prefix: pulumi.String("")},
		AbortIncompleteMultipartUpload: s3.BucketLifecycleConfigurationV2RuleAbortIncompleteMultipartUploadArgs{DaysAfterInitiation: pulumi.Int(uploadDays)},
		NoncurrentVersionExpiration:    s3.BucketLifecycleConfigurationV2RuleNoncurrentVersionExpirationArgs{NoncurrentDays: pulumi.Int(versionDays)},
	}}
	for _, prefix := range expiring {
		rules = append(rules, s3.BucketLifecycleConfigurationV2RuleArgs{
			Id: pulumi.String("expire-" + prefix[:len(prefix)-1]), Status: pulumi.String("Enabled"),
			Filter:     s3.BucketLifecycleConfigurationV2RuleFilterArgs{Prefix: pulumi.String(prefix)},
			Expiration: s3.BucketLifecycleConfigurationV2RuleExpirationArgs{Days: pulumi.Int(s.RetentionDays)},
		})
	}
	return rules
}
