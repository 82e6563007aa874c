package component

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/briefing-swarm/briefing-swarm/plan"
)

// accountQuotas are the names of AccountQuotas.
var accountQuotas = map[string]func(*plan.Quotas, float64){
	"lambdaConcurrency":       func(q *plan.Quotas, v float64) { q.LambdaConcurrency = int(v) },
	"lambdaMemoryMib":         func(q *plan.Quotas, v float64) { q.LambdaMemoryMib = int(v) },
	"sfnTransitionsPerSec":    func(q *plan.Quotas, v float64) { q.SfnTransitionsPerSec = v },
	"firehoseMibPerSec":       func(q *plan.Quotas, v float64) { q.FirehoseMibPerSec = v },
	"firehoseRequestsPerSec":  func(q *plan.Quotas, v float64) { q.FirehoseRequestsPerSec = v },
	"firehoseRecordsPerSec":   func(q *plan.Quotas, v float64) { q.FirehoseRecordsPerSec = v },
	"sesRecipientsPerSec":     func(q *plan.Quotas, v float64) { q.SesRecipientsPerSec = v },
	"sesRecipientsPer24Hours": func(q *plan.Quotas, v float64) { q.SesRecipientsPer24Hours = int64(v) },
}

// AccountQuotaNames are the keys that Args.AccountQuotas may have, sorted.
func AccountQuotaNames() []string { return slices.Sorted(maps.Keys(accountQuotas)) }

// inputs is what the plan is computed from.
func (d *design) inputs(f *faults) plan.Inputs {
	in := plan.Defaults()
	in.Users, in.RunsPerMonth = int64(d.users()), d.RunsPerMonth
	in.PrefixTokens, in.UserTokens, in.OutputTokens, in.RecordBytes = d.PrefixTokens, d.UserTokens, d.OutputTokens, d.RecordBytes
	in.Model, in.ModelStore, in.Architecture, in.Region = d.model.Model, d.ModelStore, d.Architecture, d.Region
	in.MemoryMib, in.EphemeralStorageMib, in.TimeoutSec = d.MemoryMib, d.EphemeralStorageMib, d.TimeoutSec
	set(&d.BatchSize, in.BatchSize)
	in.BatchSize, in.ParallelSequences, in.MaxConcurrency = d.BatchSize, d.ParallelSequences, d.MaxConcurrency
	in.BufferMib, in.BufferSec, in.RetentionDays = d.BufferMib, d.BufferSec, d.RetentionDays
	in.ContextTokens, in.DeadlineMinutes = d.ContextTokens, d.DeadlineMinutes
	in.Mail, in.SesRatePerSec = d.mail(), d.mailRate()
	if clockTime.MatchString(d.DeliverAt) && clockTime.MatchString(d.InputAt) {
		in.DeliverAtSec = secondsBetween(d.InputAt, d.DeliverAt)
	}
	in.ProvisionedConcurrency = d.ProvisionedConcurrency
	in.EndpointRequestsPerMonth, in.QueueRequestsPerMonth = int64(d.EndpointRequestsPerMonth), int64(d.QueueRequestsPerMonth)
	for key, v := range d.AccountQuotas {
		if put := accountQuotas[key]; put != nil {
			put(&in.Quotas, v)
		}
	}
	if d.Prices != "" {
		prices, err := plan.ReadPrices([]byte(d.Prices))
		if err != nil {
			f.add("prices", "not usable", "a document of swarm prices refresh", oneLine(err))
		}
		in.Prices = prices
	}
	if d.Calibration != "" {
		var err error
		if slices.Contains(plan.CalibrationNames(), d.Calibration) {
			in.Calibration, err = plan.ShippedCalibration(d.Calibration)
		} else {
			in.Calibration, err = plan.ReadCalibration([]byte(d.Calibration))
		}
		if err != nil {
			f.add("calibration", quote(d.Calibration), strings.Join(plan.CalibrationNames(), ", ")+", or a document of swarm bench", oneLine(err))
		}
	}
	return in
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// secondsBetween is the time from one HH:MM to the next such one.
func secondsBetween(from, to string) float64 {
	minutes := func(s string) int { return 60*(10*int(s[0]-'0')+int(s[1]-'0')) + 10*int(s[3]-'0') + int(s[4]-'0') }
	return float64(60 * ((minutes(to) - minutes(from) + 24*60) % (24 * 60)))
}

// argNames are the fields of Args that the plan has under another name.
var argNames = map[string]string{"users": "expectedUsers", "deliverAtSec": "deliverAt"}

// estimate computes the plan. With fitBatch, the batch size is lowered until a
// batch ends in time.
func (d *design) estimate(f *faults, fitBatch bool) {
	in := d.inputs(f)
	if d.model.Model.Layers == 0 {
		in.Model = plan.DefaultModel() // the true one has its fault already: find the others
	}
	if in.Prices == nil {
		in.Prices = plan.ShippedPrices()
	}
	if in.Calibration.Schema == "" && (f.has("calibration") || f.has("architecture")) {
		in.Architecture = plan.ARM64
	}
	if fitBatch {
		in = in.FitBatch()
		d.BatchSize = in.BatchSize
	}
	if err := in.Validate(); err != nil {
		d.planFaults(f, err)
		return
	}
	if len(f.list) > 0 {
		return
	}
	p, err := plan.Estimate(in)
	if err != nil {
		d.planFaults(f, err)
		return
	}
	d.plan = p
	d.checkPlan(f)
}

func (d *design) planFaults(f *faults, err error) {
	var region *plan.UnknownRegionError
	if errors.As(err, &region) && d.Region != "" && !f.has("region") {
		f.add("region", quote(region.Region), "one of "+strings.Join(region.Known, ", "), fmt.Sprintf("or give prices: swarm prices refresh --region %s --out prices.json", region.Region))
	}
	var list plan.Faults
	if !errors.As(err, &list) && region == nil {
		f.add("estimate", "not computed", "a plan", oneLine(err))
	}
	own := len(f.list)
	for _, fault := range list {
		if name, ok := argNames[fault.Field]; ok {
			fault.Field = name
		}
		if quota, ok := strings.CutPrefix(fault.Field, "quotas."); ok {
			fault.Field = "accountQuotas." + quota
		}
		if strings.HasPrefix(fault.Field, "model.") {
			fault.Field = "model"
		}
		// What the component has found itself, it has said in better words.
		if !slices.ContainsFunc(f.list[:own], func(o plan.Fault) bool { return o.Field == fault.Field }) {
			f.list = append(f.list, fault)
		}
	}
}

// checkPlan holds the ceilings against the estimate, and the rows of all workers
// against what Firehose takes in the region.
func (d *design) checkPlan(f *faults) {
	ceiling := func(field string, ceiling float64, estimate plan.Range, remedy string) {
		if ceiling > 0 && estimate.Likely > ceiling {
			f.add(field, plan.FormatUsd(ceiling), "at least the estimate, "+plan.FormatUsdRange(estimate), remedy)
		}
	}
	ceiling("costCeilingUsdPerRun", d.CostCeilingUsdPerRun, d.plan.Cost.PerRunUsd, "raise the ceiling, lower expectedUsers, outputTokens or prefixTokens, or take a smaller model")
	ceiling("costCeilingUsdPerMonth", d.CostCeilingUsdPerMonth, d.plan.Cost.PerMonthUsd, "raise the ceiling, lower runsPerMonth or expectedUsers, or take a smaller model")
	for _, q := range d.plan.Quotas {
		if !strings.HasPrefix(q.ID, "firehose.") || q.Enough {
			continue
		}
		most := math.Floor(float64(d.MaxConcurrency) * q.Have / q.Needed.Likely)
		f.add("maxConcurrency", plan.FormatNumber(float64(d.MaxConcurrency))+" workers, which write "+plan.FormatNumber(q.Needed.Likely)+" "+q.Unit,
			plan.FormatNumber(q.Have)+" "+q.Unit+", "+q.Label+" in "+d.Region, fmt.Sprintf("lower it to %s, or have AWS support raise the stream's limit and say so in accountQuotas", plan.FormatNumber(most)))
		break
	}
}
