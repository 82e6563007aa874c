// Package idtable remembers a value for each of very many ids in bounded
// memory: what does not fit is sorted and lies in temporary files.
//
// Ids are kept as 128 bits of their SHA-256. Two ids of a billion meet with a
// chance below 1 in 10^20.
package idtable

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
)

// Options bound a Table. The zero value of a field takes its default.
type Options struct {
	// Dir is where temporary files go, default os.TempDir.
	Dir string
	// MemoryIDs is how many ids are held in memory, at up to 45 bytes each.
	// Default 4,000,000: about 180 MB.
	MemoryIDs int
	// MaxIDs is how many ids a Table takes in all. Beyond MemoryIDs each costs
	// 20 bytes of disk and 1.3 bytes of memory. Default 200,000,000: 4 GB of
	// disk and 260 MB more of memory.
	MaxIDs int64
}

// Defaults of Options.
const (
	DefaultMemoryIDs = 4_000_000
	DefaultMaxIDs    = 200_000_000
)

// FullError says that a Table has as many ids as it may take.
type FullError struct {
	Max int64
}

func (e *FullError) Error() string {
	return fmt.Sprintf("more than %d different users: split the file into several", e.Max)
}

// Table maps ids to values. It is not safe for concurrent use.
type Table struct {
	opt    Options
	memory [shards]shard
	held   int // ids in memory
	total  int64
	runs   []*run // oldest first
}

// shards divide the ids in memory by the first bits of their key, so that
// growing one never holds a second copy of all, and so that shard after shard
// is key order.
const (
	shardBits = 6
	shards    = 1 << shardBits
)

type key [2]uint64

func (k key) compare(o key) int {
	if c := cmp.Compare(k[0], o[0]); c != 0 {
		return c
	}
	return cmp.Compare(k[1], o[1])
}

func keyOf(id []byte) key {
	sum := sha256.Sum256(id)
	return key{binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])}
}

func shardOf(k key) uint64 { return k[0] >> (64 - shardBits) }

// New returns an empty Table. Close removes its files.
func New(opt Options) *Table {
	if opt.Dir == "" {
		opt.Dir = os.TempDir()
	}
	if opt.MemoryIDs <= 0 {
		opt.MemoryIDs = DefaultMemoryIDs
	}
	if opt.MaxIDs <= 0 {
		opt.MaxIDs = DefaultMaxIDs
	}
	return &Table{opt: opt}
}

// Get returns the value of id, and false where it has none.
func (t *Table) Get(id []byte) (value uint32, ok bool, err error) {
	k := keyOf(id)
	if v, ok := t.memory[shardOf(k)].get(k); ok {
		return v, true, nil
	}
	for _, r := range slices.Backward(t.runs) {
		if v, ok, err := r.get(k); ok || err != nil {
			return v, ok, err
		}
	}
	return 0, false, nil
}

// Put gives id a value, in place of one that it had. Its error is a *FullError
// or that of a temporary file.
func (t *Table) Put(id []byte, value uint32) error {
	k := keyOf(id)
	s := &t.memory[shardOf(k)]
	if s.replace(k, value) {
		return nil
	}
	if t.total >= t.opt.MaxIDs {
		return &FullError{Max: t.opt.MaxIDs}
	}
	if t.held >= t.opt.MemoryIDs {
		if err := t.spill(); err != nil {
			return fmt.Errorf("keep user ids in %s: %w", t.opt.Dir, err)
		}
	}
	s.add(k, value)
	t.held++
	t.total++
	return nil
}

// Spilled returns how many ids lie on disk.
func (t *Table) Spilled() int64 { return t.total - int64(t.held) }

// Close removes the temporary files.
func (t *Table) Close() error {
	var errs []error
	for _, r := range t.runs {
		errs = append(errs, r.close())
	}
	t.runs = nil
	return errors.Join(errs...)
}

// spill writes what is in memory to a file of its own.
func (t *Table) spill() (err error) {
	f, err := os.CreateTemp(t.opt.Dir, "user-ids-*")
	if err != nil {
		return err
	}
	r := &run{file: f, n: t.held}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	r.bloom = newBloom(t.held)
	w := bufio.NewWriterSize(f, 1<<20)
	n := 0
	var entry [entryBytes]byte
	for i := range t.memory {
		for _, e := range t.memory[i].take() {
			if n%blockEntries == 0 {
				r.first = append(r.first, e.key[0])
			}
			n++
			r.bloom.add(e.key)
			e.encode(&entry)
			if _, err := w.Write(entry[:]); err != nil {
				return err
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	t.runs = append(t.runs, r)
	t.held = 0
	return nil
}

type entry struct {
	key   key
	value uint32
}

const entryBytes = 20

func (e entry) encode(b *[entryBytes]byte) {
	binary.BigEndian.PutUint64(b[:], e.key[0])
	binary.BigEndian.PutUint64(b[8:], e.key[1])
	binary.BigEndian.PutUint32(b[16:], e.value)
}

// shard is an open-addressed table that grows by half.
type shard struct {
	slots []slot
	n     int
}

// slot is an entry that may be free, in 24 bytes.
type slot struct {
	key   key
	value uint32
	used  bool
}

// find returns the slot of k, or the free one where it belongs.
func (s *shard) find(k key) *slot {
	size := uint64(len(s.slots))
	for i := k[1] % size; ; i++ {
		if i == size {
			i = 0
		}
		if at := &s.slots[i]; !at.used || at.key == k {
			return at
		}
	}
}

func (s *shard) get(k key) (uint32, bool) {
	if s.n == 0 {
		return 0, false
	}
	at := s.find(k)
	return at.value, at.used
}

func (s *shard) replace(k key, value uint32) bool {
	if s.n == 0 {
		return false
	}
	at := s.find(k)
	if at.used {
		at.value = value
	}
	return at.used
}

func (s *shard) add(k key, value uint32) {
	if (s.n+1)*5 > len(s.slots)*4 {
		old := s.slots
		s.slots = make([]slot, max(16, len(old)*3/2))
		for i := range old {
			if old[i].used {
				*s.find(old[i].key) = old[i]
			}
		}
	}
	*s.find(k) = slot{k, value, true}
	s.n++
}

// take returns the entries in key order and empties the shard.
func (s *shard) take() []entry {
	entries := make([]entry, 0, s.n)
	for i := range s.slots {
		if s.slots[i].used {
			entries = append(entries, entry{s.slots[i].key, s.slots[i].value})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return a.key.compare(b.key) })
	clear(s.slots)
	s.n = 0
	return entries
}

// blockEntries is how many entries one read of a run takes: 5 KB.
const blockEntries = 256

// run is a sorted file of entries.
type run struct {
	file  *os.File
	n     int
	first []uint64 // the first half of each block's first key
	bloom bloom
	block [blockEntries * entryBytes]byte
}

func (r *run) get(k key) (uint32, bool, error) {
	if !r.bloom.has(k) {
		return 0, false, nil
	}
	// The last block that begins at or before k.
	at, found := slices.BinarySearch(r.first, k[0])
	for found && at+1 < len(r.first) && r.first[at+1] == k[0] {
		at++
	}
	if !found {
		at--
	}
	if at < 0 {
		return 0, false, nil
	}
	n := min(blockEntries, r.n-at*blockEntries)
	block := r.block[:n*entryBytes]
	if _, err := r.file.ReadAt(block, int64(at)*blockEntries*entryBytes); err != nil {
		return 0, false, fmt.Errorf("look up a user id in %s: %w", r.file.Name(), err)
	}
	var want [entryBytes]byte
	entry{key: k}.encode(&want)
	lo, hi := 0, n
	for lo < hi {
		mid := (lo + hi) / 2
		if bytes.Compare(block[mid*entryBytes:mid*entryBytes+16], want[:16]) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < n && bytes.Equal(block[lo*entryBytes:lo*entryBytes+16], want[:16]) {
		return binary.BigEndian.Uint32(block[lo*entryBytes+16:]), true, nil
	}
	return 0, false, nil
}

func (r *run) close() error {
	return errors.Join(r.file.Close(), os.Remove(r.file.Name()))
}

// bloom tells that most keys are not in a run without reading it. At 10 bits a
// key and 7 probes it is wrong for 1 in 100.
type bloom []uint64

const (
	bloomBits   = 10
	bloomProbes = 7
)

func newBloom(n int) bloom { return make(bloom, max(1, (n*bloomBits+63)/64)) }

// probe returns the i-th bit of k.
func (b bloom) probe(k key, i uint64) (word uint64, bit uint64) {
	at := (k[0] ^ k[1]*0x9e3779b97f4a7c15) + i*(k[1]|1)
	at %= uint64(len(b)) * 64
	return at / 64, 1 << (at % 64)
}

func (b bloom) add(k key) {
	for i := range uint64(bloomProbes) {
		word, bit := b.probe(k, i)
		b[word] |= bit
	}
}

func (b bloom) has(k key) bool {
	for i := range uint64(bloomProbes) {
		if word, bit := b.probe(k, i); b[word]&bit == 0 {
			return false
		}
	}
	return true
}
