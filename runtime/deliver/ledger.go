package deliver

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Key names one mail in a Ledger: a hash of run and user, so that a ledger
// holds no id and no address.
type Key [sha256.Size]byte

// KeyOf returns the key of a run's mail to a user.
func KeyOf(runID, userID string) Key {
	data := binary.AppendUvarint(make([]byte, 0, len(runID)+len(userID)+10), uint64(len(runID)))
	data = append(append(data, runID...), userID...)
	return sha256.Sum256(data)
}

// Claim is the answer of a Ledger to the wish to send one mail.
type Claim int

// Answers of a Ledger.
const (
	// Claimed: nobody sent it or tried to. It is the caller's to send now.
	Claimed Claim = iota + 1
	// AlreadySent: it was sent and confirmed.
	AlreadySent
	// AlreadyClaimed: this very Ledger gave it out and it is not confirmed:
	// it is on its way, or its fate became uncertain in this run.
	AlreadyClaimed
	// Unknown: a process that is gone claimed it and neither confirmed nor
	// released it. The mail may have been sent.
	Unknown
)

// Ledger remembers which mails were sent, over the life of processes.
// Implementations are safe for concurrent use, and what a call returned
// without error survives a crash of the machine.
type Ledger interface {
	// Claim asks for several mails in one durable step and answers for each,
	// in order. A key that comes twice is claimed once.
	Claim(ctx context.Context, keys []Key) ([]Claim, error)
	// Settle ends claims in one durable step: confirms the mails that were
	// sent and releases those that certainly were not, which can be claimed
	// anew.
	Settle(ctx context.Context, sent []Receipt, released []Key) error
}

// Receipt records that a mail was sent.
type Receipt struct {
	Key  Key
	ID   string    // the id from the Sender
	Time time.Time // when, to the millisecond
}
