// Package buildtool finds the programs that the tools module pins, for tests
// that run a real server or checker. What is missing or of another version than
// tools/go.mod asks for is built on the spot, once, however many test packages
// run side by side.
package buildtool

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// buildTimeout bounds the build of one tool. The largest takes a minute on two
// idle cores.
const buildTimeout = 9 * time.Minute

// Path returns the path of a tool, such as "mailpit", and ends the test when it
// cannot be had. Nothing is skipped: a test that did not run its server did not
// test anything.
func Path(t testing.TB, name string) string {
	t.Helper()
	found, err := Find(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Find returns the path of a tool in the folder that SWARM_TOOLS_DIR names, or
// else in .cache/tools at the root of the module, where it builds the tool when
// it is missing or was built from another version than tools/go.mod pins. The
// error says what to run.
func Find(ctx context.Context, name string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	tool, err := pinned(ctx, root, name)
	if err != nil {
		return "", err
	}
	file := name
	if runtime.GOOS == "windows" {
		file += ".exe"
	}

	if dir := os.Getenv("SWARM_TOOLS_DIR"); dir != "" {
		found := filepath.Join(dir, file)
		if err := tool.check(found); err != nil {
			return "", fmt.Errorf("tool %s in SWARM_TOOLS_DIR: %w: run \"make tools\", "+
				"or unset SWARM_TOOLS_DIR to have it built", name, err)
		}
		return found, nil
	}

	dir := filepath.Join(root, ".cache", "tools")
	found := filepath.Join(dir, file)
	if tool.check(found) == nil {
		return found, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the folder for tools: %w", err)
	}
	unlock, err := lock(filepath.Join(dir, "."+name+".lock"))
	if err != nil {
		return "", fmt.Errorf("wait for another build of %s: %w", name, err)
	}
	defer unlock()
	if tool.check(found) == nil { // built while this process waited
		return found, nil
	}

	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	// A half-written program must never be found, so it is built aside.
	fresh := fmt.Sprintf("%s.%d.new", found, os.Getpid())
	defer os.Remove(fresh)
	build := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(root, "tools"), "-o", fresh, tool.importPath)
	// Without cgo they run inside an image of another architecture, too.
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: run \"make tools\" to see why it fails; output:\n%s",
			name, err, output)
	}
	if err := os.Rename(fresh, found); err != nil {
		return "", fmt.Errorf("put %s in its place: %w", name, err)
	}
	return found, tool.check(found)
}

// Built returns the path of a tool that is there already, as Find does, but
// never builds one: some take many minutes.
func Built(ctx context.Context, name string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	tool, err := pinned(ctx, root, name)
	if err != nil {
		return "", err
	}
	dir := os.Getenv("SWARM_TOOLS_DIR")
	if dir == "" {
		dir = filepath.Join(root, ".cache", "tools")
	}
	found := filepath.Join(dir, name)
	if err := tool.check(found); err != nil {
		return "", fmt.Errorf("tool %s in %s: %w", name, dir, err)
	}
	return found, nil
}

// owned are the programs that this process has built.
var owned sync.Map

// Own builds a program of this module into .cache/own under the given name and
// returns its path. A build that changes nothing takes a second, once in a
// process.
func Own(t testing.TB, folder, name string) string {
	t.Helper()
	if path, ok := owned.Load(name); ok {
		return path.(string)
	}
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, ".cache", "own")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	unlock, err := lock(filepath.Join(dir, "."+name+".lock"))
	if err != nil {
		t.Fatalf("wait for another build of %s: %v", name, err)
	}
	defer unlock()
	found := filepath.Join(dir, name)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", found, "./"+folder)
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", folder, err, output)
	}
	owned.Store(name, found)
	return found
}

// tool is one tool line of tools/go.mod.
type tool struct {
	importPath string
	version    string
}

// pinned asks Go itself which package and version a tool name stands for.
func pinned(ctx context.Context, root, name string) (tool, error) {
	list := exec.CommandContext(ctx, "go", "list", "-C", filepath.Join(root, "tools"),
		"-f", "{{.ImportPath}} {{.Module.Version}}", "tool")
	output, err := list.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return tool{}, fmt.Errorf("list the tools of the tools module: %w", err)
	}
	var names []string
	for line := range strings.Lines(string(output)) {
		importPath, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		if path.Base(importPath) == name {
			return tool{importPath, version}, nil
		}
		names = append(names, path.Base(importPath))
	}
	return tool{}, fmt.Errorf("tools/go.mod has no tool %q, only %s", name, strings.Join(names, ", "))
}

// check tells whether the program was built from the pinned version.
func (t tool) check(file string) error {
	info, err := buildinfo.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("it is not there")
	}
	if err != nil {
		return fmt.Errorf("it is not a Go program: %w", err)
	}
	if info.Path != t.importPath || info.Main.Version != t.version {
		return fmt.Errorf("it is %s %s, want %s %s", info.Path, info.Main.Version, t.importPath, t.version)
	}
	return nil
}

// moduleRoot returns the folder of the go.mod beside which tools/go.mod lies,
// seen from the folder of the package under test.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for from := dir; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "tools", "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no tools/go.mod in %s or above it: tests that need tools run inside the checkout", from)
		}
	}
}
