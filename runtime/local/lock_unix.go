//go:build unix

package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lock keeps a second process out of a run's folder. The system gives the lock
// back when the process ends, however it does.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock output folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fmt.Errorf("%s is in use by another run: wait for it, or choose another --out", filepath.Dir(path))
		}
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil // closing gives the lock back
}
