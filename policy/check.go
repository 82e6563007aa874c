package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/briefing-swarm/briefing-swarm/plan"
)

// Context is what a policy knows beside the resources.
type Context struct {
	// Settings are the policy's own, from the configuration file, with defaults
	// filled in.
	Settings map[string]any
	// Stack is the stack's configuration, by its keys without the project.
	Stack map[string]string
}

// Findings are what a policy has to say.
type Findings struct {
	Violations []Violation
	// Unknown are the properties that the policy could not see, "URN property".
	Unknown []string
}

// Violation is one fault of one resource.
type Violation struct {
	URN     string
	Message string
}

// Check is one run of one policy.
type Check struct {
	Context
	policy   Policy
	findings Findings
}

// violation reports a fault of a resource: what is wrong, with its value and its
// limit; the policy's remedy follows.
func (c *Check) violation(r Resource, format string, args ...any) {
	c.violationWith(r, c.policy.Remedy, format, args...)
}

// violationWith reports a fault that another remedy fits better.
func (c *Check) violationWith(r Resource, remedy, format string, args ...any) {
	message := fmt.Sprintf(format, args...) + "\n" + remedy
	c.findings.Violations = append(c.findings.Violations, Violation{r.URN, message})
}

// unsure notes that a property is not known yet.
func (c *Check) unsure(r Resource, path string) {
	note := r.URN + " " + path
	if !slices.Contains(c.findings.Unknown, note) {
		c.findings.Unknown = append(c.findings.Unknown, note)
	}
}

// read notes a field that cannot be read, as something of the given kind or at
// all, and says whether it can.
func (c *Check) read(r Resource, f field, ok bool) bool {
	if !ok && f.state != absent {
		c.unsure(r, f.path)
	}
	return ok
}

func (c *Check) text(r Resource, f field) (string, bool) {
	s, ok := f.text()
	return s, c.read(r, f, ok)
}

func (c *Check) number(r Resource, f field) (float64, bool) {
	n, ok := f.number()
	return n, c.read(r, f, ok)
}

func (c *Check) truth(r Resource, f field) (value, ok bool) {
	b, ok := f.truth()
	return b, c.read(r, f, ok)
}

// document reads JSON text, or a map as it is. Text that is no JSON is no
// business of a policy: the provider refuses it.
func (c *Check) document(r Resource, f field) (any, bool) {
	s, ok := c.text(r, f)
	if !ok {
		return nil, false
	}
	var doc any
	if err := json.Unmarshal([]byte(s), &doc); err != nil {
		return nil, false
	}
	return doc, true
}

// setting is a number of the policy's configuration, 0 where there is none.
func (c *Check) setting(name string) float64 {
	n, _ := c.Settings[name].(float64)
	return n
}

// flag is a truth value of the policy's configuration.
func (c *Check) flag(name string) bool {
	b, _ := c.Settings[name].(bool)
	return b
}

// list is a list of texts of the policy's configuration.
func (c *Check) list(name string) []string {
	switch values := c.Settings[name].(type) {
	case []string:
		return values
	case []any:
		var texts []string
		for _, v := range values {
			if s, ok := v.(string); ok {
				texts = append(texts, s)
			}
		}
		return texts
	}
	return nil
}

// limit is a bound and where it comes from.
type limit struct {
	value  float64
	source string
}

func (l limit) String() string { return plan.FormatNumber(l.value) + " (" + l.source + ")" }

// Where limits come from.
const (
	fromPolicy   = "from the policy's configuration"
	fromStack    = "from accountQuotas"
	fromDefaults = "the default of a new account"
)

// quota is the account's: what the policy's configuration says, or else
// accountQuotas of the swarm or the stack, or else a new account's.
func (c *Check) quota(setting, name string, standard float64, swarms Stack) limit {
	if v := c.setting(setting); v > 0 {
		return limit{v, fromPolicy}
	}
	// Several swarms live in one account; where they differ, the least counts.
	least := 0.0
	for _, s := range swarms {
		if v, ok := s.input("accountQuotas." + name).number(); ok && v > 0 && (least == 0 || v < least) {
			least = v
		}
	}
	if least == 0 {
		var quotas map[string]any // "auto" and other text is not for the pack
		if json.Unmarshal([]byte(c.Stack["accountQuotas"]), &quotas) == nil {
			least, _ = quotas[name].(float64)
		}
	}
	if least > 0 {
		return limit{least, fromStack}
	}
	return limit{standard, fromDefaults}
}

// ceiling is a bound on cost: the policy's, or else the swarm's own, or none.
func (c *Check) ceiling(setting, name string, swarm Resource) (limit, bool) {
	if v := c.setting(setting); v > 0 {
		return limit{v, fromPolicy}, true
	}
	if v, ok := swarm.input(name).number(); ok && v > 0 {
		return limit{v, "from " + name}, true
	}
	return limit{}, false
}

// Summary is one line on what a policy could not see, "" if it saw all.
func Summary(unknown []string) string {
	if len(unknown) == 0 {
		return ""
	}
	const most = 3
	names := make([]string, 0, most)
	for _, note := range slices.Sorted(slices.Values(unknown)) {
		urn, path, _ := strings.Cut(note, " ")
		if len(names) < most {
			names = append(names, path+" of "+urn[strings.LastIndex(urn, "::")+1:])
		}
	}
	for i, name := range names {
		names[i] = strings.Replace(name, " of :", " of ", 1)
	}
	text := "not known yet: " + strings.Join(names, ", ")
	if more := len(unknown) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + "; the update checks it"
}
