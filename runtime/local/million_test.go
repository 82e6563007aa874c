package local_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"syscall"
	"testing"
	"time"

	"github.com/briefing-swarm/briefing-swarm/runtime/engine/fake"
	"github.com/briefing-swarm/briefing-swarm/runtime/local"
)

// Bounds of BenchmarkMillion, on two cores that have nothing else to do.
const (
	millionRows      = 1_000_000
	millionLimit     = 60 * time.Second
	millionLimitMB   = 400
	millionInputEnv  = "SWARM_TEST_MILLION_INPUT"
	millionOutEnv    = "SWARM_TEST_MILLION_OUT"
	millionCPUEnv    = "SWARM_TEST_MILLION_CPUPROFILE"
	millionMemoryEnv = "SWARM_TEST_MILLION_MEMPROFILE"
)

// BenchmarkMillion runs 1,000,000 users through normalise, the fake model,
// Parquet and reconcile, in a process of its own whose peak memory is measured.
// It fails above the bounds.
func BenchmarkMillion(b *testing.B) {
	input := filepath.Join(b.TempDir(), "users.csv")
	if err := writeMillion(input); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		out := filepath.Join(b.TempDir(), "out")
		child := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestMillionChild$")
		child.Env = append(os.Environ(), millionInputEnv+"="+input, millionOutEnv+"="+out)
		start := time.Now()
		if said, err := child.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, said)
		}
		took, peak := time.Since(start), peakMB(child.ProcessState)
		cpu := (child.ProcessState.UserTime() + child.ProcessState.SystemTime()).Seconds() // tells a slow machine from a busy one
		m, err := local.ReadManifest(filepath.Join(out, local.ManifestName))
		if err != nil {
			b.Fatal(err)
		}
		if c := m.Counts; m.State != local.StateComplete || c.OK+c.Failed != millionRows || c.Missing+c.Duplicate > 0 || c.OK < millionRows*9/10 {
			b.Fatalf("state %s, counts %+v", m.State, c)
		}
		b.ReportMetric(took.Seconds(), "s")
		b.ReportMetric(cpu, "cpu-s")
		b.ReportMetric(peak, "MB-peak")
		b.ReportMetric(millionRows/took.Seconds(), "users/s")
		for stage, sec := range m.Seconds {
			b.ReportMetric(sec, stage+"-s")
		}
		if took > millionLimit {
			b.Errorf("%.1f s with %.1f s of CPU, the bound is %v on two idle cores", took.Seconds(), cpu, millionLimit)
		}
		if peak > millionLimitMB {
			b.Errorf("peak memory %.0f MB, the bound is %d MB", peak, millionLimitMB)
		}
	}
}

// peakMB returns the most resident memory of an ended process, in 10^6 bytes.
func peakMB(p *os.ProcessState) float64 {
	peak := float64(p.SysUsage().(*syscall.Rusage).Maxrss)
	if runtime.GOOS != "darwin" {
		peak *= 1024 // Linux counts KiB
	}
	return peak / 1e6
}

func writeMillion(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	fmt.Fprintln(w, "user_id,email,name,locale,city,weather,calendar,tasks")
	for i := range millionRows {
		fmt.Fprintf(w, "user-%07d,user%d@example.com,Ana Maria %d,%s,City %d,\"sunny, %d degrees\",%02d:30 design review; 14:00 dentist,renew the passport; call the bank\n",
			i, i, i, []string{"en-US", "de-CH", "pt-BR", "fr-FR"}[i%4], i%5000, i%35, 7+i%5)
	}
	return errors.Join(w.Flush(), f.Close())
}

// TestMillionChild is the process that BenchmarkMillion measures.
func TestMillionChild(t *testing.T) {
	input := os.Getenv(millionInputEnv)
	if input == "" {
		t.Skip("only as a child of BenchmarkMillion")
	}
	if path := os.Getenv(millionCPUEnv); path != "" {
		var profile bytes.Buffer
		if err := pprof.StartCPUProfile(&profile); err != nil {
			t.Fatal(err)
		}
		defer func() {
			pprof.StopCPUProfile()
			if err := os.WriteFile(path, profile.Bytes(), 0o644); err != nil {
				t.Error(err)
			}
		}()
	}
	if path := os.Getenv(millionMemoryEnv); path != "" {
		defer func() {
			var profile bytes.Buffer
			if err := pprof.Lookup("allocs").WriteTo(&profile, 0); err != nil {
				t.Error(err)
			}
			if err := os.WriteFile(path, profile.Bytes(), 0o644); err != nil {
				t.Error(err)
			}
		}()
	}
	if _, err := local.Run(t.Context(), options(t, input, os.Getenv(millionOutEnv), fake.Options{})); err != nil {
		t.Fatal(err)
	}
}
