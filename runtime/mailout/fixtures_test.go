package mailout

import (
	"github.com/briefing-swarm/briefing-swarm/runtime/awsclient"
	"github.com/briefing-swarm/briefing-swarm/runtime/deliver"
)

func newOptOuts(c *awsclient.Clients, table string) *deliver.DynamoOptOuts {
	return deliver.NewDynamoOptOuts(c.DynamoDB, table)
}
