package plan

import (
	"encoding/json"
	"math"
)

// outcome is one of the three cases a plan is computed for.
type outcome int

const (
	low    outcome = iota // fast machine, low cost
	likely                //
	high                  // slow machine, high cost
)

var outcomes = []outcome{low, likely, high}

// Range is a figure in three cases. Low and High are not a confidence interval:
// they are what the sources allow.
type Range struct {
	Low    float64 `json:"low"`
	Likely float64 `json:"likely"`
	High   float64 `json:"high"`
}

// MarshalJSON writes nine digits, more than any figure here deserves: what lies
// behind them differs from processor to processor.
func (r Range) MarshalJSON() ([]byte, error) {
	type plain Range
	return json.Marshal(plain{roundTo(r.Low, 9), roundTo(r.Likely, 9), roundTo(r.High, 9)})
}

// Point says that the three cases agree, to a thousandth.
func (r Range) Point() bool {
	return math.Abs(r.High-r.Low) <= 0.001*math.Abs(r.Likely)
}

func (r Range) at(o outcome) float64 {
	switch o {
	case low:
		return r.Low
	case high:
		return r.High
	}
	return r.Likely
}

func (r *Range) set(o outcome, v float64) {
	switch o {
	case low:
		r.Low = v
	case high:
		r.High = v
	default:
		r.Likely = v
	}
}

func (r *Range) add(o Range) {
	r.Low += o.Low
	r.Likely += o.Likely
	r.High += o.High
}

func ranged(f func(outcome) float64) Range { return Range{f(low), f(likely), f(high)} }

func same(v float64) Range { return Range{v, v, v} }

// Assumptions that no source settles. They are listed in docs/plan.md, and
// lines that rest on them say "assumed".
const (
	// A lazily loaded image was described as 0.55 ms (cache) to 36 ms (origin) per
	// 512 KiB chunk read one after the other.
	lazyFastBytesSec = 953e6
	lazySlowBytesSec = 14.6e6
	// INIT ends when the handler is ready; the model loads on.
	initLikelySec = 2
	initFastSec   = 1
	// Batches that are started again after a crash or a lost host; half of the
	// batch is lost on average.
	retryShare = 0.002
	retryLost  = 0.5
	// The libraries, the base and the program in the image.
	runtimeImageBytes = 300 << 20
	// What Step Functions and Lambda add to a child.
	childOverheadSec = 0.3
	// Normalise and reconcile each read so many records a second.
	helperRecordsPerSec = 50_000
	helperMemoryMib     = 1769
	helperStartSec      = 5
	// A delivery child gets so many mails, one worker sends so many a second.
	deliveryBatch       = 100
	deliveryMemoryMib   = 256
	deliveryMailsPerSec = 20
	// A log line group of one call: START, END, REPORT, ours and the metrics.
	logBytesPerCall = 4096
	// State transitions of the parent in one run, and of one child: its start,
	// its task and its choice. Those of one file's delivery, with no notice at its
	// end, as component/states writes them.
	runTransitions      = 14
	childTransitions    = 3
	deliveryTransitions = 10
	// Parquet keeps so much of a JSON row.
	parquetShare = 0.4
	ledgerBytes  = 200
	fetchRange   = 16 << 20
	zones        = 2
)

// work is what the workers of one run have to do in one case.
type work struct {
	outcome  outcome
	children int64
	rest     int64     // users in the last child, 0 if it is full
	full     BatchTime // of a full batch
	last     BatchTime // of the last child, if it is not full
	initSec  float64
	loadSec  float64
	startSec float64 // a cold start, INIT and model
	workers  float64 // environments started
	busy     float64 // workers generating at one time, at most
	rowsSec  float64 // rows Firehose takes a second
}

// work computes the run in one case.
func (in Inputs) work(t Throughput, o outcome) work {
	b := int64(in.BatchSize)
	w := work{outcome: o, children: (in.Users + b - 1) / b, rest: in.Users % b}
	batch := func(users int64) BatchTime {
		if in.SecPerUser > 0 {
			return BatchTime{DecodeSec: float64(users) * in.SecPerUser}
		}
		return t.Batch(int(users), in.ParallelSequences, in.PrefixTokens, in.UserTokens, in.OutputTokens)
	}
	w.full = batch(b)
	if w.rest > 0 {
		w.last = batch(w.rest)
	}
	starts := startsPerSec(in.ChildType)
	full := min(float64(w.children), float64(in.MaxConcurrency))
	w.busy = min(full, starts*w.full.Sec())

	// All workers together write no faster than Firehose takes it.
	w.rowsSec = in.firehoseRowsPerSec()
	if wait := w.busy/w.rowsSec - w.full.Sec()/float64(b); wait > 0 {
		w.full.WaitSec = wait * float64(b)
		w.last.WaitSec = wait * float64(w.rest)
	}

	w.initSec = Range{initFastSec, initLikelySec, LambdaInitMaxSec}.at(o)
	w.workers = math.Ceil(min(full, starts*(w.full.Sec()+w.initSec+in.loadSec(o, full))))
	w.loadSec = in.loadSec(o, w.workers)
	w.startSec = w.initSec + w.loadSec
	return w
}

// loadSec is how long a new worker waits for its model when so many start.
func (in Inputs) loadSec(o outcome, workers float64) float64 {
	c := in.Calibration
	size := float64(in.Model.WeightBytes)
	disk := c.LoadSec * size / max(1, float64(c.Model.WeightBytes))
	switch in.ModelStore {
	case StoreEFS:
		return max(disk, FetchSec(in.Model.WeightBytes), workers*size/EFSReadMaxBytesSec)
	case StoreS3:
		return max(disk, FetchSec(in.Model.WeightBytes))
	}
	if c.Machine.LambdaMemoryMib > 0 && c.LoadSec > 0 {
		return disk
	}
	return max(disk, Range{size / lazyFastBytesSec, FetchSec(in.Model.WeightBytes), size / lazySlowBytesSec}.at(o))
}

// firehoseRowsPerSec is how many rows the stream takes, by bytes, records and
// requests; a worker writes once per group of parallel sequences.
func (in Inputs) firehoseRowsPerSec() float64 {
	l := limitsOf(in.Region)
	mib := or(in.Quotas.FirehoseMibPerSec, l.FirehoseMibPerSec)
	records := or(in.Quotas.FirehoseRecordsPerSec, l.FirehoseRecordsPerSec)
	requests := or(in.Quotas.FirehoseRequestsPerSec, l.FirehoseRequestsPerSec)
	return min(mib*(1<<20)/in.rowBytes(), records, requests*in.rowsPerCall())
}

func (in Inputs) rowsPerCall() float64 { return float64(min(in.parallel(), FirehoseBatchMaxRecords)) }

func or(v, otherwise float64) float64 {
	if v > 0 {
		return v
	}
	return otherwise
}

// billedSec is the duration Lambda bills for all batches, without starts.
func (w work) billedSec() float64 {
	full := w.children
	if w.rest > 0 {
		full--
	}
	sec := float64(full) * BilledSec(w.full.Sec())
	if w.rest > 0 {
		sec += BilledSec(w.last.Sec())
	}
	return sec
}

// part sums one part of the time over all batches.
func (w work) part(of func(BatchTime) float64) float64 {
	full := w.children
	if w.rest > 0 {
		full--
	}
	return float64(full)*of(w.full) + of(w.last)
}
