package plan

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
)

// What Tune looks for.
const (
	MinimiseCost = "cost"
	MinimiseTime = "time"
)

// Tuning is the result of a search over memory, batch size, parallel sequences
// and concurrency.
type Tuning struct {
	Goal string `json:"goal"`
	// DeadlineSec bounds the writing of the last briefing, by the 99th percentile
	// of the likely case.
	DeadlineSec float64 `json:"deadline_sec"`
	// Winner is nil if nothing meets the deadline; Nearest is then the fastest.
	Winner  *Candidate `json:"winner"`
	Nearest *Candidate `json:"nearest,omitempty"`
	// NextBest differ from the winner in one respect each.
	NextBest []Candidate `json:"next_best"`
	// Asked is the plan's own setting.
	Asked Candidate `json:"asked"`
	// Tried is how many settings were looked at, Refused how many of them for
	// which fault or for the deadline.
	Tried   int            `json:"tried"`
	Refused map[string]int `json:"refused"`
}

// Candidate is one setting with what it leads to.
type Candidate struct {
	MemoryMib         int   `json:"memory_mib"`
	BatchSize         int   `json:"batch_size"`
	ParallelSequences int   `json:"parallel_sequences"`
	MaxConcurrency    int   `json:"max_concurrency"`
	PerRunUsd         Range `json:"per_run_usd"`
	// WrittenSec is the likely case, SlowWrittenSec the slow one's 99th percentile.
	WrittenSec     Percentiles `json:"written_sec"`
	SlowWrittenSec float64     `json:"slow_written_sec"`
	// Reason says why it wins, or what it loses by.
	Reason string `json:"reason"`

	in     Inputs
	cases  [3]work
	guess  float64 // seconds, without simulation
	finest bool    // has been simulated
}

// defaultTuneDeadlineSec bounds a search without a deadline: a daily run has
// to end before the next.
const defaultTuneDeadlineSec = 86_400

const (
	tuneRuns = 5  // simulated runs of a setting
	tuneLook = 24 // settings that are simulated for one place in the list
)

// Tune searches for the setting with the least cost or time that writes the
// last briefing within deadlineSec (0: within a day). Concurrency goes up to the
// account's quota if in gives it, and to 10,000 otherwise. Errors are those of
// Estimate; a deadline that nothing meets is no error, see Tuning.Winner.
func Tune(in Inputs, goal string, deadlineSec float64) (*Tuning, error) {
	if goal != MinimiseCost && goal != MinimiseTime {
		return nil, Faults{{"minimise", fmt.Sprintf("%q", clip(goal)), MinimiseCost + " or " + MinimiseTime, "choose one of them"}}
	}
	if !(deadlineSec >= 0 && deadlineSec <= maxDeliverSec) {
		return nil, Faults{{"deadline", withUnit(deadlineSec, "s"), "0 to " + withUnit(maxDeliverSec, "s"), "give a time within a week, 0 for a day"}}
	}
	if deadlineSec == 0 {
		deadlineSec = defaultTuneDeadlineSec
	}
	in, speeds, err := in.resolve()
	if err != nil {
		return nil, err
	}
	if in.SecPerUser > 0 {
		return nil, Faults{{"secPerUser", withUnit(in.SecPerUser, "s"), "0", "a measured time holds for one setting only: give a calibration to search over others"}}
	}
	t := &Tuning{Goal: goal, DeadlineSec: deadlineSec, Refused: map[string]int{}}
	t.Asked = candidate(in, speeds).complete("the plan as asked")

	all := t.candidates(in)
	// What is looked for, and what decides among equals.
	first := func(c *Candidate) float64 { return c.PerRunUsd.Likely }
	second := (*Candidate).time
	if goal == MinimiseTime {
		first, second = second, first
	}
	// The guess is good enough to rank, the simulation decides. It knows no
	// stragglers, so what it finds too slow by a tenth is too slow.
	inTime := func(c *Candidate) bool {
		if c.guess > 1.1*deadlineSec {
			return false
		}
		if !c.finest { // one run is enough to see most of those that fail
			if one := c.in.swarm(c.cases[likely]).Simulate(1, false).WrittenSec; one > 1.1*deadlineSec {
				c.guess = one
				return false
			}
			c.simulate()
		}
		return c.WrittenSec.P99 <= deadlineSec
	}
	// pick takes the best by first; of those within half a per cent of it, which
	// is less than anybody knows, the best by second. all is sorted by first, as
	// far as that is known without a simulation.
	pick := func(of func(*Candidate) bool) *Candidate {
		var fit []*Candidate
		least := math.Inf(1)
		for i := range all {
			c := &all[i]
			if len(fit) >= tuneLook || (goal == MinimiseCost && first(c) > 1.005*least) {
				break
			}
			if of(c) && inTime(c) {
				fit = append(fit, c)
				least = min(least, first(c))
			}
		}
		var best *Candidate
		for _, c := range fit {
			if first(c) <= 1.005*least && (best == nil || second(c) < second(best)) {
				best = c
			}
		}
		return best
	}
	sort.SliceStable(all, func(i, j int) bool { return first(&all[i]) < first(&all[j]) })
	win := pick(func(*Candidate) bool { return true })
	for i := range all {
		if all[i].guess > 1.1*deadlineSec || (all[i].finest && all[i].WrittenSec.P99 > deadlineSec) {
			t.Refused["deadline"]++
		}
	}
	if win == nil {
		var nearest *Candidate
		for i := range all {
			if nearest == nil || all[i].guess < nearest.guess {
				nearest = &all[i]
			}
		}
		if nearest != nil {
			c := nearest.complete("the fastest there is, and still too slow")
			t.Nearest = &c
		}
		return t, nil
	}
	differs := []func(*Candidate) bool{
		func(c *Candidate) bool { return c.MemoryMib != win.MemoryMib },
		func(c *Candidate) bool {
			return c.MemoryMib == win.MemoryMib && c.ParallelSequences != win.ParallelSequences
		},
		func(c *Candidate) bool {
			return c.MemoryMib == win.MemoryMib && c.ParallelSequences == win.ParallelSequences && c.BatchSize != win.BatchSize
		},
		func(c *Candidate) bool {
			return c.MemoryMib == win.MemoryMib && c.ParallelSequences == win.ParallelSequences && c.BatchSize == win.BatchSize && c.MaxConcurrency != win.MaxConcurrency
		},
	}
	for _, d := range differs {
		if c := pick(d); c != nil {
			t.NextBest = append(t.NextBest, c.complete(c.against(win)))
		}
	}
	sort.SliceStable(t.NextBest, func(i, j int) bool { return first(&t.NextBest[i]) < first(&t.NextBest[j]) })
	reason := win.against(&t.Asked)
	if in.Quotas.LambdaConcurrency == 0 && win.MaxConcurrency+int(in.deliveryWorkers())+othersReserve > LambdaConcurrencyUnset {
		reason += fmt.Sprintf("; a default account must first ask for L-B99A9384 above %s", FormatNumber(LambdaConcurrencyUnset))
	}
	best := win.complete(reason)
	t.Winner = &best
	return t, nil
}

// candidates are all settings without a fault.
func (t *Tuning) candidates(in Inputs) []Candidate {
	memories := []int{in.MemoryMib, LambdaMemoryMaxMib}
	for n := 1; n <= LambdaMemoryMaxMib/MibPerVCPU; n++ {
		memories = append(memories, (n*MibPerVCPU+63)/64*64)
	}
	most := MapConcurrencyMax
	if have := in.Quotas.LambdaConcurrency; have > 0 {
		most = max(1, min(most, have-int(in.deliveryWorkers())-othersReserve-in.ProvisionedConcurrency))
	}
	concurrencies := []int{min(in.MaxConcurrency, most), most}
	for _, c := range []int{10, 30, 100, 200, 300, 500, 700, 900, 1500, 2000, 3000, 5000, 7000} {
		if c < most {
			concurrencies = append(concurrencies, c)
		}
	}
	var list []Candidate
	for _, memory := range unique(memories) {
		for _, k := range unique([]int{1, 2, 4, 8, 16, 32, in.ParallelSequences}) {
			for _, batch := range unique([]int{k, 2 * k, 3 * k, 4 * k, 6 * k, 8 * k, in.BatchSize}) {
				if batch < k {
					continue
				}
				for _, c := range unique(concurrencies) {
					try := in
					try.MemoryMib, try.ParallelSequences, try.BatchSize, try.MaxConcurrency = memory, k, batch, c
					t.Tried++
					try, speeds, err := try.resolve()
					var faults Faults
					if errors.As(err, &faults) {
						t.Refused[faults[0].Field]++
						continue
					}
					list = append(list, candidate(try, speeds))
				}
			}
		}
	}
	return list
}

func candidate(in Inputs, speeds Speeds) Candidate {
	c := Candidate{
		MemoryMib: in.MemoryMib, BatchSize: in.BatchSize, ParallelSequences: in.ParallelSequences, MaxConcurrency: in.MaxConcurrency,
		in: in, cases: in.cases(speeds),
	}
	c.PerRunUsd = in.bill(c.cases, speeds).PerRunUsd
	w := c.cases[likely]
	rounds := math.Ceil(float64(w.children) / min(float64(w.children), float64(in.MaxConcurrency)))
	dispatch := float64(w.children) / startsPerSec(in.ChildType)
	c.guess = in.swarm(w).ReadySec + w.startSec + max(rounds*w.full.Sec(), dispatch+w.full.Sec()) + fileWriteSec
	return c
}

// simulate replaces the guess.
func (c *Candidate) simulate() {
	if c.finest {
		return
	}
	c.finest = true
	c.WrittenSec = c.in.swarm(c.cases[likely]).timeline(tuneRuns, false).WrittenSec
}

// complete adds what only a setting that is shown needs.
func (c Candidate) complete(reason string) Candidate {
	c.simulate()
	c.SlowWrittenSec = c.in.swarm(c.cases[high]).timeline(tuneRuns, false).WrittenSec.P99
	c.Reason = reason
	return c
}

func (c *Candidate) time() float64 {
	if c.finest {
		return c.WrittenSec.P99
	}
	return c.guess
}

// against says how c compares with another setting, and why.
func (c *Candidate) against(o *Candidate) string {
	var why []string
	say := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	if c.MemoryMib != o.MemoryMib {
		idle := func(m int) float64 { return VCPU(m) - cores(m) }
		a, b := Threads(c.MemoryMib), Threads(o.MemoryMib)
		switch {
		case a == b:
			say("the same %s, with %.2f instead of %.2f vCPU idle", plural(float64(a), "thread"), idle(c.MemoryMib), idle(o.MemoryMib))
		default:
			say("%s instead of %d, with %.2f vCPU idle", plural(float64(a), "thread"), b, idle(c.MemoryMib))
		}
	}
	if c.ParallelSequences != o.ParallelSequences {
		say("%d users decode together instead of %d", c.ParallelSequences, o.ParallelSequences)
	}
	if c.BatchSize != o.BatchSize {
		say("the shared prompt is read once per %d users instead of %d", c.BatchSize, o.BatchSize)
	}
	if c.MaxConcurrency != o.MaxConcurrency {
		say("%s workers start and load the model, not %s", FormatNumber(c.cases[likely].workers), FormatNumber(o.cases[likely].workers))
	}
	if len(why) == 0 {
		return "the plan as asked"
	}
	return fmt.Sprintf("%s, %s: %s", percent(c.PerRunUsd.Likely, o.PerRunUsd.Likely, "cheaper", "dearer", "same cost"),
		percent(c.time(), o.time(), "faster", "slower", "same time"), strings.Join(why, "; "))
}

func percent(a, b float64, less, more, same string) string {
	if b <= 0 {
		return "no comparison"
	}
	switch d := 100 * (a/b - 1); {
	case d < -0.5:
		return fmt.Sprintf("%.0f%% %s", -d, less)
	case d > 0.5:
		return fmt.Sprintf("%.0f%% %s", d, more)
	}
	return same
}

func unique(v []int) []int {
	slices.Sort(v)
	return slices.Compact(v)
}
