package gather_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/runtime/awsclient"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
)

// quick keeps waits short.
var quick = gather.FirehoseOptions{FirstPause: time.Millisecond, MaxPause: 5 * time.Millisecond, GiveUpAfter: 6, OpenFor: 200 * time.Millisecond}

// arrived returns the rows of a stream in the bucket, by number: moto's objects
// of one second have no order.
func arrived(t *testing.T, c *awsclient.Clients, bucket string) []briefing.Row {
	t.Helper()
	rows := mototest.Rows(t, c, bucket, "raw/")
	slices.SortStableFunc(rows, func(a, b briefing.Row) int { return int(a.CompletionTokens - b.CompletionTokens) })
	return rows
}

// TestFirehose runs all of it against one server; each part has its own stream.
func TestFirehose(t *testing.T) {
	server := mototest.Start(t)
	front := mototest.NewFront(t, server)
	c := mototest.Clients(t, front.URL)
	stream := func(t *testing.T, opt gather.FirehoseOptions) (*gather.Firehose, string) {
		front.Fail(nil)
		name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
		mototest.Bucket(t, c, name)
		mototest.Stream(t, c, name, name, "raw/")
		return gather.NewFirehose(c.Firehose, name, opt), name
	}

	t.Run("rows", func(t *testing.T) {
		f, bucket := stream(t, quick)
		s := f.Session(t.Context())
		var want []briefing.Row
		for i := range 1201 {
			r := row(i)
			r.GeneratedAt = r.GeneratedAt.In(time.FixedZone("east", 7200)).Add(456 * time.Microsecond)
			r.Briefing = "a <b> & \u2028 \"c\""
			if err := s.Write(r); err != nil {
				t.Fatal(err)
			}
			r.GeneratedAt = r.GeneratedAt.UTC().Truncate(time.Millisecond)
			want = append(want, r)
		}
		if n := front.Calls("PutRecordBatch"); n != 2 || s.Pending() != 201 {
			t.Errorf("%d calls and %d rows pending after 1201 rows; want 2 and 201", n, s.Pending())
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, arrived(t, c, bucket)); d != "" {
			t.Errorf("(-written +arrived):\n%s", d)
		}
		if n := mototest.ConvertToParquet(t, c, bucket, "raw/", "parquet/"); n != len(want) {
			t.Errorf("%d rows convert, want %d", n, len(want))
		}
	})

	t.Run("large", func(t *testing.T) {
		f, bucket := stream(t, quick)
		s := f.Session(t.Context())
		for i := range 30 {
			r := row(i)
			r.Briefing = strings.Repeat("x", 400<<10)
			if i == 7 {
				r.Briefing = strings.Repeat("x", 1000<<10)
			}
			if err := s.Write(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		rows := arrived(t, c, bucket)
		if len(rows) != 30 {
			t.Fatalf("%d rows", len(rows))
		}
		for _, r := range rows {
			if tooLarge := r.UserID == "u-7"; (r.ErrorCode == gather.CodeRowTooLarge) != tooLarge || (r.Status == briefing.StatusFailed) != tooLarge {
				t.Errorf("user %s: status %s, code %s", r.UserID, r.Status, r.ErrorCode)
			}
		}
		// 29 x 400 KiB in calls of at most 3 MiB.
		if n := front.Calls("PutRecordBatch"); n != 5 {
			t.Errorf("%d calls, want 5", n)
		}
	})

	t.Run("partial_failures", func(t *testing.T) {
		f, bucket := stream(t, quick)
		front.Fail(func(call mototest.Call) mototest.Fault {
			if call.Operation == "PutRecordBatch" && call.N < 5 {
				return mototest.Partial
			}
			return mototest.None
		})
		s := f.Session(t.Context())
		for i := range 400 {
			if err := s.Write(row(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		if n := front.Faults()[mototest.Partial]; n != 5 {
			t.Fatalf("%d partial failures", n)
		}
		front.Fail(nil)
		// Only what was refused is sent again, so nothing is there twice.
		seen := map[string]int{}
		for _, r := range arrived(t, c, bucket) {
			seen[r.UserID]++
		}
		for i := range 400 {
			if n := seen[fmt.Sprint("u-", i)]; n != 1 {
				t.Errorf("user %d arrived %d times", i, n)
			}
		}
	})

	t.Run("throttled_for_good", func(t *testing.T) {
		f, _ := stream(t, quick)
		front.Fail(func(mototest.Call) mototest.Fault { return mototest.Throttle })
		s := f.Session(t.Context())
		if err := s.Write(row(0), row(1), row(2)); err != nil {
			t.Fatal(err)
		}
		err := s.Flush()
		var undelivered *gather.UndeliveredError
		if !errors.As(err, &undelivered) || !undelivered.Throttled {
			t.Fatalf("error %v", err)
		}
		if d := cmp.Diff([]int{0, 1, 2}, undelivered.Rows); d != "" || s.Pending() != 0 {
			t.Errorf("rows (-want +got), %d pending:\n%s", s.Pending(), d)
		}
		// While the circuit is open nothing is sent, by other sessions neither.
		calls := front.Calls("PutRecordBatch")
		other := f.Session(t.Context())
		if err := other.Write(row(3)); err != nil {
			t.Fatal(err)
		}
		if err := other.Flush(); !errors.As(err, &undelivered) || !undelivered.Throttled {
			t.Errorf("error %v", err)
		}
		if n := front.Calls("PutRecordBatch"); n != calls {
			t.Errorf("%d calls while the circuit is open", n-calls)
		}
		// Later it is tried, and closes.
		front.Fail(nil)
		time.Sleep(quick.OpenFor)
		if err := other.Write(row(4)); err != nil {
			t.Fatal(err)
		}
		if err := other.Flush(); err != nil {
			t.Errorf("after the rest: %v", err)
		}
	})

	t.Run("refused", func(t *testing.T) {
		stream(t, quick)
		f := gather.NewFirehose(c.Firehose, "no-such-stream", quick)
		s := f.Session(t.Context())
		if err := s.Write(row(0)); err != nil {
			t.Fatal(err)
		}
		err := s.Flush()
		var undelivered *gather.UndeliveredError
		if !errors.As(err, &undelivered) || undelivered.Throttled || len(undelivered.Rows) != 1 {
			t.Errorf("error %v", err)
		}
		if n := front.Calls("PutRecordBatch"); n != 1 {
			t.Errorf("%d calls, want 1: the answer stays the same", n)
		}
	})

	t.Run("due", func(t *testing.T) {
		opt := quick
		opt.FlushAfter = 20 * time.Millisecond
		f, _ := stream(t, opt)
		s := f.Session(t.Context())
		if err := s.Write(row(0)); err != nil {
			t.Fatal(err)
		}
		if err := s.FlushDue(); err != nil || s.Pending() != 1 {
			t.Errorf("a young row is sent: %v", err)
		}
		time.Sleep(opt.FlushAfter)
		if err := s.FlushDue(); err != nil || s.Pending() != 0 {
			t.Errorf("%d rows pending, error %v", s.Pending(), err)
		}
	})

	for seed := range uint64(5) {
		t.Run(fmt.Sprint("random_failures_", seed), func(t *testing.T) {
			f, bucket := stream(t, quick)
			front.FailAtRandom(seed, 0.3)
			s := f.Session(t.Context())
			for i := range 3000 {
				if err := s.Write(row(i)); err != nil {
					t.Fatal(err)
				}
				if i%100 == 99 {
					if err := s.FlushDue(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
			faults := front.Faults()
			front.Fail(nil)
			users := map[string]bool{}
			for _, r := range arrived(t, c, bucket) {
				users[r.UserID] = true
			}
			if len(users) != 3000 {
				t.Errorf("%d of 3000 users arrived with the faults %v", len(users), faults)
			}
		})
	}
}
