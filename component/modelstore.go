package component

import (
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/lambda"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// modelStore is a file system that holds the model, and the network in which
// workers reach it.
type modelStore struct {
	ready []pulumi.Resource
}

func (m *modelStore) path(file string) string    { return "/mnt/model/" + file }
func (m *modelStore) mount(*lambda.FunctionArgs) {}
func (m *modelStore) statements() []statement    { return nil }

func (s *swarm) modelStore() (*modelStore, error) { return nil, nil }
