package states_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/component/states"
	"github.com/briefing-swarm/briefing-swarm/internal/statestest"
)

var update = flag.Bool("update", false, "rewrite golden files")

func arn(name string) string {
	return "arn:aws:lambda:eu-west-1:123456789012:function:acme-" + name + ":live"
}

func minimalRun() states.Run {
	return states.Run{
		NormaliseFunction: arn("normalise"), GenerateFunction: arn("generate"), ReconcileFunction: arn("reconcile"),
		NormaliseTimeoutSec: 300, GenerateTimeoutSec: 900, ReconcileTimeoutSec: 300,
		ClaimsTable: "acme-claims", RunsBucket: "acme-runs", MaxConcurrency: 100, MaxItemsPerBatch: 50, BufferSec: 60,
	}
}

func fullRun() states.Run {
	r := minimalRun()
	r.MaxInputBytesPerBatch, r.ToleratedFailurePercentage, r.ReconcileAttempts, r.TimeoutSec = 200_000, 2, 8, 6*3600
	r.SettleSec = 120
	r.TopicArn, r.Comment = "arn:aws:sns:eu-west-1:123456789012:acme-runs", "Briefings of acme, one file a run"
	return r
}

func minimalDelivery() states.Delivery {
	return states.Delivery{DeliverFunction: arn("deliver"), DeliverTimeoutSec: 900, RunsBucket: "acme-runs", WindowSec: 7200}
}

func fullDelivery() states.Delivery {
	d := minimalDelivery()
	d.MaxInputBytesPerBatch, d.ToleratedFailurePercentage, d.TimeoutSec = 200_000, 1, 2*24*3600
	d.TopicArn, d.Comment = "arn:aws:sns:eu-west-1:123456789012:acme-runs", "Mails of acme, one file a delivery"
	return d
}

// documents are the goldens, by name.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, machine := range map[string]interface{ JSON() (string, error) }{
		"run-minimal": minimalRun(), "run-full": fullRun(), "delivery-minimal": minimalDelivery(), "delivery-full": fullDelivery(),
	} {
		text, err := machine.JSON()
		if err != nil {
			t.Fatal(err)
		}
		all[name] = text
	}
	return all
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	for name, text := range documents(t) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", name+".asl.json")
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), text); d != "" {
				t.Errorf("document (-want +got):\n%s", d)
			}
		})
	}
}

// parquetFault is what the language service says of a reader that AWS has and
// version 1.16.1 of it does not know yet.
const parquetFault = `Value is not accepted. Valid values: "CSV", "JSON", "JSONL", "MANIFEST".`

func TestJudges(t *testing.T) {
	t.Parallel()
	all := documents(t)
	var names, texts []string
	for name, text := range all {
		names, texts = append(names, name), append(texts, text)
	}
	for i, faults := range statestest.Judge(t, texts...) {
		if strings.HasPrefix(names[i], "delivery") {
			line := 1 + strings.Count(texts[i][:strings.Index(texts[i], `"PARQUET"`)], "\n")
			if want := []string{fmt.Sprintf("language service: line %d: %s", line, parquetFault)}; !slices.Equal(faults, want) {
				t.Errorf("%s: the judges say %q, want %q", names[i], faults, want)
			}
			continue
		}
		if len(faults) > 0 {
			t.Errorf("%s:\n%s", names[i], strings.Join(faults, "\n"))
		}
	}
}

// TestJudgesBite breaks the documents in ways that a change could, so that a
// judge that says nothing means something.
func TestJudgesBite(t *testing.T) {
	t.Parallel()
	all := documents(t)
	run, delivery := all["run-full"], all["delivery-full"]
	// Lines as they stand in the documents; by which judges a broken one is
	// refused.
	const language, validator = "language service", "asl-validator"
	tests := []struct {
		name, text, old, new string
		by                   []string
	}{
		{"start without a state", run, `"StartAt": "How it was started"`, `"StartAt": "How it started"`, []string{language, validator}},
		{"next without a state", run, `"Next": "Within the budget"`, `"Next": "Within budget"`, []string{language, validator}},
		{"default without a state", run, `"Default": "Over the budget"`, `"Default": "Too dear"`, []string{language, validator}},
		{"unknown type", run, `"Type": "Succeed"`, `"Type": "Success"`, []string{language, validator}},
		{"unknown field", delivery, `"TimestampPath"`, `"TimePath"`, []string{language, validator}},
		{"percentage that is no integer", run, `"ToleratedFailurePercentage": 2`, `"ToleratedFailurePercentage": 2.5`, []string{language, validator}},
		{"no end", run, `"Type": "Wait",
      "Seconds": 60,
      "Next": "Reconcile"`, `"Type": "Wait",
      "Seconds": 60`, []string{language, validator}},
		{"bad path", run, `"Variable": "$.reconcile.complete"`, `"Variable": "reconcile.complete"`, []string{validator}},
		{"bad intrinsic", run, `"States.MathAdd($.attempt.n, 1)"`, `"States.Plus($.attempt.n, 1)"`, []string{language, validator}},
		{"path where none is marked", run, `"run_id.$": "$.run_id"`, `"run_id.$": "run_id"`, []string{language, validator}},
		{"attempts that are no number", run, `"MaxAttempts": 2`, `"MaxAttempts": "2"`, []string{language, validator}},
		{"unknown reader", run, `"InputType": "JSONL"`, `"InputType": "XML"`, []string{language}},
		{"unknown writer", run, `"OutputType": "JSONL"`, `"OutputType": "CSV"`, []string{language}},
		{"unknown jitter", run, `"JitterStrategy": "FULL"`, `"JitterStrategy": "SOME"`, []string{language}},
		{"unknown mode", run, `"Mode": "DISTRIBUTED"`, `"Mode": "DISTANT"`, []string{language, validator}},
		{"percentage beyond 100", run, `"ToleratedFailurePercentage": 2`, `"ToleratedFailurePercentage": 200`, []string{language, validator}},
		{"seconds and a timestamp", delivery, `"TimestampPath": "$.schedule.wait_until"`, `"TimestampPath": "$.schedule.wait_until", "Seconds": 1`, []string{language, validator}},
		{"two concurrencies", delivery, `"MaxConcurrencyPath": "$.schedule.workers"`, `"MaxConcurrencyPath": "$.schedule.workers", "MaxConcurrency": 5`, []string{validator}},
		{"two batch sizes", delivery, `"MaxItemsPerBatchPath": "$.schedule.batch_size"`, `"MaxItemsPerBatchPath": "$.schedule.batch_size", "MaxItemsPerBatch": 5`, []string{validator}},
		{"two causes", delivery, `"CausePath": "$.outcome.cause"`, `"CausePath": "$.outcome.cause", "Cause": "none"`, []string{language, validator}},
	}
	var texts []string
	for _, tt := range tests {
		if !strings.Contains(tt.text, tt.old) {
			t.Errorf("%s: the document does not have %s", tt.name, tt.old)
		}
		texts = append(texts, strings.Replace(tt.text, tt.old, tt.new, 1))
	}
	for i, faults := range statestest.Judge(t, texts...) {
		faults = slices.DeleteFunc(faults, func(fault string) bool {
			return strings.HasSuffix(fault, parquetFault) && strings.Contains(texts[i], `"PARQUET"`)
		})
		var by []string
		for _, judge := range []string{language, validator} {
			if slices.ContainsFunc(faults, func(fault string) bool { return strings.HasPrefix(fault, judge) }) {
				by = append(by, judge)
			}
		}
		if !slices.Equal(by, tests[i].by) {
			t.Errorf("%s: refused by %q, want %q:\n%s", tests[i].name, by, tests[i].by, strings.Join(faults, "\n"))
		}
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	run := states.Run{
		NormaliseFunction: "normalise", GenerateFunction: "arn:aws:lambda:eu-west-1:123456789012:function:acme-generate:$LATEST",
		ReconcileFunction: "arn:aws:lambda:eu-west-1:123456789012:function:acme-reconcile", NormaliseTimeoutSec: 0, GenerateTimeoutSec: 901,
		ReconcileTimeoutSec: -1, ClaimsTable: "a b", RunsBucket: "Runs", MaxConcurrency: 10_001, MaxItemsPerBatch: 0, MaxInputBytesPerBatch: 253_953,
		ToleratedFailurePercentage: 101, BufferSec: 0, SettleSec: -1, ReconcileAttempts: 101, TimeoutSec: -1, TopicArn: "topic", Comment: strings.Repeat("x", 201),
	}
	delivery := states.Delivery{
		DeliverFunction: "", DeliverTimeoutSec: 0, RunsBucket: "", MaxInputBytesPerBatch: -1, ToleratedFailurePercentage: -1,
		WindowSec: 59, TimeoutSec: 1 << 30, TopicArn: "arn:aws:sqs:eu-west-1:123456789012:acme", Comment: "\xff",
	}
	mixed := minimalRun()
	mixed.ReconcileFunction = strings.Replace(mixed.ReconcileFunction, "arn:aws:", "arn:aws-cn:", 1)
	tests := []struct {
		name    string
		machine interface{ JSON() (string, error) }
		fields  []string
	}{
		{"run", run, []string{
			"GenerateFunction", "NormaliseFunction", "ReconcileFunction", "NormaliseTimeoutSec", "GenerateTimeoutSec", "ReconcileTimeoutSec",
			"ClaimsTable", "RunsBucket", "MaxConcurrency", "MaxItemsPerBatch", "MaxInputBytesPerBatch", "ToleratedFailurePercentage",
			"BufferSec", "SettleSec", "ReconcileAttempts", "TimeoutSec", "TopicArn", "Comment",
		}},
		{"delivery", delivery, []string{
			"DeliverFunction", "DeliverTimeoutSec", "RunsBucket", "MaxInputBytesPerBatch", "ToleratedFailurePercentage", "WindowSec",
			"TimeoutSec", "TopicArn", "Comment",
		}},
		{"several partitions", mixed, []string{"GenerateFunction, NormaliseFunction, ReconcileFunction"}},
		{"none", fullRun(), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text, err := tt.machine.JSON()
			if (err != nil) != (text == "") {
				t.Errorf("a document of %d bytes and the error %v", len(text), err)
			}
			if d := cmp.Diff(tt.fields, faulty(err)); d != "" {
				t.Errorf("faulty fields of %v (-want +got):\n%s", err, d)
			}
		})
	}
}

// faulty returns the fields of all FieldErrors in err.
func faulty(err error) (fields []string) {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return nil
	}
	for _, one := range joined.Unwrap() {
		var field *states.FieldError
		if errors.As(one, &field) {
			fields = append(fields, field.Field)
		}
	}
	return fields
}

// In other partitions no ARN is one of the first.
func TestPartitions(t *testing.T) {
	t.Parallel()
	for _, partition := range []string{"aws-cn", "aws-us-gov"} {
		swap := func(arn string) string { return strings.Replace(arn, "arn:aws:", "arn:"+partition+":", 1) }
		r, d := fullRun(), fullDelivery()
		for _, arn := range []*string{&r.NormaliseFunction, &r.GenerateFunction, &r.ReconcileFunction, &r.TopicArn, &d.DeliverFunction, &d.TopicArn} {
			*arn = swap(*arn)
		}
		for _, machine := range []interface{ JSON() (string, error) }{r, d} {
			text, err := machine.JSON()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(text, "arn:aws:") || !strings.Contains(text, "arn:"+partition+":states:::lambda:invoke") {
				t.Errorf("%s: a document has ARNs of another partition", partition)
			}
		}
	}
}
