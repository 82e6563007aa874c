// Package enginetest runs Pulumi programs under the real Pulumi engine, with
// stand-ins for the AWS and Docker providers: no account, no network, nothing
// left behind. The stand-ins refuse what AWS is known to refuse; see the
// command standin.
package enginetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/briefing-swarm/briefing-swarm/internal/buildtool"
)

// plugins are the providers by the versions that the SDKs in go.mod ask for.
var plugins = map[string]string{"aws": "v6.83.4", "docker": "v4.10.0"}

// Engine is one Pulumi set-up: a home with plugins, a folder of states, and the
// environment that keeps Pulumi to them.
type Engine struct {
	t testing.TB
	// cli is the pulumi program; home is PULUMI_HOME and the working folder's
	// parent.
	cli, home, state, trace string
	// Env is what programs run with beside the engine's own variables.
	Env map[string]string
}

// findCLI finds the Pulumi CLI, once in a process.
var findCLI = sync.OnceValues(func() (string, error) { return buildtool.Built(context.Background(), "pulumi") })

// New makes a set-up for one test. It skips the test where the Pulumi CLI has
// not been built: that takes about ten minutes, and `make engine` does it.
func New(t testing.TB) *Engine {
	t.Helper()
	cli, err := findCLI()
	if err != nil {
		t.Skipf("no Pulumi engine: %v; make engine builds it", err)
	}
	folder := t.TempDir()
	e := &Engine{t: t, cli: filepath.Join(folder, "bin", "pulumi"), home: filepath.Join(folder, "home"),
		state: filepath.Join(folder, "state"), trace: filepath.Join(folder, "standin"), Env: map[string]string{}}
	e.link(cli, e.cli)
	e.link(buildtool.Own(t, "internal/enginetest/languagehost", "pulumi-language-go"),
		filepath.Join(e.home, "plugins", "language-go-v3.276.0", "pulumi-language-go"))
	standin := buildtool.Own(t, "internal/enginetest/standin", "pulumi-resource-standin")
	for name, version := range plugins {
		e.link(standin, filepath.Join(e.home, "plugins", "resource-"+name+"-"+version, "pulumi-resource-"+name))
	}
	for _, dir := range []string{e.state, e.trace} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

func (e *Engine) link(from, to string) {
	e.t.Helper()
	from, err := filepath.Abs(from)
	if err != nil {
		e.t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		e.t.Fatal(err)
	}
	if err := os.Symlink(from, to); err != nil {
		e.t.Fatal(err)
	}
}

// environment is what the CLI runs with.
func (e *Engine) environment() map[string]string {
	env := map[string]string{
		"PULUMI_HOME":                                 e.home,
		"PULUMI_BACKEND_URL":                          "file://" + e.state,
		"PULUMI_CONFIG_PASSPHRASE":                    "test",
		"PULUMI_SKIP_UPDATE_CHECK":                    "true",
		"PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
		"PULUMI_IGNORE_AMBIENT_PLUGINS":               "true",
		"PULUMI_CREDENTIAL_HELPER":                    "none",
		"PULUMI_ACCESS_TOKEN":                         "",
		"STANDIN_DIR":                                 e.trace,
		"PATH":                                        filepath.Dir(e.cli) + string(os.PathListSeparator) + os.Getenv("PATH"),
	}
	for name, value := range e.Env {
		env[name] = value
	}
	return env
}

// Command runs the CLI in a folder and returns what it printed and its exit
// code, colours off.
func (e *Engine) Command(folder string, args ...string) (stdout, stderr string, exit int) {
	e.t.Helper()
	cmd := exec.CommandContext(e.t.Context(), e.cli, append(args, "--non-interactive", "--color", "never")...)
	cmd.Dir = folder
	cmd.Env = os.Environ()
	for name, value := range e.environment() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exited *exec.ExitError
	if errors.As(err, &exited) {
		exit = exited.ExitCode()
	} else if err != nil {
		e.t.Fatalf("pulumi %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), errs.String(), exit
}

// Call is one call that a stand-in was asked for.
type Call struct {
	Package string
	Region  string
	Method  string // Check, Diff, Create, Update, Read, Delete or Invoke
	// URN is the resource's, or the function's token.
	URN string
	// Preview tells whether nothing was to be made.
	Preview bool
	// Inputs are the resource's properties; unknown ones are "(unknown)", secret
	// ones "(secret)".
	Inputs map[string]any
	Args   map[string]any
	// Changed and Replaces are the properties of a Diff.
	Changed  []string
	Replaces []string
}

// Calls returns the calls since the last time, in the order of their end.
func (e *Engine) Calls() []Call {
	e.t.Helper()
	file := filepath.Join(e.trace, "trace.jsonl")
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.Remove(file)
	}
	if err != nil {
		e.t.Fatal(err)
	}
	var calls []Call
	for line := range bytes.Lines(data) {
		var call Call
		if err := json.Unmarshal(line, &call); err != nil {
			e.t.Fatalf("trace of the stand-in: %v", err)
		}
		calls = append(calls, call)
	}
	return calls
}
