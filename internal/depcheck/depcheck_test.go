package depcheck

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/briefing-swarm/briefing-swarm"

const root = "../.."

// within says that path is one of the folders of the module, or below one.
func within(path string, folders ...string) bool {
	for _, folder := range folders {
		if path == module+"/"+folder || strings.HasPrefix(path, module+"/"+folder+"/") {
			return true
		}
	}
	return false
}

func startsWith(prefixes ...string) func(string) bool {
	return func(path string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
	}
}

var (
	isPulumi = startsWith("github.com/pulumi/")
	isAWS    = startsWith("github.com/aws/aws-sdk-go")
	isLlama  = startsWith("github.com/hybridgroup/yzma", "github.com/ebitengine/purego", "github.com/jupiterrider/ffi")
)

// rules say what the packages in some folders must not import, be it through
// others of ours.
var rules = []struct {
	name      string
	folders   []string
	forbidden func(string) bool
	why       string
}{
	{"no Pulumi in the runtime", []string{"runtime"}, isPulumi, "what runs inside Lambda and on a laptop must not carry a deployment tool"},
	{"no AWS SDK in what is deployed with Pulumi", []string{"component", "policy", "provider"}, isAWS, "a preview must not call AWS by itself"},
	{"no llama.cpp in what is deployed with Pulumi", []string{"component", "policy", "provider"}, isLlama, "a preview must not need the engine's libraries"},
	{"no Pulumi and no AWS SDK in the plan", []string{"plan"}, func(p string) bool { return isPulumi(p) || isAWS(p) }, "it is pure arithmetic"},
}

// standardOnly are the packages that build on nothing but the standard library,
// and not on others of ours.
var standardOnly = []string{"plan", "runtime/briefing", "runtime/model"}

// llamaBinding is the one package that may call llama.cpp.
const llamaBinding = "runtime/engine/llama"

func loadModule(t *testing.T) graph {
	t.Helper()
	g, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.our()) < 10 {
		t.Fatalf("the graph has only %v of ours", g.our())
	}
	for path, p := range g {
		if p.Error != nil && p.ours() {
			t.Errorf("%s: %s", path, p.Error.Err)
		}
	}
	return g
}

func TestImports(t *testing.T) {
	t.Parallel()
	g := loadModule(t)
	for _, path := range g.our() {
		for _, rule := range rules {
			if !within(path, rule.folders...) {
				continue
			}
			if chain := g.chain(path, rule.forbidden); chain != nil {
				t.Errorf("%s: %s (%s)", rule.name, strings.Join(chain, " imports "), rule.why)
			}
		}
		p := g[path]
		if !within(path, llamaBinding) {
			for _, next := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
				if strings.HasPrefix(next, "github.com/hybridgroup/yzma") {
					t.Errorf("%s imports %s: only %s may", path, next, llamaBinding)
				}
			}
		}
	}
}

func TestStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	g := loadModule(t)
	for _, folder := range standardOnly {
		p := g[module+"/"+folder]
		if p == nil {
			t.Errorf("there is no package %s", folder)
			continue
		}
		standard := func(path string) bool { return g[path] != nil && g[path].Standard }
		for _, next := range p.Imports {
			if !standard(next) {
				t.Errorf("%s imports %s: it builds on the standard library only", folder, next)
			}
		}
		for _, next := range slices.Concat(p.TestImports, p.XTestImports) {
			if !standard(next) && next != p.ImportPath && !strings.HasPrefix(next, "github.com/google/go-cmp/") && !strings.HasPrefix(next, "github.com/santhosh-tekuri/jsonschema/") {
				t.Errorf("a test of %s imports %s: beside the standard library only go-cmp and jsonschema", folder, next)
			}
		}
	}
}

// The rules must be able to find something.
func TestChain(t *testing.T) {
	t.Parallel()
	g := loadModule(t)
	chain := g.chain(module+"/cmd/swarm", isLlama)
	if len(chain) < 3 || chain[0] != module+"/cmd/swarm" || !isLlama(chain[len(chain)-1]) {
		t.Errorf("the command uses llama.cpp, but the chain is %v", chain)
	}
	if chain := g.chain(module+"/runtime/local", isLlama); chain != nil {
		t.Errorf("the pipeline takes any engine, but %v", chain)
	}
}

// unsaid are what no file of the project may name: the hosts of package
// registries, which differ from machine to machine and are the business of the
// clients' own settings, and paths of the machine on which it was written. The
// patterns are written so that they do not match themselves.
var unsaid = []*regexp.Regexp{
	regexp.MustCompile(`registry\.npm[j]s|registry\.yar[n]pkg`),
	regexp.MustCompile(`\bpyp[i]\.org|pythonhoste[d]\.org`),
	regexp.MustCompile(`(proxy|sum)\.golan[g]\.org|gopro[x]y\.`),
	regexp.MustCompile(`(^|[^\w.$}/-])/(w[o]rk|r[o]ot|tmp/b[r]ief)(/|\b)`),
	regexp.MustCompile(`/home/[a-z][\w-]*/`),
}

func TestNothingOfThisMachine(t *testing.T) {
	t.Parallel()
	// What Git does not keep either.
	skip := map[string]bool{".git": true, ".cache": true, "node_modules": true, "out": true}
	read := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skip[d.Name()] {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || d.Name() == ".git" { // which is a file in a work tree of its own
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) >= 0 && len(text) > 1<<20 {
			return nil // a program or a model
		}
		read++
		for i, line := range bytes.Split(text, []byte("\n")) {
			for _, pattern := range unsaid {
				if found := pattern.Find(line); found != nil {
					t.Errorf("%s:%d names %q", strings.TrimPrefix(path, root+"/"), i+1, found)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if read < 100 {
		t.Errorf("only %d files were read", read)
	}
}

func TestUnsaid(t *testing.T) {
	t.Parallel()
	join := func(parts ...string) string { return strings.Join(parts, "") }
	for text, want := range map[string]bool{
		join("https://registry.npm", "js.org/x"):        true,
		join("--index-url https://pyp", "i.org"):        true,
		join("GOPROXY=https://proxy.golan", "g.org"):    true,
		join("see /wo", "rk/main/x.go"):                 true,
		join("\"/ro", "ot/.cache\""):                    true,
		join("/tmp/br", "ief/COMMON.md"):                true,
		join("cd /home/", "ana/x"):                      true,
		"runtime" + join("/wo", "rk/x"):                 false,
		"https://example.com/" + join("wo", "rk") + "/": false,
		"/opt/llama": false,
	} {
		got := slices.ContainsFunc(unsaid, func(r *regexp.Regexp) bool { return r.MatchString(text) })
		if got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
