// Package rietest runs programs under the real AWS Lambda Runtime Interface
// Emulator: the contract of Lambda's runtime API with its timeouts, crashes and
// limits of size, on this machine. Memory and CPU are not limited, and its
// report of memory is no measurement.
package rietest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/briefing-swarm/briefing-swarm/internal/buildtool"
	"github.com/briefing-swarm/briefing-swarm/internal/said"
)

// Options describe the function that an Instance runs.
type Options struct {
	Bootstrap  string   // absolute path of the program
	Env        []string // beside this process's environment
	TimeoutSec int      // Lambda's timeout; default 300
	MemoryMib  int      // Lambda's memory setting, only told to the function; default 4096
}

// Instance is one execution environment: one invocation at a time, as on
// Lambda. A call waits until the one before is answered; the emulator itself
// dies of a second one in flight.
type Instance struct {
	t    testing.TB
	url  string
	cmd  *exec.Cmd
	said said.Buffer
	dead chan struct{}

	mu sync.Mutex // held during an invocation
}

// Response is the answer to an invocation. Lambda's own status of a failed
// function is not in it: the emulator answers 200 to a handler's error and to a
// timeout, so look at Err and TimedOut.
type Response struct {
	Status int
	Body   []byte
}

// TimedOut tells whether the function was stopped for taking too long.
func (r *Response) TimedOut() bool {
	return bytes.HasPrefix(r.Body, []byte("Task timed out after "))
}

// Err returns the handler's error, and nil where there is none.
func (r *Response) Err() error {
	if r.TimedOut() {
		return fmt.Errorf("timeout: %s", r.Body)
	}
	var fault struct{ ErrorMessage, ErrorType string }
	if json.Unmarshal(r.Body, &fault) == nil && (fault.ErrorMessage != "" || fault.ErrorType != "") {
		return fmt.Errorf("%s: %s", fault.ErrorType, fault.ErrorMessage)
	}
	if r.Status != http.StatusOK {
		return fmt.Errorf("status %d: %s", r.Status, r.Body)
	}
	return nil
}

// startTimeout bounds the start of the emulator, which takes 50 ms.
const startTimeout = 30 * time.Second

// Start runs the emulator, which ends with the test. The program itself starts
// with the first invocation.
func Start(t testing.TB, o Options) *Instance {
	t.Helper()
	emulator := buildtool.Path(t, "aws-lambda-rie")
	// A port found free can be taken by somebody else before the emulator binds it.
	var said string
	for range 3 {
		i, ok := start(t, emulator, o)
		if ok {
			return i
		}
		said = i.Log()
	}
	t.Fatalf("the runtime interface emulator did not start; it said:\n%s", said)
	return nil
}

func start(t testing.TB, emulator string, o Options) (*Instance, bool) {
	t.Helper()
	if o.TimeoutSec == 0 {
		o.TimeoutSec = 300
	}
	if o.MemoryMib == 0 {
		o.MemoryMib = 4096
	}
	address := freeAddr(t)
	i := &Instance{t: t, url: "http://" + address + "/2015-03-31/functions/function/invocations", dead: make(chan struct{})}
	i.cmd = exec.Command(emulator, "--runtime-interface-emulator-address", address, "--runtime-api-address", freeAddr(t),
		"--log-level", "error", o.Bootstrap)
	i.cmd.Env = append(append(os.Environ(),
		"AWS_LAMBDA_FUNCTION_TIMEOUT="+strconv.Itoa(o.TimeoutSec), "AWS_LAMBDA_FUNCTION_MEMORY_SIZE="+strconv.Itoa(o.MemoryMib),
		"AWS_REGION=us-east-1"), o.Env...)
	i.cmd.Stdout, i.cmd.Stderr = &i.said, &i.said
	// Grandchildren can hold the output open after a kill.
	i.cmd.WaitDelay = time.Second
	ownGroup(i.cmd)
	if err := i.cmd.Start(); err != nil {
		t.Fatalf("start the runtime interface emulator: %v", err)
	}
	go func() { _ = i.cmd.Wait(); close(i.dead) }()
	t.Cleanup(func() { killGroup(i.cmd); <-i.dead })
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); {
		select {
		case <-i.dead:
			return i, false
		case <-time.After(10 * time.Millisecond):
		}
		if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			conn.Close()
			return i, true
		}
	}
	killGroup(i.cmd)
	return i, false
}

// Invoke sends the event, in JSON where it is no json.RawMessage, and returns
// the answer. The test ends where there is none.
func (i *Instance) Invoke(ctx context.Context, event any) *Response {
	i.t.Helper()
	r, err := i.TryInvoke(ctx, event)
	if err != nil {
		i.t.Fatalf("invoke: %v; the function said:\n%s", err, i.Log())
	}
	return r
}

// TryInvoke is Invoke for calls that may get no answer, and for goroutines
// other than the test's own.
func (i *Instance) TryInvoke(ctx context.Context, event any) (*Response, error) {
	payload, err := json.Marshal(event)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, i.url, bytes.NewReader(payload))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	return &Response{Status: response.StatusCode, Body: body}, nil
}

// Log returns what the emulator and the function have written so far.
func (i *Instance) Log() string { return i.said.String() }

// WaitLog waits until the log holds the text, and ends the test when it does not
// within ten seconds: what a process writes comes a little after its answer.
func (i *Instance) WaitLog(text string) {
	i.t.Helper()
	for range 1000 {
		if strings.Contains(i.Log(), text) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	i.t.Fatalf("the log lacks %q:\n%s", text, i.Log())
}

// PeakMemoryBytes returns the most resident memory that any of the function's
// processes has had so far, by /proc's VmHWM, 0 where none is running.
func (i *Instance) PeakMemoryBytes() int64 {
	var peak int64
	for _, pid := range descendants(i.cmd.Process.Pid) {
		peak = max(peak, statusKiB(pid, "VmHWM")<<10)
	}
	return peak
}

// descendants returns the processes below pid.
func descendants(pid int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it ended meanwhile
		}
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			continue
		}
		// The name in parentheses may hold anything; the parent is the second
		// field after it.
		if f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(f) > 1 {
			if parent, err := strconv.Atoi(f[1]); err == nil {
				children[parent] = append(children[parent], id)
			}
		}
	}
	found := children[pid]
	for n := 0; n < len(found); n++ {
		found = append(found, children[found[n]]...)
	}
	return found
}

func statusKiB(pid int, field string) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib
		}
	}
	return 0
}

func freeAddr(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("find a free port: %v", err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
