package mototest

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/briefing-swarm/briefing-swarm/runtime/awsclient"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

// rowsPrefix is where the stream of a Gatherer writes.
const rowsPrefix = "raw/"

// Gatherer is a server with one delivery stream, for tests that want to know
// which rows a function has sent.
type Gatherer struct {
	// Stream is the stream's name.
	Stream string

	t       testing.TB
	server  *Server
	clients *awsclient.Clients
}

// StartGatherer starts a server with a bucket and a stream into it.
func StartGatherer(t testing.TB) *Gatherer {
	t.Helper()
	server := Start(t)
	g := &Gatherer{Stream: "briefings", t: t, server: server, clients: Clients(t, server.URL)}
	Bucket(t, g.clients, g.Stream)
	Stream(t, g.clients, g.Stream, g.Stream, rowsPrefix)
	return g
}

// Env is the environment that takes a program's rows here.
func (g *Gatherer) Env() []string {
	env := []string{"SWARM_FIREHOSE_STREAM=" + g.Stream}
	for name, value := range Env(g.server.URL) {
		env = append(env, name+"="+value)
	}
	return env
}

// Rows returns the rows that have arrived, in no order.
func (g *Gatherer) Rows() []briefing.Row {
	g.t.Helper()
	return Rows(g.t, g.clients, g.Stream, rowsPrefix)
}

// Rows reads the rows that a stream has written as lines of JSON below a prefix,
// in no order.
func Rows(t testing.TB, c *awsclient.Clients, bucket, prefix string) []briefing.Row {
	t.Helper()
	var rows []briefing.Row
	for _, key := range Keys(t, c, bucket, prefix) {
		for line := range bytes.Lines(Get(t, c, bucket, key)) {
			var row briefing.Row
			if err := json.Unmarshal(line, &row); err != nil {
				t.Fatalf("%v in %q", err, line)
			}
			rows = append(rows, row)
		}
	}
	return rows
}
