package component

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ecr"
	"github.com/pulumi/pulumi-docker/sdk/v4/go/docker"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/briefing-swarm/briefing-swarm/plan"
	"github.com/briefing-swarm/briefing-swarm/runtime/image"
)

// keptImages is how many images the repository keeps, so that a deployment can
// be taken back.
const keptImages = 5

// image is the address of the one image that all functions run, with its
// digest. Its repository is nil where the image was given.
func (s *swarm) image() (pulumi.StringInput, *ecr.Repository, error) {
	if s.ImageUri != nil {
		return s.ImageUri.ToStringPtrOutput().ApplyT(checkImageURI).(pulumi.StringOutput), nil, nil
	}
	repository, err := s.repository()
	if err != nil {
		return nil, nil, err
	}
	// Staged in the preview as well: a fault of the model file shows there, and
	// the context is the same folder in both.
	model := image.Model{File: s.model.Path, URL: s.model.URL, SHA256: s.model.SHA256, Name: s.model.File}
	if s.ModelStore == plan.StoreEFS {
		model = image.Model{Mounted: true}
	}
	c, err := image.Stage(image.Options{Architecture: s.Architecture, Model: model})
	if err != nil {
		return nil, nil, err
	}
	tag, err := imageTag(c)
	if err != nil {
		return nil, nil, err
	}
	token := ecr.GetAuthorizationTokenOutput(s.ctx, ecr.GetAuthorizationTokenOutputArgs{}, pulumi.Parent(s.parent))
	built, err := docker.NewImage(s.ctx, s.child("image"), &docker.ImageArgs{
		ImageName: pulumi.Sprintf("%s:%s", repository.RepositoryUrl, tag),
		Build: docker.DockerBuildArgs{
			Context: pulumi.String(c.Dir), Dockerfile: pulumi.String(c.Dockerfile), Platform: pulumi.String(c.Platform),
			Args: pulumi.ToStringMap(c.Args), BuilderVersion: docker.BuilderVersionBuilderBuildKit,
		},
		Registry: docker.RegistryArgs{
			Server: repository.RepositoryUrl, Username: token.UserName(),
			Password: pulumi.ToSecret(token.Password()).(pulumi.StringOutput),
		},
	}, s.opts()...)
	if err != nil {
		return nil, nil, err
	}
	return built.RepoDigest, repository, nil
}

// repository creates the ECR repository.
func (s *swarm) repository() (*ecr.Repository, error) {
	repository, err := ecr.NewRepository(s.ctx, s.child("worker"), &ecr.RepositoryArgs{
		ImageTagMutability:         pulumi.String("IMMUTABLE"),
		ImageScanningConfiguration: ecr.RepositoryImageScanningConfigurationArgs{ScanOnPush: pulumi.Bool(true)},
		EncryptionConfigurations:   ecr.RepositoryEncryptionConfigurationArray{ecr.RepositoryEncryptionConfigurationArgs{EncryptionType: pulumi.String("AES256")}},
		ForceDelete:                pulumi.Bool(s.ForceDestroy),
		Tags:                       s.tags(),
	}, s.opts()...)
	if err != nil {
		return nil, err
	}
	if _, err := ecr.NewLifecyclePolicy(s.ctx, s.child("worker-lifecycle"), &ecr.LifecyclePolicyArgs{
		Repository: repository.Name,
		Policy: pulumi.JSONMarshal(pulumi.Map{"rules": pulumi.Array{pulumi.Map{
			"rulePriority": pulumi.Int(1), "description": pulumi.String("keep the newest images"),
			"selection": pulumi.Map{"tagStatus": pulumi.String("any"), "countType": pulumi.String("imageCountMoreThan"), "countNumber": pulumi.Int(keptImages)},
			"action":    pulumi.Map{"type": pulumi.String("expire")},
		}}}),
	}, s.opts()...); err != nil {
		return nil, err
	}
	// Lambda adds such a policy by itself, but only when a function is created:
	// after an update of the image it may have lost its permission.
	lambda := pulumi.Map{
		"Sid": pulumi.String("Lambda"), "Effect": pulumi.String("Allow"), "Principal": pulumi.Map{"Service": pulumi.String(lambdaService)},
		"Action": pulumi.ToStringArray([]string{"ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"}),
		"Condition": pulumi.Map{
			"StringEquals": pulumi.Map{"aws:SourceAccount": s.account},
			"ArnLike":      pulumi.Map{"aws:SourceArn": pulumi.Sprintf("arn:%s:lambda:%s:%s:function:%s-*", s.partition, s.Region, s.account, s.name)},
		},
	}
	_, err = ecr.NewRepositoryPolicy(s.ctx, s.child("worker-pull"), &ecr.RepositoryPolicyArgs{Repository: repository.Name, Policy: policy(lambda)}, s.opts()...)
	return repository, err
}

// imageTag names the image after all that it is built from. Tags are immutable,
// so other content must have another one.
func imageTag(c *image.Context) (string, error) {
	args, err := json.Marshal(c.Args)
	if err != nil {
		return "", fmt.Errorf("name the image: %w", err)
	}
	sum := sha256.Sum256(append([]byte(c.Platform), args...))
	return fmt.Sprintf("%s-%x", filepath.Base(c.Dir), sum[:4]), nil
}

// checkImageURI refuses an image without a digest: under a tag, a function would
// not notice another image.
func checkImageURI(uri *string) (string, error) {
	if uri == nil || !strings.Contains(*uri, "@sha256:") {
		return "", fmt.Errorf("imageUri: give the image with its digest, as 123456789012.dkr.ecr.eu-west-1.amazonaws.com/name@sha256:…")
	}
	return *uri, nil
}
