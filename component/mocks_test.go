package component_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"

	"github.com/briefing-swarm/briefing-swarm/component"
)

// registered is one resource as the engine was asked for it.
type registered struct {
	Type, Name, ID string
	Inputs         resource.PropertyMap
	RPC            *pulumirpc.RegisterResourceRequest
}

// cloud stands in for the engine and the providers: it records what is asked
// for, and answers with made-up ids and ARNs. It proves wiring only.
type cloud struct {
	mu        sync.Mutex
	region    string
	resources []registered
	calls     []pulumi.MockCallArgs
	logs      []string
}

func (c *cloud) NewResource(a pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := registered{Type: a.TypeToken, Name: a.Name, ID: a.Name + "-0123456", Inputs: a.Inputs.Copy(), RPC: a.RegisterRPC}
	c.resources = append(c.resources, r)
	state := a.Inputs.Copy()
	for key, value := range computed(a.TypeToken, r.ID) {
		if _, set := state[resource.PropertyKey(key)]; !set {
			state[resource.PropertyKey(key)] = resource.NewStringProperty(value)
		}
	}
	return r.ID, state, nil
}

func (c *cloud) Call(a pulumi.MockCallArgs) (resource.PropertyMap, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, a)
	answer := map[string]any{}
	switch a.Token {
	case "aws:index/getRegion:getRegion":
		answer = map[string]any{"name": c.region, "id": c.region, "endpoint": "", "description": ""}
	case "aws:index/getCallerIdentity:getCallerIdentity":
		answer = map[string]any{"accountId": account, "arn": "arn:aws:iam::" + account + ":user/ana", "userId": "AIDA", "id": account}
	default:
		return nil, fmt.Errorf("no answer to %s is known", a.Token)
	}
	return resource.NewPropertyMapFromMap(answer), nil
}

const account = "123456789012"

// computed are the outputs that the services make up, by type.
func computed(token, id string) map[string]string {
	return map[string]string{"arn": "arn:aws:test:::" + id, "id": id, "name": id}
}

// build builds a swarm as an update or, with preview, as a preview does.
func build(t *testing.T, preview bool, program func(*pulumi.Context) error) (*cloud, error) {
	t.Helper()
	t.Chdir(t.TempDir()) // the build context is staged under the working directory
	c := &cloud{region: "us-east-1"}
	err := pulumi.RunErr(program, pulumi.WithMocks("swarms", "test", c), func(info *pulumi.RunInfo) { info.DryRun = preview })
	return c, err
}

const modelSum = "6c1a2b41161032677be168d354123594c0e6e67d2b9227c84f296ad037c728ff"

// minimal asks for nothing that has a default.
func minimal() *component.Args { return &component.Args{ModelSha256: modelSum} }
