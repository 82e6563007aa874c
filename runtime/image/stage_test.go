package image

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func testModel(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := os.WriteFile(name, []byte("GGUF, or nearly"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func stage(t *testing.T, o Options) *Context {
	t.Helper()
	c, err := Stage(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// listing describes a tree byte for byte.
func listing(t *testing.T, dir string) []string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %v %d", filepath.ToSlash(rel), info.Mode(), info.ModTime().UnixNano())
		if !entry.IsDir() {
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(content)
			line += " " + hex.EncodeToString(sum[:])
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func TestStageIsTheSameEveryTime(t *testing.T) {
	model := testModel(t)
	first := stage(t, Options{Root: t.TempDir(), Model: Model{File: model}})
	want := listing(t, first.Dir)
	names := strings.Join(want, "\n")
	for _, part := range []string{"Dockerfile -rw-r--r-- 0 ", "go.mod ", "go.sum ", "package.json ", "package-lock.json ", "model/tiny.gguf -r--r--r-- 0 ", "runtime/cmd/bootstrap/main.go ", "runtime/engine/llama/backend.go "} {
		if !strings.Contains(names, part) {
			t.Errorf("the context lacks %q", part)
		}
	}
	for _, part := range []string{"_test.go", "testdata", "runtime/local/", "runtime/report/", "runtime/image/", "bootstrap -rwxr"} {
		if strings.Contains(names, part) {
			t.Errorf("the context holds %q, which the image does not need", part)
		}
	}
	if first.Platform != "linux/arm64" || first.Dockerfile != filepath.Join(first.Dir, "Dockerfile") {
		t.Errorf("context %+v", first)
	}

	// Another folder, another umask, another time.
	old := syscall.Umask(0o077)
	second := stage(t, Options{Root: t.TempDir(), Model: Model{File: model}})
	syscall.Umask(old)
	if filepath.Base(second.Dir) != filepath.Base(first.Dir) {
		t.Errorf("another name: %s and %s", first.Dir, second.Dir)
	}
	if diff := cmp.Diff(want, listing(t, second.Dir)); diff != "" {
		t.Errorf("another content:\n%s", diff)
	}
	if diff := cmp.Diff(first.Args, second.Args); diff != "" {
		t.Errorf("other arguments:\n%s", diff)
	}
}

func TestStageKeepsWhatIsThere(t *testing.T) {
	root, model := t.TempDir(), testModel(t)
	first := stage(t, Options{Root: root, Model: Model{File: model}})
	before, err := os.Stat(first.Dir)
	if err != nil {
		t.Fatal(err)
	}
	again := stage(t, Options{Root: root, Model: Model{File: model}})
	after, err := os.Stat(again.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) {
		t.Error("a context that was whole was made again")
	}
	want := listing(t, first.Dir)
	for name, damage := range map[string]func(dir string) error{
		"changed": func(dir string) error { return os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module x\n"), 0o644) },
		"added":   func(dir string) error { return os.WriteFile(filepath.Join(dir, "runtime/extra.go"), nil, 0o644) },
		"removed": func(dir string) error { return os.Remove(filepath.Join(dir, "go.sum")) },
		"touched": func(dir string) error { return os.Chtimes(filepath.Join(dir, "go.sum"), time.Now(), time.Now()) },
		"mode":    func(dir string) error { return os.Chmod(filepath.Join(dir, "Dockerfile"), 0o600) },
	} {
		if err := damage(first.Dir); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, listing(t, stage(t, Options{Root: root, Model: Model{File: model}}).Dir)); diff != "" {
			t.Errorf("%s: not made good:\n%s", name, diff)
		}
	}
	left, err := filepath.Glob(filepath.Join(root, "*", ".new-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestStageHoldsTheModelOnce(t *testing.T) {
	root, model := t.TempDir(), testModel(t)
	a := stage(t, Options{Root: root, Model: Model{File: model}})
	b := stage(t, Options{Root: root, Model: Model{File: model, Name: "other.gguf"}})
	if a.Dir == b.Dir {
		t.Fatal("another name of the model gave the same context")
	}
	first, err := os.Stat(filepath.Join(a.Dir, "model/tiny.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.Stat(filepath.Join(b.Dir, "model/other.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(first, second) {
		t.Error("the model was copied twice")
	}
	// The user's own file stays as it was.
	if info, err := os.Stat(model); err != nil || info.Mode().Perm() != 0o600 || info.ModTime().Equal(fixedTime) {
		t.Errorf("the model's file was changed: %v, %v", info, err)
	}
	if a.Args["MODEL_SHA256"] != b.Args["MODEL_SHA256"] || len(a.Args["MODEL_SHA256"]) != 64 {
		t.Errorf("arguments %v and %v", a.Args, b.Args)
	}
	if err := os.WriteFile(model, []byte("another model"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := stage(t, Options{Root: root, Model: Model{File: model}}); c.Dir == a.Dir {
		t.Error("another model gave the same context")
	}
}

func TestStageWithoutModel(t *testing.T) {
	t.Parallel()
	c := stage(t, Options{Root: t.TempDir(), Model: Model{Mounted: true}})
	if diff := cmp.Diff(map[string]string{"MODEL_FROM": "none"}, c.Args); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "model")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a model is in the context")
	}
	dockerfile, err := os.ReadFile(c.Dockerfile)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(dockerfile), " AS model-none\n") {
		t.Error("the Dockerfile has no stage for an image without a model")
	}
}

func TestStageFromURL(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("Ab", 32)
	c := stage(t, Options{Root: t.TempDir(), Architecture: "x86_64", Model: Model{URL: "https://example.com/m/a%20b/Tiny-Q4_0.gguf?download=true", SHA256: sum},
		Bases: Bases{Run: "r@sha256:1", Library: "l", Go: "g", Node: "n"}})
	want := map[string]string{
		"MODEL_FROM": "url", "MODEL_FILE": "Tiny-Q4_0.gguf", "MODEL_SHA256": strings.ToLower(sum),
		"MODEL_URL": "https://example.com/m/a%20b/Tiny-Q4_0.gguf?download=true",
		"RUN_BASE":  "r@sha256:1", "LIBRARY_BASE": "l", "GO_BASE": "g", "NODE_BASE": "n",
	}
	if diff := cmp.Diff(want, c.Args); diff != "" {
		t.Error(diff)
	}
	if c.Platform != "linux/amd64" {
		t.Errorf("platform %s", c.Platform)
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "model")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a model is in the context")
	}
	// Every argument is one of the Dockerfile's.
	dockerfile, err := os.ReadFile(c.Dockerfile)
	if err != nil {
		t.Fatal(err)
	}
	for name := range want {
		if !strings.Contains(string(dockerfile), "ARG "+name) {
			t.Errorf("the Dockerfile has no argument %s", name)
		}
	}
}

func TestStageRefuses(t *testing.T) {
	t.Parallel()
	model := testModel(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := "x86_64"
	if out, err := exec.Command("uname", "-m").Output(); err == nil && strings.HasPrefix(string(out), "x86_64") {
		other = "arm64"
	}
	for _, tc := range []struct {
		name string
		o    Options
		want []string
	}{
		{"nothing", Options{}, []string{"either a file or a URL"}},
		{"mounted, and a file", Options{Model: Model{Mounted: true, File: "a.gguf"}}, []string{"nothing where it is mounted"}},
		{"both, and more", Options{Architecture: "riscv64", Model: Model{File: "a.gguf", URL: "https://example.com/a.gguf"}}, []string{"either a file or a URL", `architecture is "riscv64"`}},
		{"no checksum", Options{Model: Model{URL: "https://example.com/a.gguf"}}, []string{"nothing unverified"}},
		{"short checksum", Options{Model: Model{URL: "https://example.com/a.gguf", SHA256: "abc"}}, []string{"64 hexadecimal digits"}},
		{"no address", Options{Model: Model{URL: "ftp://example.com/a.gguf", SHA256: strings.Repeat("0", 64)}}, []string{"an https address"}},
		{"a name for a shell", Options{Model: Model{File: "a b;.gguf"}}, []string{"a file name ending in .gguf"}},
		{"no GGUF", Options{Model: Model{File: "model.bin"}}, []string{"a file name ending in .gguf"}},
		{"not there", Options{Model: Model{File: "nowhere.gguf"}}, []string{"no such file"}},
		{"a folder", Options{Model: Model{File: filepath.Dir(model), Name: "a.gguf"}}, []string{"want a file"}},
		{"another file", Options{Model: Model{File: model, SHA256: strings.Repeat("0", 64)}}, []string{"pull the file again"}},
		{"no libraries", Options{Model: Model{File: model}, LlamaDir: filepath.Dir(model)}, []string{"libllama and libggml"}},
		{"no program", Options{Model: Model{File: model}, Bootstrap: model}, []string{"not made for Linux"}},
		{"another program", Options{Model: Model{File: model}, Bootstrap: self, Architecture: other}, []string{"made for EM_"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.o.Root = t.TempDir()
			_, err := Stage(tc.o)
			for _, part := range tc.want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("error %v, want %q in it", err, part)
				}
			}
			kept, globErr := filepath.Glob(filepath.Join(tc.o.Root, "models", "*"))
			if globErr != nil || tc.name == "another file" && len(kept) > 0 {
				t.Errorf("kept %v, %v", kept, globErr)
			}
		})
	}
}

func TestSourcesStayInside(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{
		"cmd/bootstrap/main.go":           {Data: []byte("package main\nimport _ \"" + modulePath + "/runtime/a\"\n")},
		"a/a.go":                          {Data: []byte("package a\nimport _ \"" + modulePath + "/plan\"\n")},
		"a/page/page.html":                {Data: []byte("embedded")},
		"a/a_test.go":                     {Data: []byte("package a\nimport _ \"" + modulePath + "/internal/b\"\n")},
		"a/sub/sub.go":                    {Data: []byte("package sub")},
		"a/testdata/golden.txt":           {Data: []byte("golden")},
		"cmd/bootstrap/testdata/main.txt": {Data: []byte("golden")},
	}
	files := fileSet{}
	err := addPackage(files, tree, programPath, map[string]bool{})
	if err == nil || !strings.Contains(err.Error(), modulePath+"/plan") || !strings.Contains(err.Error(), "outside of runtime/") {
		t.Errorf("error %v", err)
	}
	tree["a/a.go"].Data = []byte("package a\n")
	files = fileSet{}
	if err := addPackage(files, tree, programPath, map[string]bool{}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"runtime/a/a.go", "runtime/a/page/page.html", "runtime/cmd/bootstrap/main.go"}, names); diff != "" {
		t.Error(diff)
	}
}
