package normalise

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"path"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
	"github.com/briefing-swarm/briefing-swarm/runtime/idtable"
	"github.com/briefing-swarm/briefing-swarm/runtime/object"
	"github.com/briefing-swarm/briefing-swarm/runtime/recipe"
)

// Event says what to read, as the run's first state does.
type Event struct {
	// RunID names the run: up to 128 letters, digits and ._:+-
	RunID string `json:"run_id"`
	object.Ref
	// Format is auto, csv or jsonl; empty is auto.
	Format string `json:"format,omitempty"`
	// Limit stops after that many records, for a trial; 0 reads all.
	Limit int64 `json:"limit,omitempty"`
}

// Result is what the run's next states decide on, and what reconcile reads
// again as input.json.
type Result struct {
	RunID string     `json:"run_id"`
	Input InputFacts `json:"input"`
	// Normalised holds the records, Rejects one line for each fault, Facts this
	// result.
	Normalised object.Ref `json:"normalised"`
	Rejects    object.Ref `json:"rejects"`
	Facts      object.Ref `json:"facts"`

	// Records is the number of lines of Normalised, Rejected that of input rows
	// that became none.
	Records  int64            `json:"records"`
	Rejected int64            `json:"rejected"`
	ByCode   map[string]int64 `json:"rejects_by_code"`
	// FailedRows is the number of rejected users that have a failed row already,
	// since their user_id could be read.
	FailedRows int64 `json:"failed_rows"`
	// Limited says that Limit left rows unread.
	Limited bool `json:"limited"`

	Estimate  Estimate  `json:"estimate"`
	StartedAt time.Time `json:"started_at"`
}

// InputFacts identify the input.
type InputFacts struct {
	object.Ref
	Format string `json:"format"`
	Gzip   bool   `json:"gzip"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Estimate is what the run will take, by the figures that the deployment's plan
// has found.
type Estimate struct {
	USD     float64 `json:"usd"`
	Seconds float64 `json:"compute_seconds"` // over all workers
	// CeilingUSD is 0 where there is none. WithinCeiling is true then.
	CeilingUSD    float64 `json:"ceiling_usd"`
	WithinCeiling bool    `json:"within_ceiling"`
}

// Handler normalises.
type Handler struct {
	S3 *s3.Client
	// Sink returns where the rows of rejected users go.
	Sink func(ctx context.Context) gather.Sink
	Log  *slog.Logger
	Settings
}

// EventError says what is wrong with an event. Trying again can't help.
type EventError struct {
	Field, Want string
}

func (e *EventError) Error() string { return fmt.Sprintf("event: %s: want %s", e.Field, e.Want) }

// InputError says that the input file as a whole can't be used. Trying again
// can't help.
type InputError struct {
	Ref object.Ref
	Err error
}

func (e *InputError) Error() string { return fmt.Sprintf("input %s: %v", e.Ref, e.Err) }

func (e *InputError) Unwrap() error { return e.Err }

var runIDs = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:+-]{0,127}$`)

func (e Event) validate() (briefing.Format, error) {
	var faults []error
	if !runIDs.MatchString(e.RunID) {
		faults = append(faults, &EventError{"run_id", "up to 128 letters, digits or ._:+-"})
	}
	if e.Bucket == "" || e.Key == "" {
		faults = append(faults, &EventError{"bucket and key", "the input object"})
	}
	if e.Limit < 0 {
		faults = append(faults, &EventError{"limit", "0 or more"})
	}
	if e.Format == "" {
		e.Format = briefing.FormatAuto.String()
	}
	format, err := briefing.ParseFormat(e.Format)
	if err != nil {
		faults = append(faults, &EventError{"format", "auto, csv or jsonl"})
	}
	return format, errors.Join(faults...)
}

// Names of a run's objects, under RunPrefix.
const (
	NormalisedName = "normalised.jsonl"
	RejectsName    = "rejects.jsonl"
	FactsName      = "input.json"
)

// RunPrefix is where the objects of a run lie.
func RunPrefix(runID string) string { return path.Join("runs", runID) + "/" }

// Handle reads the input and writes what comes of it under RunPrefix. Nothing of
// it appears where it fails. Called again for the same run it does the same
// again; rows of rejected users may then be there twice.
func (h *Handler) Handle(ctx context.Context, e Event) (result Result, err error) {
	format, err := e.validate()
	if err != nil {
		return Result{}, err
	}
	place := func(name string) object.Ref {
		return object.Ref{Bucket: h.RunsBucket, Key: RunPrefix(e.RunID) + name}
	}
	result = Result{
		RunID: e.RunID, Normalised: place(NormalisedName), Rejects: place(RejectsName), Facts: place(FactsName),
		Input: InputFacts{Ref: e.Ref}, StartedAt: recipe.Now(),
	}
	table := idtable.New(idtable.Options{MemoryIDs: h.MemoryIDs, MaxIDs: h.MaxRecords, Dir: h.TempDir})
	defer func() { err = errors.Join(err, table.Close()) }()
	summary, err := h.normalise(ctx, e, format, table, result)
	if err != nil {
		return Result{}, err
	}
	result.Records, result.Rejected, result.ByCode, result.Limited = summary.Records, summary.Rejected, summary.ByCode, summary.Limited
	result.Input.Format, result.Input.Gzip, result.Input.Bytes, result.Input.SHA256 = summary.Format.String(), summary.Gzip, summary.InputBytes, summary.SHA256
	if result.FailedRows, err = h.writeFailedRows(ctx, e.RunID, &summary, result.Rejects); err != nil {
		return Result{}, err
	}
	result.Estimate = h.estimate(result.Records)
	facts, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return Result{}, fmt.Errorf("encode the facts of the input: %w", err)
	}
	if err := object.Put(ctx, h.S3, result.Facts, append(facts, '\n')); err != nil {
		return Result{}, err
	}
	h.Log.InfoContext(ctx, "normalised", "run_id", e.RunID, "records", result.Records, "rejected", result.Rejected, "input_bytes", result.Input.Bytes,
		"spilled_ids", table.Spilled(), "estimate_usd", result.Estimate.USD, "sec", time.Since(result.StartedAt).Seconds())
	return result, nil
}

// normalise streams the input through.
func (h *Handler) normalise(ctx context.Context, e Event, format briefing.Format, table *idtable.Table, result Result) (s briefing.Summary, err error) {
	in, err := object.Open(ctx, h.S3, e.Ref)
	if err != nil {
		return s, err
	}
	defer in.Close() // opened for reading: nothing to lose
	reader, err := briefing.NewReader(bufio.NewReaderSize(in, 1<<20), briefing.ReaderOptions{Format: format, Name: path.Base(e.Key)})
	if err != nil {
		return s, inputError(e.Ref, err)
	}
	out, rejects := object.Create(ctx, h.S3, result.Normalised), object.Create(ctx, h.S3, result.Rejects)
	defer func() {
		if err != nil {
			err = errors.Join(err, out.Abort(), rejects.Abort())
		}
	}()
	s, err = briefing.Normalise(ctx, reader, out, rejects, briefing.NormaliseOptions{Limit: e.Limit, IDs: (*ids)(table)})
	if err != nil {
		return s, inputError(e.Ref, err)
	}
	if s.Records == 0 {
		return s, &InputError{Ref: e.Ref, Err: fmt.Errorf("none of its %d rows is a record (%s): correct the file", s.Rejected, mostCommon(s.ByCode))}
	}
	// The rejects first: where the records are, the rest is too.
	if err := rejects.Close(); err != nil {
		return s, err
	}
	return s, out.Close()
}

// inputError tells a file that can't be used from a failure of the moment.
func inputError(ref object.Ref, err error) error {
	var file *briefing.FileError
	var read *briefing.ReadError
	var full *idtable.FullError
	var missing *object.NotFoundError
	var changed *object.ChangedError
	switch {
	case errors.As(err, &missing), errors.As(err, &changed):
		return err
	case errors.As(err, &file), errors.As(err, &full):
		return &InputError{Ref: ref, Err: err}
	case errors.As(err, &read) && errors.Is(err, io.ErrUnexpectedEOF):
		return &InputError{Ref: ref, Err: err}
	}
	return err
}

func mostCommon(byCode map[string]int64) string {
	best := "no rows"
	var n int64
	for code, count := range byCode {
		if count > n || count == n && code < best {
			best, n = code, count
		}
	}
	return best
}

// ids makes a table the memory of Normalise.
type ids idtable.Table

// Add implements briefing.IDs.
func (t *ids) Add(id []byte, row int64) (first int64, added bool, err error) {
	table := (*idtable.Table)(t)
	known, ok, err := table.Get(id)
	if err != nil || ok {
		return int64(known), false, err
	}
	return row, true, table.Put(id, uint32(min(row, math.MaxUint32)))
}

// writeFailedRows gives each rejected user whose id is known a row.
func (h *Handler) writeFailedRows(ctx context.Context, runID string, summary *briefing.Summary, rejects object.Ref) (n int64, err error) {
	if summary.Rejected == 0 {
		return 0, nil
	}
	in, err := object.Open(ctx, h.S3, rejects)
	if err != nil {
		return 0, err
	}
	defer in.Close() // opened for reading: nothing to lose
	sink := h.Sink(ctx)
	for row, err := range summary.FailedRows(in) {
		if err != nil {
			return n, err
		}
		row.RunID, row.Model, row.GeneratedAt = runID, h.ModelName, recipe.Now()
		if err := sink.Write(row); err != nil {
			return n, fmt.Errorf("keep the rows of rejected users: %w", err)
		}
		n++
	}
	if err := sink.Flush(); err != nil {
		return n, fmt.Errorf("keep the rows of rejected users: %w", err)
	}
	return n, nil
}

func (h *Handler) estimate(records int64) Estimate {
	e := Estimate{
		USD: float64(records) * h.USDPerRecord, Seconds: float64(records) * h.SecPerRecord,
		CeilingUSD: h.CeilingUSD, WithinCeiling: true,
	}
	e.USD = math.Round(e.USD*10_000) / 10_000
	if e.CeilingUSD > 0 {
		e.WithinCeiling = e.USD <= e.CeilingUSD
	}
	return e
}
