// Command probe is a Lambda function that does what it is told, to learn how
// Lambda's runtime contract and the guard around a program behave.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/briefing-swarm/briefing-swarm/runtime/guard"
)

// Event says what to do.
type Event struct {
	Do    string // echo, sleep, panic, fail, exit or big
	Items []any  // for echo
	Bytes int    // of the answer, for big
}

// Answer tells one process from the next.
type Answer struct {
	Items    []any `json:",omitempty"`
	Text     string
	PID      int
	Count    int // invocations of this process
	LeftMsec int64
	Request  string
}

func main() {
	guard.Main(func() int {
		count := 0
		lambda.Start(func(ctx context.Context, event Event) (*Answer, error) {
			count++
			deadline, _ := ctx.Deadline()
			a := &Answer{PID: os.Getpid(), Count: count, LeftMsec: time.Until(deadline).Milliseconds()}
			if info, ok := lambdacontext.FromContext(ctx); ok {
				a.Request = info.AwsRequestID
			}
			switch event.Do {
			case "echo":
				a.Items = event.Items
			case "big":
				a.Text = strings.Repeat("x", event.Bytes)
			case "sleep":
				time.Sleep(time.Hour)
			case "panic":
				panic("told to")
			case "exit":
				fmt.Fprintln(os.Stderr, "told to exit")
				os.Exit(3)
			case "fail":
				return nil, errors.New("told to fail")
			}
			return a, nil
		})
		return 1
	})
}
