// Package inputdoc reads the documentation of the component's inputs and outputs
// out of its source, in the words of whoever sets them in YAML: Pulumi.yaml and
// docs/inputs.md say the same as the Go doc, since they are made from it.
package inputdoc

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Field is one input or output.
type Field struct {
	// Key is its name for Pulumi, Name its name in Go.
	Key, Name string
	// Type is its Go type as the source has it, for example pulumi.StringPtrInput.
	Type string
	// Text is its doc comment on one line, with the keys of other fields in the
	// place of their Go names.
	Text string
}

// Read returns the fields of a struct in a file, in their order. Fields without
// a comment of their own share the one above.
func Read(file, structName string) ([]Field, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("read the documentation of %s: %w", structName, err)
	}
	var fields []Field
	comment := ""
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != structName {
			return true
		}
		body, ok := spec.Type.(*ast.StructType)
		if !ok {
			return false
		}
		for _, f := range body.Fields.List {
			if f.Tag == nil || len(f.Names) != 1 {
				continue
			}
			if f.Doc != nil {
				comment = strings.Join(strings.Fields(f.Doc.Text()), " ")
			}
			key := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("pulumi")
			fields = append(fields, Field{Key: key, Name: f.Names[0].Name, Type: typeText(f.Type), Text: comment})
		}
		return false
	})
	if len(fields) == 0 {
		return nil, fmt.Errorf("%s has no struct %s with documented fields", file, structName)
	}
	keys := map[string]string{}
	for _, f := range fields {
		keys[f.Name] = f.Key
	}
	for i, f := range fields {
		fields[i].Text = sentence(f, keys)
	}
	return fields, nil
}

func typeText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return typeText(e.X) + "." + e.Sel.Name
	case *ast.ArrayType:
		return "[]" + typeText(e.Elt)
	case *ast.MapType:
		return "map[" + typeText(e.Key) + "]" + typeText(e.Value)
	}
	return fmt.Sprintf("%T", e)
}

// word is what could be a field's name.
var word = regexp.MustCompile(`\b[A-Z][A-Za-z0-9]*\b`)

// sentence drops the name that a Go comment begins with, and writes other names
// as keys. Names that are plain English words are written so only where they are
// no beginning of a sentence.
func sentence(f Field, keys map[string]string) string {
	text := f.Text
	for _, lead := range []string{f.Name + " is ", f.Name + " are ", f.Name + " "} {
		if rest, ok := strings.CutPrefix(text, lead); ok && !strings.HasPrefix(rest, "and ") {
			text = rest
			break
		}
	}
	var b strings.Builder
	last := 0
	for _, at := range word.FindAllStringIndex(text, -1) {
		name := text[at[0]:at[1]]
		key, ok := keys[name]
		begins := at[0] == 0 || strings.HasSuffix(text[:at[0]], ". ")
		if !ok || begins && !camel(name) {
			continue
		}
		b.WriteString(text[last:at[0]] + key)
		last = at[1]
	}
	text = b.String() + text[last:]
	first, size := utf8.DecodeRuneInString(text)
	if startsWithKey(text, keys) {
		return text
	}
	return string(unicode.ToUpper(first)) + text[size:]
}

// camel says that a name can't be an English word.
func camel(name string) bool {
	return strings.IndexFunc(name[1:], unicode.IsUpper) >= 0
}

func startsWithKey(text string, keys map[string]string) bool {
	start, _, _ := strings.Cut(text, " ")
	start = strings.TrimRight(start, ",;:")
	for name, key := range keys {
		if start == key && camel(name) {
			return true
		}
	}
	return false
}
