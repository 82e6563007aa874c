package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"go/parser"
	"go/token"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got), go test -update rewrites it:\n%s", path, diff)
	}
}

// goldenPlans are the plans that the golden files hold.
func goldenPlans(t *testing.T) map[string]*Plan {
	t.Helper()
	full := Defaults()
	full.Region, full.Architecture, full.ModelStore, full.MemoryMib = "eu-central-1", X8664, StoreEFS, 5376
	full.MaxConcurrency, full.DeadlineMinutes, full.BatchSize = 5000, 60, 48
	full.EndpointRequestsPerMonth, full.QueueRequestsPerMonth, full.ProvisionedConcurrency = 100_000, 200_000, 4
	full.Quotas = Quotas{LambdaConcurrency: 3000, SesRecipientsPerSec: 90, SesRecipientsPer24Hours: 2_000_000}
	full.GpuUsersPerHour = 20_000
	given := Defaults()
	given.SecPerUser, given.FreeTier, given.Mail = 3, true, false
	plans := map[string]*Plan{}
	for name, in := range map[string]Inputs{"default": Defaults(), "full": full, "given": given} {
		p, err := Estimate(in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		plans[name] = p
	}
	if err := plans["default"].AddSensitivity(); err != nil {
		t.Fatal(err)
	}
	tuning, err := Tune(full, MinimiseCost, 3600)
	if err != nil {
		t.Fatal(err)
	}
	plans["full"].Tuning = tuning
	return plans
}

func TestGoldenTableAndJSON(t *testing.T) {
	for name, p := range goldenPlans(t) {
		var table bytes.Buffer
		if err := p.WriteTable(&table); err != nil {
			t.Fatal(err)
		}
		for i, l := range strings.Split(table.String(), "\n") {
			if n := utf8.RuneCountInString(l); n > tableWidth {
				t.Errorf("%s: line %d has %d columns: %s", name, i+1, n, l)
			}
		}
		golden(t, name+".txt", table.Bytes())
		doc, err := json.MarshalIndent(p, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name+".json", append(doc, '\n'))
	}
}

// The default for arm64 is a range of public figures: no cost or time that
// rests on it may be printed as one figure, and the way to a better one is said.
func TestDefaultIsARange(t *testing.T) {
	t.Parallel()
	p := planned(t, func(*Inputs) {})
	for what, r := range map[string]Range{
		"cost of a run": p.Cost.PerRunUsd, "cost of a month": p.Cost.PerMonthUsd, "cost of writing": p.Cost.WritingUsd, "seconds a user": p.Speed.SecPerUser,
		"end": p.Time.seconds(func(t Timeline) float64 { return t.WrittenSec.P50 }),
	} {
		if !(r.Low < r.Likely && r.Likely < r.High) || r.Point() {
			t.Errorf("%s is %+v, want low < likely < high", what, r)
		}
	}
	if p.Speed.Confidence != "low" {
		t.Errorf("confidence is %q, want low", p.Speed.Confidence)
	}
	var table bytes.Buffer
	if err := p.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(table.String(), "swarm bench --shape llama-3.2-3b") {
		t.Error("the table does not say how to get a calibration of one's own")
	}
	// facts: 7 to 18 s a user with a shared prefix and batched decode.
	near(t, "fast seconds a user", p.Speed.SecPerUser.Low, 7, 0.5)
	near(t, "slow seconds a user", p.Speed.SecPerUser.High, 18, 0.5)
}

func TestOwnCalibrationIsAPoint(t *testing.T) {
	t.Parallel()
	c, err := DefaultCalibration(ARM64)
	if err != nil {
		t.Fatal(err)
	}
	c.Range, c.Confidence, c.LoadSec = nil, "measured", 20
	c.Machine.LambdaMemoryMib = 4096
	p := planned(t, func(in *Inputs) { in.Calibration = c })
	if !p.Speed.SecPerUser.Point() || p.Speed.Confidence != "measured" || len(p.Speed.Scaled) > 0 {
		t.Errorf("a calibration from this very function gives %+v, %s, %v", p.Speed.SecPerUser, p.Speed.Confidence, p.Speed.Scaled)
	}
	near(t, "the model's load time", p.Speed.LoadSec.High, 20, 1e-9)

	scaled := planned(t, func(in *Inputs) { in.Calibration, in.MemoryMib = c, 8192 })
	if scaled.Speed.Confidence == "measured" || len(scaled.Speed.Scaled) == 0 || scaled.Speed.SecPerUser.Point() {
		t.Errorf("scaled to 8,192 MiB it is still %s, %v", scaled.Speed.Confidence, scaled.Speed.Scaled)
	}
	near(t, "twice the threads, half the time", scaled.Speed.SecPerUser.Likely, p.Speed.SecPerUser.Likely/2, 1e-9)

	c.Machine.LambdaMemoryMib = 0
	elsewhere := planned(t, func(in *Inputs) { in.Calibration = c })
	if elsewhere.Speed.SecPerUser.Point() || elsewhere.Speed.Confidence != "medium" {
		t.Errorf("measured outside Lambda it is %+v, %s", elsewhere.Speed.SecPerUser, elsewhere.Speed.Confidence)
	}
}

func TestScalingToAnotherModel(t *testing.T) {
	t.Parallel()
	c, err := ShippedCalibration(X86AVX512)
	if err != nil {
		t.Fatal(err)
	}
	c.Workloads = nil
	m := DefaultModel()
	same := c.Throughput(m, 4096).Likely
	half := m
	half.Parameters, half.WeightBytes = m.Parameters/2, m.WeightBytes/4
	s := c.Throughput(half, 4096).Likely
	near(t, "prefill of half the parameters", s.PrefillTokensPerSec, 2*same.PrefillTokensPerSec, 1e-6*same.PrefillTokensPerSec)
	near(t, "one sequence of a quarter of the bytes", s.DecodeTokensPerSec(1), 4*same.DecodeTokensPerSec(1), 1e-6)
	near(t, "what 15 more sequences add", s.StepSec(16)-s.StepSec(1), (same.StepSec(16)-same.StepSec(1))/2, 1e-6)
	small := c.Throughput(m, 884).Likely
	near(t, "half a vCPU", small.PrefillTokensPerSec, same.PrefillTokensPerSec/2*884/MibPerVCPU, 1e-6)
}

func TestStepTimeNeverFalls(t *testing.T) {
	t.Parallel()
	// 2 sequences measured faster a step than 1: noise, or a cold cache.
	tp := newThroughput(CalibrationRates{10, []DecodeRate{{1, 5}, {2, 20}, {8, 30}}})
	last := 0.0
	for k := 1; k <= 40; k++ {
		if sec := tp.StepSec(k); sec < last {
			t.Errorf("a step with %d sequences takes %v s, with %d it takes %v s", k, sec, k-1, last)
		} else {
			last = sec
		}
	}
	near(t, "between the points", tp.StepSec(5), (0.2+8.0/30)/2, 1e-9)
	b := tp.Batch(20, 8, 100, 50, 10)
	near(t, "shared prompt", b.PrefixSec, 10, 1e-9)
	near(t, "own prompts", b.PromptSec, 100, 1e-9)
	near(t, "two full groups and a rest of 4", b.DecodeSec, 10*(2*tp.StepSec(8)+tp.StepSec(4)), 1e-9)
}

func TestUnknownRegion(t *testing.T) {
	t.Parallel()
	in := Defaults()
	in.Region, in.MemoryMib = "mars-north-1", 1
	_, err := Estimate(in)
	var unknown *UnknownRegionError
	if !errors.As(err, &unknown) {
		t.Fatalf("error is %v, want *UnknownRegionError", err)
	}
	if diff := cmp.Diff([]string{"ap-southeast-1", "eu-central-1", "eu-west-1", "us-east-1", "us-west-2"}, unknown.Known); diff != "" {
		t.Error(diff)
	}
	for _, want := range []string{"mars-north-1", "eu-central-1", "swarm prices refresh --region mars-north-1", "--prices"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	var faults Faults
	if !errors.As(err, &faults) {
		t.Errorf("the other fault is lost: %v", err)
	}
}

func TestMissingPrices(t *testing.T) {
	t.Parallel()
	p := planned(t, func(in *Inputs) { in.Region = "eu-west-1" })
	if diff := cmp.Diff([]string{"firehose.ingest", "firehose.conversion"}, p.Cost.Unpriced); diff != "" {
		t.Errorf("unpriced (-want +got):\n%s", diff)
	}
	for id, want := range map[string]string{"lambda.decode": Unverified, "lambda.requests": StandIn, "sfn.transitions": Secondary, "s3.put": Unverified} {
		if got := line(t, p, id).Confidence; got != want {
			t.Errorf("%s in eu-west-1 is %s, want %s", id, got, want)
		}
	}
	if l := line(t, p, "firehose.ingest"); l.PriceKnown || l.PerRunUsd.High != 0 {
		t.Errorf("Firehose has no known price in eu-west-1, the plan says %+v", l)
	}
	var table bytes.Buffer
	if err := p.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(table.String(), "not known") {
		t.Error("the table does not show that a price is not known")
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	in := Inputs{Users: -1, MemoryMib: 1, Architecture: "mips", Region: "us-east-1", SesRatePerSec: math.NaN(), Mail: true, ModelStore: "floppy"}
	var faults Faults
	if err := in.Validate(); !errors.As(err, &faults) {
		t.Fatalf("error is %v, want Faults", err)
	}
	got := map[string]bool{}
	for _, f := range faults {
		got[f.Field] = true
		if f.Value == "" || f.Limit == "" || f.Remedy == "" {
			t.Errorf("%+v leaves something out", f)
		}
	}
	for _, field := range []string{
		"users", "outputTokens", "model.parameters", "modelStore", "architecture", "memoryMib", "ephemeralStorageMib", "timeoutSec",
		"batchSize", "parallelSequences", "maxConcurrency", "childType", "bufferMib", "bufferSec", "retentionDays", "sesRatePerSec",
	} {
		if !got[field] {
			t.Errorf("no fault for %s", field)
		}
	}
	if err := Defaults().Validate(); err != nil {
		t.Errorf("the defaults are at fault: %v", err)
	}
}

func TestCalibrationOfTheOtherArchitecture(t *testing.T) {
	t.Parallel()
	in := Defaults()
	c, err := ShippedCalibration(X86AVX512)
	if err != nil {
		t.Fatal(err)
	}
	in.Calibration = c
	if err := in.Validate(); err == nil || !strings.Contains(err.Error(), "architecture") {
		t.Errorf("an x86_64 calibration for arm64 gives %v, want a fault", err)
	}
}

func TestReadCalibration(t *testing.T) {
	t.Parallel()
	for _, name := range CalibrationNames() {
		c, err := ShippedCalibration(name)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := json.Marshal(map[string]any{"run_id": "r1", "schema": "briefing-swarm/manifest/1", "calibration": c})
		if err != nil {
			t.Fatal(err)
		}
		for _, data := range [][]byte{doc, manifest} {
			got, err := ReadCalibration(data)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if diff := cmp.Diff(c, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
	for name, data := range map[string]string{
		"no calibration": `{"run_id":"r1"}`, "not JSON": `model`, "wrong schema": `{"schema":"other/1"}`,
		"no decode": `{"schema":"briefing-swarm/calibration/1","machine":{"arch":"arm64","threads":2},"model":{"parameters":3000000000,"weight_bytes":2000000000},"prefill_tokens_per_sec":10}`,
	} {
		if _, err := ReadCalibration([]byte(data)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := ShippedCalibration("../prices"); err == nil {
		t.Error("a calibration of any name is read")
	}
	var slow, fast float64
	c, err := ShippedCalibration(Graviton2)
	if err != nil {
		t.Fatal(err)
	}
	slow, fast = c.Range.Slow.PrefillTokensPerSec, c.Range.Fast.PrefillTokensPerSec
	if c.Confidence != "low" || !(slow < c.PrefillTokensPerSec && c.PrefillTokensPerSec < fast) {
		t.Errorf("the Graviton2 calibration is %s, prefill %v in %v to %v; want low and a range", c.Confidence, c.PrefillTokensPerSec, slow, fast)
	}
}

func TestPriceFile(t *testing.T) {
	t.Parallel()
	for _, p := range ShippedPrices().Prices {
		if p.Known() && p.Confidence == Live {
			t.Errorf("%s claims to be live", p.ID)
		}
		if strings.Contains(p.Source, "memory") && p.Confidence != Unverified {
			t.Errorf("%s is from memory and %s", p.ID, p.Confidence)
		}
	}
	base := `{"schema":"briefing-swarm/prices/1","currency":"USD","date":"2026-11-30","from":"test","prices":[%]}`
	price := `{"id":"a","region":"*","unit":"x","tiers":[{"usd":1}],"source":"s","date":"d","confidence":"live"}`
	for name, tt := range map[string]struct{ prices, want string }{
		"fine":          {price, ""},
		"twice":         {price + "," + price, "twice"},
		"confidence":    {strings.Replace(price, "live", "certain", 1), "confidence"},
		"negative":      {strings.Replace(price, `"usd":1`, `"usd":-1`, 1), "tier 1 costs -1"},
		"no source":     {strings.Replace(price, `"source":"s",`, "", 1), "source"},
		"unknown field": {strings.Replace(price, `"source":"s",`, `"source":"s","sauce":"t",`, 1), "sauce"},
		"open tier":     {strings.Replace(price, `{"usd":1}`, `{"usd":1},{"usd":2}`, 1), "up_to"},
		"falling tier":  {strings.Replace(price, `{"usd":1}`, `{"up_to":5,"usd":1},{"up_to":4,"usd":1},{"usd":2}`, 1), "more than 5"},
	} {
		_, err := ReadPrices([]byte(strings.Replace(base, "%", tt.prices, 1)))
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: error is %v, want one that says %q", name, err, tt.want)
		}
	}
}

func TestFreeTier(t *testing.T) {
	t.Parallel()
	paid := planned(t, func(in *Inputs) { in.RunsPerMonth = 1 })
	free := planned(t, func(in *Inputs) { in.RunsPerMonth, in.FreeTier = 1, true })
	saved := func(id string) (sum float64) {
		for i, l := range paid.Cost.Lines {
			if l.PriceID == id {
				sum += l.PerMonthUsd.Likely - free.Cost.Lines[i].PerMonthUsd.Likely
			}
		}
		return sum
	}
	near(t, "Lambda's free GB-s", saved("lambda.duration.arm64"), 400_000*1.33334e-5, 1e-6)
	near(t, "Step Functions' free transitions", saved("sfn.transition"), 4000*2.5e-5, 1e-9)
}

func TestFirehoseBoundRun(t *testing.T) {
	t.Parallel()
	// 10,000 workers at 1 s a user write 10,000 rows of 1,430 B a second: 13.6
	// MiB/s, where eu-central-1 takes 1.
	fast := planned(t, func(in *Inputs) { in.SecPerUser, in.MaxConcurrency, in.Region = 1, 10_000, "eu-central-1" })
	if l := line(t, fast, "lambda.wait"); !(l.Quantity.Likely > line(t, fast, "lambda.generate").Quantity.Likely) {
		t.Errorf("waiting is %v GB-s, want more than the %v of the work", l.Quantity.Likely, line(t, fast, "lambda.generate").Quantity.Likely)
	}
	rows := float64(1<<20) / fast.Inputs.rowBytes()
	if end := fast.Time.Likely.GeneratedSec.P50; end < 1e6/rows {
		t.Errorf("1,000,000 rows pass a stream of %.0f rows/s in %.0f s", rows, end)
	}
	for _, q := range fast.Quotas {
		if q.ID == "firehose.bytes" && (q.Enough || q.Code != "" || !strings.Contains(q.Remedy, "support")) {
			t.Errorf("the volume quota is %+v, want it short, without a code", q)
		}
	}
}

func TestQuotas(t *testing.T) {
	t.Parallel()
	find := func(p *Plan, id string) Quota {
		for _, q := range p.Quotas {
			if q.ID == id {
				return q
			}
		}
		t.Fatalf("no quota %s", id)
		return Quota{}
	}
	p := planned(t, func(in *Inputs) { in.MaxConcurrency = 10_000 })
	q := find(p, "lambda.concurrency")
	if q.Enough || q.Given || q.Have != 1000 || q.Code != "L-B99A9384" {
		t.Errorf("10,000 workers on a default account: %+v", q)
	}
	if p.Today.Fits || p.Today.MaxConcurrency >= 1000 || p.Today.MaxConcurrency < 900 {
		t.Errorf("today's run is %+v, want about 990 workers", p.Today)
	}
	if !(p.Today.Timeline.WrittenSec.P50 > 2*p.Time.Likely.WrittenSec.P50) {
		t.Errorf("with a tenth of the workers it takes %v s instead of %v s", p.Today.Timeline.WrittenSec.P50, p.Time.Likely.WrittenSec.P50)
	}
	given := planned(t, func(in *Inputs) {
		in.MaxConcurrency = 10_000
		in.Quotas = Quotas{LambdaConcurrency: 20_000, SesRecipientsPerSec: 500, SesRecipientsPer24Hours: 5_000_000}
	})
	if q := find(given, "lambda.concurrency"); !q.Enough || !q.Given {
		t.Errorf("with 20,000 given: %+v", q)
	}
	if !given.Today.Fits || given.Today.MailDays != 1 {
		t.Errorf("everything was given, and still: %+v", given.Today)
	}
	for id, code := range map[string]string{"ses.rate": "L-CDEF9B6B", "ses.day": "L-804C8AE8", "sfn.transitions": "L-AD9B4E93"} {
		if got := find(p, id).Code; got != code {
			t.Errorf("%s has code %s, want %s", id, got, code)
		}
	}
	// 1,000,000 mails in an account with 50,000 a day take 20 days.
	slow := planned(t, func(in *Inputs) {
		in.Quotas = Quotas{SesRecipientsPerSec: 14, SesRecipientsPer24Hours: 50_000}
	})
	if slow.Today.MailDays != 20 {
		t.Errorf("mail takes %v days, want 20", slow.Today.MailDays)
	}
	near(t, "days until the last mail", slow.Today.Timeline.LastMailSec.P50/86_400, 19, 0.2)
	// 100,000,000 users of 680 B are no file for one Map Run.
	big := planned(t, func(in *Inputs) { in.Users = 100_000_000 })
	if q := find(big, "sfn.file"); q.Enough || len(big.Today.Blocked) == 0 {
		t.Errorf("68 GB in one file: %+v, blocked %v", q, big.Today.Blocked)
	}
}

// more is a change that may never make a run cheaper.
func TestMoreNeverCostsLess(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	tests := []struct {
		name string
		// prepare makes the property true as stated; change is the "more".
		prepare func(*Inputs)
		change  func(*Inputs)
	}{
		{"users", nil, func(in *Inputs) { in.Users += 1 + rng.Int64N(in.Users) }},
		{"one user", nil, func(in *Inputs) { in.Users++ }},
		{"prefix tokens", nil, func(in *Inputs) { in.PrefixTokens += 1 + rng.IntN(50) }},
		{"user tokens", nil, func(in *Inputs) { in.UserTokens += 1 + rng.IntN(50) }},
		{"output tokens", nil, func(in *Inputs) { in.OutputTokens += 1 + rng.IntN(50) }},
		// More memory buys threads, and threads make a user cheaper at the edge where
		// another whole vCPU is reached. At the same seconds a user, or the same
		// number of threads, it never does.
		{"memory at the same seconds a user", func(in *Inputs) { in.SecPerUser = 0.5 + rng.Float64()*5 }, func(in *Inputs) { in.MemoryMib += 1 + rng.IntN(10_240-in.MemoryMib) }},
		{"memory at the same threads", func(in *Inputs) { in.MemoryMib = 2*MibPerVCPU + rng.IntN(MibPerVCPU-1) }, func(in *Inputs) {
			in.MemoryMib += 1 + rng.IntN(3*MibPerVCPU-1-in.MemoryMib)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tried := 0
			for range 400 {
				in := Defaults()
				in.Users = 1 + int64(math.Pow(10, rng.Float64()*7))
				in.MemoryMib = 3600 + rng.IntN(6000)
				in.ParallelSequences = 1 + rng.IntN(20)
				in.BatchSize = 1 + rng.IntN(30)
				in.MaxConcurrency = 1 + rng.IntN(10_000)
				in.Architecture = []string{ARM64, X8664}[rng.IntN(2)]
				in.ChildType = []string{Standard, Express}[rng.IntN(2)]
				in.Region = []string{"us-east-1", "eu-central-1"}[rng.IntN(2)]
				in.ModelStore = []string{StoreImage, StoreEFS}[rng.IntN(2)]
				in.RunsPerMonth = 1 + rng.IntN(2000)
				in.FreeTier = rng.IntN(2) == 0
				in.EndpointRequestsPerMonth = rng.Int64N(2) * 1000
				if tt.prepare != nil {
					tt.prepare(&in)
				}
				more := in
				tt.change(&more)
				a, okA := cheapEstimate(in)
				b, okB := cheapEstimate(more)
				if !okA || !okB || waits(a) || waits(b) {
					continue
				}
				tried++
				for _, o := range outcomes {
					if x, y := a.PerRunUsd.at(o), b.PerRunUsd.at(o); y < x*(1-1e-9) {
						t.Fatalf("a run costs %v, with more %s it costs %v (case %d)\nless: %+v\nmore: %+v", x, tt.name, y, o, in, more)
					}
					if x, y := a.PerMonthUsd.at(o), b.PerMonthUsd.at(o); y < x*(1-1e-9) {
						t.Fatalf("a month costs %v, with more %s it costs %v (case %d)\nless: %+v\nmore: %+v", x, tt.name, y, o, in, more)
					}
				}
			}
			if tried < 50 {
				t.Errorf("only %d settings were free of faults", tried)
			}
		})
	}
}

// cheapEstimate is the bill without the simulation.
func cheapEstimate(in Inputs) (Bill, bool) {
	in, speeds, err := in.resolve()
	if err != nil {
		return Bill{}, false
	}
	return in.bill(in.cases(speeds), speeds), true
}

// waits reports whether Firehose holds workers back. They are paid while they
// wait, and slower ones wait less: more tokens can then cost less, so the
// property is not claimed there.
func waits(b Bill) bool {
	for _, l := range b.Lines {
		if l.ID == "lambda.wait" {
			return l.PerRunUsd.High > 0 || l.PerRunUsd.Likely > 0 || l.PerRunUsd.Low > 0
		}
	}
	return false
}

func FuzzEstimate(f *testing.F) {
	f.Add(int64(1_000_000), 180, 120, 50, 4096, 32, 16, 900, 200.0, 0.0, uint8(0), int64(0))
	f.Add(int64(1), 0, 0, 1, 128, 1, 1, 1, 0.01, 3.0, uint8(255), int64(1<<40))
	f.Add(int64(100_000_000), 131_072, 1, 1, 10_240, 10_000, 256, 10_000, math.Inf(1), math.NaN(), uint8(37), int64(-1))
	f.Add(int64(math.MinInt64), -1, math.MaxInt, math.MinInt, -5, 0, 0, 0, -1.0, -3.0, uint8(7), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, users int64, prefix, user, output, memory, batch, parallel, concurrency int, ses, sec float64, bits uint8, requests int64) {
		in := Defaults()
		in.Users, in.PrefixTokens, in.UserTokens, in.OutputTokens = users, prefix, user, output
		in.MemoryMib, in.BatchSize, in.ParallelSequences, in.MaxConcurrency = memory, batch, parallel, concurrency
		in.SesRatePerSec, in.SecPerUser = ses, sec
		in.EndpointRequestsPerMonth, in.QueueRequestsPerMonth = requests, requests
		in.Mail = bits&1 == 0
		in.StartEarly = bits&2 == 0
		in.FreeTier = bits&4 != 0
		if bits&8 != 0 {
			in.Architecture = X8664
		}
		if bits&16 != 0 {
			in.ChildType = Express
		}
		if bits&32 != 0 {
			in.ModelStore = StoreEFS
		}
		if bits&64 != 0 {
			in.Region = "ap-southeast-1"
		}
		if bits&128 != 0 {
			in.Quotas = Quotas{LambdaConcurrency: memory, SesRecipientsPerSec: ses, SesRecipientsPer24Hours: users, FirehoseMibPerSec: sec}
			in.NatGateways, in.ProvisionedConcurrency = batch, parallel
		}
		p, err := estimate(in, 2, 1)
		if err != nil {
			var faults Faults
			if !errors.As(err, &faults) {
				t.Fatalf("error is %T, want Faults: %v", err, err)
			}
			return
		}
		noNonsense(t, "plan", reflect.ValueOf(*p))
		if _, err := json.Marshal(p); err != nil {
			t.Fatalf("no JSON: %v", err)
		}
		if err := p.WriteTable(new(bytes.Buffer)); err != nil {
			t.Fatal(err)
		}
	})
}

// noNonsense fails on any number below zero, NaN or infinite.
func noNonsense(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) || f < 0 {
			t.Fatalf("%s is %v", path, f)
		}
	case reflect.Int, reflect.Int64:
		if v.Int() < 0 {
			t.Fatalf("%s is %d", path, v.Int())
		}
	case reflect.Struct:
		if v.Type().PkgPath() == "time" {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				noNonsense(t, path+"."+v.Type().Field(i).Name, v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			noNonsense(t, path, v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			noNonsense(t, path, v.Elem())
		}
	}
}

func FuzzReadCalibration(f *testing.F) {
	for _, name := range CalibrationNames() {
		data, err := shippedCalibrations.ReadFile("calibrations/" + name + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"calibration":{"schema":"briefing-swarm/calibration/1"}}`))
	f.Add([]byte(`{"calibration":null,"schema":"briefing-swarm/calibration/1","workloads":[{"parallel":1e9}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ReadCalibration(data)
		if err != nil {
			return
		}
		in := Defaults()
		in.Architecture, in.Calibration = c.Machine.Arch, c
		in, speeds, err := in.resolve()
		if err != nil {
			return
		}
		noNonsense(t, "bill", reflect.ValueOf(in.bill(in.cases(speeds), speeds)))
	})
}

func FuzzReadPrices(f *testing.F) {
	f.Add([]byte(`{"schema":"briefing-swarm/prices/1","currency":"USD","prices":[{"id":"lambda.duration.arm64","region":"us-east-1","unit":"GB-second","per":0.5,"tiers":[{"up_to":5,"usd":1},{"usd":0}],"source":"s","date":"d","confidence":"live"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		prices, err := ReadPrices(data)
		if err != nil {
			return
		}
		in := Defaults()
		in.Prices = prices
		in, speeds, err := in.resolve()
		if err != nil {
			return
		}
		noNonsense(t, "bill", reflect.ValueOf(in.bill(in.cases(speeds), speeds)))
	})
}

func TestTune(t *testing.T) {
	t.Parallel()
	in := Defaults()
	in.Users = 100_000
	u, err := Tune(in, MinimiseCost, 1800)
	if err != nil {
		t.Fatal(err)
	}
	if u.Winner == nil {
		t.Fatal("nothing writes 100,000 briefings in half an hour")
	}
	if u.Winner.WrittenSec.P99 > 1800 {
		t.Errorf("the winner takes %v s, allowed are 1,800 s", u.Winner.WrittenSec.P99)
	}
	if u.Winner.Reason == "" || len(u.NextBest) == 0 {
		t.Errorf("the winner is %+v with %d next best, want reasons and others", u.Winner, len(u.NextBest))
	}
	for _, c := range u.NextBest {
		if c.WrittenSec.P99 > 1800 || c.Reason == "" {
			t.Errorf("next best %+v", c)
		}
		if c.PerRunUsd.Likely < 0.995*u.Winner.PerRunUsd.Likely {
			t.Errorf("%+v is cheaper than the winner %+v", c, u.Winner)
		}
	}
	// What it proposes is a plan without faults, with just that cost.
	in.MemoryMib, in.BatchSize, in.ParallelSequences, in.MaxConcurrency = u.Winner.MemoryMib, u.Winner.BatchSize, u.Winner.ParallelSequences, u.Winner.MaxConcurrency
	p, err := Estimate(in)
	if err != nil {
		t.Fatalf("the winner is at fault: %v", err)
	}
	near(t, "cost of the winner's plan", p.Cost.PerRunUsd.Likely, u.Winner.PerRunUsd.Likely, 1e-9)

	base := Defaults()
	base.Users = 100_000
	quick, err := Tune(base, MinimiseTime, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !(quick.Winner.WrittenSec.P99 < u.Winner.WrittenSec.P99) || !(quick.Winner.PerRunUsd.Likely >= u.Winner.PerRunUsd.Likely) {
		t.Errorf("least time is %v s for $%v, least cost %v s for $%v", quick.Winner.WrittenSec.P99, quick.Winner.PerRunUsd.Likely, u.Winner.WrittenSec.P99, u.Winner.PerRunUsd.Likely)
	}
	never, err := Tune(base, MinimiseCost, 60)
	if err != nil {
		t.Fatal(err)
	}
	if never.Winner != nil || never.Nearest == nil {
		t.Errorf("a minute is enough for %+v", never.Winner)
	}
	small := base
	small.Quotas.LambdaConcurrency = 500
	bound, err := Tune(small, MinimiseTime, 0)
	if err != nil {
		t.Fatal(err)
	}
	if bound.Winner.MaxConcurrency >= 500 {
		t.Errorf("in an account with 500 executions it proposes %d workers", bound.Winner.MaxConcurrency)
	}
	if _, err := Tune(base, "beauty", 0); err == nil {
		t.Error("minimising beauty is no error")
	}
}

func TestFitBatch(t *testing.T) {
	t.Parallel()
	in := Defaults()
	in.OutputTokens = 400
	if in.Validate() == nil {
		t.Fatal("400 tokens fit a batch of 32: choose more for this test")
	}
	fit := in.FitBatch()
	if err := fit.Validate(); err != nil {
		t.Errorf("a batch of %d is still at fault: %v", fit.BatchSize, err)
	}
	more := in
	more.BatchSize = fit.BatchSize + in.ParallelSequences
	if more.Validate() == nil {
		t.Errorf("a batch of %d would have done, it chose %d", more.BatchSize, fit.BatchSize)
	}
	hopeless := Defaults()
	hopeless.MemoryMib = 512
	if diff := cmp.Diff(hopeless, hopeless.FitBatch()); diff != "" {
		t.Error(diff)
	}
}

// The package computes; it reaches for nothing outside the standard library.
func TestImports(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if path := strings.Trim(i.Path.Value, `"`); strings.Contains(path, ".") || strings.HasPrefix(path, "net") || path == "os" {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}
