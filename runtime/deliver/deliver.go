package deliver

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

// Options of Deliver. Composer and Sender are required.
type Options struct {
	Composer *Composer
	Sender   Sender

	// Ledger keeps a user from getting two mails, now and after a crash. nil
	// remembers nothing, which only a Sender that may repeat itself can bear,
	// such as EML.
	Ledger Ledger

	// Retake sends the mails of unknown fate too, by Ledger.Retake.
	Retake bool

	// Suppressed tells which users are to get no mail; nil for nobody.
	Suppressed Suppressed

	// Workers is how many mails are on their way at the same time; 4.
	Workers int

	// Pace bounds the mails sent per second, retries included; nil for no bound.
	Pace *Pace

	// MaxAttempts is how often a mail is tried while errors are Temporary; 4.
	MaxAttempts int

	// RetryDelay is the wait before the second attempt, doubled for each one
	// after it up to a minute, each cut by up to half at random; 1 s.
	RetryDelay time.Duration

	// MaxFailedInRow stops the run when so many users in a row failed and none
	// got through between them: then it is not about the users; 100. Rows with
	// an address or a length that no mail can have do not count here.
	MaxFailedInRow int

	// ClaimBatch is how many mails are claimed in one step of the ledger, which
	// is one fsync for a FileLedger; 64. After a kill -9 at most ClaimBatch +
	// Workers + the confirmations of the last few milliseconds are unknown.
	ClaimBatch int

	// OnOutcome is told what became of every row, one call at a time, in the
	// order in which they ended. nil for nobody.
	OnOutcome func(Outcome)
}

// Suppressed tells which users are to get no mail, whatever the run.
type Suppressed interface {
	// Suppressed answers for each user, in order.
	Suppressed(ctx context.Context, userIDs []string) ([]bool, error)
}

// Result says what became of a row.
type Result string

// Results of a row.
const (
	Sent             Result = "sent"               // handed over and, with a ledger, recorded
	SkippedFailed    Result = "skipped_failed"     // the row is not ok: there is no briefing
	SkippedNoAddress Result = "skipped_no_address" // the row has no address
	SkippedOptOut    Result = "skipped_opt_out"    // the user unsubscribed
	AlreadyDone      Result = "already"            // sent before, or another row of this run is about the same user
	UnknownFate      Result = "unknown"            // may have been sent; not sent again by itself
	Failed           Result = "failed"             // certainly not sent; a later run may try again
	Unsent           Result = "unsent"             // the run ended before its turn; a later run sends it
)

// CodeRow is the code of a Failed row that has no run_id or no user_id, without
// which nobody can keep it from being mailed twice.
const CodeRow = "row_invalid"

// Codes of an UnknownFate, beside those of an Uncertain SendError.
const (
	codeClaimedBefore = "claimed_before" // an earlier run claimed it and vanished
	codeUntyped       = "untyped_error"  // the Sender returned no SendError
	codeNotRecorded   = "not_recorded"   // the ledger could not be written
)

// Outcome is what became of one row.
type Outcome struct {
	Row           int // its place among the rows, from 0
	RunID, UserID string
	Result        Result
	Code          string // for Failed and UnknownFate: why
	MessageID     string // for Sent: the id from the Sender
	Time          time.Time
}

// Stats count the rows of a run. Every row that was read is in exactly one of
// the counts: Rows is the sum of the others.
type Stats struct {
	Rows             int            `json:"rows"`
	Sent             int            `json:"sent"`
	SkippedFailed    int            `json:"skipped_failed"`
	SkippedNoAddress int            `json:"skipped_no_address"`
	SkippedOptOut    int            `json:"skipped_opt_out"`
	Already          int            `json:"already"`
	Unknown          int            `json:"unknown"`
	Unsent           int            `json:"unsent"`
	Failed           map[string]int `json:"failed"` // by code
}

// FailedTotal returns the number of failed rows over all codes.
func (s Stats) FailedTotal() int {
	total := 0
	for _, n := range s.Failed {
		total += n
	}
	return total
}

// add counts one outcome.
func (s *Stats) add(o Outcome) {
	s.Rows++
	switch o.Result {
	case Sent:
		s.Sent++
	case SkippedFailed:
		s.SkippedFailed++
	case SkippedNoAddress:
		s.SkippedNoAddress++
	case SkippedOptOut:
		s.SkippedOptOut++
	case AlreadyDone:
		s.Already++
	case UnknownFate:
		s.Unknown++
	case Unsent:
		s.Unsent++
	case Failed:
		if s.Failed == nil {
			s.Failed = map[string]int{}
		}
		s.Failed[o.Code]++
	}
}

// Deliver mails every row that is ok and has an address, and returns what became
// of all it read. Memory does not grow with the rows. A user who fails is a
// count, not an error; the error says why the run ended early: the rows could
// not be read, the ledger not be written, a Fatal *SendError, too many failures
// in a row, or ctx. Then the mails under way are finished, claims that were not
// used are given back, and the same call again goes on where this one ended.
func Deliver(ctx context.Context, rows iter.Seq2[briefing.Row, error], options Options) (Stats, error) {
	if options.Composer == nil || options.Sender == nil {
		return Stats{}, errors.New("deliver: needs a Composer and a Sender")
	}
	d := &delivery{Options: options}
	d.setDefaults()
	var stop context.CancelCauseFunc
	d.ctx, stop = context.WithCancelCause(ctx)
	defer stop(nil)
	d.stop = stop

	jobs := make(chan job)
	d.ended = make(chan ending, 4*d.ClaimBatch)
	var workers sync.WaitGroup
	for range d.Workers {
		workers.Go(func() {
			for j := range jobs {
				d.ended <- d.send(j)
			}
		})
	}
	settled := make(chan Stats)
	go func() { settled <- d.settle() }()

	d.admit(rows, jobs)
	close(jobs)
	workers.Wait()
	close(d.ended)
	stats := <-settled
	return stats, context.Cause(d.ctx)
}

// delivery is one call of Deliver.
type delivery struct {
	Options
	ctx   context.Context
	stop  context.CancelCauseFunc
	ended chan ending
}

// job is a row whose mail is claimed.
type job struct {
	row   briefing.Row
	place int
	key   Key
}

// outcome returns what became of the row.
func (j job) outcome(result Result, code string) Outcome {
	return Outcome{Row: j.place, RunID: j.row.RunID, UserID: j.row.UserID, Result: result, Code: code, Time: time.Now()}
}

// ending is a row that reached its end, with what that means for the ledger.
type ending struct {
	Outcome
	key     Key
	claimed bool
}

func (d *delivery) setDefaults() {
	positive := func(n *int, value int) {
		if *n <= 0 {
			*n = value
		}
	}
	positive(&d.Workers, 4)
	positive(&d.MaxAttempts, 4)
	positive(&d.MaxFailedInRow, 100)
	positive(&d.ClaimBatch, 64)
	if d.RetryDelay <= 0 {
		d.RetryDelay = time.Second
	}
}

// admit reads the rows, claims those to be mailed group by group and hands them
// to the workers, until the rows or the run end.
func (d *delivery) admit(rows iter.Seq2[briefing.Row, error], jobs chan<- job) {
	group := make([]job, 0, d.ClaimBatch)
	defer func() {
		for _, j := range group { // read, but the run ended before they were claimed
			d.ended <- ending{Outcome: j.outcome(Unsent, "")}
		}
	}()
	place := -1
	for row, err := range rows {
		if err != nil {
			d.stop(fmt.Errorf("deliver: read rows: %w", err))
			return
		}
		place++
		j := job{row, place, Key{row.RunID, row.UserID}}
		switch {
		case row.Status != briefing.StatusOK:
			d.ended <- ending{Outcome: j.outcome(SkippedFailed, "")}
		case row.Email == "":
			d.ended <- ending{Outcome: j.outcome(SkippedNoAddress, "")}
		case row.RunID == "" || row.UserID == "":
			d.ended <- ending{Outcome: j.outcome(Failed, CodeRow)}
		default:
			// Before the claim: a process that dies in between must not leave
			// a user as unknown who can't be mailed at all.
			if _, err := checkRow(row); err != nil {
				d.ended <- ending{Outcome: j.outcome(Failed, errorCode(err))}
			} else {
				group = append(group, j)
			}
		}
		if d.ctx.Err() != nil {
			return
		}
		if len(group) == d.ClaimBatch {
			if !d.dispatch(group, jobs) {
				return
			}
			group = group[:0]
		}
	}
	if d.dispatch(group, jobs) {
		group = group[:0]
	}
}

// dispatch claims a group and hands it out. False means that nothing of the
// group was claimed, because the run ended.
func (d *delivery) dispatch(group []job, jobs chan<- job) bool {
	if len(group) == 0 {
		return true
	}
	if d.ctx.Err() != nil {
		return false
	}
	group, err := d.suppress(group)
	if err != nil {
		d.stop(fmt.Errorf("deliver: %w", err))
		return false
	}
	claims, err := d.claim(group)
	if err != nil {
		d.stop(fmt.Errorf("deliver: %w", err))
		// Those who unsubscribed have ended; the others have not been claimed.
		for _, j := range group {
			d.ended <- ending{Outcome: j.outcome(Unsent, "")}
		}
		return true
	}
	for i, j := range group {
		switch claims[i] {
		case Claimed:
			select {
			case jobs <- j:
			case <-d.ctx.Done():
				d.ended <- ending{j.outcome(Unsent, ""), j.key, true}
			}
		case Unknown:
			d.ended <- ending{Outcome: j.outcome(UnknownFate, codeClaimedBefore)}
		default:
			d.ended <- ending{Outcome: j.outcome(AlreadyDone, "")}
		}
	}
	return true
}

// suppress ends the rows of users who unsubscribed and returns the others.
func (d *delivery) suppress(group []job) ([]job, error) {
	if d.Suppressed == nil {
		return group, nil
	}
	users := make([]string, len(group))
	for i, j := range group {
		users[i] = j.row.UserID
	}
	suppressed, err := d.Suppressed.Suppressed(d.ctx, users)
	if err != nil {
		return nil, err
	}
	var others []job
	for i, j := range group {
		if suppressed[i] {
			d.ended <- ending{Outcome: j.outcome(SkippedOptOut, "")}
		} else {
			others = append(others, j)
		}
	}
	return others, nil
}

// claim asks the ledger for a group.
func (d *delivery) claim(group []job) ([]Claim, error) {
	keys := make([]Key, len(group))
	for i, j := range group {
		keys[i] = j.key
	}
	switch {
	case d.Ledger == nil:
		claims := make([]Claim, len(group))
		for i := range claims {
			claims[i] = Claimed
		}
		return claims, nil
	case len(keys) == 0:
		return nil, nil
	case d.Retake:
		return d.Ledger.Retake(d.ctx, keys)
	}
	return d.Ledger.Claim(d.ctx, keys)
}

// send composes one mail and sends it, again while that makes sense.
func (d *delivery) send(j job) ending {
	end := func(result Result, code string) ending {
		return ending{j.outcome(result, code), j.key, true}
	}
	if d.ctx.Err() != nil {
		return end(Unsent, "")
	}
	message, err := d.Composer.Compose(j.row)
	if err != nil {
		return end(Failed, errorCode(err))
	}
	delay := d.RetryDelay
	for attempt := 1; ; attempt++ {
		if d.Pace != nil {
			if err := d.Pace.Wait(d.ctx); err != nil {
				// It gives up at once where ctx has a deadline before the next
				// mail is due; the run ends early there and then.
				d.stop(fmt.Errorf("deliver: the next mail is due after the deadline: %w", context.DeadlineExceeded))
				return end(Unsent, "")
			}
		}
		id, err := d.Sender.Send(d.ctx, message)
		if err == nil {
			done := end(Sent, "")
			done.MessageID = id
			return done
		}
		var failure *SendError
		if !errors.As(err, &failure) {
			// A sender that breaks its contract: better no mail than two.
			failure = &SendError{Kind: Uncertain, Code: codeUntyped}
		}
		switch failure.Kind {
		case Permanent:
			return end(Failed, failure.Code)
		case Fatal:
			d.stop(fmt.Errorf("deliver: %w", failure))
			return end(Unsent, "")
		case Temporary:
			if d.ctx.Err() != nil {
				return end(Unsent, "")
			}
			if attempt >= d.MaxAttempts {
				return end(Failed, failure.Code)
			}
			select {
			case <-d.ctx.Done():
				return end(Unsent, "")
			case <-time.After(jitter(delay)):
			}
			delay = min(2*delay, max(time.Minute, d.RetryDelay))
		default:
			return end(UnknownFate, failure.Code)
		}
	}
}

// settle counts what ended and tells the ledger, many at a time: whatever came
// in while the last step was written goes into the next one.
func (d *delivery) settle() Stats {
	var stats Stats
	failedInRow := 0
	var sent []Receipt
	var released []Key
	for first := range d.ended {
		group := []ending{first}
	collect:
		for len(group) < 4*d.ClaimBatch {
			select {
			case e, ok := <-d.ended:
				if !ok {
					break collect
				}
				group = append(group, e)
			default:
				break collect
			}
		}
		if d.Ledger != nil {
			sent, released = sent[:0], released[:0]
			for _, e := range group {
				switch {
				case !e.claimed:
				case e.Result == Sent:
					sent = append(sent, Receipt{e.key, e.MessageID, e.Time})
				case e.Result == Failed, e.Result == Unsent:
					released = append(released, e.key)
				}
			}
			if len(sent)+len(released) > 0 {
				// Also when the run is being stopped: what is not recorded
				// is unknown to the next one.
				if err := d.Ledger.Settle(context.WithoutCancel(d.ctx), sent, released); err != nil {
					d.stop(fmt.Errorf("deliver: %w", err))
					// The claims stay open, and that is how the next run finds them.
					for i, e := range group {
						if e.claimed {
							group[i].Result, group[i].Code, group[i].MessageID = UnknownFate, codeNotRecorded, ""
						}
					}
				}
			}
		}
		for _, e := range group {
			stats.add(e.Outcome)
			switch e.Result {
			case Sent:
				failedInRow = 0
			case Failed:
				if e.Code == CodeAddress || e.Code == CodeTooLong || e.Code == CodeRow {
					break // the row is at fault, whatever the server does
				}
				if failedInRow++; failedInRow == d.MaxFailedInRow {
					d.stop(fmt.Errorf("deliver: %w", &AllFailedError{failedInRow, e.Code}))
				}
			}
			if d.OnOutcome != nil {
				d.OnOutcome(e.Outcome)
			}
		}
	}
	return stats
}

// AllFailedError stops a run in which nothing gets through.
type AllFailedError struct {
	Mails int    // how many failed in a row
	Code  string // of the last one
}

func (e *AllFailedError) Error() string {
	return fmt.Sprintf("the last %d mails all failed, the last one with %s: check the mail server, then run the same again", e.Mails, e.Code)
}

func errorCode(err error) string {
	var failure *SendError
	if errors.As(err, &failure) {
		return failure.Code
	}
	return CodeMessage
}
