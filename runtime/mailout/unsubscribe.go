package mailout

import (
	"bytes"
	"context"
	_ "embed"
	"html/template"
	"log/slog"
	"net/http"
	"path"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/briefing-swarm/briefing-swarm/runtime/deliver"
	"github.com/briefing-swarm/briefing-swarm/runtime/telemetry"
)

// tokenField is the query's name for the token.
const tokenField = "t"

// OptOuts is where unsubscribed users are kept.
type OptOuts interface {
	Add(ctx context.Context, userID string) error
}

// Unsubscribe ends a user's mails by the link in one of them (RFC 8058), behind
// a function URL. A POST acts, whoever sends it: the mail program, or the page's
// button. A GET shows the page and never acts, since programs that look for
// viruses follow every link.
type Unsubscribe struct {
	Keys    *deliver.UnsubscribeKeys
	OptOuts OptOuts
	Brand   string // who sends the mails, "" for nobody in particular
	Meter   *telemetry.Meter
	Log     *slog.Logger
}

//go:embed unsubscribe.html.tmpl
var pageSource string

var page = template.Must(template.New("page").Parse(pageSource))

// States of the page.
const (
	pageAsk     = "ask"
	pageDone    = "done"
	pageInvalid = "invalid"
	pageFailed  = "failed"
	pageMethod  = "method"
)

// pageView is what the page shows.
type pageView struct{ State, Brand string }

// Handle answers a request. It fails by its status alone, so that whoever posts
// knows whether to try again.
func (u *Unsubscribe) Handle(ctx context.Context, request events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
	method := request.RequestContext.HTTP.Method
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
	default:
		response, err := u.respond(http.StatusMethodNotAllowed, pageMethod, method)
		response.Headers["Allow"] = "GET, HEAD, POST"
		return response, err
	}
	runID, userID, err := u.Keys.Verify(tokenOf(request))
	if err != nil {
		return u.respond(http.StatusNotFound, pageInvalid, method)
	}
	if method != http.MethodPost {
		return u.respond(http.StatusOK, pageAsk, method)
	}
	if err := u.OptOuts.Add(ctx, userID); err != nil {
		u.Log.ErrorContext(ctx, "a user could not be unsubscribed", "run_id", runID, "error", err.Error())
		response, err := u.respond(http.StatusServiceUnavailable, pageFailed, method)
		response.Headers["Retry-After"] = "60"
		return response, err
	}
	u.Log.InfoContext(ctx, "unsubscribed", "run_id", runID)
	if err := u.Meter.Count(map[string]int{telemetry.Unsubscribes: 1}, map[string]any{"run_id": runID}); err != nil {
		u.Log.ErrorContext(ctx, "metrics are lost", "error", err.Error())
	}
	return u.respond(http.StatusOK, pageDone, method)
}

// tokenOf returns the query's token, or the path's last part.
func tokenOf(request events.LambdaFunctionURLRequest) string {
	if token := request.QueryStringParameters[tokenField]; token != "" {
		return token
	}
	return strings.TrimPrefix(path.Base(request.RawPath), "/")
}

// respond writes the page. It loads nothing, runs nothing, is kept nowhere and
// tells no other site its address, which holds the token.
func (u *Unsubscribe) respond(status int, state, method string) (events.LambdaFunctionURLResponse, error) {
	response := events.LambdaFunctionURLResponse{StatusCode: status, Headers: map[string]string{
		"Content-Type":            "text/html; charset=utf-8",
		"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
		"Referrer-Policy":         "no-referrer",
		"X-Content-Type-Options":  "nosniff",
		"X-Robots-Tag":            "noindex, nofollow",
		"Cache-Control":           "no-store",
	}}
	if method == http.MethodHead {
		return response, nil
	}
	var body bytes.Buffer
	if err := page.Execute(&body, pageView{state, u.Brand}); err != nil {
		return events.LambdaFunctionURLResponse{}, err
	}
	response.Body = body.String()
	return response, nil
}
