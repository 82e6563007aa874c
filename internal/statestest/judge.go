package statestest

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed judge.js
var judgeScript string

// Judge returns what the static judges find wrong with each document, one line
// for each fault.
func Judge(t testing.TB, documents ...string) [][]string {
	t.Helper()
	tools := toolsDir(t)
	text, err := json.Marshal(documents)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "documents.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "node", "-e", judgeScript, "judge.js", file)
	cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(tools, "node_modules"))
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("judge: %v\n%s", err, &stderr)
	}
	var faults [][]string
	if err := json.Unmarshal(out, &faults); err != nil || len(faults) != len(documents) {
		t.Fatalf("judge: %d answers for %d documents, error %v", len(faults), len(documents), err)
	}
	return faults
}
