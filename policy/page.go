package policy

import (
	"fmt"
	"strings"

	"github.com/briefing-swarm/briefing-swarm/plan"
)

// intro is what docs/policies.md says before the policies.
const intro = `# Policies

The policy pack keeps a stack from costing more than you said, from asking for more than the account has, and from being
open to anyone, before anything is deployed. It looks at the component BriefingSwarm and at plain pulumi-aws resources
of any stack. This page is written by ` + "`make policy`" + ` from the policies themselves.

    make policy                                    # builds .cache/bin/briefing-swarm-policies
    pulumi preview --policy-pack .cache/bin/briefing-swarm-policies
    pulumi up      --policy-pack .cache/bin/briefing-swarm-policies

` + "`make preview`" + ` shows the pack's verdict for the dev stack without an AWS account. The folder ` + "`policy/pack`" + ` works in the
place of the program, where the Go language host of Pulumi is installed. ` + "`pulumi policy analyze --file state.json`" + ` runs the
pack on an exported state. ` + "`pulumi policy publish`" + ` uploads its folder alone, and ` + "`policy/pack`" + ` alone does not compile: publish a
folder that has its files and a go.mod that requires this module. Publishing itself needs Pulumi Cloud and was not tried;
what it asks of the pack is tested.

A policy that looks at one resource at a time stops that resource before it is made, even by an update without a preview.
One that looks at the whole stack runs at its end: with ` + "`pulumi up --skip-preview`" + ` everything is made by then. Let a
pipeline run the preview first.

## Where limits come from

The policy's configuration comes first; then ` + "`accountQuotas`" + ` and the ceilings of each swarm or of the stack's configuration;
then what a new AWS account has. Every message says which one it was.

What is known only after the deployment, such as a state machine that calls the new version of a function, is looked at during the
update. A preview then says "not known yet", one line for a policy, and neither fails nor claims that all is well.

## Configuration

    {
      "run-cost-ceiling": {"maxUsdPerRun": 200},
      "cheaper-alternative": "disabled",
      "lambda-concurrency": {"enforcementLevel": "advisory", "maxConcurrency": 3000}
    }

in a file for ` + "`--policy-pack-config`" + `. Names of policies and properties that do not exist are refused. An exception for one
resource, with its reason, is a file of version 2:

    {
      "version": 2,
      "policies": {},
      "exceptions": {
        "status-page": {
          "reason": "the status page is for everyone",
          "match": [{"policies": ["no-public-endpoint"], "targets": ["urn:pulumi:acme::briefing-swarm::aws:lambda/functionUrl:FunctionUrl::status"]}]
        }
      }
    }

`

// Page is docs/policies.md.
func Page() string {
	var b strings.Builder
	b.WriteString(intro)
	titles := map[Group]string{Cost: "Cost", Quotas: "Quotas", Safety: "Safety"}
	group := Group("")
	for _, p := range All() {
		if p.Group != group {
			group = p.Group
			fmt.Fprintf(&b, "## %s\n\n", titles[group])
		}
		fmt.Fprintf(&b, "### %s\n\n%s\n\n", p.Name, p.Description)
		scope := "the whole stack"
		if p.PerResource() {
			scope = "one resource at a time"
		}
		fmt.Fprintf(&b, "%s; looks at %s. %s\n\n", strings.ToUpper(string(p.Level[:1]))+string(p.Level[1:]), scope, p.Remedy)
		if len(p.Settings) == 0 {
			continue
		}
		b.WriteString("| property | default | |\n|---|---|---|\n")
		for _, s := range p.Settings {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.Name, s.shownDefault(), s.Description)
		}
		b.WriteString("\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func (s Setting) shownDefault() string {
	switch value := s.Default.(type) {
	case float64:
		return plan.FormatNumber(value)
	case []string:
		if len(value) == 0 {
			return "none"
		}
		return "`" + strings.Join(value, "`, `") + "`"
	default:
		return fmt.Sprintf("`%v`", value)
	}
}
