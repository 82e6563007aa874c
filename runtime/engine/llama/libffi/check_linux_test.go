package libffi_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	// The package under test has to come before it, whoever imports both.
	_ "github.com/jupiterrider/ffi"

	_ "github.com/briefing-swarm/briefing-swarm/runtime/engine/llama/libffi"
)

// TestMissingLibffi starts this test program again with a broken libffi in front
// of the real one. It links the binding, so its panic would show.
func TestMissingLibffi(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "libffi.so.8"), []byte("no library"), 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("ended with %v, want exit code 1; it said:\n%s", err, out)
	}
	if text := string(out); strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "libffi.so.8") || !strings.Contains(text, "libffi8") {
		t.Errorf("it said:\n%s\nwant one line that says what to do", text)
	}
}
