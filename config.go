package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/briefing-swarm/briefing-swarm/component"
)

// secretKeys are stored encrypted, or refused.
var secretKeys = []string{"unsubscribeKey"}

// fileKeys are texts: a value @PATH stands for what is in the file.
var fileKeys = []string{"systemPrompt", "userTemplate", "chatTemplate", "grammar", "calibration", "prices", "subjectTemplate", "htmlTemplate", "textTemplate"}

// readConfig reads the stack's configuration: for every field of component.Args
// a key of its name. What is not set, or set to its type's zero, has the default
// that Args documents. The error names every fault.
func readConfig(ctx *pulumi.Context) (*component.Args, error) {
	var args component.Args
	var faults []string
	fault := func(key, format string, a ...any) {
		faults = append(faults, fmt.Sprintf("- %s:%s %s", ctx.Project(), key, fmt.Sprintf(format, a...)))
	}
	v := reflect.ValueOf(&args).Elem()
	known := map[string]bool{}
	for i := range v.NumField() {
		key := v.Type().Field(i).Tag.Get("pulumi")
		known[key] = true
		full := ctx.Project() + ":" + key
		text, ok := ctx.GetConfig(full)
		if !ok || text == "" {
			continue
		}
		if slices.Contains(secretKeys, key) && !ctx.IsConfigSecret(full) {
			fault(key, "is stored in plain text: set it with pulumi config set --secret %s", key)
			continue
		}
		if path, isFile := strings.CutPrefix(text, "@"); isFile && slices.Contains(fileKeys, key) {
			content, err := os.ReadFile(path)
			if err != nil {
				fault(key, "names a file that can't be read: %v", err)
				continue
			}
			text = string(content)
		}
		if want := read(v.Field(i), text); want != "" {
			if ctx.IsConfigSecret(full) {
				text = "[secret]"
			}
			fault(key, "is %q, want %s", text, want)
		}
	}
	for _, key := range unknownKeys(ctx.Project(), known) {
		fault(key, "is not known: Pulumi.yaml lists the keys")
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("the configuration of stack %s has faults:\n%s", ctx.Stack(), strings.Join(faults, "\n"))
	}
	return &args, nil
}

// read sets a field from its text, or says what was wanted instead.
func read(field reflect.Value, text string) (want string) {
	switch p := field.Addr().Interface().(type) {
	case *string:
		*p = text
	case *pulumi.StringPtrInput:
		*p = pulumi.StringPtr(text)
	case *bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return "true or false"
		}
		*p = b
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return "a whole number"
		}
		*p = n
	case *float64:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return "a number"
		}
		*p = x
	case *[]string:
		if json.Unmarshal([]byte(text), p) != nil {
			return "a list of strings"
		}
	case *map[string]string:
		if json.Unmarshal([]byte(text), p) != nil {
			return "an object of strings"
		}
	case *map[string]float64:
		// pulumi config set --path keeps decimals as texts.
		var values map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &values) != nil {
			return "an object of numbers"
		}
		numbers := map[string]float64{}
		for key, value := range values {
			x, err := strconv.ParseFloat(strings.Trim(string(value), `"`), 64)
			if err != nil {
				return "an object of numbers"
			}
			numbers[key] = x
		}
		*p = numbers
	default:
		panic(fmt.Sprintf("component.Args has a field of type %T, which no configuration is read into", p)) // a mistake in the program
	}
	return ""
}

// unknownKeys are the project's keys that are set, but are no inputs: typing
// errors, which would otherwise go unnoticed.
func unknownKeys(project string, known map[string]bool) []string {
	var all map[string]string
	if json.Unmarshal([]byte(os.Getenv(pulumi.EnvConfig)), &all) != nil {
		return nil // not started by the Pulumi command: nothing to look through
	}
	var unknown []string
	for full := range all {
		if key, ours := strings.CutPrefix(full, project+":"); ours && !known[key] {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	return unknown
}
