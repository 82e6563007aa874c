package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

//go:embed schema.json
var schemaJSON []byte

// schema holds the properties of every type that the stand-in knows, as
// schemagen read them from the SDKs.
type schema struct {
	Resources map[string]struct {
		Inputs   map[string]string
		Required []string
		Outputs  map[string]string
	}
	Objects map[string]map[string]string
}

var known = sync.OnceValue(func() schema {
	var s schema
	if err := json.Unmarshal(schemaJSON, &s); err != nil {
		panic(err)
	}
	return s
})

// checkShape refuses unknown properties, missing ones, and values of another
// type than the provider takes.
func (s schema) checkShape(typ string, in *inputs) {
	r, ok := s.Resources[typ]
	if !ok {
		in.fault("", "the stand-in does not know type %s: add it to internal/enginetest/standin/types.txt, run go generate there, and give it rules", typ)
		return
	}
	for _, name := range r.Required {
		if _, ok := in.values[name]; !ok {
			in.fault(name, "is missing")
		}
	}
	s.checkObject(in, "", in.values, r.Inputs)
}

func (s schema) checkObject(in *inputs, path string, object map[string]any, properties map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		at := join(path, name)
		typ, ok := properties[name]
		if !ok {
			in.fault(at, "is no property of it")
			continue
		}
		s.checkValue(in, at, object[name], typ)
	}
}

func (s schema) checkValue(in *inputs, path string, value any, typ string) {
	if value == nil || value == (unknown{}) || typ == "any" {
		return
	}
	wrong := func() { in.fault(path, "is a %s, want %s", kind(value), typ) }
	switch {
	case typ == "string":
		if _, ok := value.(string); !ok {
			wrong()
		}
	case typ == "bool":
		if _, ok := value.(bool); !ok {
			wrong()
		}
	case typ == "number":
		if _, ok := value.(float64); !ok {
			wrong()
		}
	case typ == "int":
		if n, ok := value.(float64); !ok || n != float64(int64(n)) {
			wrong()
		}
	case typ == "asset":
		if _, ok := value.(asset); !ok {
			wrong()
		}
	case typ[0] == '[':
		list, ok := value.([]any)
		if !ok {
			wrong()
			return
		}
		for i, element := range list {
			s.checkValue(in, fmt.Sprintf("%s[%d]", path, i), element, typ[1:len(typ)-1])
		}
	case typ[0] == '{':
		object, ok := value.(map[string]any)
		if !ok {
			wrong()
			return
		}
		for _, name := range slices.Sorted(maps.Keys(object)) {
			s.checkValue(in, join(path, name), object[name], typ[1:len(typ)-1])
		}
	default:
		object, ok := value.(map[string]any)
		if !ok {
			wrong()
			return
		}
		s.checkObject(in, path, object, s.Objects[strings.TrimPrefix(typ, "@")])
	}
}

func kind(value any) string {
	switch value.(type) {
	case string:
		return "string"
	case bool:
		return "bool"
	case float64:
		return "number"
	case []any:
		return "list"
	case map[string]any:
		return "object"
	case asset:
		return "asset"
	}
	return fmt.Sprintf("%T", value)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
