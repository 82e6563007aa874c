package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/briefing-swarm/briefing-swarm/internal/demomodel"
)

// runtimeAPI is Lambda's side of the runtime interface, for one event: the
// emulator holds a streamed answer back until it is whole.
type runtimeAPI struct {
	event []byte
	taken chan struct{}
	got   chan answered
}

type answered struct {
	contentType      string
	first, body      []byte
	firstAfter, took time.Duration
	err              error
}

func (a *runtimeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/invocation/next"):
		select {
		case a.taken <- struct{}{}:
		case <-r.Context().Done(): // there is one event only
			return
		}
		w.Header().Set("Lambda-Runtime-Aws-Request-Id", "request-1")
		w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(time.Minute).UnixMilli()))
		w.Header().Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:123456789012:function:endpoint")
		_, _ = w.Write(a.event)
	case strings.HasSuffix(r.URL.Path, "/response"):
		start := time.Now()
		got := answered{contentType: r.Header.Get("Content-Type")}
		body := bufio.NewReader(r.Body)
		for !bytes.Contains(got.first, []byte("data: ")) && got.err == nil {
			var line []byte
			line, got.err = body.ReadBytes('\n')
			got.first = append(got.first, line...)
		}
		got.firstAfter = time.Since(start)
		if got.err == nil {
			got.body, got.err = io.ReadAll(body)
		}
		got.took = time.Since(start)
		a.got <- got
		w.WriteHeader(http.StatusAccepted)
	default:
		body, _ := io.ReadAll(r.Body)
		a.got <- answered{err: fmt.Errorf("%s %s: %s", r.Method, r.URL.Path, body)}
	}
}

// TestStreamsToLambda: the program answers a Function URL's event in Lambda's
// streaming form, piece by piece, with a real model.
func TestStreamsToLambda(t *testing.T) {
	t.Parallel()
	event, err := json.Marshal(map[string]any{
		"version": "2.0", "rawPath": "/v1/chat/completions", "headers": map[string]string{"content-type": "application/json"},
		"requestContext": map[string]any{"requestId": "r", "domainName": "x.lambda-url.us-east-1.on.aws", "http": map[string]string{"method": "POST", "path": "/v1/chat/completions", "sourceIp": "192.0.2.1"}},
		"body":           `{"stream":true,"max_tokens":40,"temperature":0,"messages":[{"role":"user","content":"Write a long story about rain."}]}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	api := &runtimeAPI{event: event, taken: make(chan struct{}, 1), got: make(chan answered, 1)}
	server := httptest.NewServer(api)
	defer server.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), "BE_BOOTSTRAP=1", "SWARM_GUARDED=1", "AWS_LAMBDA_RUNTIME_API="+strings.TrimPrefix(server.URL, "http://"), "AWS_REGION=us-east-1",
		"SWARM_HANDLER=stream", "SWARM_TENANT=acme", "SWARM_THREADS=1", "SWARM_CONTEXT_TOKENS=512", "SWARM_MODEL="+demomodel.Find(t).Path, "SWARM_LLAMA_LIB="+demomodel.LibraryDir(t))
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var got answered
	select {
	case got = <-api.got:
	case err := <-ended:
		t.Fatalf("the program ended: %v\n%s", err, said.String())
	case <-time.After(2 * time.Minute):
		t.Error("no answer within two minutes")
	}
	_ = cmd.Process.Kill() // it waits for the next event
	<-ended
	if got.err != nil {
		t.Fatalf("%v\n%s", got.err, said.String())
	}
	if want := "application/vnd.awslambda.http-integration-response"; got.contentType != want {
		t.Errorf("content type %q, want %q", got.contentType, want)
	}
	prelude, events, ok := bytes.Cut(got.first, make([]byte, 8))
	var head struct {
		StatusCode int
		Headers    map[string]string
	}
	if err := json.Unmarshal(prelude, &head); !ok || err != nil || head.StatusCode != http.StatusOK || !strings.HasPrefix(head.Headers["Content-Type"], "text/event-stream") {
		t.Errorf("the answer begins with %q", got.first)
	}
	if !bytes.HasPrefix(events, []byte("data: {")) || !bytes.HasSuffix(got.body, []byte("data: [DONE]\n\n")) {
		t.Errorf("events %q … %q", events, got.body[max(0, len(got.body)-100):])
	}
	if n := bytes.Count(got.body, []byte("data: ")); n < 10 {
		t.Errorf("%d events for 40 tokens", n)
	}
	if got.firstAfter > got.took/2 {
		t.Errorf("the first event came after %v of %v: the answer was held back", got.firstAfter, got.took)
	}
	for _, want := range []string{`"message":"model loaded"`, `"requestId":"request-1"`, `"TimeToFirstToken"`} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, said.String())
		}
	}
	if strings.Contains(said.String(), "rain") {
		t.Errorf("the log tells of the chat:\n%s", said.String())
	}
}
