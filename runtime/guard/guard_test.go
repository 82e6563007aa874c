package guard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// actEnv makes the test program play the guarded one.
const actEnv = "GUARD_TEST_ACT"

func TestMain(m *testing.M) {
	switch os.Getenv(actEnv) {
	case "":
		os.Exit(m.Run())
	case "guarded exit":
		Main(func() int { fmt.Println("on stdout"); fmt.Fprintln(os.Stderr, "on stderr"); return 7 })
	case "guarded sleep":
		Main(func() int { fmt.Println(os.Getpid()); time.Sleep(time.Minute); return 0 })
	case "exit":
		fmt.Fprint(os.Stderr, "a line\nno end")
		os.Exit(3)
	case "illegal":
		fmt.Fprintln(os.Stderr, "before")
		illegalInstruction()
	case "panic":
		panic("a fault of our own")
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Minute)
	}
	os.Exit(0)
}

func actor(t *testing.T, act string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), actEnv+"="+act), env...)
	return cmd
}

func TestWatch(t *testing.T) {
	for _, tc := range []struct {
		act    string
		code   int
		err    error
		said   string // all of stderr, or
		within string // a part of it
	}{
		{act: "exit", code: 3, said: "a line\nno end"},
		{act: "illegal", code: 132, err: ErrIllegalInstruction, said: "before\n"},
		{act: "kill", code: 137, err: ErrKilled},
		{act: "panic", code: 2, within: "a fault of our own"},
	} {
		t.Run(tc.act, func(t *testing.T) {
			var stderr bytes.Buffer
			code, err := Watch(actor(t, tc.act), &stderr)
			if code != tc.code || !errors.Is(err, tc.err) {
				t.Errorf("code %d, error %v; want %d, %v", code, err, tc.code, tc.err)
			}
			if got := stderr.String(); tc.within == "" && got != tc.said || !strings.Contains(got, tc.within) {
				t.Errorf("stderr:\n%s", got)
			}
		})
	}
	if code, err := Watch(exec.Command("/nonexistent/program"), &bytes.Buffer{}); code != 1 || err == nil {
		t.Errorf("a program that is not there: code %d, error %v", code, err)
	}
}

func TestReadableLines(t *testing.T) {
	for _, err := range []error{ErrIllegalInstruction, ErrKilled} {
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("more than one line: %v", err)
		}
	}
}

func TestMainPassesOutputAndCode(t *testing.T) {
	for _, env := range []string{lambdaEnv + "=127.0.0.1:1", lambdaEnv + "="} {
		cmd := actor(t, "guarded exit", env)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 7 {
			t.Errorf("%s: %v, want exit code 7", env, err)
		}
		if stdout.String() != "on stdout\n" || stderr.String() != "on stderr\n" {
			t.Errorf("%s: stdout %q, stderr %q", env, stdout.String(), stderr.String())
		}
	}
}

// TestChildDiesWithItsGuard: an orphan would go on taking invocations.
func TestChildDiesWithItsGuard(t *testing.T) {
	cmd := actor(t, "guarded sleep", lambdaEnv+"=127.0.0.1:1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 32)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	if err != nil || child == cmd.Process.Pid {
		t.Fatalf("child %q of %d: %v", line[:n], cmd.Process.Pid, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for range 200 {
		if errors.Is(syscall.Kill(child, 0), syscall.ESRCH) || zombie(child) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	_ = syscall.Kill(child, syscall.SIGKILL)
	t.Error("the child outlived its guard by 2 seconds")
}

// zombie tells whether the process is dead but not collected: where nobody
// collects orphans, it stays in the list.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(after, []byte("Z"))
}

// TestTermReachesTheChild: on Lambda's SIGTERM the child ends by itself.
func TestTermReachesTheChild(t *testing.T) {
	cmd := actor(t, "guarded sleep", lambdaEnv+"=127.0.0.1:1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 32)); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Errorf("ended with %v, want exit code 143", err)
	}
}

func TestFilter(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for _, tc := range []struct {
		name, in, out string
		illegal       bool
	}{
		{"nothing", "", "", false},
		{"lines", "a\nb\n", "a\nb\n", false},
		{"no end", "a\nb", "a\nb", false},
		{"long line", long + "\nb\n", long + "\nb\n", false},
		{"report", "a\nSIGILL: illegal instruction\nPC=0x1\n\ngoroutine 1\n", "a\n", true},
		{"quoted", "said \"SIGILL: illegal instruction\"\nb\n", "said \"SIGILL: illegal instruction\"\nb\n", false},
		{"inside a long line", strings.Repeat("x", 64<<10) + "SIGILL: illegal instruction\n", strings.Repeat("x", 64<<10) + "SIGILL: illegal instruction\n", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			illegal, err := filter(&out, strings.NewReader(tc.in))
			if err != nil || illegal != tc.illegal || out.String() != tc.out {
				t.Errorf("illegal %v, error %v, %d bytes out", illegal, err, out.Len())
			}
		})
	}
}
