// Command program is what the language host is tested with.
package main

import (
	"fmt"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/s3"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/config"
)

func main() {
	pulumi.Run(func(ctx *pulumi.Context) error {
		name := config.New(ctx, "").Require("bucket")
		if name == "none" {
			return fmt.Errorf("no bucket was asked for")
		}
		bucket, err := s3.NewBucketV2(ctx, "briefings", &s3.BucketV2Args{Bucket: pulumi.String(name)})
		if err != nil {
			return err
		}
		ctx.Export("arn", bucket.Arn)
		return nil
	})
}
