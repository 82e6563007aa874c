package plan

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s = %v, want %v (within %v)", what, got, want, tolerance)
	}
}

// planned is a plan that differs from the defaults, with few simulated runs.
func planned(t *testing.T, change func(*Inputs)) *Plan {
	t.Helper()
	in := Defaults()
	change(&in)
	p, err := estimate(in, 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func line(t *testing.T, p *Plan, id string) Line {
	t.Helper()
	l, ok := p.Cost.Line(id)
	if !ok {
		t.Fatalf("the bill has no line %s", id)
	}
	return l
}

// The source article's arithmetic, with its own 3 s a user taken as given.
func TestArticleFigures(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		secPerUser float64
		want       float64
		text       string
	}{
		{"50 tokens in 3 s", 3, 160.0008, "$160.00"},
		{"15 tokens at the same rate", 3 * 15.0 / 50, 48.00024, "$48.00"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := planned(t, func(in *Inputs) { in.SecPerUser = tt.secPerUser })
			l := line(t, p, "lambda.generate")
			near(t, "compute", l.PerRunUsd.Likely, tt.want, 1e-9)
			if !l.PerRunUsd.Point() {
				t.Errorf("compute is a range %+v, the seconds were given", l.PerRunUsd)
			}
			if got := FormatUsd(l.PerRunUsd.Likely); got != tt.text {
				t.Errorf("printed as %s, want %s", got, tt.text)
			}
		})
	}
	x86 := planned(t, func(in *Inputs) { in.SecPerUser, in.Architecture = 3, X8664 })
	near(t, "compute on x86_64", line(t, x86, "lambda.generate").PerRunUsd.Likely, 200.0004, 1e-9)
}

func TestArticleLeavesOut(t *testing.T) {
	t.Parallel()
	p := planned(t, func(in *Inputs) { in.SecPerUser = 3 })
	near(t, "SES", line(t, p, "ses.messages").PerRunUsd.Likely, 100, 1e-9)
	for _, id := range []string{
		"lambda.load", "lambda.init", "lambda.retry", "lambda.requests", "lambda.helpers", "sfn.transitions", "firehose.ingest",
		"firehose.conversion", "s3.put", "s3.get", "dynamodb.write", "lambda.delivery", "logs.ingest",
	} {
		if l := line(t, p, id); !(l.PerRunUsd.Likely > 0) {
			t.Errorf("%s costs %v, want more than nothing", id, l.PerRunUsd.Likely)
		}
	}
	for _, id := range []string{"s3.storage", "ecr.storage", "dynamodb.storage", "logs.storage", "cloudwatch.metrics"} {
		if l := line(t, p, id); !l.Standing || !(l.PerMonthUsd.Likely > 0) || l.PerRunUsd.High != 0 {
			t.Errorf("%s is %+v, want a cost by the month only", id, l)
		}
	}
	// And the prompt, which the article's 3 s do not have room for.
	q := planned(t, func(*Inputs) {})
	for _, id := range []string{"lambda.prefix", "lambda.prompt", "lambda.decode"} {
		if l := line(t, q, id); !(l.PerRunUsd.Low > 0 && l.PerRunUsd.Low < l.PerRunUsd.Likely && l.PerRunUsd.Likely < l.PerRunUsd.High) {
			t.Errorf("%s is %+v, want low < likely < high", id, l.PerRunUsd)
		}
	}
}

func TestWaves(t *testing.T) {
	t.Parallel()
	if got := WaveUsers(10_000, 30); got != 300_000 {
		t.Errorf("a wave of 10,000 workers with 30 users each serves %d, want 300,000", got)
	}
	in := Defaults()
	in.SecPerUser, in.BatchSize, in.MaxConcurrency, in.Users = 3, 30, 10_000, 300_000
	if err := in.Validate(); err != nil {
		t.Fatal(err)
	}
	w := in.work(Throughput{}, likely)
	near(t, "a batch of 30 x 3 s", w.full.Sec(), 90, 1e-9)
	if w.children != 10_000 {
		t.Errorf("300,000 users make %d children, want one wave of 10,000", w.children)
	}
}

func TestSecondArticle(t *testing.T) {
	t.Parallel()
	prices := ShippedPrices()
	tests := []struct {
		arch       string
		request    float64
		g5, g6     float64
		g5PerMonth float64
	}{
		{X8664, 0.00125, 804.7, 643.7, 587_409},
		{ARM64, 0.0010, 1005.8, 804.6, 734_229},
	}
	for _, tt := range tests {
		request, err := LambdaCost(MemoryGB(10_240)*BilledSec(7.5), tt.arch, "us-east-1", prices)
		if err != nil {
			t.Fatal(err)
		}
		near(t, tt.arch+" 7,500 ms at 10 GB", request, tt.request, 1e-8)
		request += prices.Lookup("lambda.requests", "us-east-1").Cost(1)
		perHour := func(id string) float64 {
			return BreakEvenPerHour(prices.Lookup(id, "us-east-1").Unit1(), request)
		}
		near(t, tt.arch+" against a g5.xlarge", perHour("ec2.g5.xlarge"), tt.g5, 0.05)
		near(t, tt.arch+" against a g6.xlarge", perHour("ec2.g6.xlarge"), tt.g6, 0.05)
		near(t, tt.arch+" against a g5.xlarge, a month", HoursPerMonth*perHour("ec2.g5.xlarge"), tt.g5PerMonth, 5)
	}
	near(t, "g5.xlarge an hour", prices.Lookup("ec2.g5.xlarge", "us-east-1").Unit1(), 1.006, 0)
}

func TestPriceTiers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		arch string
		gbs  float64
		want float64
	}{
		{ARM64, 7.5e9, 7.5e9 * 1.33334e-5},
		{ARM64, 7.5e9 + 1000, 7.5e9*1.33334e-5 + 1000*1.20001e-5},
		{ARM64, 18.75e9, 7.5e9*1.33334e-5 + 135_001.125},
		{ARM64, 18.75e9 + 1000, 7.5e9*1.33334e-5 + 135_001.125 + 1000*1.06667e-5},
		{ARM64, 37.5e9, 7.5e9*1.33334e-5 + 135_001.125 + 200_000.625},
		{X8664, 6e9, 6e9 * 1.66667e-5},
		{X8664, 6e9 + 1000, 6e9*1.66667e-5 + 1000*1.5e-5},
		{X8664, 15e9 + 1000, 6e9*1.66667e-5 + 9e9*1.5e-5 + 1000*1.33334e-5},
		{ARM64, 0, 0},
	}
	for _, tt := range tests {
		got, err := LambdaCost(tt.gbs, tt.arch, "us-east-1", ShippedPrices())
		if err != nil {
			t.Fatal(err)
		}
		near(t, fmt.Sprintf("%s, %.0f GB-s", tt.arch, tt.gbs), got, tt.want, 1e-6*max(1, tt.want*1e-6))
	}
	// All lines of one month share the tiers: 700 runs of the article pass the first.
	p := planned(t, func(in *Inputs) { in.SecPerUser, in.RunsPerMonth = 3, 700 })
	var gbs, usd float64
	for _, l := range p.Cost.Lines {
		if l.PriceID == "lambda.duration.arm64" {
			gbs += 700 * l.Quantity.Likely
			usd += l.PerMonthUsd.Likely
		}
	}
	want, err := LambdaCost(gbs, ARM64, "us-east-1", ShippedPrices())
	if err != nil {
		t.Fatal(err)
	}
	near(t, "a month of 700 runs", usd, want, 1e-6)
	if run := 700 * line(t, p, "lambda.generate").PerRunUsd.Likely; !(line(t, p, "lambda.generate").PerMonthUsd.Likely < run) {
		t.Error("a month beyond the first tier costs as much as its runs one by one")
	}
}

func TestBilledSec(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ sec, want float64 }{
		{0, 0}, {0.0001, 0.001}, {0.001, 0.001}, {0.0010001, 0.002}, {7.5, 7.5}, {32 * 3.0, 96}, {10 * 0.1, 1}, {0.1 + 0.2, 0.3}, {3.0001, 3.001},
	} {
		near(t, fmt.Sprintf("billed time of %v s", tt.sec), BilledSec(tt.sec), tt.want, 1e-12)
	}
}

func TestModelFetch(t *testing.T) {
	t.Parallel()
	near(t, "2.02 GB over 625 Mbps", FetchSec(2_020_000_000), 25.856, 1e-9)
	usd, err := LambdaCost(10_000*4*FetchSec(2_020_000_000), ARM64, "us-east-1", ShippedPrices())
	if err != nil {
		t.Fatal(err)
	}
	near(t, "10,000 workers that fetch the model", usd, 13.79, 0.005)
	usd, err = LambdaCost(10_000*4*(FetchSec(2_020_000_000)+LambdaInitMaxSec), ARM64, "us-east-1", ShippedPrices())
	if err != nil {
		t.Fatal(err)
	}
	near(t, "and lose an INIT", usd, 19.12, 0.005)

	p := planned(t, func(in *Inputs) {
		in.ModelStore, in.EphemeralStorageMib = StoreS3, 2048
		in.Model.WeightBytes = 2_020_000_000
		in.MaxConcurrency, in.SecPerUser, in.BatchSize = 10_000, 3, 100
		in.Users = 10_000_000
	})
	l := line(t, p, "lambda.load")
	near(t, "the same in a plan", l.PerRunUsd.Likely, 13.79, 0.005)
	if l.Basis != Assumed {
		t.Errorf("the model fetch is marked %q, want %q", l.Basis, Assumed)
	}
	near(t, "GETs of 16 MiB", line(t, p, "s3.get").Quantity.Likely, 1_210_000, 5000)

	efs := planned(t, func(in *Inputs) {
		in.ModelStore = StoreEFS
		in.Model.WeightBytes = 2_020_000_000
		in.MaxConcurrency, in.SecPerUser, in.BatchSize = 10_000, 3, 100
		in.Users = 10_000_000
	})
	near(t, "EFS reads of 10,000 workers", line(t, efs, "efs.read").PerRunUsd.Likely, 606, 0.5)
	near(t, "their time at 60 GiB/s", efs.Speed.LoadSec.Likely, 313.5, 0.5)
}

func TestStepFunctionsAndFirehose(t *testing.T) {
	t.Parallel()
	batched := planned(t, func(in *Inputs) { in.SecPerUser, in.BatchSize = 3, 50 })
	near(t, "transitions of 20,000 batches", line(t, batched, "sfn.transitions").PerRunUsd.Likely, 1.50, 0.005)
	single := planned(t, func(in *Inputs) { in.SecPerUser, in.BatchSize = 3, 1 })
	near(t, "transitions unbatched", line(t, single, "sfn.transitions").PerRunUsd.Likely, 75, 0.2)
	// 100 children a second of 3 s each: about 300 at one time, whatever is allowed.
	// (A cold start holds a few more in the beginning.)
	if peak := single.Time.Likely.PeakConcurrency.P50; peak > 900 {
		t.Errorf("unbatched STANDARD children reach %v workers", peak)
	}
	if written := single.Time.Likely.WrittenSec.P50; written < 10_000 {
		t.Errorf("1,000,000 children at 100/s are done after %.0f s, want 10,000 s or more", written)
	}
	near(t, "1,000,000 rows of one step", line(t, batched, "firehose.ingest").PerRunUsd.Likely+line(t, batched, "firehose.conversion").PerRunUsd.Likely, 0.2406, 0.0001)
	two := planned(t, func(in *Inputs) { in.SecPerUser, in.RowBytes = 3, FirehoseRoundingBytes+1 })
	near(t, "rows one byte longer than a step", line(t, two, "firehose.ingest").Quantity.Likely, 10.24, 1e-9)
}

func TestProvisionedConcurrency(t *testing.T) {
	t.Parallel()
	p := planned(t, func(in *Inputs) { in.ProvisionedConcurrency, in.ProvisionedHoursPerMonth = 10_000, 1 })
	near(t, "10,000 workers for an hour", line(t, p, "lambda.provisioned").PerMonthUsd.Likely, 480, 0.02)
	p = planned(t, func(in *Inputs) { in.ProvisionedConcurrency = 10 })
	near(t, "10 workers always", line(t, p, "lambda.provisioned").PerMonthUsd.Likely, 350, 1)
}

func TestManagedAPIs(t *testing.T) {
	t.Parallel()
	p := planned(t, func(in *Inputs) {
		in.PrefixTokens, in.UserTokens, in.OutputTokens = 180, 120, 120
		*in = in.FitBatch()
	})
	want := map[string]float64{
		"bedrock-llama-3.2-3b": 63, "bedrock-nova-micro": 27.3, "openai-gpt-4.1-nano": 78,
		"openai-gpt-5-nano": 63, "openai-gpt-4o-mini": 117, "anthropic-claude-haiku-4.5": 900,
	}
	for _, a := range p.Alternatives {
		if w, ok := want[a.ID]; ok {
			near(t, a.Label+", 300 in and 120 out", *a.PerRunUsd, w, 1e-9)
			delete(want, a.ID)
		}
	}
	if len(want) > 0 {
		t.Errorf("no alternative for %v", want)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	slow := planned(t, func(*Inputs) {})
	if slow.Verdict.Use != "no" || !strings.Contains(slow.Verdict.Sentence, "Bedrock Llama 3.2 3B") {
		t.Errorf("the default is %q: %s; want a plain no that names the managed API", slow.Verdict.Use, slow.Verdict.Sentence)
	}
	if !strings.Contains(slow.Verdict.Sentence, "second-hand") {
		t.Errorf("the verdict prints a second-hand price as certain: %s", slow.Verdict.Sentence)
	}
	fast := planned(t, func(in *Inputs) { in.SecPerUser = 0.1 })
	if fast.Verdict.Use != "yes" {
		t.Errorf("at 0.1 s a user it is %q: %s", fast.Verdict.Use, fast.Verdict.Sentence)
	}
	open := planned(t, func(in *Inputs) {
		in.Model = Model{Name: "smollm2-360m", Quantization: "Q4_0", Parameters: 362_000_000, WeightBytes: 229_000_000, Layers: 32, KVHeads: 5, HeadDim: 64}
		in.OutputTokens, in.UserTokens, in.PrefixTokens = 15, 20, 1200
	})
	if open.Verdict.Use != "open" {
		t.Errorf("a range that straddles the API is %q: %s", open.Verdict.Use, open.Verdict.Sentence)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*Inputs)
		field  string
		remedy string
	}{
		{"300 x 3 s and a start pass 900 s", func(in *Inputs) { in.SecPerUser, in.BatchSize = 3, 300 }, "batchSize", "lower batchSize to 250"},
		{"250 x 3 s fit", func(in *Inputs) { in.SecPerUser, in.BatchSize = 3, 250 }, "", ""},
		{"100 x 3 s pass EXPRESS's 300 s", func(in *Inputs) { in.SecPerUser, in.BatchSize, in.ChildType = 3, 100, Express }, "batchSize", "STANDARD"},
		{"50 x 3 s fit EXPRESS", func(in *Inputs) { in.SecPerUser, in.BatchSize, in.ChildType = 3, 50, Express }, "", ""},
		{"63 x 4,000 B fit 256 KiB less what all share", func(in *Inputs) { in.SecPerUser, in.RecordBytes, in.BatchSize = 1, 4000, 63 }, "", ""},
		{"64 x 4,000 B do not", func(in *Inputs) { in.SecPerUser, in.RecordBytes, in.BatchSize = 1, 4000, 64 }, "batchSize", "lower batchSize"},
		{"3B needs more than 2 GiB", func(in *Inputs) { in.MemoryMib = 2048 }, "memoryMib", "raise memoryMib"},
		{"/tmp must hold a fetched model", func(in *Inputs) { in.ModelStore = StoreS3 }, "ephemeralStorageMib", "raise it"},
		{"an account with 3,008 MiB", func(in *Inputs) { in.Quotas.LambdaMemoryMib = 3008 }, "memoryMib", "AWS support"},
		{"a 7B model in 8 bits fits an image", func(in *Inputs) {
			in.Model.WeightBytes, in.MemoryMib, in.BatchSize, in.ParallelSequences = 7_700_000_000, 10_240, 4, 4
		}, "", ""},
		{"12 GB do not", func(in *Inputs) { in.Model.WeightBytes = 12_000_000_000 }, "model.weightBytes", "smaller model"},
		{"a timeout of one's own", func(in *Inputs) { in.TimeoutSec = 600 }, "batchSize", "raise timeoutSec"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := Defaults()
			tt.change(&in)
			err := in.Validate()
			if tt.field == "" {
				if err != nil {
					t.Fatalf("unexpected fault: %v", err)
				}
				return
			}
			var faults Faults
			if !errors.As(err, &faults) {
				t.Fatalf("error is %v, want Faults", err)
			}
			for _, f := range faults {
				if f.Field == tt.field && strings.Contains(f.Remedy, tt.remedy) {
					return
				}
			}
			t.Errorf("faults are\n%v\nwant one for %s that says %q", err, tt.field, tt.remedy)
		})
	}
	if got := MaxBatchBySec(LambdaTimeoutMaxSec, 0, 3); got != 300 {
		t.Errorf("900 s hold %d users of 3 s, want 300", got)
	}
	if got := MaxBatchBySec(ExpressMaxSec, 0, 3); got != 100 {
		t.Errorf("300 s hold %d users of 3 s, want 100", got)
	}
	if got := MaxBatchByBytes(4000); got != 63 {
		t.Errorf("256 KiB hold %d records of 4,000 B, want 63", got)
	}
}
