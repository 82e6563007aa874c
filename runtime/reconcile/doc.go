// Package reconcile settles a run on AWS: it compares what lies in the output
// bucket with what went in, and says which users have no briefing.
package reconcile
