package plan

import (
	"fmt"
	"math"
)

// Quota is one limit of AWS that the run meets.
type Quota struct {
	ID     string `json:"id"`
	Label  string `json:"label"`
	Unit   string `json:"unit"`
	Needed Range  `json:"needed"`
	// Have is the account's value, or the default if Given is false.
	Have  float64 `json:"have"`
	Given bool    `json:"given"`
	// Code is what to ask Service Quotas for, Service its service code; empty
	// where AWS has none.
	Service string `json:"service,omitempty"`
	Code    string `json:"code,omitempty"`
	// Adjustable says whether AWS raises it at all.
	Adjustable bool `json:"adjustable"`
	// Enough is false where even the likely case needs more.
	Enough bool `json:"enough"`
	// Consequence is what happens if it stays as it is.
	Consequence string `json:"consequence"`
	// Remedy is what to do about it.
	Remedy     string `json:"remedy,omitempty"`
	Source     string `json:"source"`
	Date       string `json:"date"`
	Confidence string `json:"confidence"`
	Note       string `json:"note,omitempty"`
}

// Where the limits were read; all on the same day.
const (
	quotaDate       = "2026-11-30"
	sourceLambda    = "AWS Lambda developer guide, quotas (public copy)"
	sourceScaling   = "AWS Lambda developer guide, scaling behavior (public copy)"
	sourceSfn       = "AWS Step Functions developer guide, service quotas (public copy)"
	sourceReader    = "AWS Step Functions developer guide, ItemReader (public copy)"
	sourceFirehose  = "Amazon Data Firehose developer guide, limits (public copy)"
	sourceSes       = "Amazon SES developer guide, quotas (public copy)"
	sourceEfs       = "Amazon EFS user guide, limits (public copy)"
	firehoseRemedy  = "not in Service Quotas: AWS support has a Firehose limits form"
	othersReserve   = 5 // normalise, reconcile and the like beside the workers
	deliverLatency  = deliveryMailsPerSec
	newAccountNote  = "new accounts have been seen with 10"
	newMemoryNote   = "new accounts are said to have 3,008 MiB (unverified)"
	sesTypicalNote  = "a first grant of 14/s and 50,000 a day is often reported (unverified)"
	fileSplitRemedy = "split the file over several runs"
)

// deliveryWorkers is how many workers send the mail.
func (in Inputs) deliveryWorkers() float64 {
	if !in.Mail {
		return 0
	}
	return math.Ceil(in.SesRatePerSec / deliverLatency)
}

// quotas lists every limit that the run meets.
func (in Inputs) quotas(cases [3]work, peaks Range) []Quota {
	l := limitsOf(in.Region)
	q := in.Quotas
	var list []Quota
	add := func(quota Quota, have, given float64) {
		quota.Have = or(given, have)
		quota.Given = given > 0
		quota.Enough = quota.Needed.Likely <= quota.Have
		quota.Date = quotaDate
		if quota.Confidence == "" {
			quota.Confidence = Verified
		}
		list = append(list, quota)
	}
	over := func(f func(work) float64) Range { return ranged(func(o outcome) float64 { return f(cases[o]) }) }
	regionNote := ""
	if !l.Known {
		regionNote = "the region's own default is not known, the lowest known one is shown"
	}

	workers := peaks
	workers.add(same(in.deliveryWorkers() + othersReserve + float64(in.ProvisionedConcurrency)))
	concurrency := Quota{
		ID: "lambda.concurrency", Label: "Lambda concurrent executions", Unit: "executions", Needed: workers,
		Service: "lambda", Code: "L-B99A9384", Adjustable: true, Source: sourceLambda,
		Consequence: "calls above it are refused and tried again: the run takes longer, and the account's other functions starve",
		Remedy:      "request L-B99A9384, or lower maxConcurrency",
	}
	if q.LambdaConcurrency == 0 {
		concurrency.Note = newAccountNote
	}
	add(concurrency, LambdaConcurrencyUnset, float64(q.LambdaConcurrency))
	memory := Quota{
		ID: "lambda.memory", Label: "Lambda memory", Unit: "MiB", Needed: same(float64(in.MemoryMib)), Source: sourceLambda,
		Consequence: "the function cannot be created",
	}
	if q.LambdaMemoryMib == 0 {
		memory.Note = newMemoryNote
	}
	add(memory, LambdaMemoryMaxMib, float64(q.LambdaMemoryMib))
	add(Quota{
		ID: "lambda.duration", Label: "Lambda time per call", Unit: "s", Source: sourceLambda,
		Needed:      over(func(w work) float64 { return w.startSec + w.full.Sec() }),
		Consequence: "the worker stops early, hands back what is left, and the child calls again", Remedy: "lower batchSize",
	}, LambdaTimeoutMaxSec, float64(in.TimeoutSec))
	add(Quota{
		ID: "lambda.new_environments", Label: "New workers per 10 s", Unit: "per 10 s", Source: sourceScaling,
		Needed:      same(min(10*startsPerSec(in.ChildType), peaks.Likely)),
		Consequence: "children that come faster are refused and tried again: the ramp takes as long as it takes",
		Remedy:      "use STANDARD children: they start at just this rate",
	}, LambdaNewEnvPer10Sec, 0)
	add(Quota{
		ID: "sfn.map_concurrency", Label: "Children at one time", Unit: "children", Needed: same(min(float64(in.MaxConcurrency), float64(cases[likely].children))), Source: sourceSfn,
		Consequence: "the Map Run starts no more",
	}, MapConcurrencyMax, 0)
	add(Quota{
		ID: "sfn.child_starts", Label: "Child starts, " + in.ChildType, Unit: "per s", Source: sourceSfn,
		Needed:      over(func(w work) float64 { return w.busy / max(0.001, w.full.Sec()) }),
		Consequence: "the workers idle between children", Remedy: "raise batchSize",
	}, startsPerSec(in.ChildType), 0)
	transitions := over(func(w work) float64 {
		return childTransitions * min(startsPerSec(in.ChildType), w.busy/max(0.001, w.full.Sec()))
	})
	if in.ChildType == Express {
		transitions = transitions.times(1.0 / childTransitions)
	}
	if in.Mail {
		transitions.add(same(childTransitions * in.SesRatePerSec / deliveryBatch))
	}
	add(Quota{
		ID: "sfn.transitions", Label: "State transitions (refill)", Unit: "per s", Needed: transitions,
		Service: "states", Code: "L-AD9B4E93", Adjustable: true, Source: sourceSfn, Note: regionNote,
		Consequence: "executions are slowed down until the bucket fills again", Remedy: "request L-AD9B4E93 and the bucket L-137B3F65, or raise batchSize",
	}, l.SfnTransitionsPerSec, q.SfnTransitionsPerSec)
	add(Quota{
		ID: "sfn.child_input", Label: "Input of one child", Unit: "B", Needed: same(float64(in.BatchSize)*in.recordBytes() + 1024), Source: sourceSfn,
		Consequence: "the Map Run fails", Remedy: "lower batchSize",
	}, ChildInputMaxBytes, 0)
	if in.ChildType == Express {
		add(Quota{
			ID: "sfn.express_duration", Label: "Life of an EXPRESS child", Unit: "s", Source: sourceSfn,
			Needed:      over(func(w work) float64 { return w.startSec + w.full.Sec() }),
			Consequence: "the child dies and its users are written by nobody", Remedy: "use STANDARD children, or lower batchSize",
		}, ExpressMaxSec, 0)
	}
	add(Quota{
		ID: "sfn.items", Label: "Items of one Map Run", Unit: "items", Needed: same(float64(in.Users)), Source: sourceSfn,
		Consequence: "the Map Run fails", Remedy: fileSplitRemedy,
	}, MapItemsMax, 0)
	add(Quota{
		ID: "sfn.file", Label: "Input file of one Map Run", Unit: "B", Needed: same(float64(in.Users) * in.recordBytes()), Source: sourceReader,
		Consequence: "the Map Run fails", Remedy: fileSplitRemedy,
	}, MapFileMaxBytes, 0)
	rows := over(func(w work) float64 { return w.busy * float64(in.BatchSize) / max(0.001, w.full.Sec()-w.full.WaitSec) })
	const firehoseSlow = "the stream refuses rows, workers wait and are billed for it"
	add(Quota{
		ID: "firehose.bytes", Label: "Firehose volume", Unit: "MiB/s", Needed: rows.times(in.rowBytes() / (1 << 20)), Source: sourceFirehose,
		Consequence: firehoseSlow, Remedy: firehoseRemedy, Note: regionNote,
	}, l.FirehoseMibPerSec, q.FirehoseMibPerSec)
	add(Quota{
		ID: "firehose.requests", Label: "Firehose requests", Unit: "per s", Needed: rows.times(1 / in.rowsPerCall()), Source: sourceFirehose,
		Consequence: firehoseSlow, Remedy: firehoseRemedy, Note: regionNote,
	}, l.FirehoseRequestsPerSec, q.FirehoseRequestsPerSec)
	add(Quota{
		ID: "firehose.records", Label: "Firehose records", Unit: "per s", Needed: rows, Source: sourceFirehose,
		Consequence: firehoseSlow, Remedy: firehoseRemedy, Note: regionNote,
	}, l.FirehoseRecordsPerSec, q.FirehoseRecordsPerSec)
	if in.Mail {
		rate := Quota{
			ID: "ses.rate", Label: "SES recipients a second", Unit: "per s", Needed: same(math.Ceil(in.SesRatePerSec/SesShare - 1e-9)),
			Service: "ses", Code: "L-CDEF9B6B", Adjustable: true, Source: sourceSes,
			Consequence: "delivery slows down to nine tenths of what the account has", Remedy: "request L-CDEF9B6B, or plan with a lower sesRatePerSec",
		}
		day := Quota{
			ID: "ses.day", Label: "SES recipients in 24 hours", Unit: "per 24 h", Needed: same(min(float64(in.Users), in.SesRatePerSec*86_400) * max(1, float64(in.RunsPerMonth)/30.4)),
			Service: "ses", Code: "L-804C8AE8", Adjustable: true, Source: sourceSes,
			Consequence: "the rest of the mail waits for the next day", Remedy: "request L-804C8AE8",
		}
		if q.SesRecipientsPerSec == 0 {
			rate.Note = "a sandbox account; " + sesTypicalNote
		}
		if q.SesRecipientsPer24Hours == 0 {
			day.Note = "a sandbox account"
		}
		add(rate, SesSandboxPerSec, q.SesRecipientsPerSec)
		add(day, SesSandboxPer24Hours, float64(q.SesRecipientsPer24Hours))
	}
	switch in.ModelStore {
	case StoreImage:
		add(Quota{
			ID: "lambda.image", Label: "Lambda image", Unit: "B", Needed: same(float64(in.Model.WeightBytes + runtimeImageBytes)), Source: sourceLambda,
			Consequence: "the function cannot be created", Remedy: "take a smaller model",
		}, LambdaImageMaxBytes, 0)
	case StoreS3:
		add(Quota{
			ID: "lambda.tmp", Label: "/tmp of a worker", Unit: "MiB", Needed: same(math.Ceil(float64(in.Model.WeightBytes) / (1 << 20))), Source: sourceLambda,
			Consequence: "the model does not fit", Remedy: "raise ephemeralStorageMib",
		}, LambdaTmpMaxMib, float64(in.EphemeralStorageMib))
	case StoreEFS:
		add(Quota{
			ID: "efs.connections", Label: "EFS connections", Unit: "connections", Needed: peaks, Source: sourceEfs,
			Consequence: "workers above it cannot mount the file system", Remedy: "lower maxConcurrency",
		}, EFSConnectionsMax, 0)
		add(Quota{
			ID: "efs.read", Label: "EFS reads while workers start", Unit: "GiB/s", Source: sourceEfs,
			Needed: over(func(w work) float64 {
				return w.workers * float64(in.Model.WeightBytes) / max(1, FetchSec(in.Model.WeightBytes)) / (1 << 30)
			}),
			Consequence: "loading the model takes longer, and is billed", Remedy: "use modelStore image, or lower maxConcurrency",
		}, EFSReadMaxBytesSec/(1<<30), 0)
	}
	return list
}

// Today is the fastest run that fits the account's quotas as they are.
type Today struct {
	// Fits says that the plan as asked needs no quota raised.
	Fits           bool     `json:"fits"`
	MaxConcurrency int      `json:"max_concurrency"`
	SesRatePerSec  float64  `json:"ses_rate_per_sec"`
	Timeline       Timeline `json:"timeline"`
	// MailDays is how many days the daily mail quota stretches one run over.
	MailDays float64 `json:"mail_days"`
	// PerRunUsd is what it costs then.
	PerRunUsd Range `json:"per_run_usd"`
	// Blocked are quotas that no slower run gets round.
	Blocked []string `json:"blocked,omitempty"`
}

// within changes the inputs so that they fit the account's quotas.
func (in Inputs) within() Inputs {
	have := in.Quotas.LambdaConcurrency
	if have == 0 {
		have = LambdaConcurrencyUnset
	}
	spare := have - int(in.deliveryWorkers()) - othersReserve - in.ProvisionedConcurrency
	if in.Mail {
		rate := or(in.Quotas.SesRecipientsPerSec, SesSandboxPerSec) * SesShare
		in.SesRatePerSec = max(0.01, min(in.SesRatePerSec, rate))
		spare = have - int(in.deliveryWorkers()) - othersReserve - in.ProvisionedConcurrency
	}
	in.MaxConcurrency = max(1, min(in.MaxConcurrency, spare))
	return in
}

// today simulates the run within the account's quotas.
func (in Inputs) today(speeds Speeds, quotas []Quota, runs int) Today {
	fit := in.within()
	var cases [3]work
	for _, o := range outcomes {
		cases[o] = fit.work(speeds.at(o), o)
	}
	s := fit.swarm(cases[likely])
	perDay := float64(0)
	if in.Mail {
		perDay = or(float64(in.Quotas.SesRecipientsPer24Hours), SesSandboxPer24Hours)
		s.MailPerDay = int64(perDay)
	}
	t := Today{
		Fits: true, MaxConcurrency: fit.MaxConcurrency, Timeline: s.timeline(runs, false),
		PerRunUsd: fit.bill(cases, speeds).PerRunUsd,
	}
	if in.Mail {
		t.SesRatePerSec = fit.SesRatePerSec
		t.MailDays = math.Ceil(float64(in.Users) / perDay)
	}
	for _, q := range quotas {
		if q.Enough {
			continue
		}
		t.Fits = false
		switch q.ID {
		case "sfn.file", "sfn.items", "sfn.child_input", "lambda.memory", "lambda.image", "lambda.tmp", "efs.connections":
			t.Blocked = append(t.Blocked, fmt.Sprintf("%s: %s", q.Label, q.Remedy))
		}
	}
	return t
}
