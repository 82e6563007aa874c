// Command swarm turns a file of users into personal briefings, and says
// beforehand what that costs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	_ "time/tzdata" // so that --time-zone needs nothing of the machine

	"github.com/spf13/cobra"

	"github.com/briefing-swarm/briefing-swarm/runtime/engine/llama"
)

// Exit codes. A verb returns an exitError for any but 0 and 1.
const (
	exitFault       = 1   // the work found faults, or failed
	exitUsage       = 2   // the call itself was wrong
	exitInterrupted = 130 // Ctrl-C: what was done is kept, the same call resumes
)

// exitError carries the exit code of a verb. A nil Err prints nothing: the
// verb has said it all on its own output.
type exitError struct {
	Code int
	Err  error
}

func (e *exitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *exitError) Unwrap() error { return e.Err }

func main() {
	llama.RunSelfTest()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for an orderly end; the next one ends the process at
	// once, as it does by default.
	context.AfterFunc(ctx, stop)
	code := run(ctx, newRootCmd())
	stop()
	os.Exit(code)
}

// run executes root and maps its error to an exit code.
func run(ctx context.Context, root *cobra.Command) int {
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	code := exitFault
	var exit *exitError
	if errors.As(err, &exit) {
		code, err = exit.Code, exit.Err
	}
	if err != nil {
		// Several faults come one to a line.
		fmt.Fprintf(root.ErrOrStderr(), "swarm: %s\n", strings.ReplaceAll(err.Error(), "\n", "\nswarm: "))
	}
	return code
}

func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:           "swarm",
		Short:         "Personal AI briefings in bulk, on CPUs, with an open model",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &exitError{Code: exitUsage, Err: fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())}
	})
	root.AddCommand(
		newRunCmd(),
		newDeliverCmd(),
		newLintCmd(),
		newModelCmd(),
		newBenchCmd(),
		newPlanCmd(),
		newPricesCmd(),
	)
	return root
}
