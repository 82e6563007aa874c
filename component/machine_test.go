package component_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/component"
	"github.com/briefing-swarm/briefing-swarm/component/states"
)

// TestMachines: the machines are told of the functions, the tables, the buckets
// and the limits of this swarm.
func TestMachines(t *testing.T) {
	function := func(name string) string {
		return "arn:aws:lambda:us-east-1:" + account + ":function:acme-" + name + "-0123456:7"
	}
	const topic = "arn:aws:sns:us-east-1:" + account + ":acme-alarms-0123456"
	run := states.Run{
		NormaliseFunction: function("normalise"), GenerateFunction: function("generate"), ReconcileFunction: function("reconcile"),
		NormaliseTimeoutSec: 900, GenerateTimeoutSec: 900, ReconcileTimeoutSec: 900, ClaimsTable: "acme-claims-0123456", RunsBucket: "acme-runs-0123456",
		MaxConcurrency: 900, MaxItemsPerBatch: 32, ToleratedFailurePercentage: 5, BufferSec: 60, TimeoutSec: 86_400, Comment: "briefing swarm acme: a run over one input file",
	}
	large := run
	large.MaxConcurrency, large.GenerateTimeoutSec, large.MaxItemsPerBatch, large.BufferSec, large.ToleratedFailurePercentage = 600, 800, 24, 90, 2
	large.TopicArn = topic
	delivery := states.Delivery{
		DeliverFunction: function("deliver"), DeliverTimeoutSec: 900, RunsBucket: "acme-runs-0123456", TopicArn: topic,
		WindowSec: 3600, TimeoutSec: 2*86_400 + 3600, Comment: "briefing swarm acme: mails one file of briefings",
	}
	largeArgs := func() *component.Args {
		args := full()
		args.MaxConcurrency, args.TimeoutSec, args.BatchSize, args.BufferSec, args.ToleratedFailurePercentage = 600, 800, 24, 90, 2
		return args
	}
	for _, tc := range []struct {
		name, machine string
		args          func() *component.Args
		want          interface{ JSON() (string, error) }
	}{
		{"a run", "acme-run", minimal, run},
		{"a large run", "acme-run", largeArgs, large},
		{"a delivery", "acme-delivery", largeArgs, delivery},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, _, err := build(t, false, tc.args())
			if err != nil {
				t.Fatal(err)
			}
			want, err := tc.want.JSON()
			if err != nil {
				t.Fatal(err)
			}
			got := c.find(t, tc.machine, "aws:sfn/stateMachine:StateMachine").Inputs["definition"].StringValue()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("definition (-want +got):\n%s", diff)
			}
		})
	}
}
