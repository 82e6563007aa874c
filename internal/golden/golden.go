// Package golden compares what a test has got with a file in testdata.
// `go test PACKAGE -update` rewrites the files.
package golden

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite golden files")

// JSON compares v, as indented JSON, with the file of that name in testdata.
func JSON(t testing.TB, name string, v any) {
	t.Helper()
	var got strings.Builder
	e := json.NewEncoder(&got)
	e.SetEscapeHTML(false) // for whoever reads it
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	Text(t, name, got.String())
}

// Text compares a text with the file of that name in testdata.
func Text(t testing.TB, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: go test -update writes it", err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (-want +got), go test -update rewrites it:\n%s", path, d)
	}
}
