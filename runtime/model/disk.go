package model

import (
	"fmt"
	"os"
)

// spareBytes is left free on the disk beside what is written.
const spareBytes = 64 << 20

// DiskSpaceError is returned before anything large is written to a disk that
// cannot hold it.
type DiskSpaceError struct {
	Dir       string
	NeedBytes int64
	FreeBytes int64
}

func (e *DiskSpaceError) Error() string {
	return fmt.Sprintf("not enough disk space in %s: %s are needed and %s are free; free some, or set SWARM_CACHE to a folder on a larger disk", e.Dir, FormatBytes(e.NeedBytes), FormatBytes(e.FreeBytes))
}

// needSpace fails if dir's disk has no room for n bytes and some to spare.
func needSpace(dir string, n int64) error {
	if free, ok := freeBytes(dir); ok && free < n+spareBytes {
		return &DiskSpaceError{Dir: dir, NeedBytes: n + spareBytes, FreeBytes: free}
	}
	return nil
}

// openPart opens the file at path, which is still to become another, for this
// process alone. What is in it stays.
func openPart(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	busy := fmt.Errorf("another process is writing this file (%s is locked); wait for it", path)
	if !lock(f) {
		f.Close()
		return nil, busy
	}
	// Between opening and locking, the other process may have finished: then
	// this is the complete file, under its final name, and not ours to change.
	mine, err := f.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Stat(path); err == nil && os.SameFile(mine, there) {
			return f, nil
		}
	}
	f.Close()
	return nil, busy
}
