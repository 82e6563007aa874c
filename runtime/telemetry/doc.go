// Package telemetry writes what a handler tells CloudWatch: metrics in the
// Embedded Metric Format, one line a batch, and structured logs. Neither holds
// anything about a user.
package telemetry
