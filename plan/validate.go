package plan

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Fault is one thing that is wrong with Inputs.
type Fault struct {
	// Field is the input's name as the Pulumi component spells it, for example
	// memoryMib.
	Field string `json:"field"`
	// Value is what was given, with its unit.
	Value string `json:"value"`
	// Limit is what is allowed, with its unit.
	Limit string `json:"limit"`
	// Remedy says what to do.
	Remedy string `json:"remedy"`
}

func (f Fault) Error() string {
	return fmt.Sprintf("%s is %s, allowed is %s: %s", f.Field, f.Value, f.Limit, f.Remedy)
}

// Faults is every fault of one Inputs, in the order of its fields.
type Faults []Fault

func (f Faults) Error() string {
	if len(f) == 1 {
		return f[0].Error()
	}
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = "- " + fault.Error()
	}
	return fmt.Sprintf("%d faults in the plan's inputs:\n%s", len(f), strings.Join(lines, "\n"))
}

// Bounds of inputs that no service sets.
const (
	maxTokens      = 131_072 // the longest context of a catalogue model
	maxParallel    = 256     // llama.cpp's own limit on sequences
	maxRuns        = 50_000  // a run a minute
	maxSesPerSec   = 100_000
	maxPerMonth    = 1_000_000_000_000
	maxRetention   = 3650
	maxNat         = 100
	maxDeliverSec  = 7 * 86_400
	maxSecPerUser  = LambdaTimeoutMaxSec
	maxGpuPerHour  = 1e9
	maxModelBytes  = 1e12
	maxModelParams = 1e13
)

// Validate returns all faults of the inputs as Faults, or an
// *UnknownRegionError joined to them, or nil.
func (in Inputs) Validate() error {
	_, _, err := in.resolve()
	return err
}

// resolve checks the inputs and returns what a plan is computed from.
func (in Inputs) resolve() (Inputs, Speeds, error) {
	if in.Prices == nil {
		in.Prices = ShippedPrices()
	}
	var faults Faults
	add := func(field, value, limit, remedy string) {
		faults = append(faults, Fault{field, value, limit, remedy})
	}
	num := func(field string, v, low, high float64, unit, remedy string) bool {
		if v >= low && v <= high { // false for NaN
			return true
		}
		add(field, withUnit(v, unit), withUnit(low, "")+" to "+withUnit(high, unit), remedy)
		return false
	}
	one := func(field, v string, allowed ...string) bool {
		if slices.Contains(allowed, v) {
			return true
		}
		add(field, fmt.Sprintf("%q", clip(v)), strings.Join(allowed, " or "), "choose one of them")
		return false
	}

	num("users", float64(in.Users), 1, MapItemsMax, "users", "a Distributed Map takes at most 100,000,000 items: split the file")
	num("runsPerMonth", float64(in.RunsPerMonth), 0, maxRuns, "runs", "give the number of runs in a month")
	tokensOK := num("prefixTokens", float64(in.PrefixTokens), 0, maxTokens, "tokens", "shorten the system prompt") &&
		num("userTokens", float64(in.UserTokens), 0, maxTokens, "tokens", "shorten the user's part of the prompt") &&
		num("outputTokens", float64(in.OutputTokens), 1, maxTokens, "tokens", "give the mean length of a briefing")
	if sum := in.PrefixTokens + in.UserTokens + in.OutputTokens; tokensOK && sum > maxTokens {
		tokensOK = false
		add("prefixTokens + userTokens + outputTokens", withUnit(float64(sum), "tokens"), withUnit(maxTokens, "tokens"), "no model of the catalogue has a longer context: shorten the prompt or the output")
	} else if tokensOK && in.ContextTokens != 0 {
		tokensOK = num("contextTokens", float64(in.ContextTokens), float64(sum), maxTokens, "tokens", "a sequence has to hold the prompt and the briefing: raise it, or leave it out for the least that does")
	}
	num("recordBytes", float64(in.RecordBytes), 0, RecordMaxBytes, "B", "a record is at most 64 KiB: leave out fields that the prompt does not use")
	num("rowBytes", float64(in.RowBytes), 0, FirehoseRecordMaxBytes, "B", "Firehose takes at most 1,000 KiB a record")
	if tokensOK && in.RecordBytes == 0 && in.recordBytes() > RecordMaxBytes {
		add("userTokens", withUnit(float64(in.UserTokens), "tokens"), withUnit(RecordMaxBytes, "B a record"), "about 4 B a token make the record too long: shorten it, or give recordBytes")
	}

	m := in.Model
	modelOK := num("model.parameters", float64(m.Parameters), 1e6, maxModelParams, "parameters", "take the model from the catalogue (swarm model list)") &&
		num("model.weightBytes", float64(m.WeightBytes), 1e6, maxModelBytes, "B", "give the size of the model file") &&
		num("model.layers", float64(m.Layers), 1, 10_000, "layers", "take the model from the catalogue (swarm model list)") &&
		num("model.kvHeads", float64(m.KVHeads), 1, 10_000, "heads", "take the model from the catalogue (swarm model list)") &&
		num("model.headDim", float64(m.HeadDim), 1, 10_000, "dimensions", "take the model from the catalogue (swarm model list)")
	modelOK = num("model.workBytes", float64(m.WorkBytes), 0, maxModelBytes, "B", "give the memory beside the weights, 0 if it is not known") && modelOK
	storeOK := one("modelStore", in.ModelStore, StoreImage, StoreEFS, StoreS3)
	archOK := one("architecture", in.Architecture, ARM64, X8664)
	var region error
	if regions := in.Prices.Regions(); !slices.Contains(regions, in.Region) {
		region = &UnknownRegionError{Region: clip(in.Region), Known: regions}
	}
	memoryOK := num("memoryMib", float64(in.MemoryMib), LambdaMemoryMinMib, LambdaMemoryMaxMib, "MiB", "Lambda has no other sizes")
	if q := in.Quotas.LambdaMemoryMib; memoryOK && q > 0 && in.MemoryMib > q {
		add("memoryMib", withUnit(float64(in.MemoryMib), "MiB"), "the account's "+withUnit(float64(q), "MiB"), "ask AWS support to raise the account's memory limit, or take a smaller model")
	}
	tmpOK := num("ephemeralStorageMib", float64(in.EphemeralStorageMib), LambdaTmpMinMib, LambdaTmpMaxMib, "MiB", "Lambda has no other sizes")
	timeoutOK := num("timeoutSec", float64(in.TimeoutSec), 1, LambdaTimeoutMaxSec, "s", "Lambda ends a call after 900 s")
	batchOK := num("batchSize", float64(in.BatchSize), 1, maxBatch, "users", "give the number of users per child")
	parallelOK := num("parallelSequences", float64(in.ParallelSequences), 1, maxParallel, "sequences", "llama.cpp decodes at most 256 sequences together")
	concurrencyOK := num("maxConcurrency", float64(in.MaxConcurrency), 1, MapConcurrencyMax, "children", "a Map Run has at most 10,000 children at a time, and no quota raises that")
	childOK := one("childType", in.ChildType, Standard, Express)
	num("bufferMib", float64(in.BufferMib), FirehoseBufferMinMib, FirehoseBufferMaxMib, "MiB", "with conversion to Parquet Firehose buffers 64 to 128 MiB")
	num("bufferSec", float64(in.BufferSec), FirehoseBufferMinSec, FirehoseBufferMaxSec, "s", "Firehose buffers 60 to 900 s")
	num("retentionDays", float64(in.RetentionDays), 1, maxRetention, "days", "keep data for at least a day")
	if in.Mail {
		num("sesRatePerSec", in.SesRatePerSec, 0.01, maxSesPerSec, "mails/s", "give the rate the account may send at")
	}
	num("deliverAtSec", in.DeliverAtSec, 0, maxDeliverSec, "s", "give seconds after the arrival of the input, within a week")
	num("deadlineMinutes", in.DeadlineMinutes, 0, maxDeliverSec/60, "min", "give minutes after the arrival of the input, within a week")
	num("provisionedConcurrency", float64(in.ProvisionedConcurrency), 0, MapConcurrencyMax, "workers", "more than 10,000 are not planned for")
	num("provisionedHoursPerMonth", in.ProvisionedHoursPerMonth, 0, 744, "h", "a month has at most 744 hours")
	num("endpointRequestsPerMonth", float64(in.EndpointRequestsPerMonth), 0, maxPerMonth, "requests", "give requests a month")
	num("queueRequestsPerMonth", float64(in.QueueRequestsPerMonth), 0, maxPerMonth, "requests", "give requests a month")
	num("natGateways", float64(in.NatGateways), 0, maxNat, "gateways", "one per zone is usual")
	secOK := num("secPerUser", in.SecPerUser, 0, maxSecPerUser, "s", "give the measured seconds one user takes, 0 to use the calibration")
	num("gpuUsersPerHour", in.GpuUsersPerHour, 0, maxGpuPerHour, "users/h", "give the measured throughput, 0 if it is not known")
	q := in.Quotas
	num("quotas.lambdaConcurrency", float64(q.LambdaConcurrency), 0, 10_000_000, "executions", "give the account's quota L-B99A9384, 0 if it is not known")
	num("quotas.lambdaMemoryMib", float64(q.LambdaMemoryMib), 0, LambdaMemoryMaxMib, "MiB", "give the account's limit, 0 if it is not known")
	num("quotas.sfnTransitionsPerSec", q.SfnTransitionsPerSec, 0, 1e7, "transitions/s", "give the account's quota L-AD9B4E93, 0 if it is not known")
	num("quotas.firehoseMibPerSec", q.FirehoseMibPerSec, 0, 1e6, "MiB/s", "give the stream's limit, 0 if it is not known")
	num("quotas.firehoseRequestsPerSec", q.FirehoseRequestsPerSec, 0, 1e8, "requests/s", "give the stream's limit, 0 if it is not known")
	num("quotas.firehoseRecordsPerSec", q.FirehoseRecordsPerSec, 0, 1e10, "records/s", "give the stream's limit, 0 if it is not known")
	num("quotas.sesRecipientsPerSec", q.SesRecipientsPerSec, 0, maxSesPerSec, "recipients/s", "give the account's quota L-CDEF9B6B, 0 if it is not known")
	num("quotas.sesRecipientsPer24Hours", float64(q.SesRecipientsPer24Hours), 0, 1e12, "recipients", "give the account's quota L-804C8AE8, 0 if it is not known")

	calibrationOK := archOK
	if archOK && in.Calibration.Schema == "" {
		c, err := DefaultCalibration(in.Architecture)
		if err != nil {
			return in, Speeds{}, err
		}
		in.Calibration = c
	} else if err := in.Calibration.Check(); err != nil {
		calibrationOK = false
		add("calibration", "not usable", "a document of swarm bench", strings.ReplaceAll(err.Error(), "\n", "; "))
	} else if archOK && in.Calibration.Machine.Arch != in.Architecture {
		calibrationOK = false
		add("calibration", "of "+in.Calibration.Machine.Arch, in.Architecture, "the speed of one architecture says nothing of the other: measure on "+in.Architecture+", or set architecture to "+in.Calibration.Machine.Arch)
	}

	// What follows needs several fields that are right by themselves.
	var speeds Speeds
	if modelOK && tokensOK && memoryOK && parallelOK && batchOK {
		k := in.parallel()
		if need := MemoryNeedMib(m, in.Context(), k); need > in.MemoryMib {
			remedy := "raise memoryMib"
			if least := MemoryNeedMib(m, in.Context(), 1); need > LambdaMemoryMaxMib && least > LambdaMemoryMaxMib {
				remedy = "the model does not fit Lambda: take a smaller one"
			} else if k > 1 {
				remedy = "raise memoryMib, lower parallelSequences or contextTokens, or take a smaller model"
			}
			weights := math.Ceil(float64(m.WeightBytes) / (1 << 20))
			rest := math.Ceil(float64(m.WorkBytes)/(1<<20)) + overheadMib
			add("memoryMib", withUnit(float64(in.MemoryMib), "MiB"), fmt.Sprintf("at least %s (weights %s, cache for %s %s, the rest %s)",
				withUnit(float64(need), "MiB"), withUnit(weights, "MiB"), plural(float64(k), "sequence")+" and the prefix",
				withUnit(max(0, float64(need)-weights-rest), "MiB"), withUnit(rest, "MiB")), remedy)
		}
	}
	if modelOK && storeOK {
		switch {
		case in.ModelStore == StoreImage && m.WeightBytes+runtimeImageBytes > LambdaImageMaxBytes:
			add("model.weightBytes", withUnit(float64(m.WeightBytes), "B"), withUnit(LambdaImageMaxBytes-runtimeImageBytes, "B in an image"), "Lambda takes images of at most 10 GB: take a smaller model, or modelStore efs")
		case in.ModelStore == StoreS3 && tmpOK && m.WeightBytes > int64(in.EphemeralStorageMib)<<20:
			add("ephemeralStorageMib", withUnit(float64(in.EphemeralStorageMib), "MiB"), "at least "+withUnit(math.Ceil(float64(m.WeightBytes)/(1<<20)), "MiB"), "the fetched model must fit into /tmp: raise it, or use modelStore image")
		}
	}
	if batchOK && in.RecordBytes >= 0 && in.recordBytes() <= RecordMaxBytes {
		if most := MaxBatchByBytes(int(in.recordBytes())); in.BatchSize > most {
			add("batchSize", withUnit(float64(in.BatchSize), "users"), fmt.Sprintf("%s (%s of %s B each in a child's input of %s B)", withUnit(float64(most), "users"), "records", FormatNumber(in.recordBytes()), FormatNumber(ChildInputMaxBytes-childSharedBytes)),
				"lower batchSize, or leave out fields that the prompt does not use")
		}
	}
	if calibrationOK && modelOK && memoryOK {
		speeds = in.Calibration.Throughput(m, in.MemoryMib)
		if batchOK && tokensOK && parallelOK && storeOK && secOK && timeoutOK && childOK && concurrencyOK {
			worst := in.work(speeds.Slow, high)
			start, perUser := worst.startSec, worst.full.Sec()/float64(in.BatchSize)
			limit, what := float64(in.TimeoutSec), "the worker's timeout"
			if in.ChildType == Express && ExpressMaxSec < limit {
				limit, what = ExpressMaxSec, "an EXPRESS child's life"
			}
			if total := start + worst.full.Sec(); total > limit {
				most := MaxBatchBySec(limit, start, perUser)
				remedy := fmt.Sprintf("lower batchSize to %d", most)
				if most < 1 {
					remedy = "one user alone takes too long: raise memoryMib, shorten the tokens, or take a smaller model"
				}
				if in.TimeoutSec < LambdaTimeoutMaxSec && in.ChildType == Standard {
					remedy += fmt.Sprintf(", or raise timeoutSec (at most %d)", LambdaTimeoutMaxSec)
				}
				if in.ChildType == Express {
					remedy += ", or set childType to STANDARD"
				}
				add("batchSize", fmt.Sprintf("%s of up to %.1f s each, after %.0f s to load the model: %.0f s", plural(float64(in.BatchSize), "user"), perUser, start, total),
					fmt.Sprintf("%.0f s, %s", limit, what), remedy)
			}
		}
	}
	switch {
	case len(faults) > 0 && region != nil:
		return in, speeds, errors.Join(region, faults)
	case region != nil:
		return in, speeds, region
	case len(faults) > 0:
		return in, speeds, faults
	}
	return in, speeds, nil
}

// FitBatch lowers BatchSize to the largest that a child can hold and finish in
// time, a multiple of ParallelSequences where that is possible. It changes
// nothing where other inputs are at fault or one user is too much.
func (in Inputs) FitBatch() Inputs {
	valid := func(size int) bool {
		try := in
		try.BatchSize = size
		return try.Validate() == nil
	}
	if valid(in.BatchSize) || !valid(1) {
		return in
	}
	fits, tooMany := 1, in.BatchSize
	for tooMany-fits > 1 {
		if half := (fits + tooMany) / 2; valid(half) {
			fits = half
		} else {
			tooMany = half
		}
	}
	if k := in.ParallelSequences; fits > k && valid(fits/k*k) {
		fits = fits / k * k
	}
	in.BatchSize = fits
	return in
}

// clip keeps a value from filling an error.
func clip(s string) string {
	if r := []rune(s); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return s
}
