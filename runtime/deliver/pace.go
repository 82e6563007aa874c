package deliver

import (
	"context"
	"time"
)

const (
	// paceShare is how much of its rate a Pace uses, and paceDebt how much
	// lateness it makes up for. The two belong together: 1 % of a second is
	// what 10 ms of lateness can push into it.
	paceShare = 0.99
	paceDebt  = 10 * time.Millisecond
)

// Pace lets mails go one by one, evenly spaced: a token bucket that holds one
// token. No second sees more mails than the rate, whatever timers and callers do,
// and over time 99 % of the rate is used. It can be shared by any number of
// deliveries, which then keep to the rate together.
type Pace struct {
	interval time.Duration
	turn     chan struct{} // holds one value: whose turn it is to wait
	due      time.Time     // when the next mail may go; whoever has the turn holds it
}

// NewPace returns a Pace of so many mails a second, which must be above 0.
func NewPace(ratePerSec float64) *Pace {
	p := &Pace{interval: max(1, time.Duration(float64(time.Second)/(ratePerSec*paceShare))), turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	return p
}

// Wait returns when the next mail may go, or with the error of a ctx that ended.
// Where ctx has a deadline before that, it returns context.DeadlineExceeded at
// once.
func (p *Pace) Wait(ctx context.Context) error {
	select {
	case <-p.turn:
		defer func() { p.turn <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	now := time.Now()
	if wait := p.due.Sub(now); wait > 0 {
		if deadline, ok := ctx.Deadline(); ok && deadline.Before(p.due) {
			return context.DeadlineExceeded
		}
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		now = time.Now()
	}
	// A bucket that was full for a while still holds one token only.
	if earliest := now.Add(-paceDebt); p.due.Before(earliest) {
		p.due = earliest
	}
	p.due = p.due.Add(p.interval)
	return nil
}
