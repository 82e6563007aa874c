package reconcile

import (
	"math"
	"strings"

	"github.com/briefing-swarm/briefing-swarm/runtime/idtable"
	"github.com/briefing-swarm/briefing-swarm/runtime/setting"
)

// Environment of the handler.
const (
	EnvRunsBucket      = "SWARM_RUNS_BUCKET"        // required
	EnvBriefingsBucket = "SWARM_BRIEFINGS_BUCKET"   // required
	EnvBriefingsPrefix = "SWARM_BRIEFINGS_PREFIX"   // of the Parquet objects, required, ends with /
	EnvMaxRecords      = "SWARM_MAX_RECORDS"        // default idtable.DefaultMaxIDs
	EnvMemoryIDs       = "SWARM_USER_IDS_IN_MEMORY" // default idtable.DefaultMemoryIDs
)

// Settings are what the environment says.
type Settings struct {
	RunsBucket, BriefingsBucket, BriefingsPrefix string
	// MaxRecords, MemoryIDs and TempDir are those of the normalise handler.
	MaxRecords int64
	MemoryIDs  int
	TempDir    string
}

// ReadSettings reads the environment. The error names every fault.
func ReadSettings(getenv func(string) string) (Settings, error) {
	r := setting.New(getenv, nil)
	s := Settings{
		RunsBucket:      r.Required(EnvRunsBucket, "the name of the bucket for the objects of runs"),
		BriefingsBucket: r.Required(EnvBriefingsBucket, "the name of the bucket that Firehose writes to"),
		BriefingsPrefix: r.Required(EnvBriefingsPrefix, "the prefix that Firehose writes to"),
		MaxRecords:      r.Whole(EnvMaxRecords, 1, math.MaxInt64, idtable.DefaultMaxIDs),
		MemoryIDs:       int(r.Whole(EnvMemoryIDs, 1, math.MaxInt32, idtable.DefaultMemoryIDs)),
	}
	if s.BriefingsPrefix != "" && !strings.HasSuffix(s.BriefingsPrefix, "/") {
		r.Faultf("%s is %q, want it to end with /", EnvBriefingsPrefix, s.BriefingsPrefix)
	}
	return s, r.Err()
}
