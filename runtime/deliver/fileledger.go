package deliver

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// FileLedger is a Ledger in one file (bbolt), for one process at a time. Every
// call is one transaction and one fsync, however many mails it is about; Deliver
// claims a group at a time for that reason.
//
// An entry takes some 80 bytes, a million users about 150 MB with the slack of
// the file's B+ tree. The file holds hashes, times and message ids.
type FileLedger struct {
	db      *bbolt.DB
	session [8]byte // tells this process's claims from those of one that died
}

var (
	entriesBucket = []byte("mails 1")
	_             = Ledger(&FileLedger{})
)

// States in the file.
const (
	stateClaimed = 'c'
	stateSent    = 's'
)

// errNotClaimed ends the life of a claim that this session does not have.
var errNotClaimed = errors.New("the mail is not claimed by this session")

// OpenFileLedger opens the ledger or makes a new one. It waits two seconds for
// another process that holds it and then gives up.
func OpenFileLedger(path string) (*FileLedger, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: 2 * time.Second,
		// The list of free pages is rebuilt on opening instead of written
		// with every transaction.
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
	})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, fmt.Errorf("open sent-ledger %s: another process holds it: wait for that run to end", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open sent-ledger %s: %w", path, err)
	}
	l := &FileLedger{db: db}
	if _, err := rand.Read(l.session[:]); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(entriesBucket)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open sent-ledger %s: %w", path, err), db.Close())
	}
	return l, nil
}

// Close closes the file. Claims that are neither confirmed nor released stay,
// and are Unknown to whoever opens the ledger next.
func (l *FileLedger) Close() error { return l.db.Close() }

// Claim implements Ledger.
func (l *FileLedger) Claim(_ context.Context, keys []Key) ([]Claim, error) {
	return l.claim(keys, false)
}

// Retake implements Ledger. Whoever claimed what is Unknown is gone: the file
// has one holder at a time.
func (l *FileLedger) Retake(_ context.Context, keys []Key) ([]Claim, error) {
	return l.claim(keys, true)
}

func (l *FileLedger) claim(keys []Key, retake bool) ([]Claim, error) {
	claims := make([]Claim, len(keys))
	err := l.db.Update(func(tx *bbolt.Tx) error {
		entries := tx.Bucket(entriesBucket)
		claimed := entry(stateClaimed, l.session, time.Now(), "")
		for i, key := range keys {
			hash := key.hash()
			claims[i] = l.answer(entries.Get(hash[:]))
			if claims[i] == Unknown && retake {
				claims[i] = Claimed
			}
			if claims[i] != Claimed {
				continue
			}
			if err := entries.Put(hash[:], claimed); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("claim in sent-ledger: %w", err)
	}
	return claims, nil
}

// Look implements Ledger.
func (l *FileLedger) Look(_ context.Context, keys []Key) ([]Claim, error) {
	claims := make([]Claim, len(keys))
	err := l.db.View(func(tx *bbolt.Tx) error {
		entries := tx.Bucket(entriesBucket)
		for i, key := range keys {
			hash := key.hash()
			claims[i] = l.answer(entries.Get(hash[:]))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look into sent-ledger: %w", err)
	}
	return claims, nil
}

// answer tells what a value of the file means to this session.
func (l *FileLedger) answer(value []byte) Claim {
	switch state, session := readEntry(value); {
	case state == 0:
		return Claimed
	case state == stateSent:
		return AlreadySent
	case session == l.session:
		return AlreadyClaimed
	}
	return Unknown
}

// Settle implements Ledger.
func (l *FileLedger) Settle(_ context.Context, sent []Receipt, released []Key) error {
	err := l.db.Update(func(tx *bbolt.Tx) error {
		entries := tx.Bucket(entriesBucket)
		for _, receipt := range sent {
			hash := receipt.Key.hash()
			if state, session := readEntry(entries.Get(hash[:])); state == 0 || session != l.session {
				return errNotClaimed
			}
			if err := entries.Put(hash[:], entry(stateSent, l.session, receipt.Time, receipt.ID)); err != nil {
				return err
			}
		}
		for _, key := range released {
			hash := key.hash()
			state, session := readEntry(entries.Get(hash[:]))
			if state == 0 {
				continue
			}
			if state != stateClaimed || session != l.session {
				return errNotClaimed
			}
			if err := entries.Delete(hash[:]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("settle in sent-ledger: %w", err)
	}
	return nil
}

// Counts returns how many mails are recorded as sent and how many claims are
// open: on their way now, or left behind by a process that died.
func (l *FileLedger) Counts() (sent, open int, err error) {
	err = l.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(entriesBucket).ForEach(func(_, value []byte) error {
			if state, _ := readEntry(value); state == stateSent {
				sent++
			} else {
				open++
			}
			return nil
		})
	})
	return sent, open, err
}

// entry is a value of the file: state, session, milliseconds, id.
func entry(state byte, session [8]byte, at time.Time, id string) []byte {
	value := append([]byte{state}, session[:]...)
	value = binary.BigEndian.AppendUint64(value, uint64(at.UnixMilli()))
	return append(value, id...)
}

// readEntry returns state 0 for no value. One that is damaged reads as a claim
// of a process that is gone: whoever it is about is not mailed again by itself.
func readEntry(value []byte) (state byte, session [8]byte) {
	if value == nil {
		return 0, session
	}
	if len(value) < 17 || value[0] != stateClaimed && value[0] != stateSent {
		return stateClaimed, session
	}
	copy(session[:], value[1:9])
	return value[0], session
}
