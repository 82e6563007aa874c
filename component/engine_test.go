package component_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/briefing-swarm/briefing-swarm/component"
	"github.com/briefing-swarm/briefing-swarm/internal/enginetest"
)

// swarm is a program with one component.
func swarm(name string, args func() *component.Args) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		c, err := component.NewBriefingSwarm(ctx, name, args())
		if err != nil {
			return err
		}
		for key, value := range c.Outputs() {
			ctx.Export(key, value)
		}
		return nil
	}
}

// TestLifecycle runs each configuration through the real engine: a preview that
// makes nothing, an update, a second one that changes nothing, and a destroy.
// The providers refuse what AWS is known to refuse.
func TestLifecycle(t *testing.T) {
	for name, args := range configurations {
		t.Run(name, func(t *testing.T) {
			e := enginetest.New(t)
			s := e.Inline("swarm", name, map[string]string{"aws:region": "us-east-1"}, swarm("acme", args))
			preview := s.Preview()
			if preview.Err != nil {
				t.Fatalf("preview: %v", preview.Err)
			}
			for _, call := range e.Calls() {
				if call.Method == "Create" && !call.Preview {
					t.Errorf("the preview made %s", call.URN)
				}
			}
			up := s.Up()
			if up.Err != nil {
				t.Fatalf("up: %v", up.Err)
			}
			if diff := cmp.Diff(preview.Steps, up.Steps); diff != "" {
				t.Errorf("the update is not what the preview showed (-preview +update):\n%s", diff)
			}
			if again := s.Up(); again.Err != nil || len(again.Steps) != 0 {
				t.Errorf("a second update did %v, error %v; want nothing", again.Steps, again.Err)
			}
			if again := s.Preview(); again.Err != nil || len(again.Steps) != 0 {
				t.Errorf("a preview after it shows %v, error %v; want nothing", again.Steps, again.Err)
			}
			if destroyed := s.Destroy(); destroyed.Err != nil || len(destroyed.Steps) != len(up.Steps) {
				t.Errorf("destroy did %d steps, error %v; want %d", len(destroyed.Steps), destroyed.Err, len(up.Steps))
			}
		})
	}
}
