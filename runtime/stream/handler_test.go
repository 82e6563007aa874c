package stream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/briefing-swarm/briefing-swarm/internal/said"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine/fake"
	"github.com/briefing-swarm/briefing-swarm/runtime/generate"
	"github.com/briefing-swarm/briefing-swarm/runtime/recipe"
	"github.com/briefing-swarm/briefing-swarm/runtime/telemetry"
)

// serve returns an endpoint on a fake model, and what it logs.
func serve(t *testing.T, opt fake.Options, open func() (engine.Backend, error)) (*httptest.Server, *said.Buffer) {
	t.Helper()
	opt.Parallel = 1
	if open == nil {
		open = func() (engine.Backend, error) { return fake.New(opt), nil }
	}
	said := &said.Buffer{}
	h := New(generate.LoadModel(open), recipe.Recipe{MaxTokens: 40}, engine.Options{Parallel: 1}, telemetry.NewMeter(said, "acme", "endpoint"), telemetry.NewLogger(said, ""))
	// A context with a deadline, as Lambda gives it.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if ms := r.Header.Get("X-Test-Deadline"); ms != "" {
			d, err := time.ParseDuration(ms)
			if err != nil {
				panic(err)
			}
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, d)
			defer cancel()
		}
		h.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(server.Close)
	return server, said
}

func ask(t *testing.T, server *httptest.Server, body string, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

func text(t *testing.T, response *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// events reads a stream to its end.
func events(t *testing.T, r io.Reader) (chunks []completion, done bool) {
	t.Helper()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case lines.Text() == "":
		case !ok || done:
			t.Fatalf("line %q", lines.Text())
		case data == "[DONE]":
			done = true
		default:
			var c completion
			if err := json.Unmarshal([]byte(data), &c); err != nil {
				t.Fatalf("%v in %q", err, data)
			}
			chunks = append(chunks, c)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return chunks, done
}

const hello = `"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"What is "},{"type":"text","text":"on today?"}]}]`

func TestAnswers(t *testing.T) {
	server, said := serve(t, fake.Options{}, nil)
	var whole completion
	response := ask(t, server, "{"+hello+"}")
	if body := text(t, response); response.StatusCode != http.StatusOK || json.Unmarshal([]byte(body), &whole) != nil {
		t.Fatalf("status %d: %s", response.StatusCode, body)
	}
	if whole.Object != "chat.completion" || whole.Model != "fake" || len(whole.Choices) != 1 || *whole.Choices[0].Message.Content == "" || *whole.Choices[0].FinishReason == "" {
		t.Fatalf("%+v", whole)
	}
	want := *whole.Choices[0].Message.Content

	response = ask(t, server, `{"stream":true,"stream_options":{"include_usage":true},"model":"fake",`+hello+"}")
	if got := response.Header.Get("Content-Type"); got != "text/event-stream; charset=utf-8" {
		t.Errorf("content type %q", got)
	}
	chunks, done := events(t, response.Body)
	var got strings.Builder
	for i, c := range chunks {
		if c.Object != "chat.completion.chunk" || c.ID != chunks[0].ID {
			t.Errorf("chunk %d: %+v", i, c)
		}
		if len(c.Choices) > 0 && c.Choices[0].Delta.Content != nil {
			got.WriteString(*c.Choices[0].Delta.Content)
		}
	}
	if !done || got.String() != want {
		t.Errorf("streamed %q, done %v; in one piece it is %q", got.String(), done, want)
	}
	if role := chunks[0].Choices[0].Delta.Role; role != "assistant" {
		t.Errorf("the first chunk has the role %q", role)
	}
	last, end := chunks[len(chunks)-1], chunks[len(chunks)-2]
	if *end.Choices[0].FinishReason != *whole.Choices[0].FinishReason || last.Usage == nil || len(last.Choices) != 0 {
		t.Errorf("the stream ends with %+v and %+v", end, last)
	}
	if whole.Usage.PromptTokens != last.Usage.PromptTokens || whole.Usage.CompletionTokens != last.Usage.CompletionTokens || last.Usage.TotalTokens != last.Usage.PromptTokens+last.Usage.CompletionTokens {
		t.Errorf("usage %+v in one piece, %+v streamed", whole.Usage, last.Usage)
	}
	if log := said.String(); strings.Count(log, `"Briefings":1`) != 2 || strings.Contains(log, "on today") || strings.Contains(log, strings.Fields(want)[0]+" ") {
		t.Errorf("two chats are metered and nothing of them is told:\n%s", log)
	}
}

// TestBounds: tokens, stop strings, seeds.
func TestBounds(t *testing.T) {
	server, _ := serve(t, fake.Options{Words: 30}, nil)
	answer := func(fields string) (string, completion) {
		t.Helper()
		var c completion
		response := ask(t, server, "{"+fields+","+hello+"}")
		body := text(t, response)
		if response.StatusCode != http.StatusOK || json.Unmarshal([]byte(body), &c) != nil {
			t.Fatalf("%s: status %d: %s", fields, response.StatusCode, body)
		}
		return *c.Choices[0].Message.Content, c
	}
	full, _ := answer(`"max_tokens":400`)
	short, c := answer(`"max_completion_tokens":3`)
	if c.Usage.CompletionTokens != 3 || *c.Choices[0].FinishReason != "length" || !strings.HasPrefix(full, short) {
		t.Errorf("3 tokens: %q, %+v", short, c.Usage)
	}
	word := strings.Fields(full)[2]
	stopped, c := answer(fmt.Sprintf(`"stop":%q`, word))
	if strings.Contains(stopped, word) || *c.Choices[0].FinishReason != "stop" || !strings.HasPrefix(full, stopped) {
		t.Errorf("stopped at %q: %q", word, stopped)
	}
	one, _ := answer(`"temperature":2,"seed":7,"max_tokens":40`)
	again, _ := answer(`"temperature":2,"seed":7,"max_tokens":40`)
	if one != again {
		t.Errorf("the same seed gave %q and %q", one, again)
	}
	others := map[string]bool{}
	for range 5 {
		other, _ := answer(`"temperature":2,"max_tokens":40`)
		others[other] = true
	}
	if len(others) == 1 {
		t.Error("without a seed every answer is the same")
	}
}

// TestRefusals: each fault is named, all at once, in OpenAI's form.
func TestRefusals(t *testing.T) {
	server, _ := serve(t, fake.Options{ContextCells: 64}, nil)
	long := strings.Repeat("word ", 200)
	for name, tc := range map[string]struct {
		body   string
		status int
		code   string
		want   []string
	}{
		"no JSON":        {`hello`, 400, "invalid_value", []string{"syntax error at byte 1"}},
		"two objects":    {`{` + hello + `}{}`, 400, "invalid_value", []string{"something after"}},
		"not UTF-8":      {"{\"model\":\"\xff\"}", 400, "invalid_value", []string{"UTF-8"}},
		"wrong type":     {`{"messages":7}`, 400, "invalid_value", []string{"messages has the wrong type"}},
		"nothing to say": {`{"messages":[]}`, 400, "invalid_value", []string{"messages has 0 entries"}},
		"all at once": {`{"messages":[{"role":"robot","content":7},{"role":"assistant","content":"x"}],"max_tokens":0,"temperature":3,"top_p":-1,"n":2,"tools":[{}],"logprobs":true,"presence_penalty":1,"response_format":{"type":"json_object"},"stop":["a","b","c","d",""]}`,
			400, "invalid_value", []string{"messages[0].role", "messages[0].content", "role assistant, want one of user", "max_tokens is 0", "temperature is 3, want 0 to 2", "top_p is -1",
				"n is 2", "tools are not supported", "logprobs", "presence_penalty", "response_format", "stop has 5", "stop[4]"}},
		"another model": {`{"model":"gpt-4",` + hello + `}`, 404, "model_not_found", []string{`"fake"`}},
		"too long":      {`{"messages":[{"role":"user","content":"` + long + `"}]}`, 400, "context_length_exceeded", []string{"context is 64"}},
		"too many":      {`{"max_tokens":1000,` + hello + `}`, 400, "context_length_exceeded", []string{"1000 are asked for"}},
		"too large":     {`{"messages":[{"role":"user","content":"` + strings.Repeat("x", maxBodyBytes) + `"}]}`, 413, "body_too_large", []string{"1048576 bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			response := ask(t, server, tc.body)
			body := text(t, response)
			var got struct {
				Error struct{ Message, Type, Code string }
			}
			if err := json.Unmarshal([]byte(body), &got); err != nil || response.StatusCode != tc.status || got.Error.Code != tc.code || got.Error.Type != typeInvalid {
				t.Fatalf("status %d, want %d: %s", response.StatusCode, tc.status, body)
			}
			for _, want := range tc.want {
				if !strings.Contains(got.Error.Message, want) {
					t.Errorf("the message lacks %q: %s", want, got.Error.Message)
				}
			}
			if strings.Contains(got.Error.Message, "robot") || strings.Contains(got.Error.Message, "word") {
				t.Errorf("the message quotes the chat: %s", got.Error.Message)
			}
		})
	}
}

// TestPaths: what else there is, and what there is not.
func TestPaths(t *testing.T) {
	server, _ := serve(t, fake.Options{}, nil)
	text(t, ask(t, server, "{"+hello+"}")) // the model is loaded then
	for _, tc := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"GET", "/healthz", 200, `"ok"`},
		{"GET", "/v1/models", 200, `"id":"fake"`},
		{"GET", "/v1/chat/completions", 405, "method_not_allowed"},
		{"POST", "/v1/embeddings", 404, "not_found"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tc.method, server.URL+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != tc.status || !strings.Contains(string(body), tc.want) {
			t.Errorf("%s %s: status %d, %s, %v", tc.method, tc.path, response.StatusCode, body, err)
		}
	}
}

// TestModelNotThere: while it loads and when it can't be loaded.
func TestModelNotThere(t *testing.T) {
	release := make(chan struct{})
	server, _ := serve(t, fake.Options{}, func() (engine.Backend, error) { <-release; return nil, errors.New("the disk is on fire") })
	get := func() (int, string) {
		t.Helper()
		response, err := server.Client().Get(server.URL + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode, text(t, response)
	}
	if status, body := get(); status != 503 || !strings.Contains(body, "loading") {
		t.Errorf("status %d: %s", status, body)
	}
	response := ask(t, server, "{"+hello+"}", "X-Test-Deadline", "50ms")
	if body := text(t, response); response.StatusCode != 503 || !strings.Contains(body, "model_loading") || response.Header.Get("Retry-After") == "" {
		t.Errorf("status %d: %s", response.StatusCode, body)
	}
	close(release)
	response = ask(t, server, "{"+hello+"}")
	if body := text(t, response); response.StatusCode != 500 || strings.Contains(body, "fire") {
		t.Errorf("status %d: %s", response.StatusCode, body)
	}
	if status, body := get(); status != 503 || !strings.Contains(body, "failed") {
		t.Errorf("status %d: %s", status, body)
	}
}

// TestStreamsAsItWrites: the first word is there long before the last.
func TestStreamsAsItWrites(t *testing.T) {
	server, _ := serve(t, fake.Options{Words: 200, StepTime: 10 * time.Millisecond}, nil)
	start := time.Now()
	response := ask(t, server, `{"stream":true,"max_tokens":60,`+hello+`}`)
	first := make([]byte, 1)
	if _, err := io.ReadFull(response.Body, first); err != nil {
		t.Fatal(err)
	}
	begun := time.Since(start)
	if _, done := events(t, io.MultiReader(bytes.NewReader(first), response.Body)); !done {
		t.Error("the stream has no end")
	}
	if whole := time.Since(start); whole < 300*time.Millisecond || begun > whole/2 {
		t.Errorf("the first byte came after %v of %v", begun, whole)
	}
}

// TestDeadline: a text ends in time, as one that is cut short.
func TestDeadline(t *testing.T) {
	server, _ := serve(t, fake.Options{Words: 100000, StepTime: 5 * time.Millisecond, ContextCells: 100000}, nil)
	response := ask(t, server, `{"stream":true,"max_tokens":50000,`+hello+`}`, "X-Test-Deadline", "600ms")
	chunks, done := events(t, response.Body)
	if !done || *chunks[len(chunks)-1].Choices[0].FinishReason != "length" {
		t.Errorf("done %v, last chunk %+v", done, chunks[len(chunks)-1])
	}
}

// TestClientGone: nobody reads, nothing is generated, and the next one is served.
func TestClientGone(t *testing.T) {
	server, said := serve(t, fake.Options{Words: 100000, StepTime: 5 * time.Millisecond, ContextCells: 100000}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/chat/completions", strings.NewReader(`{"stream":true,"max_tokens":50000,`+hello+`}`))
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.ReadFull(response.Body, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	cancel()
	answer := ask(t, server, `{"max_tokens":2,`+hello+`}`, "X-Test-Deadline", "5s")
	if body := text(t, answer); answer.StatusCode != http.StatusOK {
		t.Errorf("the next one: status %d: %s", answer.StatusCode, body)
	}
	if !strings.Contains(said.String(), "the client is gone") {
		t.Errorf("the log does not tell:\n%s", said)
	}
}

// TestBusy: a chat that waits for another in vain is told so.
func TestBusy(t *testing.T) {
	server, _ := serve(t, fake.Options{Words: 100000, StepTime: 5 * time.Millisecond, ContextCells: 100000}, nil)
	response := ask(t, server, `{"stream":true,"max_tokens":50000,`+hello+`}`, "X-Test-Deadline", "2s")
	if _, err := io.ReadFull(response.Body, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	second := ask(t, server, "{"+hello+"}", "X-Test-Deadline", "200ms")
	if body := text(t, second); second.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, `"busy"`) {
		t.Errorf("status %d: %s", second.StatusCode, body)
	}
}

// TestBrokenModel: a stream that has begun says that it broke off.
func TestBrokenModel(t *testing.T) {
	server, said := serve(t, fake.Options{Words: 100, FailAfter: 20}, nil)
	response := ask(t, server, `{"stream":true,`+hello+`}`)
	body := text(t, response)
	if !strings.Contains(body, `"internal_error"`) || strings.Contains(body, "[DONE]") {
		t.Errorf("the stream ends with %s", body[max(0, len(body)-300):])
	}
	if !strings.Contains(said.String(), "chat broke off") {
		t.Errorf("the log does not tell:\n%s", said)
	}
}

func FuzzParseChat(f *testing.F) {
	for _, seed := range []string{"{" + hello + "}", `{"stop":null,"messages":[{"role":"user","content":null}]}`, `{"stop":["a"],"seed":-1,"logit_bias":{"1":2}}`, `[]`, ``} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c, r, err := parseChat(body, engine.Request{})
		if (c == nil) != (err != nil) {
			t.Fatalf("request %v, error %v", c, err)
		}
		var found faults
		if err != nil && !errors.As(err, &found) {
			t.Fatalf("error of type %T", err)
		}
		if err == nil && (len(r.Messages) == 0 || r.Messages[len(r.Messages)-1].Role != engine.RoleUser) {
			t.Fatalf("messages %v", r.Messages)
		}
	})
}
