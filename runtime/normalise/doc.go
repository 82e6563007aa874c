// Package normalise is the first step of a run on AWS: an input file in S3
// becomes canonical records, a list of rejects, and a count that says what the
// run will cost.
package normalise
