// Package local is the whole pipeline in one process and one folder: normalise,
// generate, gather, deliver, reconcile. It is what `swarm run` runs, and it uses
// the packages that run inside Lambda.
//
// A run can be ended at any moment and by any means; the same run again goes on
// where it was and ends with exactly one row per user.
package local
