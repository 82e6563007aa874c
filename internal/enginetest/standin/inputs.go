package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// unknown stands for a value that is known only after the preview.
type unknown struct{}

// asset stands for a file or an archive.
type asset struct{ hash string }

// inputs are the properties of one resource, and what is wrong with them.
// Properties are named by paths such as "destination.bufferingSize". A property
// that is absent or not known yet is never at fault, except with require.
type inputs struct {
	name   string // of the resource
	values map[string]any
	prefix string // of the paths in faults, for one of a list
	faults *[]fault
}

type fault struct{ path, text string }

func newInputs(name string, properties resource.PropertyMap) *inputs {
	return &inputs{name: name, values: plainMap(properties), faults: new([]fault)}
}

// plain makes Go values of Pulumi's: no secrets, no outputs, no references.
func plain(v resource.PropertyValue) any {
	switch {
	case v.IsSecret():
		return plain(v.SecretValue().Element)
	case v.IsComputed():
		return unknown{}
	case v.IsOutput():
		if !v.OutputValue().Known {
			return unknown{}
		}
		return plain(v.OutputValue().Element)
	case v.IsNull():
		return nil
	case v.IsBool():
		return v.BoolValue()
	case v.IsNumber():
		return v.NumberValue()
	case v.IsString():
		return v.StringValue()
	case v.IsArray():
		list := []any{}
		for _, element := range v.ArrayValue() {
			list = append(list, plain(element))
		}
		return list
	case v.IsObject():
		return plainMap(v.ObjectValue())
	case v.IsAsset():
		return asset{v.AssetValue().Hash}
	case v.IsArchive():
		return asset{v.ArchiveValue().Hash}
	}
	return unknown{}
}

func plainMap(properties resource.PropertyMap) map[string]any {
	object := map[string]any{}
	for key, value := range properties {
		if strings.HasPrefix(string(key), "__") {
			continue
		}
		if p := plain(value); p != nil {
			object[string(key)] = p
		}
	}
	return object
}

func (in *inputs) fault(path, format string, args ...any) {
	*in.faults = append(*in.faults, fault{join(in.prefix, path), fmt.Sprintf(format, args...)})
}

// get returns the value at a path; ok is false where there is none or it is not
// known.
func (in *inputs) get(path string) (value any, ok bool) {
	value, present := in.lookup(path)
	return value, present && value != (unknown{})
}

// has tells whether something is given at a path, known or not.
func (in *inputs) has(path string) bool {
	_, present := in.lookup(path)
	return present
}

func (in *inputs) lookup(path string) (any, bool) {
	var value any = in.values
	for name := range strings.SplitSeq(path, ".") {
		if value == (unknown{}) {
			return value, true
		}
		object, ok := value.(map[string]any)
		if !ok {
			return nil, false
		}
		if value, ok = object[name]; !ok {
			return nil, false
		}
	}
	return value, true
}

func (in *inputs) text(path string) (string, bool) {
	value, _ := in.get(path)
	s, ok := value.(string)
	return s, ok
}

func (in *inputs) number(path string) (float64, bool) {
	value, _ := in.get(path)
	n, ok := value.(float64)
	return n, ok
}

func (in *inputs) truth(path string) bool {
	value, _ := in.get(path)
	b, _ := value.(bool)
	return b
}

// known tells whether nothing at the path is to come after the preview.
func (in *inputs) known(path string) bool {
	value, present := in.lookup(path)
	return !present || value != (unknown{})
}

func (in *inputs) require(paths ...string) {
	for _, path := range paths {
		if !in.has(path) {
			in.fault(path, "is missing")
		}
	}
}

func (in *inputs) forbid(why string, paths ...string) {
	for _, path := range paths {
		if in.has(path) {
			in.fault(path, "is not allowed %s", why)
		}
	}
}

// one asks for exactly one of several properties.
func (in *inputs) one(paths ...string) {
	given := 0
	for _, path := range paths {
		if in.has(path) {
			given++
		}
	}
	if given != 1 {
		in.fault(paths[0], "%d of %s are given, want exactly one", given, strings.Join(paths, ", "))
	}
}

func (in *inputs) match(path, pattern, want string) {
	if s, ok := in.text(path); ok && !compiled(`^(?:`+pattern+`)$`).MatchString(s) {
		in.fault(path, "%q is not %s", s, want)
	}
}

func (in *inputs) length(path string, low, high int) {
	if s, ok := in.text(path); ok && (len(s) < low || len(s) > high) {
		in.fault(path, "has %d characters, want %d to %d", len(s), low, high)
	}
}

func (in *inputs) between(path string, low, high float64) {
	if n, ok := in.number(path); ok && (n < low || n > high) {
		in.fault(path, "%v is not within %v to %v", n, low, high)
	}
}

func (in *inputs) oneOf(path string, values ...string) {
	if s, ok := in.text(path); ok && !slices.Contains(values, s) {
		in.fault(path, "%q is not one of %s", s, strings.Join(values, ", "))
	}
}

func (in *inputs) oneOfNumbers(path string, values ...float64) {
	if n, ok := in.number(path); ok && !slices.Contains(values, n) {
		in.fault(path, "%v is not one of %s", n, strings.Trim(fmt.Sprint(values), "[]"))
	}
}

// arn asks for an Amazon Resource Name of one of the services.
func (in *inputs) arn(path string, services ...string) {
	if s, ok := in.text(path); ok {
		if problem := arnProblem(s, services...); problem != "" {
			in.fault(path, "%q %s", s, problem)
		}
	}
}

// arns asks for a list of them.
func (in *inputs) arns(path string, services ...string) {
	for i, s := range in.texts(path) {
		if problem := arnProblem(s, services...); problem != "" {
			in.fault(fmt.Sprintf("%s[%d]", path, i), "%q %s", s, problem)
		}
	}
}

var arnShape = regexp.MustCompile(`^arn:aws(?:-cn|-us-gov)?:([a-z0-9-]+):([a-z]{2}(?:-[a-z]+)+-\d)?:(\d{12}|aws)?:(.+)$`)

// arnProblem says what is wrong with an ARN, or nothing; those of S3 and IAM
// have no region.
func arnProblem(s string, services ...string) string {
	match := arnShape.FindStringSubmatch(s)
	switch {
	case match == nil:
		return "is not an ARN"
	case len(services) > 0 && !slices.Contains(services, match[1]):
		return "is not an ARN of " + strings.Join(services, " or ")
	case match[1] == "s3" && (match[2] != "" || match[3] != ""):
		return "has a region or an account, ARNs of S3 have none"
	case match[1] == "iam" && (match[2] != "" || match[3] == ""):
		return "must have an account and no region"
	case match[1] != "s3" && match[1] != "iam" && match[1] != "cloudfront" && (match[2] == "" || match[3] == ""):
		return "lacks its region or its account"
	}
	return ""
}

// texts are the known strings of a list.
func (in *inputs) texts(path string) []string {
	var texts []string
	value, _ := in.get(path)
	list, _ := value.([]any)
	for _, element := range list {
		if s, ok := element.(string); ok {
			texts = append(texts, s)
		}
	}
	return texts
}

func (in *inputs) allOneOf(path string, values ...string) {
	for _, s := range in.texts(path) {
		if !slices.Contains(values, s) {
			in.fault(path, "%q is not one of %s", s, strings.Join(values, ", "))
		}
	}
}

// count asks for a list of so many elements.
func (in *inputs) count(path string, low, high int) {
	if value, ok := in.get(path); ok {
		if list, ok := value.([]any); ok && (len(list) < low || len(list) > high) {
			in.fault(path, "has %d elements, want %d to %d", len(list), low, high)
		}
	}
}

// each gives the objects of a list, or the one object at the path; their faults
// end up with those of the whole.
func (in *inputs) each(path string) []*inputs {
	value, _ := in.get(path)
	var objects []*inputs
	switch value := value.(type) {
	case map[string]any:
		objects = append(objects, &inputs{in.name, value, join(in.prefix, path), in.faults})
	case []any:
		for i, element := range value {
			if object, ok := element.(map[string]any); ok {
				objects = append(objects, &inputs{in.name, object, fmt.Sprintf("%s[%d]", join(in.prefix, path), i), in.faults})
			}
		}
	}
	return objects
}

// document parses JSON text, or takes an object as it is. Keys that come twice
// are refused, as AWS refuses them.
func (in *inputs) document(path string) (any, bool) {
	value, ok := in.get(path)
	if !ok {
		return nil, false
	}
	s, isText := value.(string)
	if !isText {
		return value, true
	}
	doc, err := parseJSON(s)
	if err != nil {
		in.fault(path, "is not JSON: %v", err)
		return nil, false
	}
	return doc, true
}

func parseJSON(s string) (any, error) {
	decoder := json.NewDecoder(strings.NewReader(s))
	doc, err := decodeValue(decoder)
	if err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fmt.Errorf("more follows the document")
	}
	return doc, nil
}

func decodeValue(decoder *json.Decoder) (any, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return token, nil
	}
	if delim == '[' {
		list := []any{}
		for decoder.More() {
			value, err := decodeValue(decoder)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err := decoder.Token()
		return list, err
	}
	object := map[string]any{}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		name := key.(string)
		if _, twice := object[name]; twice {
			return nil, fmt.Errorf("key %q comes twice", name)
		}
		if object[name], err = decodeValue(decoder); err != nil {
			return nil, err
		}
	}
	_, err = decoder.Token()
	return object, err
}

func (in *inputs) cidr(path string) {
	if s, ok := in.text(path); ok {
		if ip, network, err := net.ParseCIDR(s); err != nil || !ip.Equal(network.IP) {
			in.fault(path, "%q is not a network such as 10.0.0.0/16", s)
		}
	}
}

// tags asks what all of AWS asks of tags.
func (in *inputs) tags(path string) {
	value, _ := in.get(path)
	tags, _ := value.(map[string]any)
	if len(tags) > 50 {
		in.fault(path, "has %d tags, want at most 50", len(tags))
	}
	shape := compiled(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		text, _ := tags[key].(string)
		switch {
		case key == "" || len(key) > 128 || strings.HasPrefix(strings.ToLower(key), "aws:") || !shape.MatchString(key):
			in.fault(path, "key %q is not 1 to 128 letters, digits, spaces and _.:/=+-@, or starts with aws:", key)
		case len(text) > 256 || !shape.MatchString(text):
			in.fault(join(path, key), "%q is not at most 256 letters, digits, spaces and _.:/=+-@", text)
		}
	}
}

var (
	patternsMu sync.Mutex
	patterns   = map[string]*regexp.Regexp{}
)

// compiled caches; the engine's calls come in parallel, so it is guarded.
func compiled(pattern string) *regexp.Regexp {
	patternsMu.Lock()
	defer patternsMu.Unlock()
	if patterns[pattern] == nil {
		patterns[pattern] = regexp.MustCompile(pattern)
	}
	return patterns[pattern]
}
