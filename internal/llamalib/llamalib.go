// Package llamalib has the llama.cpp libraries of any Linux target for tests,
// whatever machine they run on: `make setup` fetches those of the machine alone.
package llamalib

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/briefing-swarm/briefing-swarm/internal/rootfs"
)

// Dir returns a folder with the libraries for "arm64" or "amd64", of the version
// that package.json pins. What is missing is fetched with npm, once, into
// .cache/llama.
func Dir(t testing.TB, goarch string) string {
	t.Helper()
	cpu := goarch
	if cpu == "amd64" {
		cpu = "x64"
	}
	root := rootfs.ModuleRoot(t)
	manifest, err := os.ReadFile(filepath.Join(root, "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	var pins struct {
		OptionalDependencies map[string]string
	}
	if err := json.Unmarshal(manifest, &pins); err != nil {
		t.Fatal(err)
	}
	version := pins.OptionalDependencies["@node-llama-cpp/linux-"+cpu]
	dir := filepath.Join(root, ".cache", "llama", "linux-"+cpu)
	if have, err := os.ReadFile(filepath.Join(dir, "VERSION")); err == nil && strings.TrimSpace(string(have)) == version {
		return dir
	}

	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is missing, which fetches the llama.cpp libraries: install Node.js")
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(work)
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc"} {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(work, name), content, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	npm := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--loglevel=error", "--os=linux", "--cpu="+cpu, "--libc=glibc")
	npm.Dir = work
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	from := filepath.Join(work, "node_modules/@node-llama-cpp/linux-"+cpu, "bins/linux-"+cpu)
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(work, "lib")
	if err := os.Mkdir(fresh, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if !entry.Type().IsRegular() || !strings.HasPrefix(name, "libllama.") && !strings.HasPrefix(name, "libggml") {
			continue
		}
		if err := os.Rename(filepath.Join(from, name), filepath.Join(fresh, name)); err != nil {
			t.Fatal(err)
		}
		// The binding asks for names without a version.
		if base, _, ok := strings.Cut(name, ".v"); ok {
			if err := os.Symlink(name, filepath.Join(fresh, base+".so")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(fresh, "VERSION"), []byte(version+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}
