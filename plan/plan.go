package plan

import (
	"fmt"
	"math"
)

// Schema names the version of the plan document.
const Schema = "briefing-swarm/plan/1"

// Plan is what a run costs, how long it takes, which quotas it needs, and
// whether it should be done this way at all.
type Plan struct {
	Schema string `json:"schema"`
	Inputs Inputs `json:"inputs"`
	// Verdict is the answer; the rest is why.
	Verdict      Verdict       `json:"verdict"`
	Speed        Speed         `json:"speed"`
	Cost         Bill          `json:"cost"`
	Time         Timelines     `json:"time"`
	Deadline     *Deadline     `json:"deadline,omitempty"`
	Quotas       []Quota       `json:"quotas"`
	Today        Today         `json:"today"`
	Alternatives []Alternative `json:"alternatives"`
	// Notes are what the reader should know and might not look for.
	Notes []string `json:"notes"`
	// PricesDate and PricesFrom say which price file was used.
	PricesDate string `json:"prices_date"`
	PricesFrom string `json:"prices_from"`
	// Sensitivity and Tuning are there if they were asked for.
	Sensitivity []Curve `json:"sensitivity,omitempty"`
	Tuning      *Tuning `json:"tuning,omitempty"`
}

// Speed is how fast one worker is, and what that was computed from.
type Speed struct {
	Threads int     `json:"threads"`
	VCPU    float64 `json:"vcpu"`
	// SecPerUser is one user's share of a full batch.
	SecPerUser         Range `json:"sec_per_user"`
	PromptTokensPerSec Range `json:"prompt_tokens_per_sec"`
	DecodeTokensPerSec Range `json:"decode_tokens_per_sec"`
	BatchSec           Range `json:"batch_sec"`
	LoadSec            Range `json:"load_sec"`
	Workers            Range `json:"workers"`
	Children           int64 `json:"children"`
	WaveUsers          int64 `json:"wave_users"`
	MemoryNeedMib      int   `json:"memory_need_mib"`
	CalibrationGiven   bool  `json:"calibration_given"`
	// Confidence is "measured", "medium" or "low".
	Confidence string `json:"confidence"`
	// Scaled says how the calibration was carried over, one sentence each.
	Scaled []string `json:"scaled,omitempty"`
	// Calibrate is the command that replaces the calibration by the reader's own.
	Calibrate string `json:"calibrate"`
}

// Deadline says whether the last briefing is written in time.
type Deadline struct {
	Minutes float64 `json:"minutes"`
	// Met is for each case, by the 99th percentile of its runs.
	Met struct {
		Low    bool `json:"low"`
		Likely bool `json:"likely"`
		High   bool `json:"high"`
	} `json:"met"`
}

// How many runs are simulated.
const (
	likelyRuns = 40
	otherRuns  = 10
)

// Estimate computes the plan of in. Its error is Faults, with every fault of
// the inputs, an *UnknownRegionError, or both joined.
func Estimate(in Inputs) (*Plan, error) { return estimate(in, likelyRuns, otherRuns) }

// estimate simulates so many runs of the likely case and of each other.
func estimate(in Inputs, likelyRuns, otherRuns int) (*Plan, error) {
	given := in.Calibration.Schema != ""
	in, speeds, err := in.resolve()
	if err != nil {
		return nil, err
	}
	cases := in.cases(speeds)
	p := &Plan{
		Schema: Schema, Inputs: in, Speed: in.speed(cases, speeds), Cost: in.bill(cases, speeds),
		PricesDate: in.Prices.Date, PricesFrom: in.Prices.From,
	}
	p.Speed.CalibrationGiven = given
	p.Time = Timelines{
		Low:    in.swarm(cases[low]).timeline(otherRuns, false),
		Likely: in.swarm(cases[likely]).timeline(likelyRuns, true),
		High:   in.swarm(cases[high]).timeline(otherRuns, false),
	}
	if in.DeadlineMinutes > 0 {
		d := &Deadline{Minutes: in.DeadlineMinutes}
		d.Met.Low = p.Time.Low.WrittenSec.P99 <= 60*in.DeadlineMinutes
		d.Met.Likely = p.Time.Likely.WrittenSec.P99 <= 60*in.DeadlineMinutes
		d.Met.High = p.Time.High.WrittenSec.P99 <= 60*in.DeadlineMinutes
		p.Deadline = d
	}
	p.Quotas = in.quotas(cases, p.Time.seconds(func(t Timeline) float64 { return t.PeakConcurrency.P50 }))
	p.Today = in.today(speeds, p.Quotas, otherRuns)
	p.Alternatives = in.alternatives(p.Cost.WritingUsd)
	p.Verdict = in.verdict(p.Cost.WritingUsd, p.Alternatives)
	p.Notes = in.notes(p)
	return p, nil
}

func (in Inputs) cases(speeds Speeds) (cases [3]work) {
	for _, o := range outcomes {
		cases[o] = in.work(speeds.at(o), o)
	}
	return cases
}

func (in Inputs) speed(cases [3]work, speeds Speeds) Speed {
	over := func(f func(work) float64) Range { return ranged(func(o outcome) float64 { return f(cases[o]) }) }
	s := Speed{
		Threads: Threads(in.MemoryMib), VCPU: math.Round(100*VCPU(in.MemoryMib)) / 100,
		SecPerUser:         over(func(w work) float64 { return w.full.Sec() / float64(in.BatchSize) }),
		PromptTokensPerSec: ranged(func(o outcome) float64 { return speeds.at(o).PrefillTokensPerSec }),
		DecodeTokensPerSec: ranged(func(o outcome) float64 { return speeds.at(o).DecodeTokensPerSec(in.parallel()) }),
		BatchSec:           over(func(w work) float64 { return w.full.Sec() }),
		LoadSec:            over(func(w work) float64 { return w.loadSec }),
		Workers:            over(func(w work) float64 { return w.workers }),
		Children:           cases[likely].children,
		WaveUsers:          WaveUsers(in.MaxConcurrency, in.BatchSize),
		MemoryNeedMib:      MemoryNeedMib(in.Model, in.Context(), in.parallel()),
		Confidence:         speeds.Confidence, Scaled: speeds.Scaled,
		Calibrate: "swarm bench --shape " + in.Model.Name,
	}
	if in.SecPerUser > 0 {
		s.Confidence, s.Scaled = "measured", nil
	}
	return s
}

// notes collects what the figures alone do not say.
func (in Inputs) notes(p *Plan) []string {
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if p.Speed.MemoryNeedMib > 0 {
		lean := (Threads(in.MemoryMib)*MibPerVCPU + 63) / 64 * 64
		if lean >= p.Speed.MemoryNeedMib && lean < in.MemoryMib*19/20 && Threads(lean) == Threads(in.MemoryMib) {
			note("%s MiB runs the same %d threads for %.0f%% less; what is left above whole vCPUs serves only the runtime beside them",
				FormatNumber(float64(lean)), Threads(lean), 100*(1-float64(lean)/float64(in.MemoryMib)))
		}
	}
	if in.BatchSize%in.parallel() != 0 {
		note("a batch of %d leaves %d of %d sequences busy at its end: a multiple of %d decodes better",
			in.BatchSize, in.BatchSize%in.parallel(), in.parallel(), in.parallel())
	}
	if in.ParallelSequences > in.BatchSize {
		note("parallelSequences %d is more than a batch of %d has users", in.ParallelSequences, in.BatchSize)
	}
	if last := in.Calibration.Decode[len(in.Calibration.Decode)-1].Parallel; in.SecPerUser == 0 && in.parallel() > last {
		note("%d parallel sequences are beyond the %d that were measured", in.parallel(), last)
	}
	if w := p.Time.Likely.FirehoseWaitSec.P50; w > 1 {
		note("workers wait %s in all for Firehose, and the wait is billed", FormatSec(w))
	}
	if len(p.Cost.Unpriced) > 0 {
		note("not in any total, for want of a price in %s: %s", in.Region, joinWords(p.Cost.Unpriced))
	}
	if in.ModelStore == StoreImage && p.Inputs.Calibration.Machine.LambdaMemoryMib == 0 {
		note("how fast Lambda loads %s out of an image is not published: %s is assumed, the first start after a deployment is the slowest",
			bytesText(float64(in.Model.WeightBytes)), FormatSecRange(p.Speed.LoadSec))
	}
	if in.EndpointRequestsPerMonth > 0 {
		note("the endpoint's cold starts are not counted")
	}
	return notes
}
