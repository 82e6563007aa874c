// Package setting reads the settings of a function from its environment, and
// gathers what is wrong with them.
package setting

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Reader reads settings. A setting that is missing or wrong is remembered, and
// reading goes on with a value that means nothing: see Err.
type Reader struct {
	getenv func(string) string
	text   func(url string) (string, error)
	faults []error
}

// New returns a reader of the environment. text reads the object behind an s3://
// value; it may be nil where no setting is a text.
func New(getenv func(string) string, text func(url string) (string, error)) *Reader {
	return &Reader{getenv: getenv, text: text}
}

// Get returns a setting as it is, "" where it is not set.
func (r *Reader) Get(name string) string { return r.getenv(name) }

// Required returns a setting that must be there. what it is completes "give".
func (r *Reader) Required(name, what string) string {
	v := r.getenv(name)
	if v == "" {
		r.Faultf("%s is not set: give %s", name, what)
	}
	return v
}

// Text returns a setting, or the object that it names.
func (r *Reader) Text(name string) string {
	v := r.getenv(name)
	if !strings.HasPrefix(v, "s3://") {
		return v
	}
	v, err := r.text(v)
	r.Fault(name, err)
	return v
}

// Whole returns a whole number from least to most, fallback where it is not set.
func (r *Reader) Whole(name string, least, most, fallback int64) int64 {
	v := r.getenv(name)
	if v == "" {
		return fallback
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < least || n > most {
		r.Faultf("%s is %q, want a whole number from %d to %d", name, v, least, most)
		return fallback
	}
	return n
}

// Number returns a number from 0 to most, fallback where it is not set.
func (r *Reader) Number(name string, most, fallback float64) float64 {
	v := r.getenv(name)
	if v == "" {
		return fallback
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || !(n >= 0 && n <= most) { // NaN is neither
		r.Faultf("%s is %q, want a number from 0 to %v", name, v, most)
		return fallback
	}
	return n
}

// Fault remembers what is wrong with a setting, where err is not nil.
func (r *Reader) Fault(name string, err error) {
	if err != nil {
		r.Faultf("%s: %w", name, err)
	}
}

// Faultf remembers a fault.
func (r *Reader) Faultf(format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf(format, args...))
}

// Err returns every fault so far, joined, and nil where there is none.
func (r *Reader) Err() error { return errors.Join(r.faults...) }
