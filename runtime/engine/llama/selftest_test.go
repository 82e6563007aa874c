package llama_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/briefing-swarm/briefing-swarm/internal/demomodel"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine/llama"
)

// TestMain lets this test binary be its own self-test process.
func TestMain(m *testing.M) {
	llama.RunSelfTest()
	os.Exit(m.Run())
}

func TestSelfTest(t *testing.T) {
	if err := llama.SelfTest(t.Context(), demomodel.LibraryDir(t)); err != nil {
		t.Errorf("the libraries that work: %v", err)
	}

	err := llama.SelfTest(t.Context(), t.TempDir())
	var le *llama.LibraryError
	if !errors.As(err, &le) || !strings.Contains(err.Error(), "make setup") {
		t.Errorf("an empty folder: %v", err)
	}

	// A library whose first instruction is an illegal one.
	dir := t.TempDir()
	source := filepath.Join(dir, "trap.c")
	if err := os.WriteFile(source, []byte("__attribute__((constructor)) static void trap(void) { __builtin_trap(); }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", filepath.Join(dir, "libggml.so"), source).CombinedOutput(); err != nil {
		t.Fatalf("this test needs a C compiler (apt-get install gcc): %v\n%s", err, out)
	}
	err = llama.SelfTest(t.Context(), dir)
	var pe *llama.ProcessorError
	if !errors.As(err, &pe) || strings.Contains(err.Error(), "\n") {
		t.Errorf("an illegal instruction: %v", err)
	}
}
