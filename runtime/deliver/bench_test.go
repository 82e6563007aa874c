package deliver

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

// streamedRows yields n rows of an ordinary length, one user each, made as they
// are asked for.
func streamedRows(n int) iter.Seq2[briefing.Row, error] {
	samples := sampleRows()[:8]
	return func(yield func(briefing.Row, error) bool) {
		for i := range n {
			row := samples[i%len(samples)]
			row.UserID = fmt.Sprintf("user-%07d", i)
			if !yield(row, nil) {
				return
			}
		}
	}
}

// BenchmarkMail is the way of one mail from a row to its bytes, on one core.
func BenchmarkMail(b *testing.B) {
	composer := testComposer(b, nil)
	rows := sampleRows()[:8]
	var raw bytes.Buffer
	b.ReportAllocs()
	cpu := cpuSeconds()
	for i := 0; b.Loop(); i++ {
		message, err := composer.Compose(rows[i%len(rows)])
		if err != nil {
			b.Fatal(err)
		}
		raw.Reset()
		if _, err := message.WriteTo(&raw); err != nil {
			b.Fatal(err)
		}
	}
	reportRate(b, b.N, cpu)
}

// reportRate reports mails per second, and per second of one core: what a
// machine does that others use too.
func reportRate(b *testing.B, mails int, cpuBefore float64) {
	b.ReportMetric(float64(mails)/b.Elapsed().Seconds(), "mails/s")
	if used := cpuSeconds() - cpuBefore; used > 0 {
		b.ReportMetric(float64(mails)/used, "mails/core-s")
	}
}

// BenchmarkDeliver is a run of many mails to nowhere with one worker: without a
// ledger, and with the one in a file, whose speed is that of the disk's fsync.
// The heap it reports is the largest that was seen, and does not depend on the
// number of rows.
func BenchmarkDeliver(b *testing.B) {
	for _, c := range []struct {
		name   string
		mails  int
		ledger bool
	}{{"no ledger", 100_000, false}, {"file ledger", 10_000, true}} {
		b.Run(c.name, func(b *testing.B) {
			mails := c.mails
			composer := testComposer(b, nil)
			var heap uint64
			cpu := cpuSeconds()
			for b.Loop() {
				seen := 0
				options := Options{Composer: composer, Sender: Null{}, Workers: 1, OnOutcome: func(Outcome) {
					if seen++; seen%1_000 == 0 {
						var memory runtime.MemStats
						runtime.ReadMemStats(&memory)
						heap = max(heap, memory.HeapAlloc)
					}
				}}
				if c.ledger {
					ledger, err := OpenFileLedger(filepath.Join(b.TempDir(), "sent.db"))
					if err != nil {
						b.Fatal(err)
					}
					options.Ledger = ledger
				}
				stats, err := Deliver(context.Background(), streamedRows(mails), options)
				if err != nil || stats.Sent != mails {
					b.Fatalf("stats %+v, %v", stats, err)
				}
				if ledger, ok := options.Ledger.(*FileLedger); ok {
					if err := ledger.Close(); err != nil {
						b.Fatal(err)
					}
				}
			}
			reportRate(b, b.N*mails, cpu)
			b.ReportMetric(float64(heap)/(1<<20), "MiB-heap")
		})
	}
}
