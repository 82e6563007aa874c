package engine

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestCPUs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		visible int
		files   map[string]string
		memory  string
		want    float64
		threads int
	}{
		{name: "nothing limits", visible: 8, want: 8, threads: 8},
		{name: "v2 quota", visible: 8, want: 1.5, threads: 1, files: map[string]string{
			"proc/self/cgroup":          "0::/pod\n",
			"sys/fs/cgroup/pod/cpu.max": "150000 100000\n",
		}},
		{name: "v2 quota of a parent is tighter", visible: 8, want: 2, threads: 2, files: map[string]string{
			"proc/self/cgroup":          "0::/a/b\n",
			"sys/fs/cgroup/a/cpu.max":   "200000 100000\n",
			"sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
			"sys/fs/cgroup/cpu.max":     "400000 100000\n",
		}},
		{name: "v2 in a container", visible: 8, want: 3, threads: 3, files: map[string]string{
			"proc/self/cgroup":      "0::/not/visible/here\n",
			"sys/fs/cgroup/cpu.max": "300000 100000\n",
		}},
		{name: "v1 quota", visible: 4, want: 2.3, threads: 2, files: map[string]string{
			"proc/self/cgroup": "5:cpuacct,cpu:/docker/x\n1:name=systemd:/\n",
			"sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us":  "230000\n",
			"sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us": "100000\n",
		}},
		{name: "v1 without quota", visible: 4, want: 4, threads: 4, files: map[string]string{
			"proc/self/cgroup":                    "5:cpu:/\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":  "-1\n",
			"sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
		}},
		{name: "garbage", visible: 4, want: 4, threads: 4, files: map[string]string{
			"proc/self/cgroup":      "0::/\n",
			"sys/fs/cgroup/cpu.max": "lots\n",
		}},
		{name: "Lambda with 4096 MiB", visible: 6, memory: "4096", want: 4096.0 / 1769, threads: 2},
		{name: "Lambda with 10240 MiB on 6 visible", visible: 6, memory: "10240", want: 10240.0 / 1769, threads: 5},
		{name: "Lambda with 512 MiB", visible: 2, memory: "512", want: 512.0 / 1769, threads: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range tt.files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got := cpus(tt.visible, root, func(string) string { return tt.memory })
			if math.Abs(got-tt.want) > 1e-9 || Threads(got) != tt.threads {
				t.Errorf("%v CPUs and %d threads, want %v and %d", got, Threads(got), tt.want, tt.threads)
			}
		})
	}
}
