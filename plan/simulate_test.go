package plan

import (
	"math"
	"testing"
)

func calm() Swarm {
	return Swarm{
		Children: 1000, BatchUsers: 10, BatchSec: 60, StartSec: 20, DispatchPerSec: 100, MaxConcurrency: 500,
		AccountConcurrency: 1000, RowBytes: 1000, RowsPerSec: 1e6, BufferMib: 128, BufferSec: 60, MailPerSec: 100,
	}
}

func TestSimulateAccountsForEveryRow(t *testing.T) {
	t.Parallel()
	for _, children := range []int64{1, 2, 499, 500, 501, 12_345, 300_000} {
		s := calm()
		s.Children, s.LastUsers = children, 3
		o := s.Simulate(7, true)
		last := o.Series[len(o.Series)-1]
		users := (children-1)*10 + 3
		if last.Written != users {
			t.Errorf("%d children: %d rows are in files, want %d", children, last.Written, users)
		}
		if last.Workers != 0 {
			t.Errorf("%d children: %d workers are still at it", children, last.Workers)
		}
		if last.Mailed < users-o.Files || last.Mailed > users {
			t.Errorf("%d children: %d mails are out, want %d", children, last.Mailed, users)
		}
		if !(o.GeneratedSec < o.WrittenSec && o.WrittenSec < o.LastMailSec && o.FirstMailSec <= o.LastMailSec) {
			t.Errorf("%d children: generated %v, written %v, mailed %v to %v", children, o.GeneratedSec, o.WrittenSec, o.FirstMailSec, o.LastMailSec)
		}
	}
}

func TestSimulateRates(t *testing.T) {
	t.Parallel()
	t.Run("concurrency", func(t *testing.T) {
		o := calm().Simulate(1, false)
		if o.PeakConcurrency != 500 || o.ColdStarts != 500 {
			t.Errorf("peak %d, cold starts %d, want 500 each", o.PeakConcurrency, o.ColdStarts)
		}
		if o.Throttles != 0 {
			t.Errorf("%d throttles at STANDARD's rate", o.Throttles)
		}
		// Two waves of 60 s, the first behind a start of 20 s and a ramp of 5 s.
		if o.GeneratedSec < 140 || o.GeneratedSec > 240 {
			t.Errorf("the last row is out after %v s, want about 150 s and a tail", o.GeneratedSec)
		}
	})
	t.Run("STANDARD dispatches 100 a second", func(t *testing.T) {
		s := calm()
		s.Children, s.MaxConcurrency, s.AccountConcurrency, s.BatchSec = 20_000, 10_000, 10_000, 1
		if o := s.Simulate(1, false); o.GeneratedSec < 200 {
			t.Errorf("20,000 children were dispatched in %v s", o.GeneratedSec)
		}
	})
	t.Run("EXPRESS overruns the scaling rate", func(t *testing.T) {
		s := calm()
		s.Children, s.MaxConcurrency, s.AccountConcurrency, s.DispatchPerSec = 10_000, 10_000, 10_000, ExpressStartsPerSec
		o := s.Simulate(1, true)
		if o.Throttles < 5000 {
			t.Errorf("%d throttles, want thousands: 1,000 starts a second against 100 environments", o.Throttles)
		}
		// 1,000 at once, then 100 a second.
		for _, m := range o.Series {
			if most := 1000 + 100*m.Sec + 10; float64(m.Workers) > most {
				t.Fatalf("after %v s %d workers run, want at most %.0f", m.Sec, m.Workers, most)
			}
		}
	})
	t.Run("the account's concurrency throttles", func(t *testing.T) {
		s := calm()
		s.AccountConcurrency = 50
		o := s.Simulate(1, false)
		if o.PeakConcurrency != 50 || o.Throttles < 450 {
			t.Errorf("peak %d, %d throttles in an account with 50", o.PeakConcurrency, o.Throttles)
		}
		if least := 1000.0 / 50 * 60; o.GeneratedSec < least {
			t.Errorf("done after %v s, want at least %v s", o.GeneratedSec, least)
		}
		if most := 1000.0/50*60*1.3 + 60; o.GeneratedSec > most {
			t.Errorf("done after %v s, want less than %v s: free environments stay idle", o.GeneratedSec, most)
		}
	})
	t.Run("Firehose", func(t *testing.T) {
		s := calm()
		s.RowsPerSec = 20
		o := s.Simulate(1, false)
		near(t, "10,000 rows at 20 a second", o.GeneratedSec, 520, 40)
		if o.FirehoseWaitSec <= 0 {
			t.Error("no worker waits for the full stream")
		}
	})
	t.Run("buffer", func(t *testing.T) {
		s := calm()
		short := s.Simulate(1, false)
		s.BufferSec = 900
		long := s.Simulate(1, false)
		if long.Files != 1 || short.Files < 2 {
			t.Errorf("buffers of 60 s and 900 s make %d and %d files", short.Files, long.Files)
		}
		if !(long.WrittenSec > long.GeneratedSec+600) {
			t.Errorf("a buffer of 900 s lands at %v s, the rows were there at %v s", long.WrittenSec, long.GeneratedSec)
		}
		s.RowBytes = 1 << 20 // 128 rows fill a buffer
		if full := s.Simulate(1, false); full.Files < 78 {
			t.Errorf("10,000 rows of 1 MiB make %d files of 128 MiB, want 78", full.Files)
		}
	})
	t.Run("mail", func(t *testing.T) {
		s := calm()
		s.MailPerSec = 200
		s.Children, s.BatchUsers, s.MaxConcurrency = 10_000, 100, 10_000
		o := s.Simulate(1, false)
		near(t, "minutes for 1,000,000 mails at 200/s", (o.LastMailSec-o.FirstMailSec)/60, 83.3, 1)
		s.HoldMailSec = 5000
		if held := s.Simulate(1, false); held.FirstMailSec != 5000 {
			t.Errorf("held until 5,000 s, the first mail is out at %v s", held.FirstMailSec)
		}
		s.HoldMailSec, s.MailAfterAll = 0, true
		if after := s.Simulate(1, false); after.FirstMailSec < after.WrittenSec {
			t.Errorf("the first mail is out at %v s, the last file landed at %v s", after.FirstMailSec, after.WrittenSec)
		}
	})
	t.Run("cold starts", func(t *testing.T) {
		s := calm()
		warm := s.Simulate(1, false).GeneratedSec
		s.StartSec = 220
		if cold := s.Simulate(1, false).GeneratedSec; cold < warm+100 {
			t.Errorf("200 s more to start moves the end from %v s to %v s only", warm, cold)
		}
	})
}

func TestSimulateIsReproducible(t *testing.T) {
	t.Parallel()
	a, b, c := calm().Simulate(3, false), calm().Simulate(3, false), calm().Simulate(4, false)
	if a.GeneratedSec != b.GeneratedSec || a.Files != b.Files {
		t.Error("the same seed gives two runs")
	}
	if a.GeneratedSec == c.GeneratedSec {
		t.Error("two seeds give the same run")
	}
}

// A run whose equal events are put together must end where the same run,
// event by event, ends.
func TestGroupingKeepsTheResult(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Swarm){
		"bound by workers":  func(*Swarm) {},
		"bound by dispatch": func(s *Swarm) { s.BatchSec, s.MaxConcurrency = 2, 5000 },
		"bound by Firehose": func(s *Swarm) { s.RowsPerSec = 60 },
		"few workers":       func(s *Swarm) { s.MaxConcurrency = 3 },
	} {
		s := calm()
		s.Children, s.AccountConcurrency = 150_000, 5000
		change(&s)
		r := &runner{Swarm: s}
		if wide, deep, _ := r.grouping(s.MaxConcurrency); wide*deep < 2 {
			t.Errorf("%s: nothing is put together, the test compares the same", name)
		}
		grouped, each := s.Simulate(1, false), s.exact(1)
		if d := math.Abs(grouped.GeneratedSec/each.GeneratedSec - 1); d > 0.01 {
			t.Errorf("%s: put together it ends after %.0f s, one by one after %.0f s (%.1f%%)", name, grouped.GeneratedSec, each.GeneratedSec, 100*d)
		}
		if d := math.Abs(float64(grouped.PeakConcurrency)/float64(each.PeakConcurrency) - 1); d > 0.15 {
			t.Errorf("%s: peak %d against %d", name, grouped.PeakConcurrency, each.PeakConcurrency)
		}
	}
}

// exact simulates every child on its own.
func (s Swarm) exact(seed uint64) Outcome {
	r := newRunner(s, seed, false)
	r.oneByOne = true
	r.run()
	return r.out
}

func TestAttempts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		sec  float64
		want int64
	}{{0, 1}, {0.5, 1}, {1, 2}, {3, 3}, {7, 4}, {59, 6}, {119, 8}} {
		if got := attempts(tt.sec); got != tt.want {
			t.Errorf("a wait of %v s takes %d refused calls, want %d", tt.sec, got, tt.want)
		}
	}
}

func BenchmarkEstimate1M(b *testing.B) { benchmarkEstimate(b, 1_000_000, 32, 16) }

func BenchmarkEstimate100M(b *testing.B) { benchmarkEstimate(b, 100_000_000, 32, 16) }

func BenchmarkEstimate100MUnbatched(b *testing.B) { benchmarkEstimate(b, 100_000_000, 1, 1) }

func benchmarkEstimate(b *testing.B, users int64, batch, parallel int) {
	in := Defaults()
	in.Users, in.BatchSize, in.ParallelSequences, in.MaxConcurrency = users, batch, parallel, 10_000
	for b.Loop() {
		if _, err := Estimate(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTune(b *testing.B) {
	for b.Loop() {
		if _, err := Tune(Defaults(), MinimiseCost, 3600); err != nil {
			b.Fatal(err)
		}
	}
}
