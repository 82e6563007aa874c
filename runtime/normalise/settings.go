package normalise

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/briefing-swarm/briefing-swarm/runtime/idtable"
)

// Environment of the handler.
const (
	EnvRunsBucket   = "SWARM_RUNS_BUCKET"         // required
	EnvStream       = "SWARM_FIREHOSE_STREAM"     // for the rows of rejected users, required
	EnvModelName    = "SWARM_MODEL_NAME"          // what their rows call the model
	EnvUSDPerRecord = "SWARM_USD_PER_RECORD"      // of the plan, default 0
	EnvSecPerRecord = "SWARM_SEC_PER_RECORD"      // of the plan, default 0
	EnvCeilingUSD   = "SWARM_CEILING_USD_PER_RUN" // default none
	EnvMaxRecords   = "SWARM_MAX_RECORDS"         // default idtable.DefaultMaxIDs
	EnvMemoryIDs    = "SWARM_USER_IDS_IN_MEMORY"  // default idtable.DefaultMemoryIDs
)

// Settings are what the environment says.
type Settings struct {
	RunsBucket, Stream, ModelName          string
	USDPerRecord, SecPerRecord, CeilingUSD float64
	// MaxRecords bounds a run; a longer input is refused. MemoryIDs of them are
	// remembered in memory, the others in TempDir: see idtable.Options.
	MaxRecords int64
	MemoryIDs  int
	TempDir    string
}

// ReadSettings reads the environment. The error names every fault.
func ReadSettings(getenv func(string) string) (Settings, error) {
	var faults []error
	required := func(name, what string) string {
		v := getenv(name)
		if v == "" {
			faults = append(faults, fmt.Errorf("%s is not set: give the name of %s", name, what))
		}
		return v
	}
	amount := func(name string) float64 {
		v := getenv(name)
		if v == "" {
			return 0
		}
		n, err := strconv.ParseFloat(v, 64)
		if err != nil || !(n >= 0 && n <= 1e9) {
			faults = append(faults, fmt.Errorf("%s is %q, want a number from 0", name, v))
		}
		return n
	}
	count := func(name string, fallback int64) int64 {
		v := getenv(name)
		if v == "" {
			return fallback
		}
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 1 {
			faults = append(faults, fmt.Errorf("%s is %q, want a whole number from 1", name, v))
		}
		return n
	}
	s := Settings{
		RunsBucket: required(EnvRunsBucket, "the bucket for the objects of runs"), Stream: required(EnvStream, "the delivery stream"),
		ModelName:    getenv(EnvModelName),
		USDPerRecord: amount(EnvUSDPerRecord), SecPerRecord: amount(EnvSecPerRecord), CeilingUSD: amount(EnvCeilingUSD),
		MaxRecords: count(EnvMaxRecords, idtable.DefaultMaxIDs), MemoryIDs: int(count(EnvMemoryIDs, idtable.DefaultMemoryIDs)),
	}
	return s, errors.Join(faults...)
}
