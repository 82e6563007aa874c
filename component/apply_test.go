package component

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// TestNoResourceInApply: what is created in an Apply is missing from previews,
// and may be shown as deleted.
func TestNoResourceInApply(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	applies, parsed := 0, token.NewFileSet()
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(parsed, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		n, found := inApply(file)
		applies += n
		for _, node := range found {
			t.Errorf("%s creates something in an Apply", parsed.Position(node.Pos()))
		}
	}
	if applies < 3 {
		t.Errorf("only %d Applies were looked at", applies)
	}
}

// inApply counts the Applies of a file and finds the calls in them that could
// create a resource: New… of any package, and anything that is given a context.
func inApply(file *ast.File) (applies int, found []ast.Node) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || !strings.HasPrefix(called(call), "Apply") {
			return true
		}
		applies++
		for _, arg := range call.Args {
			ast.Inspect(arg, func(n ast.Node) bool {
				if inner, ok := n.(*ast.CallExpr); ok && creates(inner) {
					found = append(found, inner)
				}
				return true
			})
		}
		return true
	})
	return applies, found
}

func called(call *ast.CallExpr) string {
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
		return sel.Sel.Name
	}
	return ""
}

func creates(call *ast.CallExpr) bool {
	if name := called(call); strings.HasPrefix(name, "New") || strings.HasPrefix(name, "Register") {
		return true
	}
	for _, arg := range call.Args {
		switch arg := arg.(type) {
		case *ast.Ident:
			if arg.Name == "ctx" {
				return true
			}
		case *ast.SelectorExpr:
			if arg.Sel.Name == "ctx" {
				return true
			}
		}
	}
	return false
}

// The test above must be able to find something.
func TestInApply(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int{
		`x.ApplyT(func(v string) string { return v })`:                                0,
		`x.ApplyT(func(v string) error { _, err := s3.NewBucket(c, v); return err })`: 1,
		`pulumi.All(x).ApplyT(func(v []any) error { return s.bucket(s.ctx, v) })`:     1,
		`s3.NewBucket(ctx, "x")`: 0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nfunc f() { "+body+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, found := inApply(file); len(found) != want {
			t.Errorf("%s: %d found, want %d", body, len(found), want)
		}
	}
}
