package normalise

import (
	"math"

	"github.com/briefing-swarm/briefing-swarm/runtime/idtable"
	"github.com/briefing-swarm/briefing-swarm/runtime/setting"
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
	r := setting.New(getenv, nil)
	s := Settings{
		RunsBucket:   r.Required(EnvRunsBucket, "the name of the bucket for the objects of runs"),
		Stream:       r.Required(EnvStream, "the name of the delivery stream"),
		ModelName:    r.Get(EnvModelName),
		USDPerRecord: r.Number(EnvUSDPerRecord, maxAmount, 0), SecPerRecord: r.Number(EnvSecPerRecord, maxAmount, 0),
		CeilingUSD: r.Number(EnvCeilingUSD, maxAmount, 0),
		MaxRecords: r.Whole(EnvMaxRecords, 1, math.MaxInt64, idtable.DefaultMaxIDs),
		MemoryIDs:  int(r.Whole(EnvMemoryIDs, 1, math.MaxInt32, idtable.DefaultMemoryIDs)),
	}
	return s, r.Err()
}

// maxAmount bounds dollars and seconds; a larger one is a mistake.
const maxAmount = 1e9
