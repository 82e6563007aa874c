package model

import (
	"math"
	"sort"
)

// Array stands for an array in a GGUF file's metadata. Len is always the
// true length; Values holds the elements only of short arrays (the token list
// of a model has 128,000), otherwise it is nil.
type Array struct {
	Len    int
	Values []any
}

// Metadata is the key-value part of a GGUF file. Values are of Go types
// uint64, int64, float64, bool, string and Array, whatever width the file
// stores them in.
type Metadata map[string]any

// Keys returns the keys in order.
func (m Metadata) Keys() []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// String returns the text under key, and whether there is one.
func (m Metadata) String(key string) (string, bool) {
	s, ok := m[key].(string)
	return s, ok
}

// Int returns the whole number under key, signed or unsigned, and whether
// there is one that fits an int.
func (m Metadata) Int(key string) (int, bool) { return toInt(m[key]) }

// Float returns the number under key, and whether there is one.
func (m Metadata) Float(key string) (float64, bool) {
	switch v := m[key].(type) {
	case float64:
		return v, true
	case uint64:
		return float64(v), true
	case int64:
		return float64(v), true
	}
	return 0, false
}

// Bool returns the flag under key, and whether there is one.
func (m Metadata) Bool(key string) (bool, bool) {
	b, ok := m[key].(bool)
	return b, ok
}

// ArrayLen returns the length of the array under key, and whether there is one.
func (m Metadata) ArrayLen(key string) (int, bool) {
	a, ok := m[key].(Array)
	return a.Len, ok
}

// Ints returns the whole numbers under key: the elements of a short array,
// or n times the number itself where the file has one for all layers.
func (m Metadata) Ints(key string, n int) ([]int, bool) {
	if v, ok := m.Int(key); ok {
		all := make([]int, n)
		for i := range all {
			all[i] = v
		}
		return all, true
	}
	a, ok := m[key].(Array)
	if !ok || a.Values == nil || len(a.Values) < n {
		return nil, false
	}
	all := make([]int, n)
	for i := range all {
		v, ok := toInt(a.Values[i])
		if !ok {
			return nil, false
		}
		all[i] = v
	}
	return all, true
}

func toInt(v any) (int, bool) {
	switch v := v.(type) {
	case uint64:
		if v > math.MaxInt32 {
			return 0, false
		}
		return int(v), true
	case int64:
		if v > math.MaxInt32 || v < math.MinInt32 {
			return 0, false
		}
		return int(v), true
	}
	return 0, false
}
