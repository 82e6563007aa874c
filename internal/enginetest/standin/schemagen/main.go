// Command schemagen writes the properties that the stand-in providers accept:
// it reads them from the source of the Pulumi SDKs that go.mod pins, without
// compiling those, for the types that types.txt lists. Run it by go generate.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// sdks are the Go packages below which a provider's resources lie.
var sdks = map[string]struct{ module, folder string }{
	"aws":    {"github.com/pulumi/pulumi-aws/sdk/v6", "go/aws"},
	"docker": {"github.com/pulumi/pulumi-docker/sdk/v4", "go/docker"},
}

// schema is what is written; package main of the stand-in reads it.
type schema struct {
	Resources map[string]*resource         `json:"resources"`
	Objects   map[string]map[string]string `json:"objects"`
}

type resource struct {
	Inputs   map[string]string `json:"inputs"`
	Required []string          `json:"required,omitempty"`
	Outputs  map[string]string `json:"outputs"`
}

func main() {
	types := flag.String("types", "types.txt", "the types, one a line")
	out := flag.String("o", "schema.json", "the file to write")
	flag.Parse()
	if err := run(*types, *out); err != nil {
		fmt.Fprintln(os.Stderr, "schemagen:", err)
		os.Exit(1)
	}
}

func run(types, out string) error {
	list, err := os.ReadFile(types)
	if err != nil {
		return err
	}
	s := schema{Resources: map[string]*resource{}, Objects: map[string]map[string]string{}}
	sources := map[string]*source{}
	for _, typ := range strings.Fields(string(list)) {
		pkg, rest, _ := strings.Cut(typ, ":")
		folder, _, _ := strings.Cut(rest, "/")
		if folder == "index" {
			folder = ""
		}
		key := pkg + "/" + folder
		if sources[key] == nil {
			src, err := load(pkg, folder)
			if err != nil {
				return fmt.Errorf("%s: %w", typ, err)
			}
			sources[key] = src
		}
		if err := sources[key].add(&s, typ); err != nil {
			return fmt.Errorf("%s: %w", typ, err)
		}
	}
	var doc bytes.Buffer
	encoder := json.NewEncoder(&doc)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(s); err != nil {
		return err
	}
	return os.WriteFile(out, doc.Bytes(), 0o644)
}

// source is one package of an SDK.
type source struct {
	prefix  string // before the names of its object types
	structs map[string]*ast.StructType
	named   map[string]ast.Expr // other named types
	// required are the arguments that New<Resource> asks for, by resource.
	required map[string][]string
}

var requiredArgument = regexp.MustCompile(`invalid value for required argument '(\w+)'`)

func load(pkg, folder string) (*source, error) {
	sdk, ok := sdks[pkg]
	if !ok {
		return nil, fmt.Errorf("no SDK for package %q", pkg)
	}
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", sdk.module).Output()
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", sdk.module, err)
	}
	root := filepath.Join(strings.TrimSpace(string(dir)), sdk.folder, folder)
	files, err := filepath.Glob(filepath.Join(root, "*.go"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no Go files in %s", sdk.folder+"/"+folder)
	}
	src := &source{
		prefix:   pkg + "/" + cmp.Or(folder, "index") + ".",
		structs:  map[string]*ast.StructType{},
		named:    map[string]ast.Expr{},
		required: map[string][]string{},
	}
	set := token.NewFileSet()
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok {
						if structType, ok := spec.Type.(*ast.StructType); ok {
							src.structs[spec.Name.Name] = structType
						} else {
							src.named[spec.Name.Name] = spec.Type
						}
					}
				}
			case *ast.FuncDecl:
				if resource, ok := strings.CutPrefix(decl.Name.Name, "New"); ok && decl.Body != nil {
					body := text[set.Position(decl.Body.Pos()).Offset:set.Position(decl.Body.End()).Offset]
					for _, match := range requiredArgument.FindAllSubmatch(body, -1) {
						src.required[resource] = append(src.required[resource], string(match[1]))
					}
				}
			}
		}
	}
	return src, nil
}

// add describes one resource and the objects that its inputs use.
func (src *source) add(s *schema, typ string) error {
	name := typ[strings.LastIndex(typ, ":")+1:]
	// The plain arguments are the unexported twin of <name>Args; how much of an
	// abbreviation is in lower case differs.
	var args *ast.StructType
	for candidate, structType := range src.structs {
		if strings.EqualFold(candidate, name+"Args") && unicode.IsLower(rune(candidate[0])) {
			args = structType
		}
	}
	if args == nil {
		return fmt.Errorf("no arguments in the SDK")
	}
	r := &resource{Inputs: map[string]string{}, Outputs: map[string]string{}}
	tags := map[string]string{}
	for field, tag := range fields(args) {
		r.Inputs[tag] = src.typeName(s, field.Type)
		tags[field.Names[0].Name] = tag
	}
	for _, field := range src.required[name] {
		tag, ok := tags[field]
		if !ok {
			return fmt.Errorf("required argument %s is no field", field)
		}
		r.Required = append(r.Required, tag)
	}
	slices.Sort(r.Required)
	state, ok := src.structs[name]
	if !ok {
		return fmt.Errorf("no resource in the SDK")
	}
	for field, tag := range fields(state) {
		if _, isInput := r.Inputs[tag]; !isInput {
			r.Outputs[tag] = outputName(field.Type)
		}
	}
	s.Resources[typ] = r
	return nil
}

// fields are the fields of a struct that have a pulumi tag, with that.
func fields(structType *ast.StructType) map[*ast.Field]string {
	tagged := map[*ast.Field]string{}
	for _, field := range structType.Fields.List {
		if field.Tag == nil || len(field.Names) != 1 {
			continue
		}
		if tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("pulumi"); tag != "" {
			tagged[field] = tag
		}
	}
	return tagged
}

// typeName names the type of an input: string, int, number, bool, any, asset,
// [T], {T} or @object.
func (src *source) typeName(s *schema, expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.StarExpr:
		return src.typeName(s, expr.X)
	case *ast.ArrayType:
		return "[" + src.typeName(s, expr.Elt) + "]"
	case *ast.MapType:
		return "{" + src.typeName(s, expr.Value) + "}"
	case *ast.InterfaceType:
		return "any"
	case *ast.SelectorExpr: // pulumi.Archive, pulumi.AssetOrArchive
		return "asset"
	case *ast.Ident:
		switch expr.Name {
		case "string", "int", "bool":
			return expr.Name
		case "float64":
			return "number"
		case "any":
			return "any"
		}
		if structType, ok := src.structs[expr.Name]; ok {
			object := src.prefix + expr.Name
			if s.Objects[object] == nil {
				s.Objects[object] = map[string]string{}
				for field, tag := range fields(structType) {
					s.Objects[object][tag] = src.typeName(s, field.Type)
				}
			}
			return "@" + object
		}
		if named, ok := src.named[expr.Name]; ok { // enums
			return src.typeName(s, named)
		}
	}
	return "any"
}

// outputName names the type of an output that is no input, as far as a stand-in
// must know it: the Pulumi output type.
func outputName(expr ast.Expr) string {
	name := ""
	switch expr := expr.(type) {
	case *ast.SelectorExpr:
		name = expr.Sel.Name
	case *ast.Ident:
		name = expr.Name
	}
	name = strings.TrimSuffix(name, "Output")
	name = strings.TrimSuffix(name, "Ptr")
	kinds := map[string]string{"String": "string", "Int": "int", "Bool": "bool", "Float64": "number",
		"StringArray": "[string]", "StringMap": "{string}"}
	for _, suffix := range slices.Sorted(maps.Keys(kinds)) {
		if name == suffix {
			return kinds[suffix]
		}
	}
	if strings.HasSuffix(name, "Array") {
		return "[any]"
	}
	return "any"
}
