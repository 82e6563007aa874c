package plan

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Swarm is a run as the simulation sees it: batches, workers and the rates that
// hold them back. All times are seconds.
type Swarm struct {
	// Children is the number of batches, BatchUsers the users in a full one and
	// LastUsers in the last, if that is not full.
	Children   int64
	BatchUsers int
	LastUsers  int
	// BatchSec is the mean time of a full batch, StartSec what a cold start adds.
	BatchSec float64
	StartSec float64
	// ReadySec is when the first child can be dispatched.
	ReadySec float64
	// DispatchPerSec is how many children the map starts a second.
	DispatchPerSec float64
	// MaxConcurrency bounds the children, AccountConcurrency the environments.
	MaxConcurrency     int
	AccountConcurrency int
	// RowBytes and RowsPerSec are what Firehose gets and takes; BufferMib and
	// BufferSec close its buffer.
	RowBytes   float64
	RowsPerSec float64
	BufferMib  int
	BufferSec  int
	// MailPerSec is the send rate, 0 without mail; MailPerDay its daily cap, 0 for
	// none. HoldMailSec holds all mail until then, MailAfterAll until the last file.
	MailPerSec   float64
	MailPerDay   int64
	HoldMailSec  float64
	MailAfterAll bool
}

// Chance in a Swarm, assumed; see docs/plan.md.
const (
	batchSpread     = 0.10 // of the logarithm of a batch's time
	stragglerShare  = 0.01 // of batches on a slow host
	stragglerFactor = 2
	backoffFirstSec = 1  // first retry of a throttled call
	backoffMaxSec   = 30 // the retries double up to that
	fileWriteSec    = 10 // conversion and writing of a Parquet file
	mailStartSec    = 10 // from a file's event to its first mail
)

// Outcome is one simulated run. All times are seconds from the arrival of the
// input.
type Outcome struct {
	// GeneratedSec is when the last row left its worker, WrittenSec when it was in
	// a Parquet file.
	GeneratedSec float64
	WrittenSec   float64
	// FirstMailSec and LastMailSec are 0 without mail.
	FirstMailSec float64
	LastMailSec  float64
	// PeakConcurrency counts environments at work, ColdStarts those started.
	PeakConcurrency int
	ColdStarts      int64
	// Throttles counts refused invocations, FirehoseWaitSec the worker time lost
	// to a full stream.
	Throttles       int64
	FirehoseWaitSec float64
	Files           int64
	// Series is the run over time; nil unless asked for.
	Series []Moment
}

// Moment is the state of a run.
type Moment struct {
	Sec     float64 `json:"sec"`
	Workers int     `json:"workers"`
	Written int64   `json:"written"` // rows in files
	Mailed  int64   `json:"mailed"`
}

// event is a group of equal children that end together.
type event struct {
	at       float64
	start    float64 // when they began to write rows
	slots    int32   // children side by side
	rows     int64
	accepted bool // Firehose has taken all rows
}

// Simulate runs the swarm once. It is a discrete-event simulation: children
// are dispatched, find a warm environment or start one, are throttled and come
// again, end after a time drawn around BatchSec, hand their rows to Firehose,
// and files and mails follow. Beyond a few ten thousand children, equal ones in
// the middle of the run share an event; the ramp and the tail never do.
func (s Swarm) Simulate(seed uint64, series bool) Outcome {
	r := newRunner(s, seed, series)
	r.run()
	return r.out
}

func newRunner(s Swarm, seed uint64, series bool) *runner {
	return &runner{Swarm: s, rng: rand.New(rand.NewPCG(seed, 0x5eed)), series: series}
}

type runner struct {
	Swarm
	rng    *rand.Rand
	series bool
	// oneByOne gives every child an event of its own.
	oneByOne bool
	out      Outcome

	now        float64
	dispatched int64
	nextStart  float64 // the dispatcher's next free moment
	inflight   int
	busy, idle int
	tokens     float64 // new environments that may start now
	tokensAt   float64
	waiting    []waiter
	waitHead   int
	waiters    int
	heap       []event

	streamFree float64 // when Firehose has taken all it was given
	bufOpen    float64 // -1: no buffer open
	bufBytes   float64
	bufRows    int64
	files      []file

	work []delta
}

type waiter struct {
	since float64
	ready float64 // it tries again then
	slots int32
	deep  int32 // batches one after the other
	rows  int64
}

type file struct {
	at   float64
	rows int64
}

type delta struct {
	at    float64
	slots int32
}

func (r *runner) run() {
	if r.Children <= 0 {
		return
	}
	limit := max(1, min(r.MaxConcurrency, r.AccountConcurrency))
	r.now, r.nextStart, r.tokensAt = r.ReadySec, r.ReadySec, r.ReadySec
	r.tokens = LambdaNewEnvPer10Sec
	r.bufOpen = -1
	wide, deep, edge := r.grouping(limit)
	if r.oneByOne {
		wide, deep = 1, 1
	}

	for r.dispatched < r.Children || len(r.heap) > 0 || r.waiters > 0 {
		dispatchAt, placeAt, endAt := math.Inf(1), math.Inf(1), math.Inf(1)
		slots, depth := int64(1), int64(1)
		if r.dispatched < r.Children {
			left := r.Children - r.dispatched
			if r.dispatched >= edge && left > edge {
				slots, depth = wide, deep
				if slots*depth > left-edge {
					slots, depth = 1, 1
				}
			}
			if r.inflight+int(slots) <= r.MaxConcurrency {
				dispatchAt = max(r.now, r.nextStart)
			}
		}
		if r.waiters > 0 {
			placeAt = r.placeAt(limit)
		}
		if len(r.heap) > 0 {
			endAt = r.heap[0].at
		}
		switch {
		case endAt <= dispatchAt && endAt <= placeAt:
			r.now = max(r.now, endAt)
			r.end()
		case placeAt <= dispatchAt:
			r.now = max(r.now, placeAt)
			r.place()
		default:
			r.now = dispatchAt
			r.dispatch(slots, depth, limit)
		}
	}
	r.finish()
}

// grouping says how many children an event in the middle of the run stands
// for: wide side by side, deep one after the other. edge children at either end
// stand for themselves.
func (r *runner) grouping(limit int) (wide, deep, edge int64) {
	const budget = 20_000
	atOnce := max(1, min(float64(limit), r.DispatchPerSec*r.BatchSec))
	// In the beginning cold starts keep more of them busy.
	ramp := max(atOnce, min(float64(limit), r.DispatchPerSec*(r.BatchSec+r.StartSec)))
	edge = int64(math.Ceil(1.25 * ramp))
	middle := r.Children - 2*edge
	if middle <= budget {
		return 1, 1, edge
	}
	want := float64(middle) / budget
	deepMost := max(1, math.Floor(float64(middle)/atOnce/20))
	wideMost := max(1, math.Floor(atOnce/64))
	d := min(math.Ceil(want), deepMost)
	w := min(math.Ceil(want/d), wideMost)
	return int64(w), int64(d), edge
}

func (r *runner) dispatch(slots, deep int64, limit int) {
	n := slots * deep
	rows := n * int64(r.BatchUsers)
	r.dispatched += n
	if r.dispatched == r.Children && r.LastUsers > 0 {
		rows -= int64(r.BatchUsers - r.LastUsers)
	}
	r.nextStart = r.now + float64(n)/r.DispatchPerSec
	r.inflight += int(slots)
	c := waiter{since: r.now, slots: int32(slots), deep: int32(deep), rows: rows}
	if cold, ok := r.environments(int(slots), limit); ok && r.waiters == 0 {
		r.begin(c, cold)
		return
	}
	r.out.Throttles += slots
	c.ready = r.now + backoffFirstSec*r.rng.Float64()*2
	r.waiting = append(r.waiting, c)
	r.waiters++
}

// environments takes n environments, warm ones first, and says how many had to
// be started. It takes none if there are not enough.
func (r *runner) environments(n, limit int) (cold int, ok bool) {
	cold = max(0, n-r.idle)
	if cold > 0 {
		r.refill()
		if r.busy+r.idle+cold > limit || r.tokens < float64(cold) {
			return 0, false
		}
	}
	return cold, true
}

func (r *runner) refill() {
	r.tokens = min(LambdaNewEnvPer10Sec, r.tokens+(r.now-r.tokensAt)*LambdaNewEnvPer10Sec/10)
	r.tokensAt = r.now
}

// begin runs a group of children on environments that are there.
func (r *runner) begin(c waiter, cold int) {
	r.idle -= int(c.slots) - cold
	r.busy += int(c.slots)
	r.tokens -= float64(cold)
	r.out.ColdStarts += int64(cold)
	r.out.PeakConcurrency = max(r.out.PeakConcurrency, r.busy)
	share := float64(c.rows) / float64(int64(c.slots)*int64(c.deep)*int64(r.BatchUsers))
	dur := float64(c.deep) * (r.BatchSec*share*r.draw(float64(c.deep)) + childOverheadSec)
	if r.rng.Float64() < retryShare { // one of them is lost half-way and run again
		dur += r.BatchSec*r.rng.Float64() + r.StartSec + backoffFirstSec
	}
	start := r.now
	if cold > 0 {
		start += r.StartSec
	}
	if r.series {
		r.work = append(r.work, delta{r.now, c.slots})
	}
	r.push(event{at: start + dur, start: start, slots: c.slots, rows: c.rows})
}

// draw is a factor on the time of n batches in a row, with mean 1.
func (r *runner) draw(n float64) float64 {
	const mean = 1 + stragglerShare*(stragglerFactor-1)
	if n > 8 { // many batches: their sum is normal
		sd := math.Sqrt(batchSpread*batchSpread + stragglerShare*(stragglerFactor-1)*(stragglerFactor-1))
		return max(0.5, 1+sd/math.Sqrt(n)*r.rng.NormFloat64())
	}
	f := math.Exp(batchSpread/math.Sqrt(n)*r.rng.NormFloat64() - batchSpread*batchSpread/2/n)
	if r.rng.Float64() < stragglerShare*n {
		f *= 1 + (stragglerFactor-1)/n
	}
	return f / mean
}

// placeAt is when the first throttled child gets an environment.
func (r *runner) placeAt(limit int) float64 {
	w := r.waiting[r.waitHead]
	need := int(w.slots) - r.idle
	if need > 0 {
		if r.busy+r.idle+need > limit {
			return math.Inf(1) // one has to end first
		}
		r.refill()
		if lack := float64(need) - r.tokens; lack > 1e-9 {
			return max(w.ready, r.now+lack*10/LambdaNewEnvPer10Sec)
		}
	}
	return max(r.now, w.ready)
}

func (r *runner) place() {
	c := r.waiting[r.waitHead]
	r.waitHead++
	r.waiters--
	if r.waitHead > 4096 && r.waitHead*2 > len(r.waiting) {
		r.waiting = append(r.waiting[:0], r.waiting[r.waitHead:]...)
		r.waitHead = 0
	}
	r.out.Throttles += int64(c.slots) * (attempts(r.now-c.since) - 1)
	r.refill()
	r.begin(c, max(0, int(c.slots)-r.idle))
	if r.waiters > 0 {
		// Whoever tries next takes the next environment: the more wait, the sooner.
		next := &r.waiting[r.waitHead]
		pause := max(backoffFirstSec, min(backoffMaxSec, r.now-next.since))
		next.ready = r.now + pause*r.rng.ExpFloat64()/float64(r.waiters+1)
	}
}

// attempts is how many invocations are refused in a wait of sec, the pause
// doubling each time up to its bound.
func attempts(sec float64) int64 {
	doubled := math.Log2(backoffMaxSec/backoffFirstSec) + 1
	climb := 2*float64(backoffMaxSec) - backoffFirstSec
	if sec <= climb {
		return 1 + int64(math.Log2(1+sec/backoffFirstSec))
	}
	return 1 + int64(doubled+(sec-climb)/backoffMaxSec)
}

// end lets the next group hand over its rows, or leave.
func (r *runner) end() {
	e := r.pop()
	if !e.accepted {
		// Rows leave while the batch runs, so the stream may have taken them by now.
		r.streamFree = max(r.streamFree, e.start) + float64(e.rows)/r.RowsPerSec
		if r.streamFree > e.at {
			r.out.FirehoseWaitSec += (r.streamFree - e.at) * float64(e.slots)
			e.at, e.accepted = r.streamFree, true
			r.push(e)
			return
		}
	}
	r.busy -= int(e.slots)
	r.idle += int(e.slots)
	r.inflight -= int(e.slots)
	r.out.GeneratedSec = r.now
	if r.series {
		r.work = append(r.work, delta{r.now, -e.slots})
	}
	r.buffer(e.rows)
	if r.waiters > 0 && r.waiting[r.waitHead].ready > r.now {
		next := &r.waiting[r.waitHead]
		pause := max(backoffFirstSec, min(backoffMaxSec, r.now-next.since))
		next.ready = min(next.ready, r.now+pause*r.rng.ExpFloat64()/float64(r.waiters+1))
	}
}

// buffer adds rows to Firehose's buffer and closes it when it is due.
func (r *runner) buffer(rows int64) {
	r.flush(r.now)
	if r.bufOpen < 0 {
		r.bufOpen = r.now
	}
	r.bufBytes += float64(rows) * r.RowBytes
	r.bufRows += rows
	size := float64(r.BufferMib) * (1 << 20)
	if n := math.Floor(r.bufBytes / size); n >= 1 {
		whole := min(r.bufRows, int64(n*size/r.RowBytes))
		// A group of many children may fill several buffers at once.
		r.out.Files += int64(n) - 1
		r.files = append(r.files, file{r.now + fileWriteSec, whole})
		r.bufRows -= whole
		r.bufBytes = float64(r.bufRows) * r.RowBytes
		r.bufOpen = r.now
	}
}

// flush closes the buffer if its time was up before at.
func (r *runner) flush(at float64) {
	due := r.bufOpen + float64(r.BufferSec)
	if r.bufOpen < 0 || at < due {
		return
	}
	if r.bufRows > 0 {
		r.files = append(r.files, file{due + fileWriteSec, r.bufRows})
	}
	r.bufOpen, r.bufBytes, r.bufRows = -1, 0, 0
}

// finish closes the last buffer and sends the mail.
func (r *runner) finish() {
	r.flush(math.Inf(1))
	r.out.Files += int64(len(r.files))
	last := r.files[len(r.files)-1].at
	r.out.WrittenSec = last
	var sent []span
	if r.MailPerSec > 0 {
		free := 0.0
		for i, f := range r.files {
			from := f.at
			if r.MailAfterAll {
				from = last
			}
			begin := max(free, from+mailStartSec, r.HoldMailSec)
			if i == 0 {
				r.out.FirstMailSec = begin
			}
			free = begin + float64(f.rows)/r.MailPerSec
			sent = append(sent, span{begin, free, f.rows})
		}
		r.out.LastMailSec = free
		if r.MailPerDay > 0 {
			users := (r.Children-1)*int64(r.BatchUsers) + int64(r.BatchUsers)
			if r.LastUsers > 0 {
				users -= int64(r.BatchUsers - r.LastUsers)
			}
			days, rest := (users-1)/r.MailPerDay, (users-1)%r.MailPerDay+1
			r.out.LastMailSec = max(free, r.out.FirstMailSec+float64(days)*86_400+float64(rest)/r.MailPerSec)
		}
	}
	if r.series {
		r.out.Series = r.moments(sent)
	}
}

type span struct {
	from, to float64
	rows     int64
}

// moments samples the run at equal distances.
func (r *runner) moments(sent []span) []Moment {
	const n = 120
	end := max(r.out.WrittenSec, r.out.LastMailSec)
	slices.SortStableFunc(r.work, func(a, b delta) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	var moments []Moment
	var workers int
	var written int64
	wi, fi := 0, 0
	for i := 0; i <= n; i++ {
		m := Moment{Sec: roundTo(end*float64(i)/n, 9)}
		for ; wi < len(r.work) && r.work[wi].at <= m.Sec; wi++ {
			workers += int(r.work[wi].slots)
		}
		for ; fi < len(r.files) && r.files[fi].at <= m.Sec; fi++ {
			written += r.files[fi].rows
		}
		m.Workers, m.Written = workers, written
		for _, s := range sent {
			if s.from >= m.Sec {
				break
			}
			m.Mailed += int64(float64(s.rows) * min(1, (m.Sec-s.from)/max(1e-9, s.to-s.from)))
		}
		moments = append(moments, m)
	}
	return moments
}

// push and pop keep the events in a binary heap by time. The standard
// library's heap boxes every event, and this is the inner loop.
func (r *runner) push(e event) {
	r.heap = append(r.heap, e)
	h := r.heap
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].at <= e.at {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
}

func (r *runner) pop() event {
	h := r.heap
	top := h[0]
	last := len(h) - 1
	e := h[last]
	h = h[:last]
	r.heap = h
	i := 0
	for {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && h[c+1].at < h[c].at {
			c++
		}
		if h[c].at >= e.at {
			break
		}
		h[i] = h[c]
		i = c
	}
	if last > 0 {
		h[i] = e
	}
	return top
}
