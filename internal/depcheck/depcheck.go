// Package depcheck guards the rules about what may import what, and about what
// no file of the project may say. The rules are in its test.
package depcheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// pkg is a package as `go list` describes it.
type pkg struct {
	ImportPath   string
	Standard     bool
	Imports      []string
	TestImports  []string // of its own test files
	XTestImports []string // of test files in package x_test
	Module       *struct {
		Main bool
	}
	Error *struct{ Err string }
}

func (p *pkg) ours() bool { return p.Module != nil && p.Module.Main }

// graph is the import graph of the module and all it needs, by import path.
type graph map[string]*pkg

// load reads the graph of the module in dir. Code for other systems than this
// one is not seen.
func load(dir string) (graph, error) {
	cmd := exec.Command("go", "list", "-e", "-deps", "-test", "-json=ImportPath,Standard,Imports,TestImports,XTestImports,Module,Error", "./...")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, &stderr)
	}
	g := graph{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(pkg)
		if err := decoder.Decode(p); errors.Is(err, io.EOF) {
			return g, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		// What a test binary is put together from has names like "p.test" and
		// "p [p.test]"; the packages themselves are listed beside it.
		if !strings.Contains(p.ImportPath, " ") && !strings.HasSuffix(p.ImportPath, ".test") {
			g[p.ImportPath] = p
		}
	}
}

// our returns the import paths of the module's own packages, sorted.
func (g graph) our() []string {
	var paths []string
	for path, p := range g {
		if p.ours() {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// chain returns how path comes to import, through packages of the module only,
// one that is forbidden: the packages on the way, the forbidden one last. It
// returns nil where it does not. Test files are not looked at.
func (g graph) chain(path string, forbidden func(string) bool) []string {
	seen := map[string]bool{}
	var walk func(string) []string
	walk = func(path string) []string {
		if seen[path] {
			return nil
		}
		seen[path] = true
		for _, next := range g[path].Imports {
			if forbidden(next) {
				return []string{path, next}
			}
			if p := g[next]; p != nil && p.ours() {
				if rest := walk(next); rest != nil {
					return append([]string{path}, rest...)
				}
			}
		}
		return nil
	}
	return walk(path)
}
