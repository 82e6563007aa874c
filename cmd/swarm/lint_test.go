package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// runLint calls the command as main does.
func runLint(ctx context.Context, stdin string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	root := newRootCmd()
	root.SetArgs(append([]string{"lint"}, args...))
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&errs)
	code = run(ctx, root)
	return code, out.String(), errs.String()
}

func TestLintGolden(t *testing.T) {
	t.Parallel()
	const examples = "../../examples/"
	tests := []struct {
		golden string
		args   []string
		code   int
	}{
		{"faults.txt", []string{examples + "users-with-faults.csv"}, exitFault},
		{"faults.jsonl", []string{"--json", examples + "users-with-faults.csv"}, exitFault},
		{"max-faults.txt", []string{"--max-faults", "2", examples + "users-with-faults.csv"}, exitFault},
		{"users-csv.txt", []string{examples + "users.csv"}, 0},
		{"users-jsonl.txt", []string{examples + "users.jsonl"}, 0},
		{"help.txt", []string{"--help"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.golden, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := runLint(t.Context(), "", tt.args...)
			if code != tt.code || stderr != "" {
				t.Errorf("exit code %d, want %d; stderr %q", code, tt.code, stderr)
			}
			golden(t, "lint/"+tt.golden, stdout)
		})
	}
}

func TestLint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing.csv")
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	tests := []struct {
		name           string
		ctx            context.Context
		stdin          string
		args           []string
		code           int
		stdout, stderr string // parts of it
	}{
		{name: "standard input", stdin: "user_id\n1\n", args: []string{"-"}, stdout: "stdin: 1 record good, 0 rows rejected, 0 faults, 0 warnings"},
		{name: "fault", stdin: "user_id\n1\n1\n", args: []string{"-"}, code: exitFault, stdout: "stdin:3: row 2: user_id: user_id is the same as in row 1"},
		{name: "format by option", stdin: "user_id\n1\n", args: []string{"--format", "jsonl", "-"}, code: exitFault, stdout: "(json_not_object)"},
		{name: "nothing can be read", stdin: "a,a\n1,2\n", args: []string{"-"}, code: exitFault, stdout: "stdin:1: user_id: the header has no column user_id"},
		{name: "cut gzip", stdin: "\x1f\x8b\x08\x00", args: []string{"-"}, code: exitFault, stdout: "(read_failed)"},
		{name: "all faults", stdin: "user_id\n" + strings.Repeat(" 1\n", 1500), args: []string{"--max-faults", "0", "-"}, code: exitFault, stdout: "stdin:1501: row 1500: "},
		{name: "no more than asked for", stdin: "user_id\n" + strings.Repeat(" 1\n", 1500), args: []string{"-"}, code: exitFault, stdout: "stdin: 500 faults more not listed"},
		{name: "odd field name", stdin: `{"user_id":"1","x y":"\u0000"}`, args: []string{"-"}, code: exitFault, stdout: `"x y": NUL`},
		{name: "no file", args: nil, code: exitUsage, stderr: "lint takes one FILE, got 0"},
		{name: "two files", args: []string{"a", "b"}, code: exitUsage, stderr: "got 2"},
		{name: "missing file", args: []string{missing}, code: exitUsage, stderr: missing},
		{name: "directory", args: []string{dir}, code: exitUsage, stderr: "is a directory"},
		{name: "unknown flag", args: []string{"--nope", "-"}, code: exitUsage, stderr: "--nope"},
		{name: "unknown format", args: []string{"--format", "xml", "-"}, code: exitUsage, stderr: "use auto, csv or jsonl"},
		{name: "negative limit", args: []string{"--max-faults", "-1", "-"}, code: exitUsage, stderr: "--max-faults is -1"},
		{name: "interrupted", ctx: cancelled, stdin: "user_id\n1\n", args: []string{"-"}, code: exitInterrupted, stderr: "interrupted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx := tt.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			code, stdout, stderr := runLint(ctx, tt.stdin, tt.args...)
			if code != tt.code || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("exit code %d, want %d\nstdout %q, want %q\nstderr %q, want %q", code, tt.code, stdout, tt.stdout, stderr, tt.stderr)
			}
		})
	}
}

func TestLintJSONIsLines(t *testing.T) {
	t.Parallel()
	_, stdout, _ := runLint(t.Context(), "user_id\n1\n 2\n\"a\n", "--json", "-")
	var types []string
	for line := range strings.Lines(stdout) {
		var finding struct{ Type string }
		if err := json.Unmarshal([]byte(line), &finding); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		types = append(types, finding.Type)
	}
	if diff := cmp.Diff([]string{"fault", "fault", "summary"}, types); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A full disk or a closed pipe behind lint must not look like a clean file.
func TestLintWriteError(t *testing.T) {
	t.Parallel()
	root := newRootCmd()
	root.SetArgs([]string{"lint", "-"})
	root.SetIn(strings.NewReader("user_id\n1\n"))
	root.SetOut(closedPipe{})
	root.SetErr(io.Discard)
	if code := run(t.Context(), root); code == 0 {
		t.Error("exit code 0 though nothing could be written")
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, os.ErrClosed }

const lintChildEnv = "SWARM_TEST_LINT_CHILD"

// TestLintChild is the process whose memory TestLintMemory measures.
func TestLintChild(t *testing.T) {
	if os.Getenv(lintChildEnv) == "" {
		t.Skip("only as a child of TestLintMemory")
	}
	root := newRootCmd()
	root.SetArgs([]string{"lint", "-"})
	code := run(t.Context(), root)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			fmt.Printf("code=%d peakKiB=%s\n", code, strings.Fields(kib)[0])
		}
	}
}

// TestLintMemory lints 1,000,000 rows in a process of its own and holds its
// peak resident memory against the limit that the help text states.
func TestLintMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	if raceEnabled {
		t.Skip("the race detector's own memory counts too")
	}
	if runtime.GOOS != "linux" {
		t.Skip("reads the peak from /proc")
	}
	const rows, limitKiB = 1_000_000, 100_000_000 >> 10
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestLintChild$", "-test.v")
	child.Env = append(os.Environ(), lintChildEnv+"=1")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	child.Stdout, child.Stderr = &out, &out
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(in, 1<<20)
	fmt.Fprintln(w, "user_id,email,name,locale,city,weather,calendar,tasks")
	for i := range rows {
		fmt.Fprintf(w, "user-%07d,user%d@example.com,Ana Maria %d,de-CH,Lisbon,\"sunny, 24 degrees\","+
			"09:30 design review with the team; 14:00 dentist,renew the passport; call the bank about the card\n", i, i, i)
	}
	if err := w.Flush(); err != nil {
		t.Errorf("write rows: %v\n%s", err, &out)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if err := child.Wait(); err != nil {
		t.Fatalf("child: %v\n%s", err, &out)
	}
	if !strings.Contains(out.String(), "1000000 records good, 0 rows rejected") {
		t.Fatalf("child said\n%s", &out)
	}
	_, after, ok := strings.Cut(out.String(), "code=0 peakKiB=")
	if !ok {
		t.Fatalf("child said\n%s", &out)
	}
	kib, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(after, "\n", 2)[0]))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("peak %d MiB", kib>>10)
	if kib >= limitKiB {
		t.Errorf("peak resident memory is %d KiB, the limit is %d KiB", kib, limitKiB)
	}
}
