package enginetest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/dynamodb"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/lambda"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/config"
)

const trust = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"lambda.amazonaws.com"},"Action":"sts:AssumeRole"}]}`

// worker is a small program: a role, a table and a function that uses both.
func worker(ctx *pulumi.Context) error {
	role, err := iam.NewRole(ctx, "worker", &iam.RoleArgs{AssumeRolePolicy: pulumi.String(trust)})
	if err != nil {
		return err
	}
	table, err := dynamodb.NewTable(ctx, "ledger", &dynamodb.TableArgs{
		BillingMode: pulumi.String("PAY_PER_REQUEST"),
		HashKey:     pulumi.String("run_id"),
		Attributes:  dynamodb.TableAttributeArray{&dynamodb.TableAttributeArgs{Name: pulumi.String("run_id"), Type: pulumi.String("S")}},
	})
	if err != nil {
		return err
	}
	_, err = iam.NewRolePolicy(ctx, "worker", &iam.RolePolicyArgs{
		Role: role.Name,
		Policy: pulumi.Sprintf(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"dynamodb:PutItem","Resource":"%s"}]}`,
			table.Arn),
	})
	if err != nil {
		return err
	}
	c := config.New(ctx, "")
	f, err := lambda.NewFunction(ctx, "worker", &lambda.FunctionArgs{
		PackageType:   pulumi.String("Image"),
		ImageUri:      pulumi.String("123456789012.dkr.ecr.eu-west-1.amazonaws.com/worker@sha256:" + strings.Repeat("0a", 32)),
		Architectures: pulumi.ToStringArray([]string{"arm64"}),
		Role:          role.Arn,
		MemorySize:    pulumi.Int(c.RequireInt("memoryMib")),
		Timeout:       pulumi.Int(900),
	})
	if err != nil {
		return err
	}
	ctx.Export("functionArn", f.Arn)
	return nil
}

func TestLifecycle(t *testing.T) {
	e := New(t)
	s := e.Inline("small", "dev", map[string]string{"small:memoryMib": "4096"}, worker)

	preview := s.Preview()
	if preview.Err != nil {
		t.Fatalf("preview: %v", preview.Err)
	}
	created := []string{
		"create pulumi:pulumi:Stack", "create aws:dynamodb/table:Table", "create aws:iam/role:Role",
		"create aws:iam/rolePolicy:RolePolicy", "create aws:lambda/function:Function",
	}
	if diff := cmp.Diff(sortedCopy(created), sortedCopy(preview.Types())); diff != "" {
		t.Errorf("preview (-want +got):\n%s", diff)
	}
	for _, call := range e.Calls() {
		if call.Method == "Create" && !call.Preview {
			t.Errorf("the preview made %s", call.URN)
		}
	}

	up := s.Up()
	if up.Err != nil {
		t.Fatalf("up: %v", up.Err)
	}
	if arn, _ := up.Outputs["functionArn"].(string); !strings.HasPrefix(arn, "arn:aws:lambda:eu-west-1:123456789012:function:worker-") {
		t.Errorf("functionArn is %q", arn)
	}

	again := s.Up()
	if again.Err != nil || len(again.Steps) != 0 || again.Same != len(created) {
		t.Errorf("a second up did %v, same %d, error %v; want nothing", again.Steps, again.Same, again.Err)
	}

	s.Config("small:memoryMib", "8192")
	e.Calls()
	changed := s.Up()
	if diff := cmp.Diff([]string{"update aws:lambda/function:Function"}, changed.Types()); changed.Err != nil || diff != "" {
		t.Errorf("another memory size: error %v (-want +got):\n%s", changed.Err, diff)
	}
	var properties []string
	for _, call := range e.Calls() {
		properties = append(properties, call.Changed...)
	}
	if diff := cmp.Diff([]string{"memorySize"}, properties); diff != "" {
		t.Errorf("changed properties (-want +got):\n%s", diff)
	}

	destroy := s.Destroy()
	if destroy.Err != nil || len(destroy.Steps) != len(created) {
		t.Errorf("destroy did %v, error %v", destroy.Steps, destroy.Err)
	}
}

// TestNonsense sends what AWS would refuse, and wants all of it in one answer,
// before anything is made.
func TestNonsense(t *testing.T) {
	e := New(t)
	s := e.Inline("small", "dev", nil, func(ctx *pulumi.Context) error {
		_, err := lambda.NewFunction(ctx, "worker", &lambda.FunctionArgs{
			PackageType:   pulumi.String("Image"),
			ImageUri:      pulumi.String("docker.io/library/worker:latest"),
			Architectures: pulumi.ToStringArray([]string{"arm"}),
			Role:          pulumi.String("worker-role"),
			MemorySize:    pulumi.Int(64),
			Timeout:       pulumi.Int(901),
			Handler:       pulumi.String("bootstrap"),
			Environment:   &lambda.FunctionEnvironmentArgs{Variables: pulumi.ToStringMap(map[string]string{"AWS_REGION": "eu-west-1"})},
		})
		return err
	})
	r := s.Preview()
	if r.Exit() != 1 {
		t.Errorf("exit code %d, error %v", r.Exit(), r.Err)
	}
	logs := strings.Join(r.Logs, "\n")
	for _, want := range []string{
		`memorySize 64 is not within 128 to 10240`, `timeout 901 is not within 1 to 900`, `architectures "arm" is not one of arm64, x86_64`,
		`role "worker-role" is not an ARN`, `handler is not allowed with packageType Image`, `is not an image in ECR`,
		`environment.variables.AWS_REGION is a name that Lambda keeps to itself`,
	} {
		if !strings.Contains(logs, want) {
			t.Errorf("not told: %s", want)
		}
	}
	if t.Failed() {
		t.Log(logs)
	}
	for _, call := range e.Calls() {
		if call.Method == "Create" {
			t.Errorf("made %s all the same", call.URN)
		}
	}
}

func sortedCopy(s []string) []string {
	s = append([]string(nil), s...)
	slices.Sort(s)
	return s
}

// TestFolder runs a program that lies in a folder: the language host builds it,
// and what it says when it fails comes through.
func TestFolder(t *testing.T) {
	e := New(t)
	// A copy within the module: pulumi writes its settings beside Pulumi.yaml.
	program, err := os.MkdirTemp("testdata", "run-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(program) })
	if err := os.CopyFS(program, os.DirFS(filepath.Join("testdata", "program"))); err != nil {
		t.Fatal(err)
	}
	run := func(want int, args ...string) string {
		t.Helper()
		stdout, stderr, exit := e.Command(program, args...)
		if exit != want {
			t.Fatalf("pulumi %s ended with %d, want %d:\n%s%s", strings.Join(args, " "), exit, want, stdout, stderr)
		}
		return stdout + stderr
	}
	run(0, "stack", "init", "dev")
	run(0, "config", "set", "aws:region", "eu-west-1")
	if text := run(0, "up", "--yes", "--skip-preview"); !strings.Contains(text, `"arn:aws:s3:::briefings-of-acme"`) {
		t.Errorf("up prints:\n%s", text)
	}
	run(0, "config", "set", "bucket", "none")
	if text := run(1, "preview"); !strings.Contains(text, "no bucket was asked for") {
		t.Errorf("a program that fails prints:\n%s", text)
	}
}
