package image

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the files of module/ from those at the module's root")

const moduleRoot = "../.."

// TestModuleFiles holds the embedded files against the module's own.
func TestModuleFiles(t *testing.T) {
	goMod, goSum := programModule(t)
	want := map[string][]byte{"go.mod.txt": goMod, "go.sum.txt": goSum}
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := os.ReadFile(filepath.Join(moduleRoot, name))
		if err != nil {
			t.Fatal(err)
		}
		want[name] = content
	}
	for name, content := range want {
		path := filepath.Join("module", name)
		if *update {
			if err := os.WriteFile(path, content, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(content), string(got)); diff != "" {
			t.Errorf("%s is not what the module's root asks for; run 'go test ./runtime/image -run ModuleFiles -update' (- root, + embedded):\n%s", path, diff)
		}
	}
}

// programModule returns a go.mod and go.sum with what the program needs, in the
// versions of the whole module, for both architectures.
func programModule(t *testing.T) (goMod, goSum []byte) {
	t.Helper()
	modules := map[string]bool{}
	goVersion := ""
	for _, arch := range []string{"arm64", "amd64"} {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", "lambda.norpc",
			"-f", "{{with .Module}}{{.Main}} {{.Path}} {{.Version}} {{.GoVersion}}{{end}}", programPath)
		list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		out, err := list.Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		for line := range strings.Lines(string(out)) {
			switch f := strings.Fields(line); {
			case len(f) < 3:
			case f[0] == "true":
				goVersion = f[2]
			default:
				modules[f[1]+" "+f[2]] = true
			}
		}
	}
	needed := slices.Sorted(maps.Keys(modules))
	if len(needed) == 0 || goVersion == "" {
		t.Fatalf("go list found %d modules and Go version %q", len(needed), goVersion)
	}
	var mod, sum bytes.Buffer
	fmt.Fprintf(&mod, "module %s\n\ngo %s\n\nrequire (\n", modulePath, goVersion)
	for _, module := range needed {
		fmt.Fprintf(&mod, "\t%s\n", module)
	}
	mod.WriteString(")\n")

	all, err := os.ReadFile(filepath.Join(moduleRoot, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(all)) {
		f := strings.Fields(line)
		if len(f) == 3 && modules[f[0]+" "+strings.TrimSuffix(f[1], "/go.mod")] {
			sum.WriteString(line)
		}
	}
	return mod.Bytes(), sum.Bytes()
}

// TestContextCompiles builds the program in a staged context, out of reach of
// the checkout, as the Dockerfile does.
func TestContextCompiles(t *testing.T) {
	c := stage(t, Options{Root: t.TempDir(), Model: Model{File: testModel(t)}})
	command := dockerfileLine(t, c.Dockerfile, "go build ")
	program := filepath.Join(t.TempDir(), "bootstrap")
	for _, arch := range []string{"arm64", "amd64"} {
		build := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(command, "-o /bootstrap", "-o '"+program+"'"))
		build.Dir = c.Dir
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=", "GOWORK=off")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", arch, err, out)
		}
		content, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkELF(content, arch); err != nil {
			t.Errorf("%s: %v", arch, err)
		}
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "vendor")); err == nil {
		t.Error("the build wrote into the context")
	}
}

// dockerfileLine returns the command of a RUN from where it contains start to
// the end of its instruction, with continued lines joined.
func dockerfileLine(t *testing.T, name, start string) string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	command, within := "", false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if i := strings.Index(line, start); i >= 0 && !strings.HasPrefix(line, "#") {
			line, within = line[i:], true
		}
		if within {
			rest, more := strings.CutSuffix(strings.TrimSpace(line), `\`)
			command += " " + rest
			if !more {
				return strings.TrimSpace(command)
			}
		}
	}
	t.Fatalf("%s has no %q", name, start)
	return ""
}
