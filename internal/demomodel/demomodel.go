// Package demomodel finds the llama.cpp libraries and the small real model that
// `make setup` fetches, for tests that want the real thing.
package demomodel

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Environment variables that go before what `make setup` has fetched. They are
// those of the swarm command.
const (
	LibraryEnv = "SWARM_LLAMA_LIB"
	ModelEnv   = "SWARM_MODEL"
)

// Model is a model that can be run.
type Model struct {
	// Path is the GGUF file, absolute.
	Path string
	// ChatTemplate is what --chat-template of the swarm command is for it, or "".
	ChatTemplate string
}

// Args are the flags of the swarm command that name the model.
func (m Model) Args() []string {
	args := []string{"--model", m.Path}
	if m.ChatTemplate != "" {
		args = append(args, "--chat-template", m.ChatTemplate)
	}
	return args
}

// Find returns the model of $SWARM_MODEL, else the one that `make setup` has
// fetched. Without either the test fails and says so.
func Find(t testing.TB) Model {
	t.Helper()
	if path := os.Getenv(ModelEnv); path != "" {
		return Model{Path: absolute(t, path)}
	}
	root := moduleRoot(t)
	// make setup writes down how the swarm command is to be called.
	text, err := os.ReadFile(filepath.Join(root, ".cache", "models", "demo.args"))
	if err != nil {
		t.Fatalf("no model for tests: run 'make setup', or set %s to a GGUF file (%v)", ModelEnv, err)
	}
	m, err := parseArgs(string(text))
	if err != nil {
		t.Fatalf("%v: run 'make setup' again", err)
	}
	m.Path = absolute(t, filepath.Join(root, m.Path))
	return m
}

// parseArgs reads what make setup wrote.
func parseArgs(text string) (m Model, err error) {
	words := strings.Fields(text)
	for len(words) >= 2 {
		switch words[0] {
		case "--model":
			m.Path = words[1]
		case "--chat-template":
			m.ChatTemplate = words[1]
		default:
			return m, fmt.Errorf("demo.args has an unknown flag %s", words[0])
		}
		words = words[2:]
	}
	if m.Path == "" || len(words) > 0 {
		return m, fmt.Errorf("demo.args names no model")
	}
	return m, nil
}

func absolute(t testing.TB, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("no model for tests: %v: run 'make setup', or set %s to a GGUF file", err, ModelEnv)
	}
	return path
}

// LibraryDir returns the folder of $SWARM_LLAMA_LIB, else the one that `make
// setup` has filled. Without either the test fails and says so.
func LibraryDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv(LibraryEnv)
	if dir == "" {
		arch := runtime.GOARCH
		if arch == "amd64" {
			arch = "x64"
		}
		dir = filepath.Join(moduleRoot(t), ".cache", "llama", runtime.GOOS+"-"+arch)
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		_, err = os.Stat(dir)
	}
	if err != nil {
		t.Fatalf("no llama.cpp libraries for tests: %v: run 'make setup', or set %s to the folder of libllama", err, LibraryEnv)
	}
	return dir
}

// moduleRoot returns the folder of go.mod, seen from the package under test.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for from := dir; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatalf("no go.mod in %s or above it: set %s and %s", from, ModelEnv, LibraryEnv)
		}
	}
}
