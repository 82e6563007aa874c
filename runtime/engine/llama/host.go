package llama

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/briefing-swarm/briefing-swarm/runtime/model"
)

// armCores names the cores of AWS's processors by the part number in
// /proc/cpuinfo, which has no name on ARM. Numbers from Arm's technical
// reference manuals (MIDR_EL1).
var armCores = map[string]string{
	"0xd0c": "ARM Neoverse N1",
	"0xd40": "ARM Neoverse V1",
	"0xd4f": "ARM Neoverse V2",
	"0xd49": "ARM Neoverse N2",
}

// cpuName returns the processor's name out of a /proc/cpuinfo, "unknown CPU"
// where there is none.
func cpuName(cpuinfo string) string {
	b, err := os.ReadFile(cpuinfo)
	if err != nil {
		return "unknown CPU"
	}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "model name":
			return value
		case "CPU part":
			if name, ok := armCores[value]; ok {
				return name
			}
			return "ARM part " + value
		}
	}
	return "unknown CPU"
}

// availableMemory returns how many bytes this process may still take: what the
// system has, bounded by the memory cgroup and by Lambda's setting. 0 means
// that it can't be told.
func availableMemory(root string, getenv func(string) string) int64 {
	var least int64
	lower := func(n int64) {
		if n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	if b, err := os.ReadFile(filepath.Join(root, "proc/meminfo")); err == nil {
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemAvailable:" {
				if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil {
					lower(kib << 10)
				}
			}
		}
	}
	for _, name := range []string{"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if b, err := os.ReadFile(filepath.Join(root, name)); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
				lower(n)
			}
		}
	}
	if mib, err := strconv.ParseInt(getenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE"), 10, 64); err == nil {
		lower(mib << 20)
	}
	return least
}

// checkMemory refuses a model that does not fit, with the sum.
func checkMemory(h *model.Header, o Options, available int64) error {
	need := h.MemoryNeed(model.MemoryOptions{
		Parallel: o.Parallel, ContextPerSequence: o.ContextPerSequence,
		// A mapped file is not counted twice: its pages can be dropped again.
		MicroBatch: o.MaxBatch,
	})
	if available == 0 || need.TotalBytes <= available {
		return nil
	}
	return &ModelError{Path: o.Path, Fault: FaultMemory, Detail: fmt.Sprintf(
		"weights %s + KV cache of %d tokens %s + compute %s + overhead %s = %s, %s are available",
		model.FormatBytes(need.WeightBytes+need.RepackBytes), o.cells(), model.FormatBytes(need.KVBytes),
		model.FormatBytes(need.ComputeBytes), model.FormatBytes(need.OverheadBytes), model.FormatBytes(need.TotalBytes), model.FormatBytes(available))}
}
