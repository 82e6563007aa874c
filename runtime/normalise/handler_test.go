package normalise_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/internal/golden"
	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/runtime/awsclient"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
	"github.com/briefing-swarm/briefing-swarm/runtime/idtable"
	"github.com/briefing-swarm/briefing-swarm/runtime/normalise"
	"github.com/briefing-swarm/briefing-swarm/runtime/object"
)

// rows is a sink that remembers.
type rows struct{ all []briefing.Row }

func (r *rows) Write(more ...briefing.Row) error { r.all = append(r.all, more...); return nil }
func (r *rows) FlushDue() error                  { return nil }
func (r *rows) Flush() error                     { return nil }
func (r *rows) Pending() int                     { return 0 }

func handler(t *testing.T, c *awsclient.Clients, sink gather.Sink) *normalise.Handler {
	return &normalise.Handler{
		S3: c.S3, Sink: func(context.Context) gather.Sink { return sink }, Log: slog.New(slog.DiscardHandler),
		Settings: normalise.Settings{RunsBucket: "runs", ModelName: "m", USDPerRecord: 0.00016, SecPerRecord: 3, CeilingUSD: 1, TempDir: t.TempDir()},
	}
}

const faulty = `user_id,email,name,city
u-1,ana@example.com,Ana,Lisboa
u-2,not an address,Bob,Porto
u-1,again@example.com,Ana again,Faro
u-2,bob@example.com,Bob,Porto
u-3,cid@example.com,Cid
,nobody@example.com,Nobody,Braga
u-4,,Dora,Évora
u-5,eva@@example.com,Eva,Beja
`

func TestHandle(t *testing.T) {
	server := mototest.Start(t)
	front := mototest.NewFront(t, server)
	c := mototest.Clients(t, front.URL)
	mototest.Bucket(t, c, "inputs")
	mototest.Bucket(t, c, "runs")

	t.Run("faulty", func(t *testing.T) {
		mototest.Put(t, c, "inputs", "users.csv", []byte(faulty))
		sink := &rows{}
		result, err := handler(t, c, sink).Handle(t.Context(), normalise.Event{RunID: "run-1", Ref: object.Ref{Bucket: "inputs", Key: "users.csv"}})
		if err != nil {
			t.Fatal(err)
		}
		result.StartedAt = time.Time{}
		golden.JSON(t, "faulty.result.json", result)
		golden.Text(t, "faulty.normalised.jsonl", string(mototest.Get(t, c, "runs", "runs/run-1/normalised.jsonl")))
		golden.Text(t, "faulty.rejects.jsonl", string(mototest.Get(t, c, "runs", "runs/run-1/rejects.jsonl")))
		for i := range sink.all {
			if sink.all[i].GeneratedAt.IsZero() {
				t.Error("a row has no time")
			}
			sink.all[i].GeneratedAt = result.StartedAt
		}
		golden.JSON(t, "faulty.rows.json", sink.all)
		var facts normalise.Result
		if err := json.Unmarshal(mototest.Get(t, c, "runs", "runs/run-1/input.json"), &facts); err != nil || facts.Records != result.Records {
			t.Errorf("input.json has %d records, error %v", facts.Records, err)
		}
	})

	t.Run("gzip_and_failures", func(t *testing.T) {
		const users = 60_000
		var text, packed bytes.Buffer
		for i := range users {
			fmt.Fprintf(&text, `{"user_id":"u-%d","email":"u%d@example.com","note":"%s"}`+"\n", i, i, strings.Repeat("x", i%997))
		}
		z := gzip.NewWriter(&packed)
		if _, err := z.Write(text.Bytes()); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		mototest.Put(t, c, "inputs", "users.jsonl.gz", packed.Bytes())
		for seed := range uint64(3) {
			front.FailAtRandom(seed, 0.1)
			h := handler(t, c, &rows{})
			h.MemoryIDs = 10_000 // most ids are on disk
			result, err := h.Handle(t.Context(), normalise.Event{RunID: "run-2", Ref: object.Ref{Bucket: "inputs", Key: "users.jsonl.gz"}})
			front.Fail(nil)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if result.Records != users || result.Rejected != 0 || !result.Input.Gzip {
				t.Errorf("seed %d: %+v", seed, result)
			}
			if got := mototest.Get(t, c, "runs", result.Normalised.Key); !bytes.Equal(got, text.Bytes()) {
				t.Errorf("seed %d: %d bytes were read, %d written", seed, text.Len(), len(got))
			}
			if e := result.Estimate; e.USD != 9.6 || e.WithinCeiling || e.Seconds != 3*users {
				t.Errorf("estimate %+v", e)
			}
			if left, err := os.ReadDir(h.TempDir); err != nil || len(left) > 0 {
				t.Errorf("%d temporary files are left", len(left))
			}
		}
	})

	for name, test := range map[string]struct {
		body  []byte
		event normalise.Event
		want  any
	}{
		"missing":    {event: normalise.Event{RunID: "r", Ref: object.Ref{Bucket: "inputs", Key: "none"}}, want: new(*object.NotFoundError)},
		"empty":      {body: []byte(""), want: new(*normalise.InputError)},
		"workbook":   {body: []byte("PK\x03\x04 and so on"), want: new(*normalise.InputError)},
		"no user":    {body: []byte("user_id,email\n,x\n"), want: new(*normalise.InputError)},
		"too many":   {body: []byte("user_id\n1\n2\n3\n4\n"), want: new(*idtable.FullError)},
		"cut gzip":   {body: []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x2a"), want: new(*normalise.InputError)},
		"no run":     {body: []byte("user_id\n1\n"), event: normalise.Event{RunID: "../x", Ref: object.Ref{Bucket: "inputs", Key: "x"}}, want: new(*normalise.EventError)},
		"bad format": {body: []byte("user_id\n1\n"), event: normalise.Event{RunID: "r", Format: "xlsx", Ref: object.Ref{Bucket: "inputs", Key: "x"}}, want: new(*normalise.EventError)},
	} {
		t.Run("refused/"+name, func(t *testing.T) {
			front.Fail(nil)
			key := "refused-" + strings.ReplaceAll(name, " ", "-")
			if test.body != nil {
				mototest.Put(t, c, "inputs", key, test.body)
			}
			if test.event.RunID == "" {
				test.event = normalise.Event{RunID: key, Ref: object.Ref{Bucket: "inputs", Key: key}}
			}
			h := handler(t, c, &rows{})
			h.MaxRecords = 3
			_, err := h.Handle(t.Context(), test.event)
			if err == nil || !errors.As(err, test.want) {
				t.Fatalf("error %v is no %T", err, test.want)
			}
			if keys := mototest.Keys(t, c, "runs", "runs/"+test.event.RunID+"/"); len(keys) > 0 {
				t.Errorf("%v were written", keys)
			}
		})
	}

	t.Run("limit", func(t *testing.T) {
		front.Fail(nil)
		mototest.Put(t, c, "inputs", "many.csv", []byte("user_id\n1\n2\n3\n4\n"))
		result, err := handler(t, c, &rows{}).Handle(t.Context(), normalise.Event{RunID: "trial", Limit: 2, Ref: object.Ref{Bucket: "inputs", Key: "many.csv"}})
		if err != nil || result.Records != 2 || !result.Limited || !result.Estimate.WithinCeiling {
			t.Errorf("%+v, error %v", result, err)
		}
	})
}

func TestReadSettings(t *testing.T) {
	t.Parallel()
	env := map[string]string{}
	if _, err := normalise.ReadSettings(func(k string) string { return env[k] }); err == nil ||
		!strings.Contains(err.Error(), "SWARM_RUNS_BUCKET is not set") || !strings.Contains(err.Error(), "SWARM_FIREHOSE_STREAM is not set") {
		t.Errorf("error %v", err)
	}
	env = map[string]string{
		"SWARM_RUNS_BUCKET": "runs", "SWARM_FIREHOSE_STREAM": "s", "SWARM_MODEL_NAME": "m", "SWARM_USD_PER_RECORD": "0.0002",
		"SWARM_SEC_PER_RECORD": "3", "SWARM_CEILING_USD_PER_RUN": "200", "SWARM_MAX_RECORDS": "7", "SWARM_USER_IDS_IN_MEMORY": "5",
	}
	got, err := normalise.ReadSettings(func(k string) string { return env[k] })
	want := normalise.Settings{RunsBucket: "runs", Stream: "s", ModelName: "m", USDPerRecord: 0.0002, SecPerRecord: 3, CeilingUSD: 200, MaxRecords: 7, MemoryIDs: 5}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, d)
	}
	for _, name := range []string{"SWARM_USD_PER_RECORD", "SWARM_CEILING_USD_PER_RUN", "SWARM_MAX_RECORDS"} {
		for _, bad := range []string{"x", "-1", "NaN"} {
			_, err := normalise.ReadSettings(func(k string) string {
				if k == name {
					return bad
				}
				return env[k]
			})
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s=%s: error %v", name, bad, err)
			}
		}
	}
}
