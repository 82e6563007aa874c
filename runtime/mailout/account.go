package mailout

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sesv2"

	"github.com/briefing-swarm/briefing-swarm/runtime/deliver"
)

// rateAge is how old a rate may be that SES was asked for.
const rateAge = 10 * time.Minute

// account knows how fast one worker may send. Its Pace lives as long as the
// process, so that batches that follow each other keep to the rate together.
type account struct {
	ses      *sesv2.Client
	settings Settings
	log      *slog.Logger

	mu      sync.Mutex
	total   float64 // of all workers together
	asked   time.Time
	pace    *deliver.Pace
	perSec  float64 // of pace
	sandbox bool    // it was said already
}

// read returns the rate of all workers together, from the settings or from SES.
func (a *account) read(ctx context.Context) (float64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.readLocked(ctx)
}

func (a *account) readLocked(ctx context.Context) (float64, error) {
	if a.settings.RatePerSec > 0 {
		return a.settings.RatePerSec, nil
	}
	if a.total > 0 && time.Since(a.asked) < rateAge {
		return a.total, nil
	}
	account, err := deliver.ReadSESAccount(ctx, a.ses)
	if err != nil {
		if a.total > 0 {
			a.log.WarnContext(ctx, "the rate is the one of before", "error", err.Error())
			a.asked = time.Now()
			return a.total, nil
		}
		return 0, err
	}
	if err := account.Err(); err != nil {
		a.total = 0
		return 0, err
	}
	if !account.Production && !a.sandbox {
		a.sandbox = true
		a.log.WarnContext(ctx, "the SES account is in the sandbox: only verified addresses get mail")
	}
	a.total, a.asked = account.WorkerRate(1), time.Now()
	a.log.InfoContext(ctx, "rate", "mails_per_sec", a.total, "account_per_sec", account.RatePerSec, "left_in_24_hours", account.Left())
	return a.total, nil
}

// worker returns the Pace of this worker and its rate.
func (a *account) worker(ctx context.Context) (*deliver.Pace, float64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	total, err := a.readLocked(ctx)
	if err != nil {
		return nil, 0, err
	}
	if rate := total / float64(a.settings.Workers); a.pace == nil || rate != a.perSec {
		a.pace, a.perSec = deliver.NewPace(rate), rate
	}
	return a.pace, a.perSec, nil
}
