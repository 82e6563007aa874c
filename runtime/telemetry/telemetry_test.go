package telemetry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// checkEMF holds a line to the schema, and to the rules of the specification
// that a schema can't state: what is declared is there, and has a fitting value.
func checkEMF(line []byte) error {
	schema, err := jsonschema.NewCompiler().Compile("testdata/emf.schema.json")
	if err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
	if err != nil {
		return err
	}
	if err := schema.Validate(doc); err != nil {
		return err
	}
	if len(line) > 256<<10 {
		return fmt.Errorf("line of %d bytes", len(line))
	}
	var event struct {
		AWS struct {
			CloudWatchMetrics []metricDirective
		} `json:"_aws"`
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return err
	}
	var values map[string]any
	if err := json.Unmarshal(line, &values); err != nil {
		return err
	}
	for _, d := range event.AWS.CloudWatchMetrics {
		for _, set := range d.Dimensions {
			for _, name := range set {
				if v, ok := values[name].(string); !ok || v == "" || len(v) > 1024 {
					return fmt.Errorf("dimension %s has the value %v", name, values[name])
				}
			}
		}
		for _, m := range d.Metrics {
			switch v := values[m.Name].(type) {
			case float64:
			case []any:
				if len(v) == 0 || len(v) > 100 {
					return fmt.Errorf("metric %s has %d values", m.Name, len(v))
				}
				for _, one := range v {
					if _, ok := one.(float64); !ok {
						return fmt.Errorf("metric %s has the value %v", m.Name, one)
					}
				}
			default:
				return fmt.Errorf("metric %s has the value %v", m.Name, v)
			}
		}
	}
	return nil
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	many := make([]time.Duration, 250)
	for i := range many {
		many[i] = time.Duration(i) * time.Millisecond
	}
	tests := map[string]struct {
		batch   Batch
		metrics []string
	}{
		"cold start": {
			batch: Batch{Model: "llama-3.2-3b Q4_0", FirstToken: many[:3], TokensPerSec: 41.237, PrefillTokensPerSec: 310, ModelLoad: 26 * time.Second, Briefings: 3,
				Properties: map[string]any{"run_id": "run-1", "requestId": "r"}},
			metrics: []string{TimeToFirstToken, TokensPerSecond, PrefillTokensPerSecond, ModelLoad, Briefings, Failed},
		},
		"nothing measured":             {batch: Batch{Failed: 2}, metrics: []string{Briefings, Failed}},
		"more users than values":       {batch: Batch{FirstToken: many, Briefings: 250}, metrics: []string{TimeToFirstToken, Briefings, Failed}},
		"a property can't be a metric": {batch: Batch{Properties: map[string]any{Briefings: "x", "tenant": ""}}, metrics: []string{Briefings, Failed}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if err := NewMeter(&out, "acme", "").Write(test.batch); err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(out.Bytes(), []byte("\n")); n != 1 {
				t.Fatalf("%d lines", n)
			}
			if err := checkEMF(out.Bytes()); err != nil {
				t.Errorf("%v in\n%s", err, out.String())
			}
			var event struct {
				AWS struct{ CloudWatchMetrics []metricDirective } `json:"_aws"`
			}
			if err := json.Unmarshal(out.Bytes(), &event); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range event.AWS.CloudWatchMetrics[0].Metrics {
				got = append(got, m.Name)
			}
			if d := cmp.Diff(test.metrics, got); d != "" {
				t.Errorf("metrics (-want +got):\n%s", d)
			}
		})
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	counts := map[string]int{MailSent: 3, MailUnknown: 0}
	if err := NewMeter(&out, "", "deliver").Count(counts, map[string]any{"run_id": "r", "tenant": "forged"}); err != nil {
		t.Fatal(err)
	}
	if err := checkEMF(out.Bytes()); err != nil {
		t.Errorf("%v in\n%s", err, out.String())
	}
	for _, want := range []string{`"MailSent":3`, `"MailUnknown":0`, `"tenant":"none"`, `"function":"deliver"`, `"run_id":"r"`, `[["tenant","function"]]`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the line lacks %s: %s", want, out.String())
		}
	}
}

// TestSchemaRefuses makes sure that the judge can say no.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	const good = `{"_aws":{"Timestamp":1,"CloudWatchMetrics":[{"Namespace":"N","Dimensions":[["d"]],"Metrics":[{"Name":"M","Unit":"Count"}]}]},"d":"x","M":1}`
	if err := checkEMF([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{`"Timestamp":1`, `"Timestamp":"1"`}, {`"Unit":"Count"`, `"Unit":"Tokens"`}, {`"N"`, `""`}, {`[["d"]]`, `[]`}, {`[["d"]]`, `["d"]`},
		{`"d":"x"`, `"d":""`}, {`"d":"x",`, ``}, {`"M":1`, `"M":"1"`}, {`"M":1`, `"M":[]`}, {`"Name":"M"`, `"Name":"Other"`}, {`"_aws"`, `"aws"`},
	} {
		if err := checkEMF([]byte(strings.Replace(good, change[0], change[1], 1))); err == nil {
			t.Errorf("%s is accepted in place of %s", change[1], change[0])
		}
	}
}

func TestLogLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := NewLogger(&out, "WARN").With("handler", "generate")
	ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "req-7"})
	log.InfoContext(ctx, "not shown")
	log.WarnContext(ctx, "rows are slow", "rows", 3)
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if _, err := time.Parse(time.RFC3339Nano, fmt.Sprint(line["timestamp"])); err != nil {
		t.Error(err)
	}
	delete(line, "timestamp")
	want := map[string]any{"level": "WARN", "message": "rows are slow", "handler": "generate", "rows": 3.0, "requestId": "req-7"}
	if d := cmp.Diff(want, line); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
