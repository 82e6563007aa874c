package image

import (
	"embed"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"

	source "github.com/briefing-swarm/briefing-swarm/runtime"
)

// modulePath is ours; the program is compiled from the package below it.
const (
	modulePath  = "github.com/briefing-swarm/briefing-swarm"
	programPath = modulePath + "/runtime/cmd/bootstrap"
)

// module holds copies of the files at the module's root that the build needs,
// which lie out of reach of an embed directive: go.mod and go.sum with nothing
// but the program's own dependencies, so that others can change without a new
// image, and npm's two. A test holds them against the originals; run it with
// -update after a change of dependencies.
//
//go:embed module/go.mod.txt module/go.sum.txt module/package.json module/package-lock.json
var module embed.FS

// sources returns everything the build needs but the model: the Dockerfile and
// the program's packages, without tests.
func sources() (fileSet, error) {
	files := fileSet{}
	for from, to := range map[string]string{
		"module/go.mod.txt": "go.mod", "module/go.sum.txt": "go.sum",
		"module/package.json": "package.json", "module/package-lock.json": "package-lock.json",
	} {
		content, err := module.ReadFile(from)
		if err != nil {
			return nil, err
		}
		files.add(to, content, 0o644)
	}
	dockerfile, err := source.Files.ReadFile("Dockerfile")
	if err != nil {
		return nil, err
	}
	files.add("Dockerfile", dockerfile, 0o644)
	if err := addPackage(files, source.Files, programPath, map[string]bool{}); err != nil {
		return nil, fmt.Errorf("collect the sources of the image: %w", err)
	}
	return files, nil
}

// addPackage adds the package and those of ours that it imports. tree is the
// folder runtime/.
func addPackage(files fileSet, tree fs.FS, importPath string, done map[string]bool) error {
	if done[importPath] {
		return nil
	}
	done[importPath] = true
	dir, ok := strings.CutPrefix(importPath, modulePath+"/runtime/")
	if !ok {
		return fmt.Errorf("package %s is imported by what runs inside Lambda, but lies outside of runtime/: move it there", importPath)
	}
	goFiles := 0
	err := addFolder(files, tree, dir, func(name string, content []byte) error {
		if path.Ext(name) != ".go" || path.Dir(name) != dir {
			return nil
		}
		goFiles++
		parsed, err := parser.ParseFile(token.NewFileSet(), name, content, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if imported == modulePath || strings.HasPrefix(imported, modulePath+"/") {
				if err := addPackage(files, tree, imported, done); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil && goFiles == 0 {
		err = fmt.Errorf("package %s has no Go files", importPath)
	}
	return err
}

// addFolder adds the files of a package's folder, and of folders in it that are
// no packages: they hold what the package embeds.
func addFolder(files fileSet, tree fs.FS, dir string, each func(name string, content []byte) error) error {
	entries, err := fs.ReadDir(tree, dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		if entry.IsDir() {
			if entry.Name() == "testdata" || isPackage(tree, name) {
				continue
			}
			if err := addFolder(files, tree, name, each); err != nil {
				return err
			}
			continue
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		files.add("runtime/"+name, content, 0o644)
		if err := each(name, content); err != nil {
			return err
		}
	}
	return nil
}

func isPackage(tree fs.FS, dir string) bool {
	found := false
	_ = fs.WalkDir(tree, dir, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && path.Ext(name) == ".go" {
			found = true
			return fs.SkipAll
		}
		return err
	})
	return found
}
