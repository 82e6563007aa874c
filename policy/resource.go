package policy

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

// ComponentType is the type token of BriefingSwarm. It is written out here, so
// that the pack does not contain the AWS SDK of Pulumi; a test compares it with
// the component's.
const ComponentType = "briefing-swarm:index:BriefingSwarm"

// Resource is one resource as the engine shows it to policies.
type Resource struct {
	Type, URN, Name string
	// Parent is the URN of the parent, if it is known.
	Parent     string
	Properties property.Map
	// Inputs are a component's inputs; its Properties are then its outputs. They
	// are nil where the engine has not shown them.
	Inputs *property.Map
	// Depends are the URNs that each property depends on.
	Depends map[string][]string
}

// inSwarm says whether the resource is part of a BriefingSwarm.
func (r Resource) inSwarm() bool {
	parts := strings.Split(r.URN, "::")
	return len(parts) > 2 && strings.Contains("$"+parts[2], "$"+ComponentType+"$")
}

// Stack is all resources of a stack.
type Stack []Resource

// sorted is by URN: the engine's order is no order.
func (s Stack) sorted() Stack {
	s = slices.Clone(s)
	slices.SortFunc(s, func(a, b Resource) int { return cmp.Compare(a.URN, b.URN) })
	return s
}

// of are the resources of a type.
func (s Stack) of(types ...string) Stack {
	var list Stack
	for _, r := range s {
		if slices.Contains(types, r.Type) {
			list = append(list, r)
		}
	}
	return list
}

// swarms are the components of a stack.
func (s Stack) swarms() Stack { return s.of(ComponentType) }

// below are the descendants of a component. The URN of a resource names the
// types of its parents, but not their names, so Parent is followed.
func (s Stack) below(component Resource) Stack {
	parents := map[string]string{}
	for _, r := range s {
		parents[r.URN] = r.Parent
	}
	var list Stack
	for _, r := range s {
		seen := 0
		for at := r.Parent; at != "" && seen <= len(s); at = parents[at] {
			if at == component.URN {
				list = append(list, r)
				break
			}
			seen++ // a circle cannot be, but must not hang the pack
		}
	}
	return list
}

// state of a field.
type state int

const (
	absent  state = iota // not given
	unknown              // known only after the preview, or not readable
	given
)

// field is a property at a path, in one of three states. Whoever reads it must
// deal with all of them.
type field struct {
	path   string
	state  state
	value  property.Value
	secret bool // it, or what it is part of
}

// at reads a property by its path: names and list indexes with dots between.
func at(properties property.Map, path string) field {
	return walk(property.New(properties), path)
}

func walk(v property.Value, path string) field {
	f := field{path: path}
	names := strings.Split(path, ".")
	for i := 0; ; i++ {
		f.secret = f.secret || v.Secret()
		switch {
		case v.IsComputed():
			f.state = unknown
			return f
		case i == len(names):
			f.value = v
			if !v.IsNull() {
				f.state = given
			}
			return f
		case v.IsMap():
			v = v.AsMap().Get(names[i])
		case v.IsArray():
			n, err := strconv.Atoi(names[i])
			if err != nil || n < 0 || n >= v.AsArray().Len() {
				return f
			}
			v = v.AsArray().Get(n)
		default:
			return f
		}
	}
}

// get reads a property of the resource.
func (r Resource) get(path string) field { return at(r.Properties, path) }

// input reads an input: of a component from what it was given, of another
// resource from its properties.
func (r Resource) input(path string) field {
	if r.Inputs != nil {
		return at(*r.Inputs, path)
	}
	return r.get(path)
}

func (f field) text() (string, bool) {
	if f.state != given || !f.value.IsString() {
		return "", false
	}
	return f.value.AsString(), true
}

func (f field) number() (float64, bool) {
	if f.state != given || !f.value.IsNumber() {
		return 0, false
	}
	return f.value.AsNumber(), true
}

func (f field) truth() (value, ok bool) {
	if f.state != given || !f.value.IsBool() {
		return false, false
	}
	return f.value.AsBool(), true
}

// elements are the fields of a list, or of a map in the order of its keys.
func (f field) elements() []field {
	if f.state != given {
		return nil
	}
	var list []field
	child := func(name string, v property.Value) {
		e := field{path: f.path + "." + name, value: v, secret: f.secret || v.Secret()}
		switch {
		case v.IsComputed():
			e.state = unknown
		case !v.IsNull():
			e.state = given
		}
		list = append(list, e)
	}
	switch {
	case f.value.IsArray():
		for i, v := range f.value.AsArray().All {
			child(strconv.Itoa(i), v)
		}
	case f.value.IsMap():
		for key, v := range f.value.AsMap().AllStable {
			child(key, v)
		}
	}
	return list
}

// in reads a field below this one.
func (f field) in(path string) field {
	if f.state != given {
		return field{path: f.path + "." + path, state: f.state, secret: f.secret}
	}
	below := walk(f.value, path)
	below.path, below.secret = f.path+"."+path, below.secret || f.secret
	return below
}

// show is a text that came out of the field, unless that is secret.
func (f field) show(text string) string {
	if f.secret {
		return "(secret)"
	}
	return text
}
