package component

import (
	"fmt"
	"slices"
	"strings"

	"github.com/briefing-swarm/briefing-swarm/plan"
)

// ArgsError says everything that is wrong with the Args of one BriefingSwarm.
type ArgsError struct {
	// Component is the component's name.
	Component string
	// Faults are in the order of the fields of Args, as far as they have one.
	Faults plan.Faults
}

func (e *ArgsError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the inputs of briefing swarm %q have ", e.Component)
	if len(e.Faults) == 1 {
		b.WriteString("a fault:")
	} else {
		fmt.Fprintf(&b, "%d faults:", len(e.Faults))
	}
	for _, fault := range e.Faults {
		fmt.Fprintf(&b, "\n- %s", fault.Error())
	}
	return b.String()
}

// faults collects what is wrong.
type faults struct{ list plan.Faults }

func (f *faults) add(field, value, limit, remedy string) {
	f.list = append(f.list, plan.Fault{Field: field, Value: value, Limit: limit, Remedy: remedy})
}

// has says whether the field has a fault already.
func (f *faults) has(field string) bool {
	return slices.ContainsFunc(f.list, func(fault plan.Fault) bool { return fault.Field == field })
}

// oneOf checks a value that has a few allowed ones.
func (f *faults) oneOf(field, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		f.add(field, quote(value), strings.Join(allowed, " or "), "choose one of them")
	}
}

// within checks a number.
func (f *faults) within(field string, value, low, high float64, unit, remedy string) {
	if value >= low && value <= high { // false for NaN
		return
	}
	if unit != "" {
		unit = " " + unit
	}
	f.add(field, plan.FormatNumber(value)+unit, plan.FormatNumber(low)+" to "+plan.FormatNumber(high)+unit, remedy)
}

// order sorts the faults by the fields of Args.
func (f *faults) order() plan.Faults {
	position := map[string]int{}
	for i := range resolvedArgs.NumField() {
		position[resolvedArgs.Field(i).Tag.Get("pulumi")] = i
	}
	at := func(fault plan.Fault) int {
		field, _, _ := strings.Cut(fault.Field, " ") // of a sum, its first field
		field, _, _ = strings.Cut(field, ".")        // of accountQuotas, the whole
		if i, ok := position[field]; ok {
			return i
		}
		return len(position)
	}
	slices.SortStableFunc(f.list, func(a, b plan.Fault) int { return at(a) - at(b) })
	return f.list
}
