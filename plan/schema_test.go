package plan

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const schemaPath = "../docs/schema/plan.schema.json"

// TestSchema writes the JSON Schema out of the types and their comments, and
// holds the file in docs to it: a field that is added or re-worded cannot be
// forgotten there.
func TestSchema(t *testing.T) {
	g := schemaOf(t)
	root := g.object(reflect.TypeFor[Plan]())
	doc := map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": Schema, "title": "A plan of briefing-swarm",
		"description": g.comments["Plan"], "$defs": g.defs,
	}
	for k, v := range root {
		doc[k] = v
	}
	got, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(schemaPath, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(schemaPath)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got), go test -update rewrites it:\n%s", schemaPath, diff)
	}
}

// TestSchemaHolds lets a validator nobody here wrote judge the golden plans,
// and a plan with a field too many and one of the wrong type.
func TestSchemaHolds(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile(schemaPath)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden plans: %v", err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(doc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		m := doc.(map[string]any)
		m["surprise"] = true
		if schema.Validate(m) == nil {
			t.Errorf("%s: a field too many is not noticed", name)
		}
		delete(m, "surprise")
		m["cost"] = "cheap"
		if schema.Validate(m) == nil {
			t.Errorf("%s: a cost that is text is not noticed", name)
		}
	}
}

type schemaGen struct {
	t        *testing.T
	comments map[string]string // "Type" and "Type.Field"
	defs     map[string]any
}

func schemaOf(t *testing.T) *schemaGen {
	t.Helper()
	g := &schemaGen{t: t, comments: map[string]string{}, defs: map[string]any{}}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.TYPE {
				continue
			}
			for _, spec := range d.Specs {
				ts := spec.(*ast.TypeSpec)
				st, ok := ts.Type.(*ast.StructType)
				if !ok {
					continue
				}
				g.comments[ts.Name.Name] = flat(d.Doc.Text())
				for _, f := range st.Fields.List {
					text := f.Doc.Text()
					if text == "" {
						text = f.Comment.Text()
					}
					for _, n := range f.Names {
						g.comments[ts.Name.Name+"."+n.Name] = flat(text)
					}
				}
			}
		}
	}
	return g
}

func flat(s string) string { return strings.Join(strings.Fields(s), " ") }

func (g *schemaGen) object(typ reflect.Type) map[string]any {
	properties := map[string]any{}
	required := []string{}
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			g.t.Errorf("%s.%s has no JSON name", typ.Name(), f.Name)
		}
		s := g.value(f.Type)
		if c := g.comments[typ.Name()+"."+f.Name]; c != "" {
			s["description"] = c
		}
		properties[name] = s
		if !strings.Contains(options, "omitempty") {
			required = append(required, name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

func (g *schemaGen) value(typ reflect.Type) map[string]any {
	switch typ.Kind() {
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": []string{"array", "null"}, "items": g.value(typ.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": g.value(typ.Elem())}
	case reflect.Pointer:
		return map[string]any{"anyOf": []any{g.value(typ.Elem()), map[string]any{"type": "null"}}}
	case reflect.Struct:
		if typ == reflect.TypeFor[time.Time]() {
			return map[string]any{"type": "string", "format": "date-time"}
		}
		if typ.Name() == "" {
			return g.object(typ)
		}
		if _, ok := g.defs[typ.Name()]; !ok {
			g.defs[typ.Name()] = nil // it may hold itself
			o := g.object(typ)
			o["description"] = g.comments[typ.Name()]
			g.defs[typ.Name()] = o
		}
		return map[string]any{"$ref": "#/$defs/" + typ.Name()}
	}
	g.t.Fatalf("no schema for %s", typ)
	return nil
}
