// Package errortype tells Lambda, and with it the Retry and Catch of a state
// machine, which error it was that a handler returned.
package errortype

import (
	"context"
	"reflect"
	"strings"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambda/messages"
)

// module is the beginning of the paths of our own packages.
const module = "github.com/briefing-swarm/briefing-swarm/"

// Handler returns h with errors that have the name which Of gives them. Lambda
// itself looks at the outermost error only, and calls one that was wrapped
// wrapError and two that were joined joinError, whatever they hold.
func Handler(h lambda.Handler) lambda.Handler { return named{h} }

type named struct{ lambda.Handler }

// Invoke implements lambda.Handler.
func (n named) Invoke(ctx context.Context, event []byte) ([]byte, error) {
	result, err := n.Handler.Invoke(ctx, event)
	if err != nil {
		return result, messages.InvokeResponse_Error{Type: Of(err), Message: err.Error()}
	}
	return result, nil
}

// Of returns the name of the first type in err that is ours and exported,
// outermost and leftmost first; where there is none, that of err itself.
func Of(err error) string {
	if name := ours(err); name != "" {
		return name
	}
	return typeOf(err).Name()
}

func ours(err error) string {
	if err == nil {
		return ""
	}
	if t := typeOf(err); t.PkgPath() != "" && strings.HasPrefix(t.PkgPath()+"/", module) && exported(t.Name()) {
		return t.Name()
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return ours(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			if name := ours(one); name != "" {
				return name
			}
		}
	}
	return ""
}

func typeOf(err error) reflect.Type {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

func exported(name string) bool { return name != "" && name[0] >= 'A' && name[0] <= 'Z' }
