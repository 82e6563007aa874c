// Package states builds the two state machines of a swarm as documents of the
// Amazon States Language: the run, from an input file to reconciled rows, and
// the delivery, from a Parquet file to sent mails.
//
// The documents use JSONPath. They are built from plain strings and numbers, so
// that the caller decides how these become known. What an account other than
// AWS's own has run of them, and what not, stands in docs/testing.md.
package states
