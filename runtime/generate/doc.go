// Package generate is the work of the swarm inside Lambda: batches of a
// Distributed Map, and single requests out of a queue.
package generate
