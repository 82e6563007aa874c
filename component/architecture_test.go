package component_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/component"
)

var (
	// drawn is a box of the diagram: the child's name, its service and its type.
	drawn = regexp.MustCompile(`"([a-z0-9-]+)<br/>([a-z0-9]+) ([A-Za-z0-9]+)"`)
	// listed is a row of the table of types.
	listed = regexp.MustCompile("(?m)^\\| `([a-z]+:[^`]+)` \\|")
)

// TestArchitecture compares docs/architecture.md with what the component
// registers.
func TestArchitecture(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	// The service of each child, in all configurations together, and in how many of
	// them it is.
	types, children, times := map[string]bool{}, map[string]string{}, map[string]int{}
	for _, args := range configurations {
		c, _, err := build(t, false, args())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range c.resources {
			if r.Type == component.Type {
				continue
			}
			types[r.Type] = true
			service, kind := split(r.Type)
			name := strings.TrimPrefix(r.Name, "acme-") + " " + kind
			children[name] = service
			times[name]++
		}
	}

	var rows []string
	for _, m := range listed.FindAllStringSubmatch(string(text), -1) {
		rows = append(rows, m[1])
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(types)), rows); diff != "" {
		t.Errorf("the table of types (-registered +written):\n%s", diff)
	}

	boxes := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		for _, m := range drawn.FindAllStringSubmatch(line, -1) {
			name, service := m[1]+" "+m[3], m[2]
			boxes[name] = true
			if children[name] != service {
				t.Errorf("the diagram shows %s %s, which is not registered", service, name)
				continue
			}
			// Repository and image are there unless an image is given: no option.
			optional := times[name] < len(configurations) && m[3] != "Image" && m[3] != "Repository"
			if dashed := strings.Contains(line, ":::option"); dashed != optional {
				t.Errorf("%s is drawn as an option %v, but it is in %d of %d configurations", name, dashed, times[name], len(configurations))
			}
		}
	}
	// Everything that data goes through is drawn.
	for name := range children {
		for _, kind := range []string{" Function", " StateMachine", " Table", " BucketV2", " FirehoseDeliveryStream", " FileSystem"} {
			if strings.HasSuffix(name, kind) && !boxes[name] {
				t.Errorf("the diagram lacks %s", name)
			}
		}
	}
}

// split returns the service of a type token, or the provider if it has but one,
// and the type's own name.
func split(token string) (service, kind string) {
	provider, rest, _ := strings.Cut(token, ":")
	module, kind, _ := strings.Cut(rest, ":")
	if service, _, _ = strings.Cut(module, "/"); provider != "aws" {
		service = provider
	}
	return service, kind
}
