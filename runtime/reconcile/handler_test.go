package reconcile_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/briefing-swarm/briefing-swarm/internal/golden"
	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/runtime/awsclient"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/normalise"
	"github.com/briefing-swarm/briefing-swarm/runtime/object"
	"github.com/briefing-swarm/briefing-swarm/runtime/reconcile"
)

func handler(t *testing.T, c *awsclient.Clients) *reconcile.Handler {
	return &reconcile.Handler{S3: c.S3, Log: slog.New(slog.DiscardHandler), Settings: reconcile.Settings{
		RunsBucket: "runs", BriefingsBucket: "out", BriefingsPrefix: "briefings/", TempDir: t.TempDir(),
	}}
}

// normalised writes what the first step of a run leaves.
func normalised(t *testing.T, c *awsclient.Clients, runID string, records, rejects string, failedRows int64) {
	t.Helper()
	place := func(name string) object.Ref {
		return object.Ref{Bucket: "runs", Key: normalise.RunPrefix(runID) + name}
	}
	facts := normalise.Result{
		RunID: runID, Normalised: place(normalise.NormalisedName), Rejects: place(normalise.RejectsName), Facts: place(normalise.FactsName),
		Records: int64(strings.Count(records, "\n")), Rejected: int64(strings.Count(rejects, "\n")), FailedRows: failedRows,
		ByCode: map[string]int64{"email_invalid": int64(strings.Count(rejects, "\n"))}, StartedAt: time.Now().UTC(),
	}
	text, err := json.Marshal(facts)
	if err != nil {
		t.Fatal(err)
	}
	mototest.Put(t, c, "runs", facts.Normalised.Key, []byte(records))
	mototest.Put(t, c, "runs", facts.Rejects.Key, []byte(rejects))
	mototest.Put(t, c, "runs", facts.Facts.Key, text)
}

func row(runID, user, status, code string) briefing.Row {
	r := briefing.Row{RunID: runID, UserID: user, Status: status, ErrorCode: code, Briefing: strings.Repeat("long text ", 40), PromptTokens: 10, CachedTokens: 8, CompletionTokens: 5}
	if status == briefing.StatusOK {
		r.FinishReason = briefing.FinishStop
	}
	return r
}

// parquetFile writes rows in row groups of size.
func parquetFile(t *testing.T, rows []briefing.Row, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[briefing.Row](&b)
	for len(rows) > 0 {
		n := min(size, len(rows))
		if _, err := w.Write(rows[:n]); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		rows = rows[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestHandle(t *testing.T) {
	server := mototest.Start(t)
	front := mototest.NewFront(t, server)
	c := mototest.Clients(t, front.URL)
	mototest.Bucket(t, c, "runs")
	mototest.Bucket(t, c, "out")

	t.Run("every_kind_of_user", func(t *testing.T) {
		normalised(t, c, "run-1", `{"user_id":"good"}
{"user_id":"bad","note":"kept <as> it is"}
{"user_id":"twice"}
{"user_id":"bad-then-good"}
{"user_id":"good-then-bad"}
{"user_id":"lost"}
`, `{"row":7,"line":8,"code":"email_invalid","message":"m","user_id":"rejected"}
{"row":8,"line":9,"code":"email_invalid","message":"m","user_id":"rejected-lost"}
{"row":9,"line":10,"code":"email_invalid","message":"m","user_id":"rejected-lost"}
{"row":10,"line":11,"code":"user_id_duplicate","message":"m","user_id":"lost"}
{"row":11,"line":12,"code":"user_id_missing","message":"m"}
`, 2)
		ok, failed := briefing.StatusOK, briefing.StatusFailed
		mototest.Put(t, c, "out", "briefings/2026/11/30/a.parquet", parquetFile(t, []briefing.Row{
			row("run-1", "good", ok, ""), row("run-1", "bad", failed, "prompt_too_long"), row("run-1", "twice", ok, ""), row("run-1", "twice", ok, ""),
			row("run-1", "bad-then-good", failed, "engine_error"), row("run-1", "good-then-bad", ok, ""), row("run-0", "lost", ok, ""),
		}, 2))
		mototest.Put(t, c, "out", "briefings/2026/11/30/b.parquet", parquetFile(t, []briefing.Row{
			row("run-1", "bad-then-good", ok, ""), row("run-1", "good-then-bad", failed, "engine_error"), row("run-1", "rejected", failed, "email_invalid"),
			row("run-1", "stranger", ok, ""),
		}, 100))
		mototest.Put(t, c, "out", "briefings/2026/11/30/other.parquet", parquetFile(t, []briefing.Row{row("run-0", "x", ok, "")}, 1))
		m, err := handler(t, c).Handle(t.Context(), reconcile.Event{RunID: "run-1"})
		if err != nil {
			t.Fatal(err)
		}
		var stored reconcile.Manifest
		if err := json.Unmarshal(mototest.Get(t, c, "runs", m.Manifest.Key), &stored); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(m, stored); d != "" {
			t.Errorf("returned and stored manifest (-returned +stored):\n%s", d)
		}
		m.StartedAt, m.ReconciledAt = time.Time{}, time.Time{}
		m.Briefings.Bytes, m.Briefings.BytesRead = 0, 0
		golden.JSON(t, "manifest.json", m)
		want := `{"user_id":"bad","note":"kept <as> it is"}` + "\n" + `{"user_id":"lost"}` + "\n"
		if d := cmp.Diff(want, string(mototest.Get(t, c, "runs", m.Rerun.Key))); d != "" {
			t.Errorf("rerun (-want +got):\n%s", d)
		}
	})

	t.Run("large_and_failing", func(t *testing.T) {
		const users = 30_000
		var records strings.Builder
		var rows []briefing.Row
		for i := range users {
			fmt.Fprintf(&records, "{\"user_id\":\"u-%d\"}\n", i)
			r := row("run-2", fmt.Sprintf("u-%d", i), briefing.StatusOK, "")
			r.Briefing = fmt.Sprintf("%x", sha(i)) // nothing that compresses
			rows = append(rows, r)
		}
		normalised(t, c, "run-2", records.String(), "", 0)
		file := parquetFile(t, rows, 7000)
		mototest.Put(t, c, "out", "briefings/large.parquet", file)
		for seed := range uint64(3) {
			front.FailAtRandom(seed, 0.1)
			h := handler(t, c)
			h.MemoryIDs = 5000
			m, err := h.Handle(t.Context(), reconcile.Event{RunID: "run-2"})
			front.Fail(nil)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if !m.Complete || m.State != reconcile.StateComplete || m.Counts.OK != users || m.Counts.Unexpected != 0 || m.RerunCount != 0 {
				t.Errorf("seed %d: %+v", seed, m.Counts)
			}
			if seed == 0 && m.Briefings.BytesRead > int64(len(file))/3 {
				t.Errorf("%d of %d bytes were read for some small columns", m.Briefings.BytesRead, len(file))
			}
			if rerun := mototest.Get(t, c, "runs", m.Rerun.Key); len(rerun) != 0 {
				t.Errorf("the rerun has %d bytes", len(rerun))
			}
		}
	})

	t.Run("before_firehose", func(t *testing.T) {
		normalised(t, c, "run-3", "{\"user_id\":\"a\"}\n", "", 0)
		m, err := handler(t, c).Handle(t.Context(), reconcile.Event{RunID: "run-3"})
		if err != nil || m.Complete || m.Counts.Missing != 1 || m.RerunCount != 1 {
			t.Errorf("%+v, error %v", m, err)
		}
	})

	t.Run("damaged", func(t *testing.T) {
		normalised(t, c, "run-4", "{\"user_id\":\"a\"}\n", "", 0)
		mototest.Put(t, c, "out", "briefings/damaged.parquet", []byte("PAR1 and no more"))
		if _, err := handler(t, c).Handle(t.Context(), reconcile.Event{RunID: "run-4"}); err == nil || !strings.Contains(err.Error(), "briefings/damaged.parquet") {
			t.Errorf("error %v", err)
		}
	})

	t.Run("unknown_run", func(t *testing.T) {
		if _, err := handler(t, c).Handle(t.Context(), reconcile.Event{RunID: "none"}); err == nil || !strings.Contains(err.Error(), "runs/none/input.json") {
			t.Errorf("error %v", err)
		}
		if _, err := handler(t, c).Handle(t.Context(), reconcile.Event{}); err == nil {
			t.Error("no run is a run")
		}
	})
}

func TestReadSettings(t *testing.T) {
	t.Parallel()
	_, err := reconcile.ReadSettings(func(string) string { return "" })
	for _, name := range []string{"SWARM_RUNS_BUCKET", "SWARM_BRIEFINGS_BUCKET", "SWARM_BRIEFINGS_PREFIX"} {
		if err == nil || !strings.Contains(err.Error(), name+" is not set") {
			t.Errorf("error %v does not name %s", err, name)
		}
	}
	env := map[string]string{"SWARM_RUNS_BUCKET": "r", "SWARM_BRIEFINGS_BUCKET": "b", "SWARM_BRIEFINGS_PREFIX": "briefings", "SWARM_MAX_RECORDS": "0"}
	if _, err := reconcile.ReadSettings(func(k string) string { return env[k] }); err == nil ||
		!strings.Contains(err.Error(), "end with /") || !strings.Contains(err.Error(), "SWARM_MAX_RECORDS") {
		t.Errorf("error %v", err)
	}
}

// sha returns bytes that no two numbers have in common.
func sha(i int) []byte {
	var all []byte
	for j := range 10 {
		sum := sha256.Sum256(fmt.Append(nil, i, j))
		all = append(all, sum[:]...)
	}
	return all
}
