package plan

import (
	"fmt"
	"sort"
	"strings"
)

// Alternative is another way to write the same briefings.
type Alternative struct {
	ID    string `json:"id"`
	Label string `json:"label"`
	// PerRunUsd is what writing one run's briefings costs there; nil if that
	// depends on a throughput nobody has measured.
	PerRunUsd *float64 `json:"per_run_usd"`
	// SameModel says that it is the planned model; others write differently.
	SameModel bool `json:"same_model"`
	// InputUsd and OutputUsd are the prices of 1,000,000 tokens; 0 for a machine.
	InputUsd  float64 `json:"input_usd_per_million,omitempty"`
	OutputUsd float64 `json:"output_usd_per_million,omitempty"`
	// HourUsd is the price of a machine, and BreakEvenPerHour how many briefings
	// an hour it must write, all day, to cost less than the swarm. Low belongs to
	// the swarm's high cost.
	HourUsd          float64 `json:"hour_usd,omitempty"`
	BreakEvenPerHour *Range  `json:"break_even_per_hour,omitempty"`
	Source           string  `json:"source"`
	Date             string  `json:"date"`
	Confidence       string  `json:"confidence"`
	Note             string  `json:"note,omitempty"`
}

// apis are the managed APIs of the price file, with the catalogue name of the
// model where it is an open one.
var apis = []struct{ id, label, model string }{
	{"bedrock-nova-micro", "Bedrock Nova Micro", ""},
	{"bedrock-llama-3.2-3b", "Bedrock Llama 3.2 3B", "llama-3.2-3b"},
	{"openai-gpt-4.1-nano", "OpenAI GPT-4.1 nano", ""},
	{"openai-gpt-5-nano", "OpenAI GPT-5 nano", ""},
	{"openai-gpt-4o-mini", "OpenAI GPT-4o mini", ""},
	{"anthropic-claude-haiku-4.5", "Anthropic Claude Haiku 4.5", ""},
}

// machines are the GPUs by the hour.
var machines = []struct{ id, label string }{
	{"ec2.g5.xlarge", "EC2 g5.xlarge (A10G)"},
	{"ec2.g6.xlarge", "EC2 g6.xlarge (L4)"},
}

// alternatives prices the same tokens elsewhere, cheapest first, then machines.
func (in Inputs) alternatives(writing Range) []Alternative {
	var list []Alternative
	users := float64(in.Users)
	for _, a := range apis {
		inPrice, outPrice := in.Prices.Lookup("api."+a.id+".input", in.Region), in.Prices.Lookup("api."+a.id+".output", in.Region)
		if !inPrice.Known() || !outPrice.Known() {
			continue
		}
		usd := inPrice.Cost(users*float64(in.PrefixTokens+in.UserTokens)) + outPrice.Cost(users*float64(in.OutputTokens))
		usd = roundTo(usd, 9)
		list = append(list, Alternative{
			ID: a.id, Label: a.label, PerRunUsd: &usd,
			SameModel: a.model != "" && a.model == strings.ToLower(in.Model.Name),
			InputUsd:  roundTo(inPrice.Unit1()*1e6, 9), OutputUsd: roundTo(outPrice.Unit1()*1e6, 9),
			Source: inPrice.Source, Date: inPrice.Date, Confidence: weaker(inPrice.Confidence, outPrice.Confidence), Note: inPrice.Note,
		})
	}
	sort.SliceStable(list, func(i, j int) bool { return *list[i].PerRunUsd < *list[j].PerRunUsd })
	for _, m := range machines {
		p := in.Prices.Lookup(m.id, in.Region)
		if !p.Known() {
			continue
		}
		a := Alternative{
			ID: m.id, Label: m.label, HourUsd: p.Unit1(), Source: p.Source, Date: p.Date, Confidence: p.Confidence, Note: p.Note,
			BreakEvenPerHour: &Range{
				Low:    BreakEvenPerHour(p.Unit1(), writing.High/users),
				Likely: BreakEvenPerHour(p.Unit1(), writing.Likely/users),
				High:   BreakEvenPerHour(p.Unit1(), writing.Low/users),
			},
		}
		if in.GpuUsersPerHour > 0 && m.id == "ec2.g5.xlarge" {
			usd := roundTo(p.Unit1()*users/in.GpuUsersPerHour, 9)
			a.PerRunUsd = &usd
		}
		list = append(list, a)
	}
	return list
}

// weaker is the less sure of two confidences.
func weaker(a, b string) string {
	rank := map[string]int{Live: 0, Verified: 1, Secondary: 2, Unverified: 3, StandIn: 4}
	if rank[b] > rank[a] {
		return b
	}
	return a
}

// Verdict is the plain answer to whether to use the swarm.
type Verdict struct {
	// Use is "yes", "no" or "open" (the range straddles the alternative).
	Use string `json:"use"`
	// Sentence is the answer for people.
	Sentence string `json:"sentence"`
	// Reasons are what it rests on, and what may weigh more than the price.
	Reasons []string `json:"reasons"`
}

// verdict compares writing the briefings with the cheapest other way whose
// price is known.
func (in Inputs) verdict(writing Range, list []Alternative) Verdict {
	var best, own *Alternative
	for i := range list {
		a := &list[i]
		if a.PerRunUsd == nil {
			continue
		}
		if best == nil || *a.PerRunUsd < *best.PerRunUsd {
			best = a
		}
		if a.SameModel {
			own = a
		}
	}
	swarm := "the swarm " + FormatUsdRange(writing)
	briefings := FormatNumber(float64(in.Users)) + " briefings"
	if in.Users == 1 {
		briefings = "1 briefing"
	}
	if best == nil {
		return Verdict{Use: "open", Sentence: "No price of another way is known here, so nobody can say: " + swarm + " for writing " + briefings + ".",
			Reasons: []string{"the price file has no managed API"}}
	}
	// The same model is the fair comparison where it is on offer.
	rival := best
	if own != nil {
		rival = own
	}
	price := func(a *Alternative) string { return FormatUsd(*a.PerRunUsd) + sureness(a.Confidence) }
	var v Verdict
	switch {
	case rival == own && *rival.PerRunUsd < writing.Low:
		v.Use = "no"
		v.Sentence = fmt.Sprintf("Do not use the swarm to save money: %s writes the same %s for %s, %s.",
			rival.Label, briefings, price(rival), swarm)
	case *best.PerRunUsd < writing.Low:
		v.Use = "no"
		v.Sentence = fmt.Sprintf("Do not use the swarm to save money if another model will do: %s writes %s for %s, %s.",
			best.Label, briefings, price(best), swarm)
	case *best.PerRunUsd > writing.High:
		v.Use = "yes"
		v.Sentence = fmt.Sprintf("Use the swarm: writing %s costs %s, %s for the cheapest API (%s).",
			briefings, FormatUsdRange(writing), price(best), best.Label)
	default:
		v.Use = "open"
		v.Sentence = fmt.Sprintf("Measure before you decide: %s for writing %s, %s on %s, so the speed of your machine settles it.",
			swarm, briefings, price(best), best.Label)
	}
	if own != nil && best != own {
		v.Reasons = append(v.Reasons, fmt.Sprintf("cheapest of all is %s with %s; it is another model", best.Label, price(best)))
	}
	if v.Use != "yes" {
		v.Reasons = append(v.Reasons, "the swarm still has its place for weights no API serves (your own fine-tune), and where prompts must not leave your account")
	}
	for _, a := range list {
		if a.BreakEvenPerHour != nil {
			v.Reasons = append(v.Reasons, fmt.Sprintf("an always-on %s at $%s/h%s costs less than the swarm from %s briefings an hour, if it can write that many",
				a.Label, trim(a.HourUsd), sureness(a.Confidence), numRange(*a.BreakEvenPerHour)))
			break
		}
	}
	return v
}

// sureness is what to put behind a price that is not certain.
func sureness(confidence string) string {
	switch confidence {
	case Secondary:
		return " (second-hand price)"
	case Unverified:
		return " (unverified price)"
	case StandIn:
		return " (price of " + baseRegion + ")"
	}
	return ""
}
