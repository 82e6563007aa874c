package inputdoc_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/internal/inputdoc"
)

const source = "package x\n\n" +
	"type Args struct {\n" +
	"\t// MemoryMib is the memory of a worker. It must hold the model, see Model and\n\t// ModelStore.\n" +
	"\tMemoryMib int `pulumi:\"memoryMib\"`\n" +
	"\t// Model is its name. Model may be empty.\n" +
	"\tModel string `pulumi:\"model\"`\n" +
	"\t// ModelStore and ImageUri say where it is.\n" +
	"\tModelStore string `pulumi:\"modelStore\"`\n" +
	"\tImageUri pulumi.StringPtrInput `pulumi:\"imageUri\"`\n" +
	"\t// Stop ends texts.\n" +
	"\tStop []string `pulumi:\"stop\"`\n" +
	"\t// Tags are AWS's.\n" +
	"\tTags map[string]string `pulumi:\"tags\"`\n" +
	"\thidden int\n" +
	"}\n"

func TestRead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.go")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := inputdoc.Read(file, "Args")
	if err != nil {
		t.Fatal(err)
	}
	want := []inputdoc.Field{
		{Key: "memoryMib", Name: "MemoryMib", Type: "int", Text: "The memory of a worker. It must hold the model, see model and modelStore."},
		{Key: "model", Name: "Model", Type: "string", Text: "Its name. Model may be empty."},
		{Key: "modelStore", Name: "ModelStore", Type: "string", Text: "modelStore and imageUri say where it is."},
		{Key: "imageUri", Name: "ImageUri", Type: "pulumi.StringPtrInput", Text: "modelStore and imageUri say where it is."},
		{Key: "stop", Name: "Stop", Type: "[]string", Text: "Ends texts."},
		{Key: "tags", Name: "Tags", Type: "map[string]string", Text: "AWS's."},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := inputdoc.Read(file, "Missing"); err == nil {
		t.Error("a struct that is not there was found")
	}
	if _, err := inputdoc.Read("missing.go", "Args"); err == nil {
		t.Error("a file that is not there was read")
	}
}
