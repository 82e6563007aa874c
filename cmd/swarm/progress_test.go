package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/briefing-swarm/briefing-swarm/runtime/local"
)

// TestHelp keeps what the verbs say about themselves. Those left out here have
// golden files of their own.
func TestHelp(t *testing.T) {
	t.Setenv(modelEnv, "")
	var visit func(cmd *cobra.Command, path []string)
	visit = func(cmd *cobra.Command, path []string) {
		code, stdout, stderr := swarm(t, append(path, "--help")...)
		if code != 0 || stderr != "" {
			t.Errorf("%v --help: exit code %d, %s", path, code, stderr)
		}
		golden(t, "help/"+strings.Join(append([]string{"swarm"}, path...), "-")+".txt", stdout)
		for _, sub := range cmd.Commands() {
			switch sub.Name() {
			case "lint", "model", "plan", "prices", "help", "completion":
			default:
				visit(sub, append(path[:len(path):len(path)], sub.Name()))
			}
		}
	}
	visit(newRootCmd(), nil)
}

func TestPlainProgress(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 7, 50, 0, 0, time.UTC)
	var out bytes.Buffer
	p := &plainProgress{w: &out, now: func() time.Time { return now }}
	show := func(after time.Duration, progress local.Progress) {
		now = now.Add(after)
		p.show(progress)
	}
	show(0, local.Progress{Stage: local.StageNormalise})
	show(time.Second, local.Progress{Stage: local.StageNormalise, Done: 10_000})
	show(5*time.Second, local.Progress{Stage: local.StageNormalise, Done: 60_000})
	show(time.Second, local.Progress{Stage: local.StageLoad})
	show(2*time.Second, local.Progress{Stage: local.StageGenerate})
	show(time.Second, local.Progress{Stage: local.StageGenerate, Total: 1000})
	for i := int64(1); i <= 12; i++ { // one every second, but a line only every five
		show(time.Second, local.Progress{Stage: local.StageGenerate, Total: 1000, Done: 3 * i, Failed: i / 6})
	}
	show(10*time.Minute, local.Progress{Stage: local.StageGenerate, Total: 1000, Done: 1000, Failed: 4})
	show(0, local.Progress{Stage: local.StageDeliver})
	show(0, local.Progress{Stage: local.StageDeliver, Total: 1000, Done: 1})
	show(time.Second, local.Progress{Stage: local.StageDeliver, Total: 1000, Done: 1000})
	show(0, local.Progress{Stage: local.StageReconcile})
	p.done()
	golden(t, "progress/plain.txt", out.String())
}

// ptyProgram runs its arguments on a terminal of 100 columns.
const ptyProgram = `
import os, pty, sys, termios, fcntl, struct
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    os.execvp(sys.argv[1], sys.argv[1:])
while True:
    try:
        data = os.read(fd, 4096)
    except OSError:
        break
    if not data:
        break
    os.write(1, data)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
`

// TestProgressBar runs the program on a real terminal.
func TestProgressBar(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("%v: python3 makes the terminal (and the setup needs it as well)", err)
	}
	build(t)
	cmd := program(t)
	// The progress goes to the terminal, the results into a file.
	cmd.Path, cmd.Args = python, []string{python, "-c", ptyProgram, "sh", "-c", `exec "$0" "$@" >results.txt`,
		shared.program, "run", "--input", example("users.csv"), "--out", "out", "--model", shared.tinyModel, "--threads", "1", "--max-tokens", "12"}
	code, shown, stderr := runProgram(t, cmd)
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d, %s\n%s", code, stderr, shown)
	}
	for _, want := range []string{"normalise", "generate", "48 / 48", "/s", "done", "deliver", "\x1b["} {
		if !strings.Contains(shown, want) {
			t.Errorf("the terminal lacks %q:\n%q", want, shown)
		}
	}
	if strings.Contains(shown, "swarm: generate") {
		t.Errorf("the terminal shows plain lines:\n%q", shown)
	}
	results, err := os.ReadFile(filepath.Join(cmd.Dir, "results.txt"))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "run/summary.txt", stable(string(results)))
	if bytes.ContainsAny(results, "\r\x1b") {
		t.Errorf("the results hold terminal codes: %q", results)
	}
}
