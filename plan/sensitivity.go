package plan

import (
	"errors"
	"math"
	"slices"
)

// Curve is what one input does to cost and time, all else equal.
type Curve struct {
	// Input is the input's name, as in Fault.Field.
	Input  string  `json:"input"`
	Label  string  `json:"label"`
	Unit   string  `json:"unit"`
	Points []Point `json:"points"`
}

// Point is one value of a Curve.
type Point struct {
	Value   float64 `json:"value"`
	Current bool    `json:"current"`
	// BatchSize is smaller than the plan's where that many users would not end
	// in time.
	BatchSize int `json:"batch_size"`
	// PerRunUsd and WrittenSec are the cost and the end of one simulated run.
	PerRunUsd  Range `json:"per_run_usd"`
	WrittenSec Range `json:"written_sec"`
	// Fault is why this value is not allowed; the figures are then 0.
	Fault string `json:"fault,omitempty"`
}

// AddSensitivity computes the curves for output tokens, parallel sequences and
// concurrency.
func (p *Plan) AddSensitivity() error {
	in := p.Inputs
	curves := []struct {
		input, label, unit string
		values             []float64
		current            int
		set                func(*Inputs, int)
	}{
		{"outputTokens", "Output tokens per user", "tokens", []float64{15, 30, 50, 100, 200, 400}, in.OutputTokens, func(in *Inputs, v int) { in.OutputTokens = v }},
		{"userTokens", "Prompt tokens per user", "tokens", []float64{30, 60, 120, 240, 480, 960}, in.UserTokens, func(in *Inputs, v int) { in.UserTokens = v }},
		{"parallelSequences", "Parallel sequences (K)", "sequences", []float64{1, 2, 4, 8, 16, 32}, in.ParallelSequences, func(in *Inputs, v int) { in.ParallelSequences = v }},
		{"maxConcurrency", "Concurrent workers", "workers", []float64{100, 300, 1000, 3000, 10_000}, in.MaxConcurrency, func(in *Inputs, v int) { in.MaxConcurrency = v }},
	}
	p.Sensitivity = nil
	for _, c := range curves {
		if in.SecPerUser > 0 && c.input != "maxConcurrency" {
			continue // a measured time says nothing about other tokens
		}
		if !slices.Contains(c.values, float64(c.current)) {
			c.values = append(c.values, float64(c.current))
			slices.Sort(c.values)
		}
		curve := Curve{Input: c.input, Label: c.label, Unit: c.unit}
		for _, v := range c.values {
			point := Point{Value: v, Current: v == float64(c.current)}
			try := in
			c.set(&try, int(v))
			try, speeds, err := try.FitBatch().resolve()
			point.BatchSize = try.BatchSize
			var faults Faults
			switch {
			case errors.As(err, &faults):
				point.Fault = faults[0].Error()
			case err != nil:
				return err
			default:
				cases := try.cases(speeds)
				point.PerRunUsd = try.bill(cases, speeds).PerRunUsd
				point.WrittenSec = ranged(func(o outcome) float64 { return math.Round(try.swarm(cases[o]).Simulate(1, false).WrittenSec) })
			}
			curve.Points = append(curve.Points, point)
		}
		p.Sensitivity = append(p.Sensitivity, curve)
	}
	return nil
}
