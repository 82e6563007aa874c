package plan

import "math"

// Where the quantity of a Line comes from.
const (
	FromInputs      = "inputs"      // arithmetic on what was given
	FromCalibration = "calibration" // rests on the speed of the machine
	Assumed         = "assumed"     // rests on an assumption; see docs/plan.md
)

// Line is one item of the bill.
type Line struct {
	ID    string `json:"id"`
	Group string `json:"group"`
	Label string `json:"label"`
	// Quantity is per run, or per month for a standing line.
	Quantity Range  `json:"quantity"`
	Unit     string `json:"unit"`
	// UnitPriceUsd buys Per units, in the first tier.
	UnitPriceUsd float64 `json:"unit_price_usd"`
	Per          float64 `json:"per"`
	// Standing lines cost by the month, whether there is a run or not.
	Standing bool `json:"standing"`
	// PerRunUsd is 0 for a standing line.
	PerRunUsd   Range `json:"per_run_usd"`
	PerMonthUsd Range `json:"per_month_usd"`
	// PriceKnown is false where the region's price was not found: the line is
	// then in no total.
	PriceKnown bool   `json:"price_known"`
	PriceID    string `json:"price_id"`
	Source     string `json:"source"`
	SourceDate string `json:"source_date,omitempty"`
	Date       string `json:"date"`
	// Confidence is the price's: live, verified, secondary, unverified, stand-in.
	Confidence string `json:"confidence"`
	Note       string `json:"note,omitempty"`
	// Basis is where the quantity comes from: inputs, calibration, assumed.
	Basis string `json:"basis"`
}

// The groups of lines, in the order of the pipeline.
const (
	GroupGenerate    = "generate"
	GroupOrchestrate = "orchestrate"
	GroupGather      = "gather"
	GroupDeliver     = "deliver"
	GroupStore       = "store"
	GroupObserve     = "observe"
	GroupOptions     = "options"
)

// Groups lists the groups in the order of the pipeline.
func Groups() []string {
	return []string{GroupGenerate, GroupOrchestrate, GroupGather, GroupDeliver, GroupStore, GroupObserve, GroupOptions}
}

// Bill is the cost of a plan.
type Bill struct {
	Lines []Line `json:"lines"`
	// PerRunUsd is what a run adds; PerMonthUsd is all runs and what stands.
	PerRunUsd   Range `json:"per_run_usd"`
	PerMonthUsd Range `json:"per_month_usd"`
	// StandingUsd is the part of PerMonthUsd that is paid without any run.
	StandingUsd Range `json:"standing_usd"`
	// WritingUsd is what writing the briefings costs in a run, without keeping or
	// mailing them: what another way of writing them would replace.
	WritingUsd Range `json:"writing_usd"`
	// PerUserUsd is PerRunUsd over the users.
	PerUserUsd Range `json:"per_user_usd"`
	// Unpriced are the ids of lines whose price is not known; they are missing
	// in every total.
	Unpriced []string `json:"unpriced,omitempty"`
}

// Line finds a line by its id.
func (b Bill) Line(id string) (Line, bool) {
	for _, l := range b.Lines {
		if l.ID == id {
			return l, true
		}
	}
	return Line{}, false
}

// draft is a line before it is priced.
type draft struct {
	id, group, label, price, basis string
	standing                       bool
	quantity                       Range
}

// bill prices the run in its three cases.
func (in Inputs) bill(cases [3]work, speeds Speeds) Bill {
	var drafts []draft
	line := func(group, id, price, label, basis string, standing bool, q func(w work) float64) {
		d := draft{id: id, group: group, label: label, price: price, basis: basis, standing: standing}
		for _, o := range outcomes {
			d.quantity.set(o, max(0, q(cases[o])))
		}
		if d.quantity.High > 0 {
			drafts = append(drafts, d)
		}
	}
	run := func(group, id, price, label, basis string, q func(w work) float64) {
		line(group, id, price, label, basis, false, q)
	}
	month := func(group, id, price, label, basis string, q func(w work) float64) {
		line(group, id, price, label, basis, true, q)
	}
	gb := MemoryGB(in.MemoryMib)
	arch := in.Architecture
	duration := "lambda.duration." + arch
	users := float64(in.Users)
	runs := float64(in.RunsPerMonth)
	row, record := in.rowBytes(), in.recordBytes()

	if in.SecPerUser > 0 {
		run(GroupGenerate, "lambda.generate", duration, "Lambda: prompts and briefings, as measured", FromInputs,
			func(w work) float64 {
				return gb * (w.billedSec() - w.part(func(b BatchTime) float64 { return b.WaitSec }))
			})
	} else {
		run(GroupGenerate, "lambda.prefix", duration, "Lambda: shared prompt, once per batch", FromCalibration,
			func(w work) float64 { return gb * w.part(func(b BatchTime) float64 { return b.PrefixSec }) })
		run(GroupGenerate, "lambda.prompt", duration, "Lambda: reading each user's prompt", FromCalibration,
			func(w work) float64 { return gb * w.part(func(b BatchTime) float64 { return b.PromptSec }) })
		run(GroupGenerate, "lambda.decode", duration, "Lambda: writing the briefings", FromCalibration,
			func(w work) float64 {
				return gb * (w.billedSec() - w.part(func(b BatchTime) float64 { return b.PrefixSec + b.PromptSec + b.WaitSec }))
			})
	}
	run(GroupGenerate, "lambda.wait", duration, "Lambda: waiting for Firehose", FromInputs,
		func(w work) float64 { return gb * w.part(func(b BatchTime) float64 { return b.WaitSec }) })
	run(GroupGenerate, "lambda.load", duration, "Lambda: loading the model, per worker", Assumed,
		func(w work) float64 { return gb * w.workers * w.loadSec })
	run(GroupGenerate, "lambda.init", duration, "Lambda: INIT, per worker", Assumed,
		func(w work) float64 { return gb * w.workers * w.initSec })
	run(GroupGenerate, "lambda.retry", duration, "Lambda: batches run again", Assumed,
		func(w work) float64 {
			return gb * retryShare * (retryLost*w.billedSec() + float64(w.children)*w.startSec)
		})
	run(GroupGenerate, "lambda.helpers", duration, "Lambda: normalise and reconcile", Assumed,
		func(w work) float64 {
			return MemoryGB(helperMemoryMib) * 2 * (helperStartSec + users/helperRecordsPerSec)
		})
	run(GroupGenerate, "lambda.requests", "lambda.requests", "Lambda: requests", FromInputs,
		func(w work) float64 { return float64(w.children)*(1+retryShare) + 2 })
	run(GroupGenerate, "lambda.ephemeral", "lambda.ephemeral", "Lambda: /tmp above 512 MiB", FromInputs,
		func(w work) float64 {
			return MemoryGB(in.EphemeralStorageMib-LambdaTmpMinMib) * (w.billedSec() + w.workers*w.startSec)
		})

	childTrans := float64(childTransitions)
	if in.ChildType == Express {
		childTrans = 1
		run(GroupOrchestrate, "sfn.express_requests", "sfn.express_request", "Step Functions: EXPRESS children", FromInputs,
			func(w work) float64 { return float64(w.children) * (1 + retryShare) })
		run(GroupOrchestrate, "sfn.express_duration", "sfn.express_duration", "Step Functions: EXPRESS duration (64 MB)", FromCalibration,
			func(w work) float64 {
				sec := math.Ceil(10*(w.full.Sec()+childOverheadSec)) / 10
				return 0.0625 * (float64(w.children)*sec + w.workers*w.startSec)
			})
	}
	run(GroupOrchestrate, "sfn.transitions", "sfn.transition", "Step Functions: transitions", FromInputs,
		func(w work) float64 { return runTransitions + float64(w.children)*childTrans*(1+retryShare) })

	ingestGB := users * math.Ceil(row/FirehoseRoundingBytes) * FirehoseRoundingBytes / 1e9
	run(GroupGather, "firehose.ingest", "firehose.ingest", "Firehose: ingest, 5 KB steps a record", FromInputs,
		func(work) float64 { return ingestGB })
	run(GroupGather, "firehose.conversion", "firehose.conversion", "Firehose: conversion to Parquet", FromInputs,
		func(work) float64 { return ingestGB })
	files := func(w work) float64 {
		sec := float64(w.children) * w.full.Sec() / max(1, w.busy)
		return math.Ceil(max(1, sec/float64(in.BufferSec), users*row/float64(in.BufferMib<<20)))
	}
	run(GroupGather, "s3.put", "s3.put", "S3: PUT requests", Assumed,
		func(w work) float64 { return 20 + files(w) + users*record/(8<<20) })
	run(GroupGather, "s3.get", "s3.get", "S3: GET requests", Assumed,
		func(w work) float64 {
			gets := 20 + 4*files(w) + 2*users*record/(8<<20)
			if in.ModelStore == StoreS3 {
				gets += w.workers * math.Ceil(float64(in.Model.WeightBytes)/fetchRange)
			}
			return gets
		})

	if in.Mail {
		children := math.Ceil(users / deliveryBatch)
		run(GroupDeliver, "ses.messages", "ses.message", "SES: mails", FromInputs, func(work) float64 { return users })
		run(GroupDeliver, "dynamodb.write", "dynamodb.write", "DynamoDB: sent-ledger, claim and confirm", FromInputs, func(work) float64 { return 2 * users })
		run(GroupDeliver, "lambda.delivery", duration, "Lambda: delivery workers", Assumed,
			func(work) float64 { return MemoryGB(deliveryMemoryMib) * (users/deliveryMailsPerSec + children) })
		run(GroupDeliver, "lambda.delivery_requests", "lambda.requests", "Lambda: delivery requests", FromInputs, func(work) float64 { return children })
		run(GroupDeliver, "sfn.delivery", "sfn.transition", "Step Functions: delivery transitions", FromInputs,
			func(w work) float64 { return deliveryTransitions*files(w) + childTransitions*children })
	}

	kept := runs * float64(in.RetentionDays) * 24 / HoursPerMonth // runs whose data is there at a time
	month(GroupStore, "s3.storage", "s3.storage", "S3: input, normalised, Parquet", Assumed,
		func(work) float64 { return kept * users * (2*record + parquetShare*row) / 1e9 })
	if in.Mail {
		month(GroupStore, "dynamodb.storage", "dynamodb.storage", "DynamoDB: sent-ledger", Assumed,
			func(work) float64 { return kept * users * ledgerBytes / 1e9 })
	}
	image := float64(runtimeImageBytes)
	weights := float64(in.Model.WeightBytes)
	if in.ModelStore == StoreImage {
		image += weights
	}
	month(GroupStore, "ecr.storage", "ecr.storage", "ECR: worker image", Assumed, func(work) float64 { return image / 1e9 })
	switch in.ModelStore {
	case StoreS3:
		month(GroupStore, "s3.model", "s3.storage", "S3: model", FromInputs, func(work) float64 { return weights / 1e9 })
	case StoreEFS:
		month(GroupStore, "efs.storage", "efs.storage", "EFS: model", FromInputs, func(work) float64 { return weights / 1e9 })
		run(GroupGenerate, "efs.read", "efs.read", "EFS: each worker reads the model", FromInputs,
			func(w work) float64 { return w.workers * weights / 1e9 })
	}

	logGB := func(w work) float64 {
		calls := float64(w.children) + 2
		if in.Mail {
			calls += math.Ceil(users / deliveryBatch)
		}
		return calls * logBytesPerCall / 1e9
	}
	run(GroupObserve, "logs.ingest", "logs.ingest", "CloudWatch: logs", Assumed, logGB)
	month(GroupObserve, "logs.storage", "logs.storage", "CloudWatch: logs kept", Assumed, func(w work) float64 { return kept * logGB(w) })
	metrics := 6.0
	if in.EndpointRequestsPerMonth > 0 {
		metrics += 6
	}
	if in.QueueRequestsPerMonth > 0 {
		metrics += 6
	}
	month(GroupObserve, "cloudwatch.metrics", "cloudwatch.metric", "CloudWatch: metrics", Assumed, func(work) float64 { return metrics })

	in.optionLines(month, run, speeds)
	return in.price(drafts)
}

// optionLines bills what is beside the run: endpoint, queue, network.
func (in Inputs) optionLines(month, run func(group, id, price, label, basis string, q func(w work) float64), speeds Speeds) {
	gb := MemoryGB(in.MemoryMib)
	duration := "lambda.duration." + in.Architecture
	oneSec := func(w work) float64 {
		return BilledSec(speeds.at(w.outcome).Batch(1, 1, in.PrefixTokens, in.UserTokens, in.OutputTokens).Sec())
	}
	if n := float64(in.EndpointRequestsPerMonth); n > 0 {
		price := duration
		if in.ProvisionedConcurrency > 0 {
			price = "lambda.provisioned_duration." + in.Architecture
		}
		month(GroupOptions, "endpoint.duration", price, "Endpoint: one request at a time", FromCalibration, func(w work) float64 { return n * oneSec(w) * gb })
		month(GroupOptions, "endpoint.requests", "lambda.requests", "Endpoint: requests", FromInputs, func(work) float64 { return n })
	}
	if n := float64(in.QueueRequestsPerMonth); n > 0 {
		month(GroupOptions, "queue.duration", duration, "Queue: one request at a time", FromCalibration, func(w work) float64 { return n * oneSec(w) * gb })
		month(GroupOptions, "queue.requests", "lambda.requests", "Queue: Lambda requests", FromInputs, func(work) float64 { return n })
		month(GroupOptions, "queue.sqs", "sqs.requests", "Queue: send, receive, delete", FromInputs, func(work) float64 { return 3 * n })
		month(GroupOptions, "queue.results", "dynamodb.write", "Queue: results in DynamoDB", FromInputs, func(work) float64 { return n })
	}
	if n := float64(in.ProvisionedConcurrency); n > 0 {
		month(GroupOptions, "lambda.provisioned", "lambda.provisioned."+in.Architecture, "Lambda: provisioned concurrency", FromInputs,
			func(work) float64 { return n * gb * 3600 * in.ProvisionedHoursPerMonth })
	}
	out := float64(in.Users) * in.rowBytes() / 1e9 // all that leaves a VPC: S3 has a free gateway endpoint
	switch {
	case in.NatGateways > 0:
		month(GroupOptions, "nat.hours", "nat.hour", "NAT gateways: hours", FromInputs, func(work) float64 { return float64(in.NatGateways) * HoursPerMonth })
		run(GroupOptions, "nat.data", "nat.data", "NAT gateways: rows to Firehose", FromInputs, func(work) float64 { return out })
	case in.ModelStore == StoreEFS:
		month(GroupOptions, "vpce.hours", "vpce.hour", "VPC endpoint, Firehose: hours in 2 zones", Assumed, func(work) float64 { return zones * HoursPerMonth })
		run(GroupOptions, "vpce.data", "vpce.data", "VPC endpoint, Firehose: rows", FromInputs, func(work) float64 { return out })
	}
}

// price turns drafts into lines. Lines of one price share its tiers and its
// free tier: each bears its part of what all of them cost together.
func (in Inputs) price(drafts []draft) Bill {
	prices := map[string]Price{}
	perRun, perMonth := map[string]*Range{}, map[string]*Range{}
	runs := float64(in.RunsPerMonth)
	for _, d := range drafts {
		if _, ok := prices[d.price]; !ok {
			prices[d.price] = in.Prices.Lookup(d.price, in.Region)
			perRun[d.price], perMonth[d.price] = &Range{}, &Range{}
		}
		if d.standing {
			perMonth[d.price].add(d.quantity)
			continue
		}
		perRun[d.price].add(d.quantity)
		perMonth[d.price].add(d.quantity.times(runs))
	}
	usd := func(p Price, quantity, total float64) float64 {
		if total <= 0 {
			return 0
		}
		paid := total
		if in.FreeTier {
			paid = max(0, total-p.FreePerMonth)
		}
		return p.Cost(paid) * (quantity / total)
	}
	var b Bill
	unpriced := map[string]bool{}
	for _, d := range drafts {
		p := prices[d.price]
		l := Line{
			ID: d.id, Group: d.group, Label: d.label, Quantity: d.quantity, Unit: p.Unit,
			UnitPriceUsd: roundTo(p.Unit1()*p.per(), 9), Per: p.per(), Standing: d.standing, PriceKnown: p.Known(),
			PriceID: d.price, Source: p.Source, SourceDate: p.SourceDate, Date: p.Date, Confidence: p.Confidence,
			Note: p.Note, Basis: d.basis,
		}
		month := d.quantity
		if !d.standing {
			month = d.quantity.times(runs)
			l.PerRunUsd = ranged(func(o outcome) float64 { return usd(p, d.quantity.at(o), perRun[d.price].at(o)) })
		}
		l.PerMonthUsd = ranged(func(o outcome) float64 { return usd(p, month.at(o), perMonth[d.price].at(o)) })
		if !l.PriceKnown && !unpriced[d.price] {
			unpriced[d.price] = true
			b.Unpriced = append(b.Unpriced, d.price)
		}
		b.PerRunUsd.add(l.PerRunUsd)
		b.PerMonthUsd.add(l.PerMonthUsd)
		if d.standing {
			b.StandingUsd.add(l.PerMonthUsd)
		} else if d.group == GroupGenerate || d.group == GroupOrchestrate {
			b.WritingUsd.add(l.PerRunUsd)
		}
		b.Lines = append(b.Lines, l)
	}
	b.PerUserUsd = b.PerRunUsd.times(1 / float64(in.Users))
	return b
}

func (r Range) times(f float64) Range { return Range{r.Low * f, r.Likely * f, r.High * f} }
