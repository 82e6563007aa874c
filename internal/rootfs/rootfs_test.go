package rootfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestARM64ProgramRuns(t *testing.T) {
	env := ARM64(t)
	dir := t.TempDir()
	source := `package main
import ("fmt"; "runtime")
func main() { fmt.Print(runtime.GOARCH) }
`
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "arch")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, filepath.Join(dir, "main.go"))
	build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), program)
	run.Env = append(os.Environ(), env...)
	out, err := run.CombinedOutput()
	if err != nil || string(out) != "arm64" {
		t.Errorf("it said %q, error %v", out, err)
	}
}

func TestDirHoldsTheLibraries(t *testing.T) {
	dir := Dir(t, Spec{Arch: "arm64", Packages: RuntimePackages})
	for _, name := range []string{"libc.so.6", "libffi.so.8", "libstdc++.so.6", "libgcc_s.so.1"} {
		// Unpacked only, Debian has them in two folders.
		if !exists(filepath.Join(dir, "usr/lib/aarch64-linux-gnu", name)) && !exists(filepath.Join(dir, "lib/aarch64-linux-gnu", name)) {
			t.Errorf("no %s in it", name)
		}
	}
	if again := Dir(t, Spec{Arch: "arm64", Packages: RuntimePackages}); again != dir {
		t.Errorf("made twice: %s and %s", dir, again)
	}
}

func TestReasonsSayWhatToDo(t *testing.T) {
	if runtime.GOARCH == "arm64" {
		t.Skip("nothing is emulated on ARM64")
	}
	t.Setenv("PATH", t.TempDir())
	if why := NoEmulation(); !strings.Contains(why, "apt-get install") {
		t.Errorf("without qemu: %q", why)
	}
	if why := Missing(); why == "" {
		t.Error("without mmdebstrap nothing is missing")
	}
}
