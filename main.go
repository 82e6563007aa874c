// Command briefing-swarm is the Pulumi program of one tenant: a stack's
// configuration in, a BriefingSwarm out. docs/deploy.md walks through it.
package main

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/briefing-swarm/briefing-swarm/component"
)

func main() { pulumi.Run(deploy) }

// deploy builds the swarm of the stack, under the stack's name.
func deploy(ctx *pulumi.Context) error {
	args, err := readConfig(ctx)
	if err != nil {
		return err
	}
	swarm, err := component.NewBriefingSwarm(ctx, ctx.Stack(), args)
	if err != nil {
		return err
	}
	for name, output := range swarm.Outputs() {
		if name == "planInputs" {
			continue // for the policies, which read it on the component: a page of numbers
		}
		ctx.Export(name, output)
	}
	return nil
}
