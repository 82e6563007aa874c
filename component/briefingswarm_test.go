package component_test

import (
	"fmt"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/briefing-swarm/briefing-swarm/component"
)

func TestTmp(t *testing.T) {
	c, err := build(t, false, func(ctx *pulumi.Context) error {
		_, err := component.NewBriefingSwarm(ctx, "acme", minimal())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range c.resources {
		fmt.Println(r.Type, r.Name, "")
	}
}
