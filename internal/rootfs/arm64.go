package rootfs

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// ARM64 returns the environment in which ARM64 programs run on this machine, on
// a processor like Graviton2's, and skips the test where they can't. The
// programs find a Debian with the libraries that the image has.
func ARM64(t testing.TB) []string {
	t.Helper()
	root := Dir(t, Spec{Arch: "arm64", Packages: RuntimePackages})
	if runtime.GOARCH == "arm64" {
		return nil
	}
	if why := NoEmulation(); why != "" {
		t.Skip(why)
	}
	return []string{"QEMU_LD_PREFIX=" + root, "QEMU_CPU=neoverse-n1"}
}

// RuntimePackages are what the worker needs of a Debian.
var RuntimePackages = []string{"base-files", "libc6", "libstdc++6", "libgcc-s1", "libffi8"}

// NoEmulation returns why ARM64 programs can't be started here, or "". Whoever
// can read binfmt_misc sees whether the kernel hands them to qemu with the
// handle kept open, which is what lets it work inside containers.
func NoEmulation() string {
	if runtime.GOARCH == "arm64" {
		return ""
	}
	if _, err := exec.LookPath("qemu-aarch64-static"); err != nil {
		return "qemu-aarch64-static is missing: apt-get install qemu-user-static"
	}
	state, err := os.ReadFile("/proc/sys/fs/binfmt_misc/qemu-aarch64")
	if err != nil {
		return "the kernel does not hand ARM64 programs to qemu: mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc && update-binfmts --enable qemu-aarch64"
	}
	for line := range strings.Lines(string(state)) {
		if flags, ok := strings.CutPrefix(strings.TrimSpace(line), "flags:"); ok && !strings.Contains(flags, "F") {
			return "binfmt's qemu-aarch64 has no flag F: install Debian's qemu-user-static and binfmt-support"
		}
	}
	return ""
}
