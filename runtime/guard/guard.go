// Package guard runs a program as a child of itself and puts the deaths that no
// Go code can catch into one readable line. An illegal instruction inside
// llama.cpp would otherwise fill the log of every invocation with the stacks of
// all goroutines and never name the cause: libraries built for another
// processor. A child killed by the system leaves no word at all.
package guard

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

const (
	// lambdaEnv is set for every process that Lambda, or its emulator, starts.
	lambdaEnv = "AWS_LAMBDA_RUNTIME_API"
	// childEnv marks the child.
	childEnv = "SWARM_GUARDED"
)

// Exit codes beside those of the program: 128 and the signal, as a shell has it.
const signalBase = 128

// Main runs the program and exits with the code that run returns. Under Lambda
// run happens in a child process, whose output is passed on line by line.
// Elsewhere, and where SWARM_GUARDED is set, it is called here: a debugger or a
// test then has one process.
func Main(run func() int) {
	if os.Getenv(lambdaEnv) == "" || os.Getenv(childEnv) != "" {
		os.Exit(run())
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintf(os.Stderr, "find the program's own file: %v\n", err)
		os.Exit(1)
	}
	cmd := exec.Command(self)
	cmd.Args = os.Args
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stdout = os.Stdout
	code, err := Watch(cmd, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// Watch runs cmd to its end, passes what it writes to stderr on line by line, and
// returns its exit code, which is 128 and the signal where a signal ended it. Then
// the error is set: ErrIllegalInstruction, ErrKilled, or one that names the signal.
// Go's report of an illegal instruction is left out of stderr.
func Watch(cmd *exec.Cmd, stderr io.Writer) (code int, err error) {
	// The child must not outlive this process: Lambda kills a runtime that ran
	// out of time, and an orphan would go on taking invocations. Linux ties that
	// to the thread that started the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	bindLife(cmd)

	pipe, err := cmd.StderrPipe()
	if err != nil {
		return 1, fmt.Errorf("watch the runtime: %w", err)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("start the runtime: %w", err)
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case s := <-signals:
				_ = cmd.Process.Signal(s)
			case <-ended:
				return
			}
		}
	}()

	illegal, copyErr := filter(stderr, pipe)
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		status, _ := exit.Sys().(syscall.WaitStatus)
		switch {
		case illegal || status.Signaled() && status.Signal() == syscall.SIGILL:
			return signalBase + int(syscall.SIGILL), ErrIllegalInstruction
		case status.Signaled() && status.Signal() == syscall.SIGKILL:
			return signalBase + int(syscall.SIGKILL), ErrKilled
		case status.Signaled():
			return signalBase + int(status.Signal()), fmt.Errorf("the runtime was ended by signal %d (%v)", int(status.Signal()), status.Signal())
		}
		return exit.ExitCode(), nil
	case err != nil:
		return 1, fmt.Errorf("wait for the runtime: %w", err)
	case copyErr != nil:
		return 1, fmt.Errorf("read what the runtime writes: %w", copyErr)
	}
	return 0, nil
}

var (
	// ErrIllegalInstruction says that the processor lacks an instruction.
	ErrIllegalInstruction = errors.New("illegal instruction: this processor can't run the llama.cpp that is loaded, which was built for another: " +
		"take the libraries with all their libggml-cpu variants, or build them with GGML_NATIVE=OFF and GGML_CPU_ALL_VARIANTS=ON")
	// ErrKilled says that the system ended the process.
	ErrKilled = errors.New("the runtime was killed by the system, most likely because memory ran out: raise the function's memory, " +
		"or lower the parallel sequences; 'swarm model inspect' shows the need")
)

// illegalMark begins what Go prints when an illegal instruction ends a process.
var illegalMark = []byte("SIGILL: illegal instruction")

// filter copies src to dst line by line, up to the report of an illegal
// instruction, which it reads to its end and leaves out.
func filter(dst io.Writer, src io.Reader) (illegal bool, err error) {
	r := bufio.NewReaderSize(src, 64<<10)
	for lineStart := true; ; {
		piece, err := r.ReadSlice('\n')
		if lineStart && bytes.HasPrefix(piece, illegalMark) {
			_, err := io.Copy(io.Discard, r)
			return true, err
		}
		if len(piece) > 0 {
			// A log that can't be written must not stop the child.
			_, _ = dst.Write(piece)
		}
		switch {
		case errors.Is(err, io.EOF):
			return false, nil
		case errors.Is(err, bufio.ErrBufferFull):
			lineStart = false
		case err != nil:
			return false, err
		default:
			lineStart = true
		}
	}
}
