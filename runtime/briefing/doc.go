// Package briefing is the record contract: what goes into a swarm, what comes
// out of it, and how a record becomes a prompt. It imports nothing of ours.
package briefing
