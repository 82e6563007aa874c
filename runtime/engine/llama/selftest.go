package llama

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
	"github.com/briefing-swarm/briefing-swarm/runtime/guard"
	"github.com/briefing-swarm/briefing-swarm/runtime/model"
)

// selfTestEnv tells a process that it is a self-test, and of which libraries.
const selfTestEnv = "SWARM_SELFTEST_LLAMA_LIB"

// ProcessorError says that the libraries use instructions that this processor
// lacks. Without the self-test the program would be ended by the system in the
// middle of its work, with a stack trace for an explanation.
type ProcessorError struct {
	Dir string
	CPU string
}

func (e *ProcessorError) Error() string {
	return fmt.Sprintf("the llama.cpp libraries in %s use instructions that this processor (%s) lacks: take a build with all CPU variants, as 'make setup' does, or set %s to one made for this processor",
		e.Dir, e.CPU, LibraryEnv)
}

// SelfTest loads the libraries and computes with a tiny model in a process of
// its own, so that an illegal instruction ends only that. The program's main
// must begin with RunSelfTest. It takes about a fifth of a second.
func SelfTest(ctx context.Context, libraryDir string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	cmd := exec.CommandContext(ctx, self)
	// Without a backtrace: ggml would start a debugger for one.
	cmd.Env = append(os.Environ(), selfTestEnv+"="+libraryDir, "GGML_NO_BACKTRACE=1", "GOTRACEBACK=none")
	var stderr bytes.Buffer
	code, err := guard.Watch(cmd, &stderr)
	switch {
	case code == 0 && err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, guard.ErrIllegalInstruction):
		return &ProcessorError{Dir: libraryDir, CPU: cpuName("/proc/cpuinfo")}
	}
	line, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
	if line == "" {
		line = fmt.Sprintf("the self-test ended with code %d", code)
	}
	return &LibraryError{Dir: libraryDir, Err: errors.New(line)}
}

// RunSelfTest does nothing in an ordinary process. In one that SelfTest has
// started it runs the test and ends the process.
func RunSelfTest() {
	dir := os.Getenv(selfTestEnv)
	if dir == "" {
		return
	}
	if err := selfTest(dir); err != nil {
		var le *LibraryError
		if errors.As(err, &le) && le.Err != nil {
			err = le.Err // the parent names the folder
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func selfTest(dir string) error {
	temp, err := os.MkdirTemp("", "swarm-selftest-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	recipe, err := model.LookupRecipe("q4_k")
	if err != nil {
		return err
	}
	path, err := model.RandomFile(context.Background(), temp, "tiny", recipe, 1, nil)
	if err != nil {
		return err
	}
	b, err := Open(Options{LibraryDir: dir, Path: filepath.Clean(path), Parallel: 1, ContextPerSequence: 64, MaxBatch: 64})
	if err != nil {
		return err
	}
	defer b.Close()
	var batch engine.Batch
	for i := range 32 {
		batch.Add(engine.Token(i), i, 0, i == 31)
	}
	if err := b.Decode(&batch); err != nil {
		return err
	}
	_, err = b.Logits(31)
	return err
}
