package plan

import (
	"encoding/json"
	"math"
	"slices"
)

// Percentiles are taken over simulated runs.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// MarshalJSON writes nine digits, as Range does.
func (p Percentiles) MarshalJSON() ([]byte, error) {
	type plain Percentiles
	return json.Marshal(plain{roundTo(p.P50, 9), roundTo(p.P99, 9)})
}

// Timeline is when things happen in a run, in seconds from the arrival of the
// input, over Runs simulated runs.
type Timeline struct {
	Runs int `json:"runs"`
	// GeneratedSec is when the last row left its worker, WrittenSec when the last
	// briefing was in a Parquet file.
	GeneratedSec Percentiles `json:"generated_sec"`
	WrittenSec   Percentiles `json:"written_sec"`
	// FirstMailSec and LastMailSec are 0 without mail.
	FirstMailSec Percentiles `json:"first_mail_sec"`
	LastMailSec  Percentiles `json:"last_mail_sec"`
	// PeakConcurrency counts workers at one time.
	PeakConcurrency Percentiles `json:"peak_concurrency"`
	ColdStarts      Percentiles `json:"cold_starts"`
	// Throttles counts invocations that Lambda refused and that came again.
	Throttles Percentiles `json:"throttles"`
	// FirehoseWaitSec is worker time lost to a full stream.
	FirehoseWaitSec Percentiles `json:"firehose_wait_sec"`
	Files           Percentiles `json:"files"`
	// Series is the first run over time.
	Series []Moment `json:"series,omitempty"`
}

// Timelines are the three cases; Low is the fast machine.
type Timelines struct {
	Low    Timeline `json:"low"`
	Likely Timeline `json:"likely"`
	High   Timeline `json:"high"`
}

// seconds reads one figure of the three cases.
func (t Timelines) seconds(of func(Timeline) float64) Range {
	return Range{of(t.Low), of(t.Likely), of(t.High)}
}

// swarm is the run of one case as the simulation sees it, with every quota it
// asks for granted.
func (in Inputs) swarm(w work) Swarm {
	s := Swarm{
		Children: w.children, BatchUsers: in.BatchSize, LastUsers: int(w.rest),
		// The simulation makes Firehose's waits itself.
		BatchSec: w.full.Sec() - w.full.WaitSec, StartSec: w.startSec,
		ReadySec:       helperStartSec + float64(in.Users)/helperRecordsPerSec,
		DispatchPerSec: startsPerSec(in.ChildType),
		MaxConcurrency: in.MaxConcurrency, AccountConcurrency: math.MaxInt32,
		RowBytes: in.rowBytes(), RowsPerSec: w.rowsSec, BufferMib: in.BufferMib, BufferSec: in.BufferSec,
		HoldMailSec: in.DeliverAtSec, MailAfterAll: !in.StartEarly,
	}
	if in.Mail {
		s.MailPerSec = in.SesRatePerSec
	}
	return s
}

// timeline simulates so many runs.
func (s Swarm) timeline(runs int, series bool) Timeline {
	t := Timeline{Runs: runs}
	outs := make([]Outcome, runs)
	for i := range outs {
		outs[i] = s.Simulate(uint64(i)+1, series && i == 0)
	}
	t.Series = outs[0].Series
	values := make([]float64, runs)
	over := func(of func(Outcome) float64) Percentiles {
		for i, o := range outs {
			values[i] = of(o)
		}
		slices.Sort(values)
		return Percentiles{percentile(values, 0.5), percentile(values, 0.99)}
	}
	t.GeneratedSec = over(func(o Outcome) float64 { return o.GeneratedSec })
	t.WrittenSec = over(func(o Outcome) float64 { return o.WrittenSec })
	t.FirstMailSec = over(func(o Outcome) float64 { return o.FirstMailSec })
	t.LastMailSec = over(func(o Outcome) float64 { return o.LastMailSec })
	t.PeakConcurrency = over(func(o Outcome) float64 { return float64(o.PeakConcurrency) })
	t.ColdStarts = over(func(o Outcome) float64 { return float64(o.ColdStarts) })
	t.Throttles = over(func(o Outcome) float64 { return float64(o.Throttles) })
	t.FirehoseWaitSec = over(func(o Outcome) float64 { return o.FirehoseWaitSec })
	t.Files = over(func(o Outcome) float64 { return float64(o.Files) })
	return t
}

// percentile is the nearest rank of sorted values.
func percentile(sorted []float64, p float64) float64 {
	i := int(math.Ceil(p*float64(len(sorted)))) - 1
	return sorted[max(0, min(len(sorted)-1, i))]
}
