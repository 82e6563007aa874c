package briefing

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
)

// idSet is the IDs that lies in memory, in about 30 bytes an id. It keeps 128 bits of SHA-256 in place of the id: two ids of a file of
// a billion rows meet with a chance below 1 in 10^20.
type idSet struct {
	shards [64]idShard
}

// idShard is one open-addressed table. Many small ones grow one at a time, so
// that growing never holds a second copy of everything.
type idShard struct {
	keys [][2]uint64
	rows []uint32 // 0 marks a free slot
	n    int
}

// Add implements IDs. row must be positive.
func (s *idSet) Add(id []byte, row int64) (first int64, added bool, err error) {
	key := idKey(id)
	sh := &s.shards[key[1]%uint64(len(s.shards))]
	if (sh.n+1)*5 > len(sh.keys)*4 {
		sh.grow()
	}
	slot := sh.find(key)
	if sh.rows[slot] != 0 {
		return int64(sh.rows[slot]), false, nil
	}
	sh.keys[slot], sh.rows[slot] = key, uint32(min(row, math.MaxUint32))
	sh.n++
	return row, true, nil
}

func idKey(id []byte) [2]uint64 {
	sum := sha256.Sum256(id)
	return [2]uint64{binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])}
}

// find returns the slot of key, or the free slot where it belongs.
func (sh *idShard) find(key [2]uint64) int {
	size := uint64(len(sh.keys))
	for slot := key[0] % size; ; slot++ {
		if slot == size {
			slot = 0
		}
		if sh.rows[slot] == 0 || sh.keys[slot] == key {
			return int(slot)
		}
	}
}

func (sh *idShard) grow() {
	old := *sh
	size := max(16, len(old.keys)*3/2)
	sh.keys, sh.rows = make([][2]uint64, size), make([]uint32, size)
	for i, row := range old.rows {
		if row != 0 {
			slot := sh.find(old.keys[i])
			sh.keys[slot], sh.rows[slot] = old.keys[i], row
		}
	}
}
