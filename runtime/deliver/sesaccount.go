package deliver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
)

// AccountShare is how much of an account's rate all workers together use. The
// rest is for the account's other mail, and for clocks that differ.
const AccountShare = 0.9

// SESAccount is what an account may send in its region.
type SESAccount struct {
	RatePerSec float64 // mails a second; a mail to one address counts one
	PerDay     float64 // in any 24 hours; negative: no limit
	SentToday  float64 // in the last 24 hours
	Enabled    bool    // sending is not paused
	Production bool    // not in the sandbox, where every recipient must be verified
	Standing   string  // HEALTHY, PROBATION or SHUTDOWN
}

// ReadSESAccount asks SES. The call is limited to one a second for the account,
// so the client should retry.
func ReadSESAccount(ctx context.Context, client *sesv2.Client) (SESAccount, error) {
	out, err := client.GetAccount(ctx, &sesv2.GetAccountInput{})
	if err != nil {
		return SESAccount{}, fmt.Errorf("ask SES what the account may send: %w", err)
	}
	a := SESAccount{Enabled: out.SendingEnabled, Production: out.ProductionAccessEnabled, Standing: aws.ToString(out.EnforcementStatus)}
	if q := out.SendQuota; q != nil {
		a.RatePerSec, a.PerDay, a.SentToday = q.MaxSendRate, q.Max24HourSend, q.SentLast24Hours
	}
	return a, nil
}

// Left returns how many mails may still go in these 24 hours; negative: no limit.
func (a SESAccount) Left() float64 {
	if a.PerDay < 0 {
		return -1
	}
	return max(0, a.PerDay-a.SentToday)
}

// Err returns a Fatal *SendError where the account can send nothing now, else nil.
func (a SESAccount) Err() error {
	switch {
	case !a.Enabled || a.Standing == "SHUTDOWN":
		return sesFailure("SendingPausedException", "", 0)
	case a.Left() == 0:
		return sesFailure("LimitExceededException", "daily quota", 0)
	case !(a.RatePerSec > 0):
		return &SendError{Kind: Fatal, Code: CodeSESSetup, Err: errors.New("SES names no sending rate for the account: check the region")}
	}
	return nil
}

// WorkerRate returns the mails per second for each of so many workers.
func (a SESAccount) WorkerRate(workers int) float64 {
	return a.RatePerSec * AccountShare / float64(max(1, workers))
}

// UseSES sets how mails go through SES at a rate: Sender, Workers and ClaimBatch.
// Mails that are claimed and not sent when the process dies are unknown, so few
// are claimed ahead.
func (o *Options) UseSES(client *sesv2.Client, configurationSet string, bulk bool, ratePerSec float64) {
	if bulk {
		// A call a second, with the mails that the pace has let go by then.
		size := max(1, min(MaxBulk, int(ratePerSec)))
		linger := time.Duration(float64(size)/ratePerSec*float64(time.Second)) + 100*time.Millisecond
		o.Sender, o.Workers = NewSESBulk(client, configurationSet, size, min(linger, 2*time.Second)), size
	} else {
		// SES answers within a third of a second.
		o.Sender, o.Workers = NewSES(client, configurationSet), max(2, min(64, int(math.Ceil(ratePerSec*0.3))))
	}
	// A claim in DynamoDB takes some 10 ms, and these go side by side.
	o.ClaimBatch = max(1, min(8, int(ratePerSec/50)))
}
