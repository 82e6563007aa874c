// Package rootfs makes small Debian root file systems for tests: of ARM64, to run
// programs in under emulation, and as stand-ins for container images where no
// registry can be reached. They are kept in .cache/rootfs; the packages come
// from where this machine's own apt takes them.
package rootfs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// buildTimeout bounds the making of one file system. It takes 10 seconds to a
// minute on two idle cores.
const buildTimeout = 10 * time.Minute

// Spec says what a root file system holds.
type Spec struct {
	Arch     string   // "arm64" or "amd64"
	Packages []string // what is unpacked, with what that depends on
	// Configured has the packages configured, which runs programs of theirs.
	// Without it they are only unpacked, so that any architecture will do.
	Configured bool
}

// Missing returns why no root file system can be made here, or "".
func Missing() string {
	if os.Getuid() != 0 {
		return "making a root file system needs root"
	}
	for _, program := range []string{"mmdebstrap", "apt-get"} {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is missing: apt-get install mmdebstrap"
		}
	}
	return ""
}

// Tar returns the path of a tar file with the root file system, and skips the
// test where none can be made.
func Tar(t testing.TB, s Spec) string {
	t.Helper()
	name := s.path(t) + ".tar"
	if exists(name) {
		return name
	}
	s.build(t, name)
	return name
}

// Dir returns the path of a folder with the root file system, which tests must
// not change.
func Dir(t testing.TB, s Spec) string {
	t.Helper()
	dir := s.path(t)
	if exists(dir) {
		return dir
	}
	tar := Tar(t, s)
	fresh, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(fresh)
	// No devices: they need more than root in some containers, and nobody here
	// reads them.
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", fresh, "--exclude=./dev/*", "-xf", tar).CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", tar, err, out)
	}
	if err := os.Chmod(fresh, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, dir); err != nil && !exists(dir) {
		t.Fatal(err)
	}
	return dir
}

// path is the place of what s describes, without an ending.
func (s Spec) path(t testing.TB) string {
	t.Helper()
	packages := slices.Sorted(slices.Values(s.Packages))
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %v %v", s.Arch, packages, s.Configured))
	return filepath.Join(CacheDir(t), s.Arch+"-"+hex.EncodeToString(sum[:6]))
}

func (s Spec) build(t testing.TB, name string) {
	t.Helper()
	if why := Missing(); why != "" {
		t.Skip(why)
	}
	ctx, cancel := context.WithTimeout(t.Context(), buildTimeout)
	defer cancel()
	sources, err := aptSources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	variant := "extract"
	if s.Configured {
		variant = "essential"
	}
	fresh := fmt.Sprintf("%s.%d.new.tar", name, os.Getpid())
	defer os.Remove(fresh)
	args := []string{
		"--variant=" + variant, "--architectures=" + s.Arch, "--include=" + strings.Join(s.Packages, ","),
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		sources[0].suite, fresh,
	}
	for _, source := range sources {
		args = append(args, source.line)
	}
	if out, err := exec.CommandContext(ctx, "mmdebstrap", args...).CombinedOutput(); err != nil {
		t.Fatalf("mmdebstrap %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	if err := os.Rename(fresh, name); err != nil {
		t.Fatal(err)
	}
}

type aptSource struct{ line, suite string }

// aptSources returns where this machine's apt finds Debian, the release itself
// first.
func aptSources(ctx context.Context) ([]aptSource, error) {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)",
		"Identifier: Packages", "Origin: Debian").Output()
	if err != nil {
		return nil, fmt.Errorf("ask apt for its sources: %w", err)
	}
	var sources []aptSource
	for line := range bytes.Lines(out) {
		f := strings.Fields(string(line))
		if len(f) != 3 {
			continue
		}
		s := aptSource{line: "deb " + strings.Join(f, " "), suite: f[1]}
		if strings.Contains(s.suite, "-") {
			sources = append(sources, s)
		} else {
			sources = slices.Insert(sources, 0, s)
		}
	}
	if len(sources) == 0 {
		return nil, errors.New("apt knows no Debian source: run apt-get update")
	}
	return sources, nil
}

// CacheDir returns .cache/rootfs at the root of the module.
func CacheDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(ModuleRoot(t), ".cache", "rootfs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// ModuleRoot returns the folder of go.mod, seen from the package under test.
func ModuleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if exists(filepath.Join(dir, "tools", "go.mod")) {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no tools/go.mod here or above: tests run inside the checkout")
		}
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
