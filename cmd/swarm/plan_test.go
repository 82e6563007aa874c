package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/pricing"

	"github.com/briefing-swarm/briefing-swarm/internal/pricelist"
	"github.com/briefing-swarm/briefing-swarm/plan"
)

func TestPlanHelp(t *testing.T) {
	for _, verb := range []string{"plan", "prices", "prices list", "prices refresh"} {
		code, out, errOut := swarm(t, append(strings.Fields(verb), "--help")...)
		if code != 0 || errOut != "" {
			t.Errorf("%s --help: exit code %d, %s", verb, code, errOut)
		}
		golden(t, "plan/help-"+strings.ReplaceAll(verb, " ", "-")+".golden", out)
	}
}

func TestPlanTable(t *testing.T) {
	code, out, errOut := swarm(t, "plan", "--users", "1e6")
	if code != 0 || errOut != "" {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	for _, want := range []string{"1,000,000 users", "Cost of a run", "Time line", "Quotas", "=> ", "swarm bench --shape llama-3.2-3b", "low", "likely", "high"} {
		if !strings.Contains(out, want) {
			t.Errorf("the plan does not say %q", want)
		}
	}
	for _, l := range strings.Split(out, "\n") {
		if n := utf8.RuneCountInString(l); n > 80 {
			t.Errorf("%d columns: %s", n, l)
		}
	}
}

func TestPlanJSONAndPage(t *testing.T) {
	page := filepath.Join(t.TempDir(), "plan.html")
	code, out, errOut := swarm(t, "plan", "--users", "20_000", "--no-mail", "--deadline", "1h", "--minimise", "cost", "--model", "Llama-3.2-1B",
		"--json", "--html", page)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	var p plan.Plan
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		t.Fatal(err)
	}
	if p.Inputs.Users != 20_000 || p.Inputs.Mail || p.Inputs.Model.Name != "llama-3.2-1b" || p.Deadline == nil || p.Tuning == nil || len(p.Sensitivity) == 0 {
		t.Errorf("the plan is not of what was asked: %+v, deadline %v, tuning %v", p.Inputs, p.Deadline, p.Tuning)
	}
	html, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(html), "20,000 briefings") {
		t.Error("the page is of something else")
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(page), ".swarm-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestPlanFaults(t *testing.T) {
	tests := []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"all at once", []string{"--memory-mib", "64", "--max-concurrency", "20k", "--quota", "ses-recipients-per-24-hours=-1"}, exitFault,
			[]string{"--memory-mib is 64 MiB", "--max-concurrency is 20,000 children", "--quota ses-recipients-per-24-hours is -1"}},
		{"region", []string{"--region", "mars-north-1"}, exitFault, []string{"mars-north-1", "eu-central-1", "swarm prices refresh --region mars-north-1"}},
		{"batch given", []string{"--batch-size", "400"}, exitFault, []string{"--batch-size is 400 users", "lower batchSize"}},
		{"number", []string{"--users", "many"}, exitUsage, []string{"many", "1e6"}},
		{"fraction", []string{"--users", "1.5"}, exitUsage, []string{"not a whole number"}},
		{"quota", []string{"--quota", "patience=3"}, exitUsage, []string{"patience", "lambda-concurrency"}},
		{"goal", []string{"--minimise", "beauty"}, exitUsage, []string{"cost or time"}},
		{"two speeds", []string{"--calibration", "graviton2", "--sec-per-user", "3"}, exitUsage, []string{"calibration"}},
		{"model", []string{"--model", "llama-9"}, exitFault, []string{"llama-9"}},
		{"calibration", []string{"--calibration", "missing.json"}, exitFault, []string{"missing.json", "graviton2", "swarm bench"}},
		{"wrong architecture", []string{"--calibration", "x86-avx512", "--arch", "arm64"}, exitFault, []string{"--calibration", "x86_64"}},
		{"argument", []string{"now"}, exitUsage, []string{"now"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errOut := swarm(t, append([]string{"plan"}, tt.args...)...)
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if out != "" {
				t.Errorf("printed on standard output: %s", out)
			}
			for _, want := range tt.want {
				if !strings.Contains(errOut, want) {
					t.Errorf("standard error does not say %q:\n%s", want, errOut)
				}
			}
		})
	}
}

func TestPlanQuota(t *testing.T) {
	code, out, errOut := swarm(t, "plan", "--users", "1k", "--json", "--quota", "lambda-concurrency=3k", "--quota", "ses-recipients-per-24-hours=1M")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	var p plan.Plan
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		t.Fatal(err)
	}
	if want := (plan.Quotas{LambdaConcurrency: 3000, SesRecipientsPer24Hours: 1_000_000}); p.Inputs.Quotas != want {
		t.Errorf("quotas are %+v, want %+v", p.Inputs.Quotas, want)
	}
}

// What is not given is lowered to what fits; what is given is not.
func TestPlanFitsTheBatch(t *testing.T) {
	code, out, errOut := swarm(t, "plan", "--users", "1000", "--output-tokens", "400", "--json")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	var p plan.Plan
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		t.Fatal(err)
	}
	if p.Inputs.BatchSize >= plan.Defaults().BatchSize {
		t.Errorf("batches of %d users with 400 tokens each", p.Inputs.BatchSize)
	}
}

func TestPlanFromManifest(t *testing.T) {
	c, err := plan.ShippedCalibration(plan.X86AVX512)
	if err != nil {
		t.Fatal(err)
	}
	c.Confidence, c.LoadSec, c.Machine.LambdaMemoryMib = "measured", 9, 5120
	manifest, err := json.Marshal(map[string]any{"run_id": "r", "calibration": c})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "manifest.json")
	if err := os.WriteFile(path, manifest, 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, errOut := swarm(t, "plan", "--from-manifest", path, "--users", "1k", "--json")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	var p plan.Plan
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		t.Fatal(err)
	}
	if p.Inputs.Architecture != plan.X8664 || p.Inputs.MemoryMib != 5120 || p.Speed.Confidence != "measured" || !p.Speed.SecPerUser.Point() {
		t.Errorf("the plan is for %s with %d MiB, %s, %+v s a user; want the manifest's function as measured",
			p.Inputs.Architecture, p.Inputs.MemoryMib, p.Speed.Confidence, p.Speed.SecPerUser)
	}
}

func TestParseNumber(t *testing.T) {
	for text, want := range map[string]float64{
		"0": 0, "1000000": 1e6, "1e6": 1e6, "1M": 1e6, "250k": 250e3, "2.5M": 2.5e6, "1,000,000": 1e6, "1_000_000": 1e6, "1,234.5": 1234.5, "-3": -3, ".5": .5,
	} {
		if got, err := parseNumber(text); err != nil || got != want {
			t.Errorf("parseNumber(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "k", "1,5", "1,0000", "12,34,567", ",123", "1,", "1e", "0x10", "NaN", "Inf", "1e999", "ten", "1 000", "1__000"} {
		if got, err := parseNumber(text); err == nil {
			t.Errorf("parseNumber(%q) = %v, want an error", text, got)
		}
	}
}

func FuzzParseNumber(f *testing.F) {
	for _, s := range []string{"1e6", "1,000", "1_000_000.5", "2M", "-1k", "9e307G"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := parseWhole(s)
		if err != nil {
			return
		}
		if x, err := parseNumber(s); err != nil || float64(n) != x {
			t.Errorf("%q is %d whole and %v, %v", s, n, x, err)
		}
	})
}

// onePrice is a Price List with one product, of one region.
type onePrice struct{ region string }

func (o onePrice) GetProducts(_ context.Context, in *pricing.GetProductsInput, _ ...func(*pricing.Options)) (*pricing.GetProductsOutput, error) {
	for _, f := range in.Filters {
		if aws.ToString(f.Field) == "regionCode" && aws.ToString(f.Value) != o.region {
			return &pricing.GetProductsOutput{}, nil
		}
	}
	if aws.ToString(in.ServiceCode) != "AWSLambda" {
		return &pricing.GetProductsOutput{}, nil
	}
	return &pricing.GetProductsOutput{PriceList: []string{`{"product":{"sku":"A","attributes":{"regionCode":"` + o.region + `","group":"AWS-Lambda-Duration-ARM"}},` +
		`"terms":{"OnDemand":{"t":{"priceDimensions":{"d":{"beginRange":"0","endRange":"Inf","pricePerUnit":{"USD":"0.00002"}}}}}}}`}}, nil
}

func TestPricesRefresh(t *testing.T) {
	real := pricingClient
	t.Cleanup(func() { pricingClient = real })
	pricingClient = func(_ context.Context, endpoint string) (pricelist.API, error) {
		if endpoint != "eu-central-1" {
			return nil, errors.New("asked in " + endpoint)
		}
		return onePrice{"sa-east-1"}, nil
	}
	path := filepath.Join(t.TempDir(), "prices.json")
	code, out, errOut := swarm(t, "prices", "refresh", "--region", "sa-east-1", "--endpoint-region", "eu-central-1", "--out", path)
	if code != 0 || out != "" {
		t.Fatalf("exit code %d, %s: %s", code, out, errOut)
	}
	for _, want := range []string{"wrote " + path, "api.pricing.eu-central-1", "kept as it was: ses.message in sa-east-1"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("standard error does not say %q:\n%s", want, errOut)
		}
	}
	code, out, errOut = swarm(t, "plan", "--users", "1000", "--region", "sa-east-1", "--prices", path)
	if code != 0 || !strings.Contains(out, "sa-east-1") {
		t.Errorf("plan with the file: exit code %d, %s", code, errOut)
	}
	code, out, _ = swarm(t, "prices", "list", "--prices", path, "--region", "sa-east-1")
	if code != 0 || !strings.Contains(out, "0.00002") || !strings.Contains(out, "live") || !strings.Contains(out, "stand-in") {
		t.Errorf("list: exit code %d\n%s", code, out)
	}
	code, _, errOut = swarm(t, "prices", "refresh", "--region", "mars-north-1", "--endpoint-region", "eu-central-1", "--out", path+"2")
	if _, err := os.Stat(path + "2"); code != exitFault || !strings.Contains(errOut, "mars-north-1") || err == nil {
		t.Errorf("a region without prices: exit code %d, file %v, %s", code, err, errOut)
	}
}

func TestPricesList(t *testing.T) {
	code, out, errOut := swarm(t, "prices", "list", "--region", "eu-central-1")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	golden(t, "plan/prices-list.golden", out)
	if code, _, errOut := swarm(t, "prices", "list", "--region", "x"); code != exitFault || !strings.Contains(errOut, "us-east-1") {
		t.Errorf("unknown region: exit code %d, %s", code, errOut)
	}
}

// TestDefaultModelIsTheCatalogues: package plan knows no catalogue, so the figures
// of its default model are written down there.
func TestDefaultModelIsTheCatalogues(t *testing.T) {
	t.Parallel()
	got, err := planModel(plan.DefaultModel().Name, plan.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	if want := plan.DefaultModel(); got != want {
		t.Errorf("plan.DefaultModel() is\n%#v, the catalogue has\n%#v", want, got)
	}
}
