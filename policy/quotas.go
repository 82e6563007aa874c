package policy

import (
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/briefing-swarm/briefing-swarm/plan"
)

// Codes of Service Quotas.
const (
	codeConcurrency = "L-B99A9384"
	codeSesRate     = "L-CDEF9B6B"
	codeSesDay      = "L-804C8AE8"
)

// unreservedMin is what Lambda keeps of an account's concurrency for functions
// without a reservation.
const unreservedMin = 100

func quotaPolicies() []Policy {
	return []Policy{
		{
			Name: "lambda-concurrency", Group: Quotas, Level: Mandatory,
			Description: "The functions of the stack fit the account's concurrency, all swarms together, with what is reserved and provisioned.",
			Remedy:      "Request Service Quotas " + codeConcurrency + " (Lambda, concurrent executions), or lower maxConcurrency.",
			Settings: []Setting{
				{Name: "maxConcurrency", Default: 0.0, Description: "The account's concurrent executions. 0: accountQuotas.lambdaConcurrency, else 1,000, the default of a new account.", Min: 0, Max: 1e7},
				{Name: "otherExecutions", Default: 0.0, Description: "What the account's other functions need, outside of this stack.", Min: 0, Max: 1e7},
			},
			stack: concurrency,
		},
		{
			Name: "lambda-memory", Group: Quotas, Level: Mandatory,
			Description: "No function has more memory than the account may give one.",
			Remedy:      "Lower the memory size, or ask AWS support for more: this limit of new accounts is not in Service Quotas.",
			Settings:    []Setting{{Name: "maxMemoryMib", Default: 0.0, Description: "The most memory in MiB. 0: accountQuotas.lambdaMemoryMib, else 10,240.", Min: 0, Max: plan.LambdaMemoryMaxMib}},
			resource:    memory,
		},
		{
			Name: "map-concurrency", Group: Quotas, Level: Mandatory,
			Description: "Every Distributed Map has a bound on its children at one time, within what Step Functions runs.",
			Remedy:      "Set MaxConcurrency of the map: without it, a run takes all of the account's Lambda concurrency.",
			Settings:    []Setting{{Name: "maxConcurrency", Default: float64(plan.MapConcurrencyMax), Description: "The most children at one time.", Min: 1, Max: plan.MapConcurrencyMax}},
			resource:    mapConcurrency,
		},
		{
			Name: "child-payload", Group: Quotas, Level: Mandatory,
			Description: "No batch of a Distributed Map can outgrow the input of a child.",
			Remedy:      "Set MaxInputBytesPerBatch in the ItemBatcher: a batch over 256 KiB fails the whole Map Run.",
			Settings:    []Setting{{Name: "maxBytes", Default: float64(plan.ChildInputMaxBytes), Description: "The largest input in bytes.", Min: 1, Max: plan.ChildInputMaxBytes}},
			resource:    childPayload,
		},
		{
			Name: "child-duration", Group: Quotas, Level: Mandatory,
			Description: "A batch ends before its worker's time limit, and before 300 s where children are EXPRESS.",
			Remedy:      "Lower batchSize, or raise timeoutSec (Lambda's longest is 900 s), or use STANDARD children.",
			stack:       childDuration,
		},
		{
			Name: "firehose-throughput", Group: Quotas, Level: Mandatory,
			Description: "Rows come no faster than the region's Firehose takes them.",
			Remedy:      "Lower maxConcurrency, or ask AWS support for more with the Firehose limits form: these limits are not in Service Quotas.",
			Settings: []Setting{
				{Name: "maxMibPerSec", Default: 0.0, Description: "MiB a second of one stream. 0: accountQuotas.firehoseMibPerSec, else the region's default.", Min: 0, Max: 1e6},
				{Name: "maxRequestsPerSec", Default: 0.0, Description: "Requests a second of one stream. 0: accountQuotas.firehoseRequestsPerSec, else the region's default.", Min: 0, Max: 1e6},
				{Name: "maxRecordsPerSec", Default: 0.0, Description: "Records a second of one stream. 0: accountQuotas.firehoseRecordsPerSec, else the region's default.", Min: 0, Max: 1e9},
			},
			stack: firehoseThroughput,
		},
		{
			Name: "ses-rate", Group: Quotas, Level: Mandatory,
			Description: "SES lets the mail of a run out at the planned rate, and all of a day's mail within the day.",
			Remedy:      "Request Service Quotas " + codeSesRate + " (SES, a second) and " + codeSesDay + " (SES, in 24 hours), or lower sesRatePerSec or expectedUsers.",
			Settings: []Setting{
				{Name: "maxRecipientsPerSec", Default: 0.0, Description: "The account's rate. 0: accountQuotas.sesRecipientsPerSec, else 1, that of the sandbox.", Min: 0, Max: 1e6},
				{Name: "maxRecipientsPer24Hours", Default: 0.0, Description: "The account's daily quota. 0: accountQuotas.sesRecipientsPer24Hours, else 200, that of the sandbox.", Min: 0, Max: 1e12},
			},
			stack: sesRate,
		},
		{
			Name: "image-size", Group: Quotas, Level: Mandatory,
			Description: "The container image with its model is not larger than Lambda takes.",
			Remedy:      "Take a smaller model or a stronger quantization, or modelStore efs.",
			Settings:    []Setting{{Name: "maxGib", Default: 10.0, Description: "The largest image, uncompressed, in GiB.", Min: 0.01, Max: 10}},
			stack:       imageSize,
		},
		{
			Name: "efs-throughput", Group: Quotas, Level: Mandatory,
			Description: "A file system that functions load models from can be read by all of them together.",
			Remedy:      "Set throughputMode elastic, or lower maxConcurrency, or use modelStore image.",
			Settings:    []Setting{{Name: "minProvisionedMibps", Default: 100.0, Description: "The least provisioned throughput in MiB/s, where the mode is provisioned.", Min: 1, Max: 10240}},
			stack:       efsThroughput,
		},
	}
}

// need is a swarm's need of a quota, as it registered it.
func (c *Check) need(swarm Resource, code string) (n float64, ok bool) {
	return c.number(swarm, swarm.get("quotasNeeded."+code))
}

// mailRate is the rate that a swarm insists on: the one it was given, or the one
// that its window makes. Without either, delivery takes what the account has.
func (c *Check) mailRate(swarm Resource, planned float64, ok bool) (float64, bool) {
	if rate, given := swarm.input("sesRatePerSec").number(); given && rate > 0 {
		return planned, ok
	}
	minutes, windowed := swarm.input("deliveryWindowMinutes").number()
	users, isKnown := swarm.input("expectedUsers").number()
	if !ok || !windowed || !isKnown || minutes <= 0 {
		return 0, false
	}
	return math.Ceil(users / (60 * minutes) / plan.SesShare), true
}

func concurrency(c *Check, s Stack) {
	swarms := s.swarms()
	account := c.quota("maxConcurrency", "lambdaConcurrency", plan.LambdaConcurrencyUnset, swarms)
	sum := c.setting("otherExecutions")
	var parts []string
	secret := field{}
	if sum > 0 {
		parts = append(parts, "other functions "+plan.FormatNumber(sum))
	}
	largest, at := -1.0, Resource{}
	add := func(r Resource, n float64, f field) {
		sum += n
		secret.secret = secret.secret || f.secret
		parts = append(parts, r.Name+" "+f.show(plan.FormatNumber(n)))
		if n > largest {
			largest, at = n, r
		}
	}
	for _, swarm := range swarms {
		if n, ok := c.need(swarm, codeConcurrency); ok {
			add(swarm, n, swarm.get("quotasNeeded."+codeConcurrency))
		}
	}
	reserved := 0.0
	var bounded Stack // functions whose reservation is counted already
	for _, f := range s.of(lambdaFunction) {
		n, ok := c.number(f, f.get("reservedConcurrentExecutions"))
		if !ok || n < 0 {
			continue
		}
		reserved += n
		if !f.inSwarm() && n > 0 { // that of a swarm is in its own need
			add(f, n, f.get("reservedConcurrentExecutions"))
			bounded = append(bounded, f)
		} else if n > largest && len(swarms) == 0 {
			at = f
		}
		secret.secret = secret.secret || f.get("reservedConcurrentExecutions").secret
	}
	for _, p := range s.of(lambdaProvisioned) {
		if p.inSwarm() {
			continue
		}
		if n, ok := c.number(p, p.get("provisionedConcurrentExecutions")); ok {
			add(p, n, p.get("provisionedConcurrentExecutions"))
		}
	}
	for _, e := range s.of(lambdaEventSource) {
		if e.inSwarm() || bounded.has(e.Depends["functionName"], e.get("functionName")) {
			continue
		}
		if n, ok := c.number(e, e.get("scalingConfig.maximumConcurrency")); ok {
			add(e, n, e.get("scalingConfig.maximumConcurrency"))
		}
	}
	for _, m := range s.of(stateMachine) {
		if m.inSwarm() {
			continue
		}
		doc, ok := c.document(m, m.get("definition"))
		for _, d := range distributedMaps(doc) {
			if ok && d.maxConcurrency > 0 && !bounded.called(d) {
				add(m, d.maxConcurrency, m.get("definition"))
			}
		}
	}
	if at.URN == "" {
		return
	}
	if sum > account.value {
		c.violation(at, "the stack needs %s concurrent executions, over the account's %s: %s", secret.show(plan.FormatNumber(sum)), account, strings.Join(parts, ", "))
	}
	if most := max(0, account.value-unreservedMin); reserved > most {
		c.violation(at, "%s executions are reserved, over %s: the account has %s, and Lambda keeps %d of them for functions without a reservation",
			secret.show(plan.FormatNumber(reserved)), plan.FormatNumber(most), account, unreservedMin)
	}
}

// has says whether a function of the stack is meant by dependencies or by a name.
func (s Stack) has(dependencies []string, name field) bool {
	text, _ := name.text()
	for _, f := range s {
		own, _ := f.get("name").text()
		arn, _ := f.get("arn").text()
		if slices.Contains(dependencies, f.URN) || text != "" && (text == own || text == arn) {
			return true
		}
	}
	return false
}

// called says whether the map calls one of the functions.
func (s Stack) called(d distributedMap) bool {
	for _, f := range s {
		arn, _ := f.get("arn").text()
		name, _ := f.get("name").text()
		if arn != "" && d.calls(arn) || name != "" && d.calls(name) {
			return true
		}
	}
	return false
}

func memory(c *Check, r Resource) {
	var swarms Stack
	if r.Type != lambdaFunction {
		return
	}
	size := r.get("memorySize")
	n, ok := c.number(r, size)
	most := c.quota("maxMemoryMib", "lambdaMemoryMib", plan.LambdaMemoryMaxMib, swarms)
	if most.source == fromDefaults {
		most.source = "Lambda's own"
	}
	if ok && n > most.value {
		c.violation(r, "memorySize is %s MiB, over the limit of %s", size.show(plan.FormatNumber(n)), most)
	}
}

// maps runs a check on each Distributed Map of a state machine.
func (c *Check) maps(r Resource, check func(distributedMap, field)) {
	if r.Type != stateMachine {
		return
	}
	f := r.get("definition")
	if doc, ok := c.document(r, f); ok {
		for _, d := range distributedMaps(doc) {
			check(d, f)
		}
	}
}

func mapConcurrency(c *Check, r Resource) {
	c.maps(r, func(d distributedMap, f field) {
		most := c.setting("maxConcurrency")
		switch {
		case d.byPath: // the run's own input says it
		case d.maxConcurrency == 0:
			c.violation(r, "the map %s has no MaxConcurrency", f.show(fmt.Sprintf("%q", d.name)))
		case d.maxConcurrency > most:
			c.violation(r, "MaxConcurrency of the map %s is %s, over the limit of %s", f.show(fmt.Sprintf("%q", d.name)), f.show(plan.FormatNumber(d.maxConcurrency)), plan.FormatNumber(most))
		}
	})
}

func childPayload(c *Check, r Resource) {
	c.maps(r, func(d distributedMap, f field) {
		most := c.setting("maxBytes")
		switch {
		case !d.batches: // one item, which the reader bounds
		case d.maxBytes == 0:
			c.violation(r, "the map %s batches items without MaxInputBytesPerBatch", f.show(fmt.Sprintf("%q", d.name)))
		case d.maxBytes > most:
			c.violation(r, "MaxInputBytesPerBatch of the map %s is %s, over the limit of %s", f.show(fmt.Sprintf("%q", d.name)), f.show(plan.FormatNumber(d.maxBytes)), plan.FormatNumber(most))
		}
	})
}

func childDuration(c *Check, s Stack) {
	for _, swarm := range s.swarms() {
		p, ok := c.plan(swarm)
		if !ok {
			continue
		}
		in := p.Inputs
		// The worker stops in time and hands back what is left, so the slow case
		// costs another call; that the likely case does not end is a wrong setting.
		batch, most := p.Speed.BatchSec.Likely, float64(in.TimeoutSec)
		what := "timeoutSec"
		if in.ChildType == plan.Express && plan.ExpressMaxSec < most {
			most, what = plan.ExpressMaxSec, "an EXPRESS child"
		}
		if batch > most {
			c.violation(swarm, "a batch of %d users takes about %s, over the %s of %s", in.BatchSize, plan.FormatSec(batch), plan.FormatSec(most), what)
		}
	}
	functions := s.of(lambdaFunction)
	for _, f := range functions {
		timeout := f.get("timeout")
		if n, ok := c.number(f, timeout); ok && n > plan.LambdaTimeoutMaxSec {
			c.violation(f, "timeout is %s s, over Lambda's %d s", timeout.show(plan.FormatNumber(n)), plan.LambdaTimeoutMaxSec)
		}
	}
	for _, m := range s.of(stateMachine) {
		doc, ok := c.document(m, m.get("definition"))
		if !ok {
			continue
		}
		for _, d := range distributedMaps(doc) {
			if d.executionType != plan.Express {
				continue
			}
			longest := d.timeoutSec
			if longest == 0 { // the tasks end when their functions do
				for _, f := range functions {
					if timeout, ok := f.get("timeout").number(); ok && (Stack{f}).called(d) {
						longest = max(longest, timeout)
					}
				}
			}
			if longest > plan.ExpressMaxSec {
				c.violation(m, "tasks of the map %s may take %s s, over the %d s of an EXPRESS child", m.get("definition").show(fmt.Sprintf("%q", d.name)),
					m.get("definition").show(plan.FormatNumber(longest)), plan.ExpressMaxSec)
			}
		}
	}
}

func firehoseThroughput(c *Check, s Stack) {
	for _, swarm := range s.swarms() {
		p, ok := c.plan(swarm)
		if !ok {
			continue
		}
		for _, q := range p.Quotas {
			setting, name := map[string]string{"firehose.bytes": "maxMibPerSec", "firehose.requests": "maxRequestsPerSec", "firehose.records": "maxRecordsPerSec"}[q.ID],
				map[string]string{"firehose.bytes": "firehoseMibPerSec", "firehose.requests": "firehoseRequestsPerSec", "firehose.records": "firehoseRecordsPerSec"}[q.ID]
			if setting == "" {
				continue
			}
			have := c.quota(setting, name, q.Have, Stack{swarm})
			if have.source == fromDefaults {
				have.source = "the default of " + p.Inputs.Region
			}
			if q.Needed.Likely > have.value {
				c.violation(swarm, "%s: the workers write %s %s, over the stream's %s", q.Label, plan.FormatNumber(q.Needed.Likely), q.Unit, have)
			}
		}
	}
}

func sesRate(c *Check, s Stack) {
	for _, q := range []struct{ code, setting, name, what string }{
		{codeSesRate, "maxRecipientsPerSec", "sesRecipientsPerSec", "recipients a second"},
		{codeSesDay, "maxRecipientsPer24Hours", "sesRecipientsPer24Hours", "recipients in 24 hours"},
	} {
		standard := map[string]float64{codeSesRate: plan.SesSandboxPerSec, codeSesDay: plan.SesSandboxPer24Hours}[q.code]
		swarms := s.swarms()
		have := c.quota(q.setting, q.name, standard, swarms)
		sum := 0.0
		shown := field{}
		for _, swarm := range swarms {
			n, ok := c.need(swarm, q.code)
			if q.code == codeSesRate {
				n, ok = c.mailRate(swarm, n, ok)
			}
			if !ok {
				continue
			}
			shown.secret = shown.secret || swarm.get("quotasNeeded."+q.code).secret
			// Tenants that mail one after the other share the rate; the day is one.
			if q.code == codeSesDay {
				sum += n
			} else {
				sum = max(sum, n)
			}
		}
		if sum > have.value {
			c.violation(swarms[0], "the mail needs %s %s, over the account's %s", shown.show(plan.FormatNumber(sum)), q.what, have)
		}
	}
}

func imageSize(c *Check, s Stack) {
	most := c.setting("maxGib")
	for _, swarm := range s.swarms() {
		p, ok := c.plan(swarm)
		if !ok {
			continue
		}
		i := slices.IndexFunc(p.Quotas, func(q plan.Quota) bool { return q.ID == "lambda.image" })
		if i >= 0 && p.Quotas[i].Needed.Likely > most*(1<<30) {
			c.violation(swarm, "the image has about %.1f GiB, over the limit of %s GiB", p.Quotas[i].Needed.Likely/(1<<30), plan.FormatNumber(most))
		}
	}
	for _, image := range s.of(dockerImage) {
		if image.inSwarm() {
			continue
		}
		folder, ok := c.text(image, image.get("build.context"))
		if size := folderBytes(folder); ok && float64(size) > most*(1<<30) {
			c.violation(image, "its build context has %.1f GiB, over the limit of %s GiB", float64(size)/(1<<30), plan.FormatNumber(most))
		}
	}
}

// folderBytes is the size of a folder's files, of those that can be seen. It
// gives up at a number of files that no build context has.
func folderBytes(folder string) int64 {
	const most = 100_000
	size, files := int64(0), 0
	_ = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil // what cannot be seen cannot be sent to Docker either
		}
		if files++; files > most {
			return filepath.SkipAll
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
		return nil
	})
	return size
}

func efsThroughput(c *Check, s Stack) {
	mounted := false
	for _, f := range s.of(lambdaFunction) {
		mounted = mounted || f.get("fileSystemConfig").state != absent
	}
	for _, fs := range s.of(fileSystem) {
		if !mounted {
			break
		}
		mode := fs.get("throughputMode")
		name, ok := mode.text()
		switch {
		case mode.state == unknown:
			c.unsure(fs, mode.path)
		case !ok || name == "bursting":
			c.violation(fs, "throughputMode is bursting: what it may read goes with its size, and a model is read at once by every worker")
		case name == "provisioned":
			mibps := fs.get("provisionedThroughputInMibps")
			if n, ok := c.number(fs, mibps); ok && n < c.setting("minProvisionedMibps") {
				c.violation(fs, "provisionedThroughputInMibps is %s, under the least of %s", mibps.show(plan.FormatNumber(n)), plan.FormatNumber(c.setting("minProvisionedMibps")))
			}
		}
	}
	for _, swarm := range s.swarms() {
		p, ok := c.plan(swarm)
		if !ok {
			continue
		}
		for _, q := range p.Quotas {
			if strings.HasPrefix(q.ID, "efs.") && q.Needed.Likely > q.Have {
				c.violation(swarm, "%s: %s %s, over the limit of %s (%s)", q.Label, plan.FormatNumber(math.Ceil(q.Needed.Likely)), q.Unit, plan.FormatNumber(q.Have), q.Source)
			}
		}
	}
}
