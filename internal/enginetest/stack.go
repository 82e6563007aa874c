package enginetest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/events"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	pulumiconfig "github.com/pulumi/pulumi/sdk/v3/go/common/resource/config"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/pulumi/pulumi/sdk/v3/go/common/workspace"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// Stack is a stack of a program that runs in the test's own process.
type Stack struct {
	e     *Engine
	stack auto.Stack
	// PolicyPack is the pack that previews and updates run with, if any, and
	// PolicyConfig its configuration file.
	PolicyPack   string
	PolicyConfig string
}

// Inline makes a stack of a program. Config holds values by names such as
// aws:region, which is eu-west-1 unless it is given, and secret ones by names
// such as "secret project:key".
func (e *Engine) Inline(project, stack string, config map[string]string, program pulumi.RunFunc) *Stack {
	e.t.Helper()
	here, err := os.Getwd()
	if err != nil {
		e.t.Fatal(err)
	}
	env := e.environment()
	env["STANDIN_PROGRAM_DIR"] = here
	command, err := auto.NewPulumiCommand(&auto.PulumiCommandOptions{Root: strings.TrimSuffix(e.cli, "/bin/pulumi")})
	if err != nil {
		e.t.Fatal(err)
	}
	// Written as the file that the CLI would write; secrets need its encryption.
	values := pulumiconfig.Map{}
	var secrets []string
	if _, ok := config["aws:region"]; !ok {
		values[pulumiconfig.MustParseKey("aws:region")] = pulumiconfig.NewValue("eu-west-1")
	}
	for key, value := range config {
		if strings.HasPrefix(key, "secret ") {
			secrets = append(secrets, key)
		} else {
			values[pulumiconfig.MustParseKey(key)] = pulumiconfig.NewValue(value)
		}
	}
	made, err := auto.UpsertStackInlineSource(e.t.Context(), stack, project, program,
		auto.Pulumi(command), auto.PulumiHome(e.home), auto.WorkDir(e.t.TempDir()), auto.EnvVars(env),
		auto.SecretsProvider("passphrase"), auto.Stacks(map[string]workspace.ProjectStack{stack: {Config: values}}),
		auto.Project(workspace.Project{Name: tokens.PackageName(project), Runtime: workspace.NewProjectRuntimeInfo("go", nil),
			Backend: &workspace.ProjectBackend{URL: "file://" + e.state}}))
	if err != nil {
		e.t.Fatal(err)
	}
	for _, key := range secrets {
		if err := made.SetConfig(e.t.Context(), strings.TrimPrefix(key, "secret "), auto.ConfigValue{Value: config[key], Secret: true}); err != nil {
			e.t.Fatal(err)
		}
	}
	return &Stack{e: e, stack: made}
}

// Config sets one value of the stack's configuration.
func (s *Stack) Config(key, value string) {
	s.e.t.Helper()
	if err := s.stack.SetConfig(s.e.t.Context(), key, auto.ConfigValue{Value: value}); err != nil {
		s.e.t.Fatal(err)
	}
}

// Result is what an operation did.
type Result struct {
	// Steps are the resources that it did something to, "create <URN>" and the
	// like, sorted; resources that stay as they are and default providers do not
	// count.
	Steps []string
	// Same counts the resources that stay as they are.
	Same int
	// Policies are the violations, as the engine reported them.
	Policies []apitype.PolicyEvent
	// Logs are the diagnostics, "error: …", "info: …", in their order.
	Logs []string
	// Text is what the command line printed.
	Text string
	// Outputs are the stack's, after an update.
	Outputs map[string]any
	// Err is why the operation failed.
	Err error
}

// Exit is the exit code of the command line.
func (r Result) Exit() int {
	switch {
	case r.Err == nil:
		return 0
	case auto.IsConcurrentUpdateError(r.Err):
		return -1
	}
	code := 0
	if _, after, found := strings.Cut(r.Err.Error(), "\ncode: "); found {
		_, _ = fmt.Sscanf(after, "%d", &code) // 0 where there is none
	}
	return code
}

// Types lists what the steps were done to: "create aws:s3/bucketV2:BucketV2".
func (r Result) Types() []string {
	var types []string
	for _, step := range r.Steps {
		op, urn, _ := strings.Cut(step, " ")
		parts := strings.Split(urn, "::")
		types = append(types, op+" "+parts[2][strings.LastIndex(parts[2], "$")+1:])
	}
	return types
}

// Preview shows what an update would do.
func (s *Stack) Preview() Result {
	s.e.t.Helper()
	r, collect, done := s.collector()
	options := []optpreview.Option{optpreview.EventStreams(collect), optpreview.Color("never")}
	if s.PolicyPack != "" {
		options = append(options, optpreview.PolicyPacks(s.PolicyPack))
		if s.PolicyConfig != "" {
			options = append(options, optpreview.PolicyPackConfigs(s.PolicyConfig))
		}
	}
	result, err := s.stack.Preview(s.e.t.Context(), options...)
	<-done
	r.ended(result.StdOut, err)
	return r.sorted()
}

// Up updates the stack without a preview before it.
func (s *Stack) Up() Result {
	s.e.t.Helper()
	r, collect, done := s.collector()
	options := []optup.Option{optup.EventStreams(collect), optup.Color("never")}
	if s.PolicyPack != "" {
		options = append(options, optup.PolicyPacks(s.PolicyPack))
		if s.PolicyConfig != "" {
			options = append(options, optup.PolicyPackConfigs(s.PolicyConfig))
		}
	}
	result, err := s.stack.Up(s.e.t.Context(), options...)
	<-done
	r.ended(result.StdOut, err)
	r.Outputs = map[string]any{}
	for key, output := range result.Outputs {
		r.Outputs[key] = output.Value
	}
	return r.sorted()
}

// Destroy deletes all of the stack's resources.
func (s *Stack) Destroy() Result {
	s.e.t.Helper()
	r, collect, done := s.collector()
	result, err := s.stack.Destroy(s.e.t.Context(), optdestroy.EventStreams(collect), optdestroy.Color("never"))
	<-done
	r.ended(result.StdOut, err)
	return r.sorted()
}

// State is the state as it lies on disk, with its secrets encrypted.
func (s *Stack) State() string {
	s.e.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.e.state, ".pulumi", "stacks", "*", s.stack.Name()+".json"))
	if err != nil || len(files) != 1 {
		s.e.t.Fatalf("%d files hold the state of %s, error %v", len(files), s.stack.Name(), err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		s.e.t.Fatal(err)
	}
	return string(data)
}

// Export writes the state with its secrets in plain text, for `pulumi policy
// analyze`.
func (s *Stack) Export(w io.Writer) error {
	state, err := s.stack.Export(s.e.t.Context())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, `{"version":%d,"deployment":%s}`, state.Version, state.Deployment)
	return err
}

// collector gathers the events of one operation. The Automation API closes the
// channel at its end.
func (s *Stack) collector() (r *Result, collect chan events.EngineEvent, done chan struct{}) {
	r = &Result{}
	collect = make(chan events.EngineEvent)
	done = make(chan struct{})
	go func() {
		defer close(done)
		for event := range collect {
			switch {
			case event.PolicyEvent != nil:
				r.Policies = append(r.Policies, *event.PolicyEvent)
			case event.DiagnosticEvent != nil:
				if text := strings.TrimSpace(event.DiagnosticEvent.Message); text != "" && event.DiagnosticEvent.Severity != "debug" {
					r.Logs = append(r.Logs, event.DiagnosticEvent.Severity+": "+text)
				}
			case event.ResourcePreEvent != nil:
				step := event.ResourcePreEvent.Metadata
				if strings.HasPrefix(step.Type, "pulumi:providers:") && strings.Contains(step.URN, "::default_") {
					continue
				}
				if step.Op == apitype.OpSame {
					r.Same++
				} else {
					r.Steps = append(r.Steps, string(step.Op)+" "+step.URN)
				}
			}
		}
	}()
	return r, collect, done
}

// ended keeps how the operation ended. The Automation API puts what a failed one
// printed into the error.
func (r *Result) ended(text string, err error) {
	r.Text, r.Err = text, err
	if err != nil && text == "" {
		_, r.Text, _ = strings.Cut(err.Error(), "\nstdout: ")
		r.Text, _, _ = strings.Cut(r.Text, "\nstderr: ")
	}
}

func (r *Result) sorted() Result {
	slices.Sort(r.Steps)
	slices.SortFunc(r.Policies, func(a, b apitype.PolicyEvent) int {
		return strings.Compare(a.PolicyName+a.ResourceURN+a.Message, b.PolicyName+b.ResourceURN+b.Message)
	})
	return *r
}
