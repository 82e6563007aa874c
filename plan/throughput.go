package plan

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

//go:embed calibrations/*.json
var shippedCalibrations embed.FS

// The calibrations that ship.
const (
	Graviton2 = "graviton2"  // a range of public figures
	X86AVX512 = "x86-avx512" // measured on this project's machines
)

// CalibrationNames are the names ShippedCalibration knows.
func CalibrationNames() []string { return []string{Graviton2, X86AVX512} }

// ShippedCalibration returns a calibration by its name.
func ShippedCalibration(name string) (Calibration, error) {
	if !slices.Contains(CalibrationNames(), name) {
		return Calibration{}, fmt.Errorf("no calibration %q ships with this version; there are %s", name, strings.Join(CalibrationNames(), " and "))
	}
	data, err := shippedCalibrations.ReadFile("calibrations/" + name + ".json")
	if err != nil {
		return Calibration{}, fmt.Errorf("read calibration %s: %w", name, err)
	}
	return ReadCalibration(data)
}

// DefaultCalibration is the one that ships for an architecture.
func DefaultCalibration(architecture string) (Calibration, error) {
	if architecture == X8664 {
		return ShippedCalibration(X86AVX512)
	}
	return ShippedCalibration(Graviton2)
}

// ReadCalibration reads a calibration document, or the calibration of a run's
// manifest, and checks it.
func ReadCalibration(data []byte) (Calibration, error) {
	var doc struct {
		Calibration
		Inner *Calibration `json:"calibration"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return Calibration{}, fmt.Errorf("read calibration: %w", err)
	}
	c := doc.Calibration
	if doc.Inner != nil {
		c = *doc.Inner
	}
	if c.Schema == "" && doc.Inner == nil {
		return Calibration{}, errors.New(`read calibration: the file is neither a calibration nor a manifest with one under "calibration"`)
	}
	if err := c.Check(); err != nil {
		return Calibration{}, fmt.Errorf("read calibration: %w", err)
	}
	return c, nil
}

// Check says all that makes a calibration unusable.
func (c Calibration) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Schema != CalibrationSchema {
		bad("schema is %q, want %q", c.Schema, CalibrationSchema)
	}
	if c.Machine.Arch != ARM64 && c.Machine.Arch != X8664 {
		bad("machine.arch is %q, want %s or %s", c.Machine.Arch, ARM64, X8664)
	}
	if c.Machine.Threads < 1 || c.Machine.Threads > 1024 {
		bad("machine.threads is %d, want 1 to 1024", c.Machine.Threads)
	}
	if !(c.Machine.CPUs >= 0 && c.Machine.CPUs <= 4096) {
		bad("machine.cpus is %v, want 0 (unknown) to 4096", c.Machine.CPUs)
	}
	if c.Model.Parameters < 1e6 || c.Model.Parameters > 1e13 {
		bad("model.parameters is %d, want 1e6 to 1e13", c.Model.Parameters)
	}
	if c.Model.WeightBytes < 1e6 || c.Model.WeightBytes > 1e13 {
		bad("model.weight_bytes is %d, want 1e6 to 1e13", c.Model.WeightBytes)
	}
	if !(c.LoadSec >= 0 && c.LoadSec <= LambdaTimeoutMaxSec) {
		bad("load_sec is %v, want 0 (unknown) to %d", c.LoadSec, LambdaTimeoutMaxSec)
	}
	checkRates := func(field string, prefill float64, decode []DecodeRate) {
		if !validRate(prefill) {
			bad("%sprefill_tokens_per_sec is %v, want 0.001 to 1e7", field, prefill)
		}
		if len(decode) == 0 {
			bad("%sdecode is empty, want at least one rate", field)
		}
		for i, d := range decode {
			if d.Parallel < 1 || (i > 0 && d.Parallel <= decode[i-1].Parallel) {
				bad("%sdecode[%d].parallel is %d, want an ascending list from 1", field, i, d.Parallel)
			}
			if !validRate(d.TokensPerSec) {
				bad("%sdecode[%d].tokens_per_sec is %v, want 0.001 to 1e7", field, i, d.TokensPerSec)
			}
		}
	}
	checkRates("", c.PrefillTokensPerSec, c.Decode)
	if c.Range != nil {
		checkRates("range.slow.", c.Range.Slow.PrefillTokensPerSec, c.Range.Slow.Decode)
		checkRates("range.fast.", c.Range.Fast.PrefillTokensPerSec, c.Range.Fast.Decode)
	}
	return errors.Join(errs...)
}

func validRate(r float64) bool { return r >= 0.001 && r <= 1e7 }

// Throughput is what one worker does with one model.
type Throughput struct {
	// PrefillTokensPerSec is prompt tokens a second.
	PrefillTokensPerSec float64
	// steps are the seconds of one decode step by the number of sequences in it,
	// ascending in both.
	steps []step
}

type step struct {
	parallel int
	sec      float64
}

// newThroughput turns rates into step times. A step with more sequences never
// takes less time: where a measurement says so, the longer time stands.
func newThroughput(r CalibrationRates) Throughput {
	t := Throughput{PrefillTokensPerSec: r.PrefillTokensPerSec}
	for _, d := range r.Decode {
		sec := float64(d.Parallel) / d.TokensPerSec
		if n := len(t.steps); n > 0 {
			sec = max(sec, t.steps[n-1].sec)
		}
		t.steps = append(t.steps, step{d.Parallel, sec})
	}
	return t
}

// StepSec is the time of one decode step with so many sequences: linear
// between the measured points, with the last slope beyond them, and never less
// than the first point.
func (t Throughput) StepSec(parallel int) float64 {
	if parallel <= 0 {
		return 0
	}
	first, last := t.steps[0], t.steps[len(t.steps)-1]
	if parallel <= first.parallel {
		return first.sec
	}
	for i := 1; i < len(t.steps); i++ {
		a, b := t.steps[i-1], t.steps[i]
		if parallel <= b.parallel {
			return a.sec + (b.sec-a.sec)*float64(parallel-a.parallel)/float64(b.parallel-a.parallel)
		}
	}
	if len(t.steps) == 1 {
		return last.sec * float64(parallel) / float64(last.parallel)
	}
	prev := t.steps[len(t.steps)-2]
	slope := (last.sec - prev.sec) / float64(last.parallel-prev.parallel)
	return last.sec + slope*float64(parallel-last.parallel)
}

// DecodeTokensPerSec is the total rate with so many sequences together.
func (t Throughput) DecodeTokensPerSec(parallel int) float64 {
	if parallel <= 0 {
		return 0
	}
	return float64(parallel) / t.StepSec(parallel)
}

// BatchTime is where the time of one batch goes.
type BatchTime struct {
	PrefixSec float64 // the shared prompt, once
	PromptSec float64 // the users' own prompts
	DecodeSec float64 // the briefings
	WaitSec   float64 // for Firehose, when all workers together write too fast
}

// Sec is the whole batch.
func (b BatchTime) Sec() float64 { return b.PrefixSec + b.PromptSec + b.DecodeSec + b.WaitSec }

// Batch is the time of a batch of users with these token counts, parallel of
// them at a time. Full groups decode at the full rate, the rest of the batch
// decodes in a smaller group.
func (t Throughput) Batch(users, parallel, prefixTokens, userTokens, outputTokens int) BatchTime {
	parallel = max(1, min(parallel, users))
	rest := users % parallel
	return BatchTime{
		PrefixSec: float64(prefixTokens) / t.PrefillTokensPerSec,
		PromptSec: float64(users) * float64(userTokens) / t.PrefillTokensPerSec,
		DecodeSec: float64(outputTokens) * (float64(users/parallel)*t.StepSec(parallel) + t.StepSec(rest)),
	}
}

// Speeds are a worker's throughput in three cases. Slow makes the high cost
// and the long run, Fast the low and the short one.
type Speeds struct {
	Slow, Likely, Fast Throughput
	// Confidence is the calibration's, lowered where the figures were scaled.
	Confidence string
	// Scaled says how the figures were carried over, one sentence each; none for
	// a calibration of this very set-up.
	Scaled []string
}

// Exact says that there is one figure, not a range.
func (s Speeds) Exact() bool { return len(s.Scaled) == 0 && s.Confidence == "measured" }

// at is the throughput that makes the cost low, likely or high.
func (s Speeds) at(o outcome) Throughput {
	return [...]Throughput{low: s.Fast, likely: s.Likely, high: s.Slow}[o]
}

// Throughput carries the calibration over to a model on a worker of memoryMib.
//
// Prefill is bound by arithmetic: it goes with the CPUs and against the
// parameters. A decode step with one sequence reads all weights once: it goes
// with the CPUs (a Lambda worker has at most five whole ones, too few to exhaust a
// server's memory) and against the weight bytes; what each further sequence
// adds is arithmetic again. Whole jobs in the calibration correct the sum of
// the parts. Every such step widens the range and is named in Speeds.Scaled.
func (c Calibration) Throughput(m Model, memoryMib int) Speeds {
	s := Speeds{Confidence: c.Confidence}
	slow, fast := 1.0, 1.0 // factors on speed
	note := func(format string, args ...any) { s.Scaled = append(s.Scaled, fmt.Sprintf(format, args...)) }

	have := float64(c.Machine.Threads)
	if c.Machine.CPUs > 0 {
		have = min(have, c.Machine.CPUs)
	}
	want := cores(memoryMib)
	cpu := want / have
	if math.Abs(cpu-1) > 0.01 {
		note("scaled from %s to %s of CPU, in proportion", plural(have, "core"), plural(want, "core"))
		// Two cores share caches and memory better than five do.
		if cpu > 1 {
			slow *= math.Pow(cpu, -0.25)
		} else {
			fast *= math.Pow(cpu, -0.25)
		}
	}
	params := float64(m.Parameters) / float64(c.Model.Parameters)
	weights := float64(m.WeightBytes) / float64(c.Model.WeightBytes)
	if math.Abs(params-1) > 0.02 || math.Abs(weights-1) > 0.02 {
		note("scaled from %s to %s: prompt by parameters, decode by weight bytes", Model{Name: c.Model.Name, Quantization: c.Model.Quantization}, m)
		slow *= 0.8
		fast *= 1.25
	}
	if c.Range == nil && c.Machine.LambdaMemoryMib == 0 {
		note("measured on %s, not inside Lambda", c.Machine.CPU)
		slow *= 0.85
		if c.Machine.Arch == X8664 && slices.ContainsFunc(c.Machine.Features, func(f string) bool { return strings.HasPrefix(strings.ToUpper(f), "AVX512") }) {
			note("measured with AVX-512, which Lambda does not promise")
			slow *= 0.7
		}
	}
	if c.Range != nil {
		note("a range of public figures, measured by nobody on Lambda")
	}
	if len(s.Scaled) > 0 && c.Confidence == "measured" {
		s.Confidence = "medium"
		if math.Abs(cpu-1) > 0.01 && (math.Abs(params-1) > 0.02 || cpu > 2 || cpu < 0.5) {
			s.Confidence = "low"
		}
	}
	likely := CalibrationRates{c.PrefillTokensPerSec, c.Decode}
	low, high := likely, likely
	if c.Range != nil {
		low, high = c.Range.Slow, c.Range.Fast
	}
	whole := c.wholeJobFactor()
	carry := func(r CalibrationRates, speed float64) Throughput {
		t := newThroughput(r)
		t.PrefillTokensPerSec *= cpu / params * speed / whole
		one := t.steps[0].sec
		for i := range t.steps {
			t.steps[i].sec = (one*weights + (t.steps[i].sec-one)*params) / cpu / speed * whole
		}
		return t
	}
	s.Slow, s.Likely, s.Fast = carry(low, slow), carry(likely, 1), carry(high, fast)
	return s
}

// wholeJobFactor is how much longer the calibration's whole jobs took than the
// sum of their parts: the median, kept between a half and the double. Neither
// has the shared prefix in it, which a process computes once.
func (c Calibration) wholeJobFactor() float64 {
	t := newThroughput(CalibrationRates{c.PrefillTokensPerSec, c.Decode})
	var factors []float64
	for _, w := range c.Workloads {
		if w.Parallel < 1 || w.Parallel > maxParallel || w.OutputTokens < 0 || w.OwnTokens < 0 || w.OwnTokens+w.OutputTokens <= 0 || !(w.SecPerUser > 0) || math.IsInf(w.SecPerUser, 0) {
			continue
		}
		users := w.Users
		if users < w.Parallel || users > maxBatch {
			users = w.Parallel
		}
		parts := t.Batch(users, w.Parallel, 0, w.OwnTokens, w.OutputTokens).Sec() / float64(users)
		if parts > 0 {
			factors = append(factors, w.SecPerUser/parts)
		}
	}
	if len(factors) == 0 {
		return 1
	}
	slices.Sort(factors)
	return max(0.5, min(2, factors[len(factors)/2]))
}

func plural(n float64, unit string) string {
	s := fmt.Sprintf("%.3g %s", n, unit)
	if n != 1 {
		s += "s"
	}
	return s
}
