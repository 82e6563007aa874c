package deliver

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Key names one mail in a Ledger.
type Key struct {
	RunID, UserID string
}

// hash is the key for where neither an id nor an address may stand.
func (k Key) hash() [sha256.Size]byte {
	data := binary.AppendUvarint(make([]byte, 0, len(k.RunID)+len(k.UserID)+10), uint64(len(k.RunID)))
	data = append(append(data, k.RunID...), k.UserID...)
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
	// Unknown: another one claimed it and neither confirmed nor released it.
	// The mail may have been sent, or be on its way.
	Unknown
)

// Ledger remembers which mails were sent, over the life of processes. One
// value of a Ledger is one session: what it claimed is told from the claims of
// all others. Implementations are safe for concurrent use, and what a call
// returned without error survives a crash of the machine.
type Ledger interface {
	// Claim asks for several mails and answers for each, in order. A key that
	// comes twice is claimed once. Where it fails, nothing was claimed that
	// could be given back.
	Claim(ctx context.Context, keys []Key) ([]Claim, error)
	// Retake does what Claim does, and also claims what is Unknown, unless
	// whoever claimed it may still be alive. Only an operator can decide that:
	// some of these users may get a second mail.
	Retake(ctx context.Context, keys []Key) ([]Claim, error)
	// Look answers what Claim would, and claims nothing.
	Look(ctx context.Context, keys []Key) ([]Claim, error)
	// Settle ends claims of this session: it confirms the mails that were sent
	// and releases those that certainly were not, which can be claimed anew.
	// Both can be done again without harm. Confirming what this session did
	// not claim is an error, releasing what was sent is one too.
	Settle(ctx context.Context, sent []Receipt, released []Key) error
}

// Receipt records that a mail was sent.
type Receipt struct {
	Key  Key
	ID   string    // the id from the Sender
	Time time.Time // when, to the millisecond
}

// Preview is a Ledger that answers as another one would and changes nothing, for
// dry runs. Of a user who comes twice it does not know the first time.
type Preview struct{ Of Ledger }

var _ Ledger = Preview{}

// Claim implements Ledger.
func (p Preview) Claim(ctx context.Context, keys []Key) ([]Claim, error) {
	return p.Of.Look(ctx, keys)
}

// Retake implements Ledger. It takes every claim of others for one that can be
// taken.
func (p Preview) Retake(ctx context.Context, keys []Key) ([]Claim, error) {
	claims, err := p.Of.Look(ctx, keys)
	for i, claim := range claims {
		if claim == Unknown {
			claims[i] = Claimed
		}
	}
	return claims, err
}

// Look implements Ledger.
func (p Preview) Look(ctx context.Context, keys []Key) ([]Claim, error) { return p.Of.Look(ctx, keys) }

// Settle implements Ledger.
func (Preview) Settle(context.Context, []Receipt, []Key) error { return nil }
