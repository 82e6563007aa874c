package chart

import (
	"math"
	"strconv"
)

// limit is the largest value a chart computes with. What is larger is drawn at
// the limit, so that no sum or difference overflows.
const limit = 1e290

// bounded keeps a finite value inside of what can be computed with.
func bounded(v float64) float64 { return max(-limit, min(limit, v)) }

// Ticks returns the values at which an axis from low to high is labelled: about
// n of them, at steps of 1, 2 or 5 times a power of ten, all inside the range.
// It returns the one value when the range is empty, and nothing when either end
// is not a finite number or n is below 1.
func Ticks(low, high float64, n int) []float64 {
	if !finite(low) || !finite(high) || n < 1 || low > high {
		return nil
	}
	low, high = bounded(low), bounded(high)
	return multiples(low, high, niceStep((high-low)/float64(n)))
}

// TimeTicks is Ticks for values in seconds: above one second, steps are those
// of a clock (1, 2, 5, 10, 15, 30 seconds and minutes; 1, 2, 3, 6, 12 hours) and
// then days.
func TimeTicks(low, high float64, n int) []float64 {
	if !finite(low) || !finite(high) || n < 1 || low > high {
		return nil
	}
	low, high = bounded(low), bounded(high)
	return multiples(low, high, timeStep((high-low)/float64(n)))
}

const day = 86400.0

func timeStep(rough float64) float64 {
	if rough <= 1 {
		return niceStep(rough)
	}
	for _, step := range []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, day} {
		if rough <= step {
			return step
		}
	}
	return niceStep(rough/day) * day
}

// niceStep is the smallest of 1, 2 and 5 times a power of ten that is at least
// rough; 0 when rough is too small to matter.
func niceStep(rough float64) float64 {
	if rough < 1/limit {
		return 0
	}
	exp := math.Floor(math.Log10(rough))
	for _, e := range []float64{exp - 1, exp, exp + 1} {
		for _, m := range []float64{1, 2, 5} {
			// Read from text: 5 * 10^-3 is not the float that "0.005" is.
			step, err := strconv.ParseFloat(strconv.Itoa(int(m))+"e"+strconv.Itoa(int(e)), 64)
			if err == nil && step >= rough*(1-1e-9) {
				return step
			}
		}
	}
	return 0
}

// multiples are the multiples of step from low to high.
func multiples(low, high, step float64) []float64 {
	if step <= 0 || high <= low {
		return []float64{low}
	}
	const slack = 1e-9 // of a step: rounding must not lose the last tick
	first := math.Ceil(low/step - slack)
	count := int(math.Floor(high/step+slack)-first) + 1
	if count < 1 || count > 1000 { // a range finer than floats can tell apart
		return []float64{low}
	}
	ticks := make([]float64, count)
	for i := range ticks {
		v := (first + float64(i)) * step
		// A product such as 3 * 0.1 carries noise into labels; rounding to the
		// step's own decimals takes it out.
		if r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 12, 64), 64); err == nil {
			v = r
		}
		ticks[i] = v
	}
	return ticks
}

// scale maps values to places between 0 and 1.
type scale struct {
	low, high float64 // after log, where it applies
	log       bool
	ticks     []float64
}

// dataScale spans exactly the data.
func dataScale(low, high float64, n int, a Axis) scale {
	s := scale{low: bounded(low), high: bounded(high)}
	switch {
	case a.Log:
		s.log = true
		s.ticks = logTicks(s.low, s.high, n)
		s.low, s.high = math.Log10(s.low), math.Log10(s.high)
	case a.Time:
		s.ticks = TimeTicks(s.low, s.high, n)
	default:
		s.ticks = Ticks(s.low, s.high, n)
	}
	return s
}

// roundScale spans the data and zero, and ends on ticks.
func roundScale(low, high float64, n int, a Axis) scale {
	low, high = min(bounded(low), 0), max(bounded(high), 0)
	step := niceStep((high - low) / float64(n))
	if a.Time {
		step = timeStep((high - low) / float64(n))
	}
	if a.Whole && step > 0 {
		step = max(step, 1)
	}
	if step == 0 {
		return scale{low: 0, high: 1, ticks: []float64{0, 1}}
	}
	s := scale{low: math.Floor(low/step+1e-9) * step, high: math.Ceil(high/step-1e-9) * step}
	s.ticks = multiples(s.low, s.high, step)
	return s
}

// at is the place of a value; outside of the scale it is the nearer end.
func (s scale) at(v float64) float64 {
	v = bounded(v)
	if s.log {
		if v <= 0 {
			return 0
		}
		v = math.Log10(v)
	}
	if s.high-s.low < 1/limit {
		return 0.5
	}
	return max(0, min(1, (v-s.low)/(s.high-s.low)))
}

// logTicks are powers of ten, with 2 and 5 between them while there is room.
// low is above zero.
func logTicks(low, high float64, n int) []float64 {
	if low >= high {
		return []float64{low}
	}
	firstExp, lastExp := int(math.Floor(math.Log10(low))), int(math.Ceil(math.Log10(high)))
	decades := lastExp - firstExp
	every, factors := 1, []int{1, 2, 5}
	if decades*3 > n+2 {
		factors = []int{1}
		every = max(1, (decades+n-1)/n)
	}
	var ticks []float64
	for e := firstExp; e <= lastExp; e += every {
		for _, f := range factors {
			v, err := strconv.ParseFloat(strconv.Itoa(f)+"e"+strconv.Itoa(e), 64)
			if err == nil && v >= low*(1-1e-9) && v <= high*(1+1e-9) {
				ticks = append(ticks, v)
			}
		}
	}
	if len(ticks) == 0 {
		ticks = []float64{low, high}
	}
	return ticks
}

// timeTick writes the ticks of a time axis, all in the unit that suits its end.
func timeTick(end float64) Format {
	unit, name := 1.0, " s"
	switch {
	case end >= 3*day:
		unit, name = day, " d"
	case end >= 3*3600:
		unit, name = 3600, " h"
	case end >= 180:
		unit, name = 60, " min"
	case end < 1:
		unit, name = 0.001, " ms"
	}
	return func(v float64) string {
		if v == 0 {
			return "0"
		}
		return Compact(v/unit) + name
	}
}
