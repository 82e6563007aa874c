package mailout

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/runtime/awsclient"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/deliver"
	"github.com/briefing-swarm/briefing-swarm/runtime/telemetry"
)

func newOptOuts(c *awsclient.Clients, table string) *deliver.DynamoOptOuts {
	return deliver.NewDynamoOptOuts(c.DynamoDB, table)
}

// lines takes what a handler says.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// counted returns the sum of a metric over all lines.
func (l *lines) counted(t testing.TB, metric string) int {
	t.Helper()
	sum := 0
	for line := range strings.Lines(l.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("a line is no JSON: %s", line)
		}
		if n, ok := fields[metric].(float64); ok && fields["_aws"] != nil {
			sum += int(n)
		}
	}
	return sum
}

// mustRow reads a row as the handler does.
func mustRow(t testing.TB, row testRow) briefing.Row {
	t.Helper()
	text, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parseRow(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// env is a complete environment of the deliver handler.
func env(more ...string) func(string) string {
	values := map[string]string{
		EnvLedgerTable: "ledger", EnvFrom: "Morning Desk <desk@briefings.example>", EnvUnsubscribeURL: "https://briefings.example/u", EnvUnsubscribeKey: "a key of 32 bytes, for tests only",
	}
	for i := 0; i < len(more); i += 2 {
		values[more[i]] = more[i+1]
	}
	return func(name string) string { return values[name] }
}

// world is a handler with its services.
type world struct {
	*Handler
	front   *mototest.Front
	clients *awsclient.Clients
	said    *lines
}

func newWorld(t testing.TB, more ...string) *world {
	t.Helper()
	w := &world{front: mototest.NewFront(t, mototest.Start(t)), said: &lines{}}
	w.clients = mototest.Clients(t, w.front.URL)
	mototest.Sender(t, w.clients, "briefings.example")
	mototest.Sender(t, w.clients, "desk@briefings.example")
	mototest.LedgerTable(t, w.clients, "ledger")
	w.restart(t, more...)
	return w
}

// restart is a cold start with another environment.
func (w *world) restart(t testing.TB, more ...string) {
	t.Helper()
	settings, err := ReadSettings(env(more...), Read{})
	if err != nil {
		t.Fatal(err)
	}
	w.Handler, err = New(w.clients.DynamoDB, w.clients.SES, settings, telemetry.NewMeter(w.said, "acme", "deliver"), telemetry.NewLogger(w.said, "INFO"))
	if err != nil {
		t.Fatal(err)
	}
	w.retry = 10 * time.Millisecond
}
