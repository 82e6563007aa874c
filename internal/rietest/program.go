package rietest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/briefing-swarm/briefing-swarm/internal/rootfs"
)

// Program compiles a package of this module as the image's program is compiled,
// for "amd64" or "arm64", and returns the path.
func Program(t testing.TB, pkg, goarch string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "bootstrap")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", "lambda.norpc", "-ldflags", "-s -w", "-o", out, pkg)
	build.Dir = rootfs.ModuleRoot(t)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+goarch)
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("compile %s for %s: %v\n%s", pkg, goarch, err, said)
	}
	return out
}
