package component_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/internal/inputdoc"
)

// typeNames are the types of inputs and outputs as Pulumi has them.
var typeNames = map[string]string{
	"string": "string", "bool": "boolean", "int": "integer", "float64": "number", "[]string": "list of strings",
	"map[string]string": "map of strings", "map[string]float64": "map of numbers", "pulumi.StringPtrInput": "string",
	"pulumi.StringOutput": "string", "pulumi.StringPtrOutput": "string or null", "pulumi.Float64Output": "number", "pulumi.Float64PtrOutput": "number or null",
	"pulumi.IntOutput": "integer", "pulumi.Float64MapOutput": "map of numbers", "pulumi.StringArrayOutput": "list of strings",
}

// TestReference holds docs/inputs.md against the source.
func TestReference(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Inputs and outputs

Made from component/args.go and component/outputs.go by ` + "`go test ./component -run Reference -update`" + `. Inputs marked with * may
come from other resources; the others decide what is created, or what it costs, and must be known in a preview.

## Inputs

| input | type | |
|---|---|---|
`)
	table := func(file, structName string) {
		fields, err := inputdoc.Read(file, structName)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fields {
			name, ok := typeNames[f.Type]
			if !ok {
				t.Errorf("%s has the type %s, for which there is no word", f.Key, f.Type)
			}
			mark := ""
			if f.Type == "pulumi.StringPtrInput" {
				mark = "*"
			}
			fmt.Fprintf(&b, "| `%s`%s | %s | %s |\n", f.Key, mark, name, strings.ReplaceAll(strings.ReplaceAll(f.Text, "<", "&lt;"), "|", "\\|"))
		}
	}
	table("args.go", "Args")
	b.WriteString("\n## Outputs\n\nOutputs of what was not asked for are null. The estimate is known in a preview.\n\n| output | type | |\n|---|---|---|\n")
	table("outputs.go", "BriefingSwarm")
	path := filepath.Join("..", "docs", "inputs.md")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(kept), b.String()); diff != "" {
		t.Errorf("docs/inputs.md says something else than the source; run this test with -update (-kept +source):\n%s", diff)
	}
}
