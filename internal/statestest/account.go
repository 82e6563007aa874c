package statestest

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/runtime/errortype"
)

//go:embed server.py
var serverScript string

// accountID is that of all ARNs in the account.
const accountID = "123456789012"

// FunctionARN returns the qualified ARN that a machine names a function by.
func FunctionARN(name string) string {
	return "arn:aws:lambda:" + mototest.Region + ":" + accountID + ":function:" + name + ":live"
}

// TopicARN returns the ARN of a topic that the account takes messages for.
func TopicARN(name string) string {
	return "arn:aws:sns:" + mototest.Region + ":" + accountID + ":" + name
}

// Account is an AWS account with an interpreter of state machines, functions
// that are the test's, and others that keep objects and tables.
type Account struct {
	// URL is the endpoint of all services.
	URL string

	// interpreter serves Step Functions, and other all the rest.
	interpreter, other *url.URL
	// runnable makes of a document one that the interpreter takes; nil leaves it
	// as it is. register tells the interpreter of a function, if it must know.
	runnable func(document string) (string, error)
	register func(name string) error

	mu        sync.Mutex
	functions map[string]Function
	messages  []Message
}

// Function answers an invocation. An error is passed on with the name that
// package errortype gives it, as our program in Lambda does.
type Function func(ctx context.Context, event []byte) ([]byte, error)

// ErrThrottle as the error of a Function is an invocation that Lambda refuses,
// since the function's concurrency is used up.
var ErrThrottle = errors.New("throttled by Lambda")

// Message is what was published to a topic.
type Message struct{ Topic, Subject, Text string }

// startTimeout bounds the start of the interpreter, which takes three seconds on
// an idle machine.
const startTimeout = 2 * time.Minute

// Start starts an account with LocalStack's interpreter, which ends with the
// test. Machine changes documents where that lacks something.
func Start(t testing.TB) *Account {
	t.Helper()
	tools := toolsDir(t)
	moto, err := url.Parse(mototest.Start(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	a := newAccount(t)
	a.other, a.runnable = moto, runnable
	environment := mototest.Env(a.URL)
	// With it LocalStack leaves the endpoint of its own calls to the environment.
	environment["DISTRIBUTED_MODE"] = "1"
	environment["DISABLE_EVENTS"] = "1" // no report of its use to its makers
	a.start(t, environment, filepath.Join(tools, "localstack", "bin", "python"), "-c", serverScript, a.interpreter.Port(), accountID, mototest.Region)
	return a
}

// newAccount returns an account with an endpoint, and a port for an interpreter.
func newAccount(t testing.TB) *Account {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	a := &Account{interpreter: &url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}, functions: map[string]Function{}}
	front := httptest.NewServer(a)
	t.Cleanup(front.Close)
	a.URL = front.URL
	return a
}

// start starts the interpreter and waits until it answers.
func (a *Account) start(t testing.TB, environment map[string]string, program string, arguments ...string) {
	t.Helper()
	var output bytes.Buffer
	cmd := exec.Command(program, arguments...)
	cmd.Env = append(os.Environ(), "AWS_DEFAULT_REGION="+mototest.Region, "PYTHONUNBUFFERED=1")
	for name, value := range environment {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Dir = t.TempDir()
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatalf("start the interpreter: %v", err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill() // it may have ended by itself
		<-exited
		if t.Failed() {
			t.Logf("the interpreter's output ends with:\n%s", tail(output.String(), 4000))
		}
	})
	for deadline := time.Now().Add(startTimeout); ; {
		response, err := http.Get(a.interpreter.String())
		if err == nil {
			response.Body.Close()
			return
		}
		select {
		case err := <-exited:
			exited <- err
			t.Fatalf("the interpreter ended: %v\n%s", err, output.String())
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("the interpreter does not answer: %v", err)
		}
	}
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close() // only its number is wanted
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Function makes f a function of the account, or replaces one.
func (a *Account) Function(t testing.TB, name string, f Function) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.functions[FunctionARN(name)] != nil
	a.functions[FunctionARN(name)] = f
	if a.register != nil && !known {
		if err := a.register(name); err != nil {
			t.Fatalf("function %s: %v", name, err)
		}
	}
}

// Messages returns what was published to a topic.
func (a *Account) Messages(topic string) []Message {
	a.mu.Lock()
	defer a.mu.Unlock()
	var messages []Message
	for _, m := range a.messages {
		if m.Topic == TopicARN(topic) {
			messages = append(messages, m)
		}
	}
	return messages
}

// ServeHTTP implements http.Handler: the account's endpoint.
func (a *Account) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch target := r.Header.Get("X-Amz-Target"); {
	case strings.HasPrefix(r.URL.Path, functionsPath) && strings.HasSuffix(r.URL.Path, "/invocations"):
		a.invoke(w, r)
	case strings.HasPrefix(target, "AWSStepFunctions."):
		forward(w, r, a.interpreter)
	case strings.HasPrefix(target, "AWSEvents."):
		// The interpreter tells EventBridge what its executions do.
		answer(w, http.StatusOK, "application/x-amz-json-1.1", map[string]any{"FailedEntryCount": 0, "Entries": []any{}})
	case strings.Contains(r.URL.Path, inBatches):
		a.batches(w, r)
	case r.Method == http.MethodPost && r.Header.Get("Content-Type") == "application/x-www-form-urlencoded; charset=utf-8":
		a.query(w, r)
	default:
		forward(w, r, a.other)
	}
}

// functionsPath is that of Lambda's calls.
const functionsPath = "/2015-03-31/functions/"

func forward(w http.ResponseWriter, r *http.Request, to *url.URL) {
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to); p.Out.Host = p.In.Host }}
	proxy.ServeHTTP(w, r)
}

func answer(w http.ResponseWriter, status int, contentType string, body any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(http.ErrAbortHandler) // the caller has gone
	}
}

// invoke answers Lambda's Invoke.
func (a *Account) invoke(w http.ResponseWriter, r *http.Request) {
	name, err := url.PathUnescape(strings.TrimSuffix(strings.TrimPrefix(r.URL.EscapedPath(), functionsPath), "/invocations"))
	event, readErr := io.ReadAll(r.Body)
	if err != nil || readErr != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("X-Amzn-Requestid", "00000000-0000-0000-0000-000000000000")
	a.mu.Lock()
	f := a.functions[name]
	a.mu.Unlock()
	if f == nil {
		w.Header().Set("X-Amzn-Errortype", "ResourceNotFoundException")
		answer(w, http.StatusNotFound, "application/json", map[string]string{"Type": "User", "Message": "Function not found: " + name})
		return
	}
	result, err := f(r.Context(), event)
	switch {
	case errors.Is(err, ErrThrottle):
		w.Header().Set("X-Amzn-Errortype", "TooManyRequestsException")
		answer(w, http.StatusTooManyRequests, "application/json", map[string]string{"Type": "User", "Reason": "ReservedFunctionConcurrentInvocationLimitExceeded", "message": "Rate Exceeded."})
	case err != nil:
		w.Header().Set("X-Amz-Function-Error", "Unhandled")
		answer(w, http.StatusOK, "application/json", map[string]string{"errorMessage": err.Error(), "errorType": errortype.Of(err)})
	default:
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write(result); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// query answers the services with the Query protocol: SNS and STS.
func (a *Account) query(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "text/xml")
	switch form.Get("Action") {
	case "Publish":
		a.mu.Lock()
		a.messages = append(a.messages, Message{form.Get("TopicArn"), form.Get("Subject"), form.Get("Message")})
		a.mu.Unlock()
		fmt.Fprint(w, `<PublishResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><PublishResult><MessageId>1</MessageId></PublishResult></PublishResponse>`)
	case "AssumeRole":
		fmt.Fprintf(w, `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials><AccessKeyId>test</AccessKeyId><SecretAccessKey>test</SecretAccessKey><SessionToken>test</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>`,
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	default:
		w.WriteHeader(http.StatusNotImplemented)
	}
}
