package stream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
	"github.com/briefing-swarm/briefing-swarm/runtime/generate"
	"github.com/briefing-swarm/briefing-swarm/runtime/recipe"
	"github.com/briefing-swarm/briefing-swarm/runtime/telemetry"
)

// Handler is the endpoint:
//
//	POST /v1/chat/completions  a chat completion, in one piece or as server-sent events
//	GET  /v1/models            the one model there is
//	GET  /healthz              200 once the model is loaded, 503 before
//
// One chat is generated at a time, as on Lambda; others wait. Generating ends
// when the client is gone, when it can't be written to, or when the context's
// deadline nears.
type Handler struct {
	mux    *http.ServeMux
	model  *generate.Model
	recipe recipe.Recipe
	opt    engine.Options
	meter  *telemetry.Meter
	log    *slog.Logger
	now    func() time.Time

	// turn holds the engine: whoever takes it out has it.
	turn chan *engine.Engine
}

// New returns a handler. r's model name, bound of tokens and sampling are
// what a request leaves open; its template and stop strings are not used: the chat is
// the client's.
func New(model *generate.Model, r recipe.Recipe, opt engine.Options, meter *telemetry.Meter, log *slog.Logger) *Handler {
	h := &Handler{mux: http.NewServeMux(), model: model, recipe: r, opt: opt, meter: meter, log: log, now: time.Now, turn: make(chan *engine.Engine, 1)}
	h.turn <- nil // made when the model is there
	h.mux.HandleFunc("POST /v1/chat/completions", h.complete)
	h.mux.HandleFunc("GET /v1/models", h.models)
	h.mux.HandleFunc("GET /healthz", h.health)
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		status, code := http.StatusNotFound, "not_found"
		if slices.Contains([]string{"/v1/chat/completions", "/v1/models", "/healthz"}, r.URL.Path) {
			status, code = http.StatusMethodNotAllowed, "method_not_allowed"
		}
		writeError(w, invalid(status, code, "this endpoint has POST /v1/chat/completions, GET /v1/models and GET /healthz"))
	})
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// loaded returns the model if it is there already.
func (h *Handler) loaded() (engine.Backend, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	return h.model.Wait(ctx)
}

func (h *Handler) health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, err := h.loaded()
	var loading *generate.LoadingError
	status := "ok"
	switch {
	case errors.As(err, &loading):
		status = "loading"
	case err != nil:
		status = "failed"
	}
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	writeJSON(w, map[string]string{"status": status})
}

func (h *Handler) models(w http.ResponseWriter, r *http.Request) {
	backend, err := h.wait(r.Context())
	if err != nil {
		h.fail(w, r, err)
		return
	}
	type entry struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		OwnedBy string `json:"owned_by"`
	}
	w.Header().Set("Content-Type", "application/json")
	writeJSON(w, map[string]any{"object": "list", "data": []entry{{h.name(backend), "model", "briefing-swarm"}}})
}

// name is what the model is called.
func (h *Handler) name(backend engine.Backend) string {
	if h.recipe.Model != "" {
		return h.recipe.Model
	}
	return backend.Info().Model
}

// wait waits for the model, and turns what only time helps against into a 503.
func (h *Handler) wait(ctx context.Context) (engine.Backend, error) {
	backend, err := h.model.Wait(ctx)
	var loading *generate.LoadingError
	if errors.As(err, &loading) {
		code := "model_loading"
		return nil, &apiError{status: http.StatusServiceUnavailable, Message: "the model is being loaded: try again", Type: typeServer, Code: &code}
	}
	return backend, err
}

// fail writes an error, and to the log what the client is not to see.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := errorOf(err)
	if e.status >= http.StatusInternalServerError {
		h.log.ErrorContext(r.Context(), "chat failed", "status", e.status, "error", err.Error())
	}
	writeError(w, e)
}

// How an invocation's time is divided: what is left after generating is for the
// last bytes and the metrics.
const (
	endShare = 20 // of the time, at most maxEnd
	maxEnd   = 2 * time.Second
)

func (h *Handler) complete(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		err = invalid(http.StatusRequestEntityTooLarge, "body_too_large", "the body has more than %d bytes", large.Limit)
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	c, request, err := parseChat(body, engine.Request{Sampling: h.recipe.Sampling})
	if err != nil {
		h.fail(w, r, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if c.Seed == nil {
		// As clients know it: the same chat gets another answer, where it is not greedy.
		request.Sampling.Seed = mathrand.Uint64()
	}
	if deadline, ok := ctx.Deadline(); ok {
		request.Deadline = deadline.Add(-min(maxEnd, time.Until(deadline)/endShare))
	}
	eng, backend, err := h.take(ctx)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	defer func() { h.turn <- eng }()
	name := h.name(backend)
	if c.Model != "" && c.Model != name {
		h.fail(w, r, invalid(http.StatusNotFound, "model_not_found", "this endpoint has the model %q alone: ask for it, or for none", name))
		return
	}
	if err := h.bound(eng, c, &request); err != nil {
		h.fail(w, r, err)
		return
	}
	out := &writer{w: w, stream: c.Stream, cancel: cancel, head: completion{
		ID: "chatcmpl-" + rand.Text(), Object: "chat.completion", Created: h.now().Unix(), Model: name,
	}}
	if c.Stream {
		out.head.Object = "chat.completion.chunk"
		request.OnText = out.text
	}
	before := eng.Stats()
	var result engine.Result
	err = eng.Generate(ctx, slices.Values([]engine.Request{request}), func(r engine.Result) error {
		result = r
		return nil
	})
	if err == nil {
		err = result.Err
	}
	switch {
	case err == nil:
		out.end(result, c.StreamOptions.IncludeUsage)
	case out.err != nil || ctx.Err() != nil:
		h.log.InfoContext(ctx, "the client is gone", "tokens", eng.Stats().CompletionTokens-before.CompletionTokens)
	case out.begun:
		h.log.ErrorContext(ctx, "chat broke off", "error", err.Error())
		out.event(map[string]any{"error": errorOf(err)})
	default:
		h.fail(w, r, err)
	}
	h.measure(ctx, name, backend, before, eng.Stats(), result, err)
}

// take waits for the model and for the chats before, and makes the engine.
func (h *Handler) take(ctx context.Context) (*engine.Engine, engine.Backend, error) {
	backend, err := h.wait(ctx)
	if err != nil {
		return nil, nil, err
	}
	select {
	case eng := <-h.turn:
		if eng == nil {
			if eng, err = engine.New(backend, h.opt); err != nil {
				h.turn <- nil
				return nil, nil, err
			}
			h.log.InfoContext(ctx, "model loaded", "model", h.name(backend), "variant", backend.Host().Variant, "seconds", h.model.LoadTime().Seconds())
		}
		return eng, backend, nil
	case <-ctx.Done():
		code := "busy"
		return nil, nil, &apiError{status: http.StatusServiceUnavailable, Message: "another chat took all the time there was: try again", Type: typeServer, Code: &code}
	}
}

// bound gives the request its bound of tokens: what the client asks for, else
// the recipe's, but never more than the context has room for where the client
// did not ask.
func (h *Handler) bound(eng *engine.Engine, c *chat, r *engine.Request) error {
	prompt, err := eng.CountTokens(r.Messages)
	if err != nil {
		// The chat template refuses what it was not made for, such as two system
		// messages in a row.
		return invalid(http.StatusBadRequest, "invalid_value", "messages can't be put into the model's chat template: %v", err)
	}
	limit := eng.Info().SeqCells
	if c.MaxTokens == nil && c.MaxCompletionTokens == nil {
		r.MaxTokens = max(1, min(h.recipe.MaxTokens, limit-prompt))
	}
	if prompt+r.MaxTokens > limit {
		return &engine.PromptTooLongError{PromptTokens: prompt, MaxTokens: r.MaxTokens, Limit: limit}
	}
	return nil
}

// measure writes the metrics of a chat.
func (h *Handler) measure(ctx context.Context, name string, backend engine.Backend, before, after engine.Stats, r engine.Result, err error) {
	b := telemetry.Batch{Model: name, Briefings: 1, Properties: map[string]any{"requestId": telemetry.RequestID(ctx)}}
	if err != nil {
		b.Briefings, b.Failed = 0, 1
	}
	if r.FirstToken > 0 {
		b.FirstToken = []time.Duration{r.FirstToken}
	}
	if took := after.Decode - before.Decode; took > 0 {
		b.TokensPerSec = float64(after.CompletionTokens-before.CompletionTokens) / took.Seconds()
	}
	if prefill := (engine.Phase{Tokens: after.PurePrefill.Tokens - before.PurePrefill.Tokens, Time: after.PurePrefill.Time - before.PurePrefill.Time}); prefill.Time > 0 {
		b.PrefillTokensPerSec = prefill.TokensPerSec()
	}
	if before.Requests == 0 {
		b.ModelLoad = h.model.LoadTime()
	}
	h.log.InfoContext(ctx, "chat", "prompt_tokens", r.PromptTokens, "completion_tokens", r.CompletionTokens, "finish_reason", r.FinishReason, "ok", err == nil)
	if err := h.meter.Write(b); err != nil {
		h.log.ErrorContext(ctx, "no metrics", "error", err.Error())
	}
}

// writer writes an answer, in one piece or as events.
type writer struct {
	w      http.ResponseWriter
	stream bool
	cancel context.CancelFunc
	head   completion
	begun  bool
	err    error // the client's connection
}

// begin sends the headers and the role.
func (o *writer) begin() {
	if o.begun {
		return
	}
	o.begun = true
	header := o.w.Header()
	header.Set("Content-Type", "text/event-stream; charset=utf-8")
	header.Set("Cache-Control", "no-cache")
	header.Set("X-Accel-Buffering", "no")
	o.w.WriteHeader(http.StatusOK)
	empty := ""
	o.chunk(answer{Role: engine.RoleAssistant, Content: &empty}, nil)
}

// text sends a piece of the answer.
func (o *writer) text(s string) {
	if s == "" {
		return
	}
	o.begin()
	o.chunk(answer{Content: &s}, nil)
}

func (o *writer) chunk(a answer, reason *string) {
	c := o.head
	c.Choices = []choice{{Delta: &a, FinishReason: reason}}
	o.event(c)
}

// event sends v. Where that fails the client is gone and generating ends.
func (o *writer) event(v any) {
	if o.err != nil {
		return
	}
	text, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(o.w, "data: %s\n\n", text)
	}
	o.flush(err)
}

func (o *writer) flush(err error) {
	if err == nil {
		// Lambda's writer does not buffer and has nothing to flush.
		if err = http.NewResponseController(o.w).Flush(); errors.Is(err, http.ErrNotSupported) {
			err = nil
		}
	}
	if err != nil {
		o.err = err
		o.cancel()
	}
}

// end sends what is left of a result.
func (o *writer) end(r engine.Result, includeUsage bool) {
	if !o.stream {
		c := o.head
		c.Choices, c.Usage = []choice{{Message: &answer{Role: engine.RoleAssistant, Content: &r.Text}, FinishReason: finishReason(r)}}, newUsage(r)
		o.w.Header().Set("Content-Type", "application/json")
		writeJSON(o.w, c)
		return
	}
	o.begin()
	o.chunk(answer{}, finishReason(r))
	if includeUsage {
		c := o.head
		c.Choices, c.Usage = []choice{}, newUsage(r)
		o.event(c)
	}
	if o.err == nil {
		_, err := io.WriteString(o.w, "data: [DONE]\n\n")
		o.flush(err)
	}
}
