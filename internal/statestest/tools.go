// Package statestest judges and runs state machines in tests, by programs that
// nobody here wrote: the language service that AWS's own editor uses and
// asl-validator read the documents, and LocalStack's interpreter runs them
// against the moto server, with the functions being the test's. What that shows,
// and what not, stands in docs/testing.md.
package statestest

import (
	"os"
	"path/filepath"
	"testing"
)

// toolsDir returns what scripts/states.sh has made, and skips the test where it
// has not been run.
func toolsDir(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		tools := filepath.Join(dir, ".cache", "states")
		if _, err := os.Stat(filepath.Join(tools, "VERSION")); err == nil {
			return tools
		}
		if dir == filepath.Dir(dir) {
			t.Skip("the judges of the state machines are not there: run scripts/states.sh")
		}
		dir = filepath.Dir(dir)
	}
}
