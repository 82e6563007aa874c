package local

import (
	"crypto/sha256"
	"encoding/binary"
)

// idKey stands for a user_id in 16 bytes. Two of a billion ids have the same
// key with a chance below 1 in 10^20.
type idKey [2]uint64

func keyOf(id string) idKey { return keyOfBytes([]byte(id)) }

func keyOfBytes(id []byte) idKey {
	sum := sha256.Sum256(id)
	return idKey{binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])}
}

// idSet is a set of user_ids.
type idSet map[idKey]struct{}

func (s idSet) add(id string) { s[keyOf(id)] = struct{}{} }

func (s idSet) has(id string) bool {
	_, ok := s[keyOf(id)]
	return ok
}

func (s idSet) hasKey(k idKey) bool {
	_, ok := s[k]
	return ok
}
