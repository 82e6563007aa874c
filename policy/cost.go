package policy

import (
	"strings"

	"github.com/briefing-swarm/briefing-swarm/plan"
)

const (
	logGroup      = "aws:cloudwatch/logGroup:LogGroup"
	ecrRepository = "aws:ecr/repository:Repository"
	ecrLifecycle  = "aws:ecr/lifecyclePolicy:LifecyclePolicy"
)

func costPolicies() []Policy {
	return []Policy{
		{
			Name: "run-cost-ceiling", Group: Cost, Level: Mandatory,
			Description: "A run costs no more than its ceiling.",
			Remedy:      "Lower expectedUsers, outputTokens or memoryMib, or raise the ceiling: costCeilingUsdPerRun, or maxUsdPerRun of this policy.",
			Settings: []Setting{
				{Name: "maxUsdPerRun", Default: 0.0, Description: "The ceiling in USD. 0: costCeilingUsdPerRun of each swarm, and no ceiling where that is 0 too.", Min: 0, Max: 1e9},
				{Name: "useHighEstimate", Default: false, Description: "Compare the high bound of the estimate, not the likely cost."},
			},
			stack: runCeiling,
		},
		{
			Name: "monthly-cost-ceiling", Group: Cost, Level: Mandatory,
			Description: "All swarms of the stack together cost no more in a month than the ceiling.",
			Remedy:      "Lower runsPerMonth, expectedUsers or provisionedConcurrency, or raise the ceiling: costCeilingUsdPerMonth, or maxUsdPerMonth of this policy.",
			Settings: []Setting{
				{Name: "maxUsdPerMonth", Default: 0.0, Description: "The ceiling in USD for the whole stack. 0: costCeilingUsdPerMonth of each swarm, and no ceiling where that is 0 too.", Min: 0, Max: 1e9},
				{Name: "useHighEstimate", Default: false, Description: "Compare the high bound of the estimate, not the likely cost."},
			},
			stack: monthlyCeiling,
		},
		{
			Name: "cost-estimate-honest", Group: Cost, Level: Mandatory,
			Description: "The registered estimate is that of the resources which the component made.",
			Remedy:      "Something changed a resource behind the component's back, such as a transform: change the component's inputs instead.",
			Settings:    []Setting{{Name: "tolerancePercent", Default: 1.0, Description: "How far the two may differ.", Min: 0, Max: 100}},
			stack:       honest,
		},
		{
			Name: "cheaper-alternative", Group: Cost, Level: Advisory,
			Description: "No other known way of writing the briefings costs less.",
			Remedy:      "See the alternatives in the cost review; keeping the data in the account may be worth the difference.",
			Settings:    []Setting{{Name: "factor", Default: 1.0, Description: "How many times the other way's price a run may cost.", Min: 0.01, Max: 1000}},
			stack:       cheaper,
		},
		{
			Name: "log-retention", Group: Cost, Level: Mandatory,
			Description: "Logs are kept for a limited time, and every function has a log group that says so.",
			Remedy:      "Set retentionInDays on the log group, and give each function a log group: one that Lambda makes by itself is kept for ever.",
			Settings:    []Setting{{Name: "maxDays", Default: 365.0, Description: "The longest time.", Min: 1, Max: 3653}},
			stack:       logRetention,
		},
		{
			Name: "ecr-lifecycle", Group: Cost, Level: Mandatory,
			Description: "Every image repository drops old images by itself.",
			Remedy:      "Add an aws.ecr.LifecyclePolicy for the repository: an image with its model is gigabytes, paid for by the month.",
			stack:       repositoryLifecycle,
		},
	}
}

// cost reads an estimate of a swarm.
func (c *Check) cost(swarm Resource, output string) (usd float64, path string, ok bool) {
	path = output
	if c.flag("useHighEstimate") {
		path += "High"
	}
	usd, ok = c.number(swarm, swarm.get(path))
	return usd, path, ok
}

func runCeiling(c *Check, s Stack) {
	for _, swarm := range s.swarms() {
		ceiling, ok := c.ceiling("maxUsdPerRun", "costCeilingUsdPerRun", swarm)
		if !ok {
			continue
		}
		if usd, path, ok := c.cost(swarm, "usdPerRun"); ok && usd > ceiling.value {
			c.violation(swarm, "%s is %s, over the ceiling of %s (%s)", path, swarm.get(path).show(plan.FormatUsd(usd)), plan.FormatUsd(ceiling.value), ceiling.source)
		}
	}
}

func monthlyCeiling(c *Check, s Stack) {
	swarms := s.swarms()
	sum, ceilings := 0.0, 0.0
	source, total := "", field{}
	var costs []string
	for _, swarm := range swarms {
		usd, path, ok := c.cost(swarm, "usdPerMonth")
		if !ok {
			continue
		}
		sum += usd
		total.secret = total.secret || swarm.get(path).secret
		costs = append(costs, swarm.Name+" "+swarm.get(path).show(plan.FormatUsd(usd)))
		own, has := c.ceiling("maxUsdPerMonth", "costCeilingUsdPerMonth", swarm)
		if !has {
			continue
		}
		ceilings, source = own.value, own.source
		if own.source != fromPolicy && usd > own.value {
			c.violation(swarm, "%s is %s, over the ceiling of %s (%s)", path, swarm.get(path).show(plan.FormatUsd(usd)), plan.FormatUsd(own.value), own.source)
		}
	}
	if source == fromPolicy && sum > ceilings {
		c.violation(swarms[0], "a month costs %s, over the ceiling of %s (%s): %s", total.show(plan.FormatUsd(sum)), plan.FormatUsd(ceilings), source, strings.Join(costs, ", "))
	}
}

func cheaper(c *Check, s Stack) {
	for _, swarm := range s.swarms() {
		// What the alternatives replace is the writing; the rest of a run stays.
		elsewhere, ok := c.number(swarm, swarm.get("usdPerRunElsewhere"))
		run, isKnown := c.number(swarm, swarm.get("usdPerRun"))
		if p, planned := c.plan(swarm); planned && ok && isKnown {
			run = p.Cost.WritingUsd.Likely
			if least := cheapest(p); elsewhere < 1 && least > 0 { // the output is rounded to cents
				elsewhere = least
			}
		}
		if ok && isKnown && elsewhere*c.setting("factor") < run {
			c.violation(swarm, "writing the briefings of a run costs %s here and %s elsewhere", plan.FormatUsd(run), plan.FormatUsd(elsewhere))
		}
	}
}

// cheapest is the price of the cheapest other way, 0 where none is known.
func cheapest(p *plan.Plan) float64 {
	least := 0.0
	for _, a := range p.Alternatives {
		if a.PerRunUsd != nil && (least == 0 || *a.PerRunUsd < least) {
			least = *a.PerRunUsd
		}
	}
	return least
}

func logRetention(c *Check, s Stack) {
	groups := s.of(logGroup)
	names := map[string]bool{}
	urns := map[string]bool{}
	for _, group := range groups {
		urns[group.URN] = true
		if name, ok := group.get("name").text(); ok {
			names[name] = true
		}
		days := group.get("retentionInDays")
		n, ok := days.number()
		switch {
		case days.state == unknown:
			c.unsure(group, days.path)
		case !ok || n == 0:
			c.violation(group, "retentionInDays is not set: the logs are kept, and paid for, for ever")
		case n > c.setting("maxDays"):
			c.violation(group, "retentionInDays is %s, over the limit of %s days", days.show(plan.FormatNumber(n)), plan.FormatNumber(c.setting("maxDays")))
		}
	}
	for _, f := range s.of(lambdaFunction) {
		logs := f.get("loggingConfig.logGroup")
		covered := false
		for path, dependencies := range f.Depends {
			for _, urn := range dependencies {
				covered = covered || path == "loggingConfig" && urns[urn]
			}
		}
		group, ok := logs.text()
		if !ok {
			if logs.state == unknown || covered {
				if !covered {
					c.unsure(f, logs.path)
				}
				continue
			}
			name, isKnown := c.text(f, f.get("name"))
			if !isKnown {
				continue
			}
			logs, group = f.get("name"), "/aws/lambda/"+name
		}
		if !covered && !names[group] {
			c.violation(f, "its log group %s is not in the stack", logs.show(group))
		}
	}
}

func repositoryLifecycle(c *Check, s Stack) {
	kept := map[string]bool{} // by URN of the repository, or by its name
	for _, l := range s.of(ecrLifecycle) {
		for _, urn := range l.Depends["repository"] {
			kept[urn] = true
		}
		if name, ok := l.get("repository").text(); ok {
			kept[name] = true
		}
	}
	for _, r := range s.of(ecrRepository) {
		name, _ := r.get("name").text()
		if !kept[r.URN] && !kept[name] {
			c.violation(r, "the repository has no lifecycle policy")
		}
	}
}
