package model

import "fmt"

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
