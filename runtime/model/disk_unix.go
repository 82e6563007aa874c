//go:build linux || darwin

package model

import (
	"os"
	"syscall"
)

// freeBytes returns the bytes an ordinary user may still write to the file
// system of dir, and whether it could be told.
func freeBytes(dir string) (int64, bool) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, false
	}
	return int64(fs.Bavail) * int64(fs.Bsize), true
}

// lock takes an exclusive lock on f that ends with the process or with the
// closing of f. It reports false if another process has it.
func lock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
