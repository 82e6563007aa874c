package telemetry

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// Namespace is where the metrics appear in CloudWatch.
const Namespace = "BriefingSwarm"

// Names of the metrics.
const (
	TimeToFirstToken       = "TimeToFirstToken"
	TokensPerSecond        = "TokensPerSecond"
	PrefillTokensPerSecond = "PrefillTokensPerSecond"
	ModelLoad              = "ModelLoad"
	Briefings              = "Briefings"
	Failed                 = "Failed"
)

// Names of the metrics of delivery, each a count.
const (
	MailSent         = "MailSent"
	MailAlreadySent  = "MailAlreadySent" // by an earlier call
	MailSkipped      = "MailSkipped"     // no briefing, no address, or unsubscribed
	MailFailed       = "MailFailed"      // certainly not sent
	MailUnknown      = "MailUnknown"     // may have been sent
	MailStopped      = "MailStopped"     // the account or the setup stopped the run
	Bounces          = "Bounces"         // permanent ones
	TransientBounces = "TransientBounces"
	Complaints       = "Complaints"
	MailRejected     = "MailRejected" // by SES, after it had taken the mail
	Unsubscribes     = "Unsubscribes"
)

// units are CloudWatch's names of what each metric counts.
var units = map[string]string{
	TimeToFirstToken:       "Milliseconds",
	TokensPerSecond:        "Count/Second",
	PrefillTokensPerSecond: "Count/Second",
	ModelLoad:              "Milliseconds",
	Briefings:              "Count",
	Failed:                 "Count",
}

// order of the metrics in a line.
var order = []string{TimeToFirstToken, TokensPerSecond, PrefillTokensPerSecond, ModelLoad, Briefings, Failed}

// maxValues is how many values CloudWatch takes for one metric in one line.
const maxValues = 100

// Meter writes lines of metrics. They can be told apart by tenant, model and
// function, and by nothing else: each combination of values is a metric that is
// paid for. A Meter is safe for concurrent use.
type Meter struct {
	mu               sync.Mutex
	w                io.Writer
	tenant, function string
	now              func() time.Time
}

// NewMeter returns a Meter that writes to w, which on Lambda is stdout. Where
// tenant, function or a batch's model is empty it is written as "none", as
// CloudWatch takes no empty value.
func NewMeter(w io.Writer, tenant, function string) *Meter {
	return &Meter{w: w, tenant: orNone(tenant), function: orNone(function), now: time.Now}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// Batch is what happened in one invocation. A metric without a value is left
// out of the line.
type Batch struct {
	Model string
	// FirstToken are the times to the first token of single users. Of more than
	// 100, CloudWatch's limit, 100 are written, evenly picked.
	FirstToken []time.Duration
	// TokensPerSec and PrefillTokensPerSec are 0 where nothing was measured.
	TokensPerSec, PrefillTokensPerSec float64
	// ModelLoad is set in the first batch after a cold start only.
	ModelLoad time.Duration
	// Briefings are the good ones, Failed the others.
	Briefings, Failed int
	// Properties appear in the line for searching, but are no metrics. They must
	// hold nothing about a user.
	Properties map[string]any
}

type metricDirective struct {
	Namespace  string       `json:"Namespace"`
	Dimensions [][]string   `json:"Dimensions"`
	Metrics    []metricUnit `json:"Metrics"`
}

type metricUnit struct {
	Name string `json:"Name"`
	Unit string `json:"Unit"`
}

// Count writes one line with counts under their names. The metrics can be told
// apart by tenant and function. properties are for searching, as in a Batch.
func (m *Meter) Count(counts map[string]int, properties map[string]any) error {
	d := metricDirective{Namespace: Namespace, Dimensions: [][]string{{"tenant", "function"}}}
	line := map[string]any{}
	for name, v := range properties {
		line[name] = v
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		d.Metrics = append(d.Metrics, metricUnit{name, "Count"})
		line[name] = counts[name]
	}
	line["tenant"], line["function"] = m.tenant, m.function
	return m.line(line, d)
}

// Write writes b as one line.
func (m *Meter) Write(b Batch) error {
	values := map[string]any{Briefings: b.Briefings, Failed: b.Failed}
	if len(b.FirstToken) > 0 {
		values[TimeToFirstToken] = milliseconds(b.FirstToken)
	}
	if b.TokensPerSec > 0 {
		values[TokensPerSecond] = round(b.TokensPerSec)
	}
	if b.PrefillTokensPerSec > 0 {
		values[PrefillTokensPerSecond] = round(b.PrefillTokensPerSec)
	}
	if b.ModelLoad > 0 {
		values[ModelLoad] = b.ModelLoad.Milliseconds()
	}
	d := metricDirective{Namespace: Namespace, Dimensions: [][]string{{"tenant", "model", "function"}}}
	line := map[string]any{}
	for name, v := range b.Properties {
		line[name] = v
	}
	for _, name := range order {
		if v, ok := values[name]; ok {
			d.Metrics = append(d.Metrics, metricUnit{name, units[name]})
			line[name] = v
		}
	}
	line["tenant"], line["model"], line["function"] = m.tenant, orNone(b.Model), m.function
	return m.line(line, d)
}

// line completes a line and writes it.
func (m *Meter) line(line map[string]any, d metricDirective) error {
	line["_aws"] = map[string]any{"Timestamp": m.now().UnixMilli(), "CloudWatchMetrics": []metricDirective{d}}
	text, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.w.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

// milliseconds picks at most maxValues of the times.
func milliseconds(times []time.Duration) []float64 {
	n := min(len(times), maxValues)
	values := make([]float64, n)
	for i := range values {
		values[i] = round(float64(times[i*len(times)/n]) / float64(time.Millisecond))
	}
	return values
}

// round keeps two decimals.
func round(v float64) float64 { return math.Round(v*100) / 100 }
