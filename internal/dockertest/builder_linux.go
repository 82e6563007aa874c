package dockertest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/briefing-swarm/briefing-swarm/internal/rootfs"
)

// BuilderTar returns a root file system of this machine's architecture with this
// machine's own Go and Node.js, which stands in for the images golang and node.
// It skips the test where there is no Node.js.
func BuilderTar(t testing.TB) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is missing, which the stand-in of the image node is made from: install Node.js")
	}
	if node, err = filepath.EvalSymlinks(node); err != nil {
		t.Fatal(err)
	}
	output := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), name, args...).Output()
		if err != nil {
			t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
		}
		return strings.TrimSpace(string(out))
	}
	goRoot := output("go", "env", "GOROOT")
	npm, err := filepath.EvalSymlinks(output("sh", "-c", "command -v npm"))
	if err != nil {
		t.Fatal(err)
	}
	npmRoot := filepath.Dir(filepath.Dir(npm)) // npm/bin/npm-cli.js

	// Node.js may come with its C++ library or ask for the system's.
	debian := rootfs.Tar(t, rootfs.Spec{Arch: runtime.GOARCH, Packages: []string{"ca-certificates", "libstdc++6"}, Configured: true})
	sum := sha256.Sum256(fmt.Append(nil, debian, output("go", "version"), output("node", "--version"), output("npm", "--version")))
	out := filepath.Join(rootfs.CacheDir(t), "builder-"+hex.EncodeToString(sum[:6])+".tar")
	if _, err := os.Stat(out); err == nil {
		return out
	}
	fresh := fmt.Sprintf("%s.%d.new", out, os.Getpid())
	defer os.Remove(fresh)
	links := t.TempDir()
	if err := os.MkdirAll(filepath.Join(links, "usr/local/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"npm": "../lib/node_modules/npm/bin/npm-cli.js", "npx": "../lib/node_modules/npm/bin/npx-cli.js"} {
		if err := os.Symlink(to, filepath.Join(links, "usr/local/bin", from)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) {
		t.Helper()
		if said, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, said)
		}
	}
	run("cp", debian, fresh)
	add := func(dir, under, what string, excludes ...string) {
		t.Helper()
		args := []string{"tar", "-rf", fresh, "--owner=0", "--group=0", "-C", dir, "--transform=flags=r;s,^" + what + ",./" + under + ","}
		for _, exclude := range excludes {
			args = append(args, "--exclude="+exclude)
		}
		run(append(args, what)...)
	}
	base := filepath.Base
	add(filepath.Dir(goRoot), "usr/local/go", base(goRoot), "testdata", base(goRoot)+"/test", base(goRoot)+"/doc", base(goRoot)+"/api")
	add(filepath.Dir(node), "usr/local/bin/node", base(node))
	add(filepath.Dir(npmRoot), "usr/local/lib/node_modules/npm", base(npmRoot))
	add(links, "usr", "usr")
	if err := os.Rename(fresh, out); err != nil {
		t.Fatal(err)
	}
	return out
}
