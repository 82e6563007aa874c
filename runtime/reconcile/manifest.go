package reconcile

import (
	"time"

	"github.com/briefing-swarm/briefing-swarm/runtime/normalise"
	"github.com/briefing-swarm/briefing-swarm/runtime/object"
)

// ManifestSchema names the version of the Manifest document.
const ManifestSchema = "briefing-swarm/run-manifest/1"

// States of a run.
const (
	StateComplete   = "complete"   // every user has a row
	StateIncomplete = "incomplete" // some have none, or not yet
)

// Names of what reconcile writes under normalise.RunPrefix.
const (
	ManifestName = "manifest.json"
	RerunName    = "rerun.jsonl"
)

// Manifest is the account of a run. It is written as manifest.json and is also
// what the handler returns.
type Manifest struct {
	Schema       string               `json:"schema"`
	RunID        string               `json:"run_id"`
	State        string               `json:"state"`
	Complete     bool                 `json:"complete"` // State as a state machine tests it
	StartedAt    time.Time            `json:"started_at"`
	ReconciledAt time.Time            `json:"reconciled_at"`
	Input        normalise.InputFacts `json:"input"`
	Counts       Counts               `json:"counts"`
	Tokens       Tokens               `json:"tokens"`
	Briefings    Briefings            `json:"briefings"`
	// Rerun holds the records of users that failed or have no row: as an input
	// file it runs these again, and no others. It is empty where there are none.
	Rerun      object.Ref `json:"rerun"`
	RerunCount int64      `json:"rerun_records"`
	Manifest   object.Ref `json:"manifest"`
}

// Counts of a run. Each user counts once, however many rows there are: a row
// can arrive twice. Of several, a good one counts.
type Counts struct {
	Records  int64 `json:"records"`  // users with a readable record
	Rejected int64 `json:"rejected"` // input rows that became none
	OK       int64 `json:"ok"`
	Failed   int64 `json:"failed"` // rejected users with a row among them
	// Missing users have no row. Those of MissingRejected among them have no
	// record that could be run again either.
	Missing         int64 `json:"missing"`
	MissingRejected int64 `json:"missing_rejected"`
	Duplicate       int64 `json:"duplicate"`  // rows beyond a user's first
	Unexpected      int64 `json:"unexpected"` // users with a row that the input does not have
	// ByErrorCode and ByFinish add up to Failed and OK.
	ByErrorCode   map[string]int64 `json:"by_error_code"`
	ByFinish      map[string]int64 `json:"by_finish_reason"`
	RejectsByCode map[string]int64 `json:"rejects_by_code"`
}

// Tokens of the rows that count, and of a failed one before a good one.
type Tokens struct {
	Prompt     int64 `json:"prompt"`
	Cached     int64 `json:"cached"` // of Prompt: not computed again
	Completion int64 `json:"completion"`
}

// Briefings says where the rows were found.
type Briefings struct {
	Bucket  string `json:"bucket"`
	Prefix  string `json:"prefix"`
	Objects int64  `json:"objects"` // Parquet files that hold rows of the run
	Bytes   int64  `json:"bytes"`
	// BytesRead of them: only the columns that are needed.
	BytesRead int64 `json:"bytes_read"`
}
