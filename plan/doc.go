// Package plan computes what a run costs, how long it takes and which quotas
// it needs. It is pure: the standard library only, no AWS, no Pulumi.
package plan
