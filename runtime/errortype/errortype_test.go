package errortype_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambda/messages"

	"github.com/briefing-swarm/briefing-swarm/runtime/errortype"
	"github.com/briefing-swarm/briefing-swarm/runtime/generate"
	"github.com/briefing-swarm/briefing-swarm/runtime/normalise"
	"github.com/briefing-swarm/briefing-swarm/runtime/object"
)

func TestHandler(t *testing.T) {
	t.Parallel()
	input := &normalise.InputError{Err: &object.NotFoundError{Err: io.EOF}}
	tests := []struct {
		name string
		err  error
		want string
	}{
		{"plain", errors.New("no"), "errorString"},
		{"of ours", input, "InputError"},
		{"value", value{}, "value"},
		{"wrapped", fmt.Errorf("run: %w", &generate.ThrottledError{Err: io.EOF}), "ThrottledError"},
		{"joined", errors.Join(fmt.Errorf("read: %w", input), &object.ChangedError{}), "InputError"},
		{"second of two", errors.Join(io.ErrUnexpectedEOF, &object.ChangedError{}), "ChangedError"},
		{"wrapped plain", fmt.Errorf("run: %w", io.EOF), "wrapError"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			handler := errortype.Handler(lambda.NewHandler(func(context.Context) (string, error) { return "", tt.err }))
			_, err := handler.Invoke(t.Context(), []byte("{}"))
			var got messages.InvokeResponse_Error
			if !errors.As(err, &got) || got.Type != tt.want || got.Message != tt.err.Error() {
				t.Errorf("Lambda is told %#v, want the type %s", err, tt.want)
			}
		})
	}
	handler := errortype.Handler(lambda.NewHandler(func() (string, error) { return "fine", nil }))
	if out, err := handler.Invoke(t.Context(), []byte("{}")); err != nil || string(out) != `"fine"` {
		t.Errorf("%s, error %v", out, err)
	}
}

// value is an error of ours that no other package can name.
type value struct{}

func (value) Error() string { return "value" }
