package reconcile

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/briefing-swarm/briefing-swarm/runtime/idtable"
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
	var faults []error
	required := func(name, what string) string {
		v := getenv(name)
		if v == "" {
			faults = append(faults, fmt.Errorf("%s is not set: give %s", name, what))
		}
		return v
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
		RunsBucket:      required(EnvRunsBucket, "the name of the bucket for the objects of runs"),
		BriefingsBucket: required(EnvBriefingsBucket, "the name of the bucket that Firehose writes to"),
		BriefingsPrefix: required(EnvBriefingsPrefix, "the prefix that Firehose writes to"),
		MaxRecords:      count(EnvMaxRecords, idtable.DefaultMaxIDs), MemoryIDs: int(count(EnvMemoryIDs, idtable.DefaultMemoryIDs)),
	}
	if s.BriefingsPrefix != "" && !strings.HasSuffix(s.BriefingsPrefix, "/") {
		faults = append(faults, fmt.Errorf("%s is %q, want it to end with /", EnvBriefingsPrefix, s.BriefingsPrefix))
	}
	return s, errors.Join(faults...)
}
