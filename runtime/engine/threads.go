package engine

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mibPerVCPU is the memory setting that buys one vCPU on Lambda: AWS documents
// 1,769 MB as the size with the equivalent of one vCPU.
const mibPerVCPU = 1769

// CPUs returns how many CPUs this process may use, fractions included: the
// visible ones, limited by the cgroup's quota (v2 and v1) and, on Lambda, by
// the memory setting, which is the only sign of the quota there.
func CPUs(visible int) float64 {
	return cpus(visible, "/", os.Getenv)
}

// Threads returns how many threads to compute with on so many CPUs: the whole
// ones, at least 1. llama.cpp's threads wait for each other by spinning, so one
// thread more than the quota allows does not add a little but stops them all:
// a collapse of 45 times has been reported, and seen here.
func Threads(cpus float64) int {
	return max(1, int(cpus))
}

func cpus(visible int, root string, getenv func(string) string) float64 {
	n := float64(visible)
	if q, ok := quotaV2(root); ok {
		n = min(n, q)
	}
	if q, ok := quotaV1(root); ok {
		n = min(n, q)
	}
	if mib, err := strconv.Atoi(getenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE")); err == nil && mib > 0 {
		n = min(n, float64(mib)/mibPerVCPU)
	}
	return n
}

// quotaV2 reads the tightest cpu.max between this process's cgroup and the root.
func quotaV2(root string) (float64, bool) {
	self, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(self)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return tightest(filepath.Join(root, "sys/fs/cgroup"), path, func(dir string) (float64, bool) {
				b, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
				if err != nil {
					return 0, false
				}
				f := strings.Fields(string(b))
				if len(f) != 2 {
					return 0, false
				}
				return ratio(f[0], f[1])
			})
		}
	}
	return 0, false
}

// quotaV1 does the same with the cpu controller's cfs quota.
func quotaV1(root string) (float64, bool) {
	self, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(self)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || !hasController(f[1], "cpu") {
			continue
		}
		for _, mount := range []string{"sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"} {
			q, ok := tightest(filepath.Join(root, mount), f[2], func(dir string) (float64, bool) {
				quota, err1 := os.ReadFile(filepath.Join(dir, "cpu.cfs_quota_us"))
				period, err2 := os.ReadFile(filepath.Join(dir, "cpu.cfs_period_us"))
				if err1 != nil || err2 != nil {
					return 0, false
				}
				return ratio(strings.TrimSpace(string(quota)), strings.TrimSpace(string(period)))
			})
			if ok {
				return q, true
			}
		}
	}
	return 0, false
}

func hasController(list, name string) bool {
	for c := range strings.SplitSeq(list, ",") {
		if c == name {
			return true
		}
	}
	return false
}

// tightest walks from mount/path up to mount and returns the smallest quota. In
// a container the path may name a folder that only the host has; then the
// mount itself is the container's group.
func tightest(mount, path string, read func(dir string) (float64, bool)) (float64, bool) {
	best, found := 0.0, false
	for dir := filepath.Join(mount, path); strings.HasPrefix(dir, mount); dir = filepath.Dir(dir) {
		if q, ok := read(dir); ok && (!found || q < best) {
			best, found = q, true
		}
	}
	return best, found
}

// ratio returns quota/period; "max" and -1 are no quota.
func ratio(quota, period string) (float64, bool) {
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return 0, false
	}
	return q / p, true
}
