package buildtool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFindNamesWhatThereIs(t *testing.T) {
	_, err := Find(t.Context(), "hammer")
	if err == nil || !strings.Contains(err.Error(), "mailpit") {
		t.Errorf("error %v, want one that lists the tools there are", err)
	}
}

func TestFindRefusesAnotherProgram(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SWARM_TOOLS_DIR", dir)
	refused := func(want ...string) {
		t.Helper()
		_, err := Find(t.Context(), "mailpit")
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("error %v, want %q in it", err, part)
			}
		}
	}
	refused("it is not there", "make tools")

	file := filepath.Join(dir, "mailpit")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	refused("it is not a Go program")

	// The test program itself is a Go program, but not Mailpit.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, file); err != nil {
		t.Fatal(err)
	}
	refused("want github.com/axllent/mailpit v")
}

func TestFindBuildsOnce(t *testing.T) {
	if os.Getenv("SWARM_TOOLS_DIR") != "" {
		t.Skip("SWARM_TOOLS_DIR is set: nothing is built")
	}
	first, err := Find(t.Context(), "mailpit")
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(first)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Find(t.Context(), "mailpit")
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(second)
	if err != nil {
		t.Fatal(err)
	}
	if first != second || !os.SameFile(before, after) {
		t.Errorf("built again: %s and %s", first, second)
	}
}
