package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/briefing-swarm/briefing-swarm/plan"
)

// estimates keeps the plans of this process: several policies look at the same
// one, and it takes a few tenths of a second to compute.
var estimates struct {
	sync.Mutex
	plans map[string]*plan.Plan
}

func estimate(in plan.Inputs, prices string) (*plan.Plan, error) {
	key, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	estimates.Lock()
	defer estimates.Unlock()
	if p := estimates.plans[string(key)+prices]; p != nil {
		return p, nil
	}
	if prices != "" {
		if in.Prices, err = plan.ReadPrices([]byte(prices)); err != nil {
			return nil, err
		}
	}
	p, err := plan.Estimate(in)
	if err != nil {
		return nil, err
	}
	if estimates.plans == nil {
		estimates.plans = map[string]*plan.Plan{}
	}
	estimates.plans[string(key)+prices] = p
	return p, nil
}

// planInputs is what the component computed its estimate from. It is not there
// in a component that registers none.
func (c *Check) planInputs(swarm Resource) (in plan.Inputs, prices string, ok bool) {
	text, ok := c.text(swarm, swarm.get("planInputs"))
	if !ok || json.Unmarshal([]byte(text), &in) != nil {
		return in, "", false
	}
	prices, _ = swarm.input("prices").text()
	return in, prices, true
}

// plan is the plan of a component's own inputs.
func (c *Check) plan(swarm Resource) (*plan.Plan, bool) {
	in, prices, ok := c.planInputs(swarm)
	if !ok {
		return nil, false
	}
	p, err := estimate(in, prices)
	return p, err == nil
}

// Handlers of the component's functions, by the variable SWARM_HANDLER.
const (
	handlerVariable = "environment.variables.SWARM_HANDLER"
	handlerGenerate = "generate"
	handlerDeliver  = "deliver"
)

// handler says what a function of the component does, "" for any other.
func (r Resource) handler() string {
	if r.Type != lambdaFunction {
		return ""
	}
	name, _ := r.get(handlerVariable).text()
	return name
}

// Types of pulumi-aws that several policies look at.
const (
	lambdaFunction    = "aws:lambda/function:Function"
	lambdaProvisioned = "aws:lambda/provisionedConcurrencyConfig:ProvisionedConcurrencyConfig"
	lambdaEventSource = "aws:lambda/eventSourceMapping:EventSourceMapping"
	stateMachine      = "aws:sfn/stateMachine:StateMachine"
	firehoseStream    = "aws:kinesis/firehoseDeliveryStream:FirehoseDeliveryStream"
	fileSystem        = "aws:efs/fileSystem:FileSystem"
	dockerImage       = "docker:index/image:Image"
)

// real puts what the component's children say into the inputs of a plan, and
// tells what differs.
func (c *Check) real(s Stack, swarm Resource, in plan.Inputs) (plan.Inputs, []string) {
	var differences []string
	differ := func(what string, planned, found any) {
		differences = append(differences, fmt.Sprintf("%s is %v, the estimate has %v", what, found, planned))
	}
	number := func(r Resource, path string, planned int, what string) int {
		n, ok := c.number(r, r.get(path))
		if !ok || int(n) == planned {
			return planned
		}
		differ(what+" of "+r.Name, planned, r.get(path).show(plan.FormatNumber(n)))
		return int(n)
	}
	children := s.below(swarm)
	worker := ""
	store := plan.StoreImage
	for _, f := range children.of(lambdaFunction) {
		if f.handler() != handlerGenerate {
			continue
		}
		worker, _ = f.get("arn").text()
		in.MemoryMib = number(f, "memorySize", in.MemoryMib, "memorySize")
		in.TimeoutSec = number(f, "timeout", in.TimeoutSec, "timeout")
		if f.get("ephemeralStorage.size").state != absent {
			in.EphemeralStorageMib = number(f, "ephemeralStorage.size", in.EphemeralStorageMib, "ephemeralStorage")
		}
		if architecture, ok := c.text(f, f.get("architectures.0")); ok && architecture != in.Architecture {
			differ("the architecture of "+f.Name, in.Architecture, f.get("architectures.0").show(architecture))
			// A calibration of the other architecture is not one of this.
			in.Architecture, in.Calibration = architecture, plan.Calibration{}
		}
		if f.get("fileSystemConfig").state != absent {
			store = plan.StoreEFS
		}
	}
	if store != in.ModelStore {
		differ("the model store", in.ModelStore, store)
		in.ModelStore = store
	}
	for _, m := range children.of(stateMachine) {
		doc, ok := c.document(m, m.get("definition"))
		if !ok {
			continue
		}
		for _, d := range distributedMaps(doc) {
			if worker == "" || !d.calls(worker) {
				continue
			}
			if d.maxConcurrency > 0 && int(d.maxConcurrency) != in.MaxConcurrency {
				differ("MaxConcurrency in "+m.Name, in.MaxConcurrency, m.get("definition").show(plan.FormatNumber(d.maxConcurrency)))
				in.MaxConcurrency = int(d.maxConcurrency)
			}
			if d.maxItems > 0 && int(d.maxItems) != in.BatchSize {
				differ("MaxItemsPerBatch in "+m.Name, in.BatchSize, m.get("definition").show(plan.FormatNumber(d.maxItems)))
				in.BatchSize = int(d.maxItems)
			}
			if d.executionType != "" && d.executionType != in.ChildType {
				differ("ExecutionType in "+m.Name, in.ChildType, m.get("definition").show(d.executionType))
				in.ChildType = d.executionType
			}
		}
	}
	for _, f := range children.of(firehoseStream) {
		in.BufferMib = number(f, "extendedS3Configuration.bufferingSize", in.BufferMib, "bufferingSize")
		in.BufferSec = number(f, "extendedS3Configuration.bufferingInterval", in.BufferSec, "bufferingInterval")
	}
	provisioned, isKnown := 0, true
	for _, p := range children.of(lambdaProvisioned) {
		n, ok := c.number(p, p.get("provisionedConcurrentExecutions"))
		provisioned += int(n)
		isKnown = isKnown && ok
	}
	if isKnown && provisioned != in.ProvisionedConcurrency {
		differ("provisioned concurrency", in.ProvisionedConcurrency, provisioned)
		in.ProvisionedConcurrency = provisioned
	}
	return in, differences
}

// calls says whether a task of the map calls a function, of any version.
func (d distributedMap) calls(arn string) bool {
	for _, name := range d.functions {
		if name == arn || strings.HasPrefix(name, arn+":") {
			return true
		}
	}
	return false
}

// honest compares the component's figures with those of its real children.
func honest(c *Check, s Stack) {
	tolerance := c.setting("tolerancePercent") / 100
	for _, swarm := range s.swarms() {
		in, prices, ok := c.planInputs(swarm)
		if !ok {
			if swarm.get("planInputs").state == absent {
				c.violationWith(swarm, "Use a version of the component that registers planInputs.", "the component registers no planInputs, so its estimate can't be recomputed")
			}
			continue
		}
		found, differences := c.real(s, swarm, in)
		p, err := estimate(found, prices)
		var faults plan.Faults
		if errors.As(err, &faults) {
			c.violation(swarm, "the resources make a plan that can't be: %s", strings.Join(lines(faults), "; "))
			continue
		} else if err != nil {
			c.violation(swarm, "the resources make a plan that can't be: %v", err)
			continue
		}
		for _, figure := range []struct {
			output string
			real   float64
		}{{"usdPerRun", p.Cost.PerRunUsd.Likely}, {"usdPerMonth", p.Cost.PerMonthUsd.Likely}} {
			registered, ok := c.number(swarm, swarm.get(figure.output))
			if !ok {
				continue
			}
			// Outputs are rounded to cents.
			if off := math.Abs(registered - figure.real); off > tolerance*figure.real && off > 0.01 {
				why := "nothing of its resources differs from its inputs"
				if len(differences) > 0 {
					why = strings.Join(differences, "; ")
				}
				c.violation(swarm, "%s is %s, but its resources make it %s, over the tolerance of %s%%: %s", figure.output,
					swarm.get(figure.output).show(plan.FormatUsd(registered)), plan.FormatUsd(figure.real), plan.FormatNumber(c.setting("tolerancePercent")), why)
			}
		}
	}
}

func lines(faults plan.Faults) []string {
	var texts []string
	for _, f := range faults {
		texts = append(texts, f.Error())
	}
	return texts
}
