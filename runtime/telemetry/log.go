package telemetry

import (
	"context"
	"io"
	"log/slog"

	"github.com/aws/aws-lambda-go/lambdacontext"
)

// NewLogger returns a logger that writes JSON lines to w with Lambda's own
// names of the fields, and the request id of the context in every line. level
// is DEBUG, INFO, WARN or ERROR; anything else is INFO.
//
// aws-lambda-go's own handler writes text unless the function's log format is
// set to JSON; ours must not depend on that.
func NewLogger(w io.Writer, level string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo
	}
	return slog.New(&requestHandler{slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l, ReplaceAttr: lambdacontext.ReplaceAttr})})
}

// requestHandler adds the request id. Groups are not for our logs: the id would
// end up inside of them.
type requestHandler struct{ slog.Handler }

func (h *requestHandler) Handle(ctx context.Context, r slog.Record) error {
	if id := RequestID(ctx); id != "" {
		r.AddAttrs(slog.String("requestId", id))
	}
	return h.Handler.Handle(ctx, r)
}

func (h *requestHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &requestHandler{h.Handler.WithAttrs(attrs)}
}

// RequestID returns the id of the Lambda invocation that ctx belongs to, or "".
func RequestID(ctx context.Context) string {
	if lc, ok := lambdacontext.FromContext(ctx); ok {
		return lc.AwsRequestID
	}
	return ""
}
