package local

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
	"github.com/briefing-swarm/briefing-swarm/runtime/recipe"
)

// ErrInterrupted says that the run was ended on request. What was done is kept.
var ErrInterrupted = errors.New("interrupted: the same command goes on from here")

// IncompleteError says that a run ended, but not every user has exactly one row.
type IncompleteError struct {
	Missing, Duplicate int64
}

func (e *IncompleteError) Error() string {
	return fmt.Sprintf("%d users have no row and %d have more than one: run again, and report this if it stays", e.Missing, e.Duplicate)
}

// run is one session of a run.
type run struct {
	Options
	manifest *Manifest
	summary  briefing.Summary
	sink     *gather.ParquetDir
	done     idSet // users with a row
	rows     int64 // written, in this session and before
	recipe   recipe.Recipe
	backend  engine.Backend
	engine   *engine.Engine
	progress Progress
	times    timeline
}

// Run runs the pipeline. When ctx ends, it finishes the users in flight, writes
// what is done and returns ErrInterrupted; the same Options again go on. The
// manifest is returned wherever there is one, beside an error too.
func Run(ctx context.Context, opt Options) (*Manifest, error) {
	if err := opt.setDefaults(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(opt.Out, 0o755); err != nil {
		return nil, fmt.Errorf("make output folder: %w", err)
	}
	unlock, err := lock(filepath.Join(opt.Out, lockName))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeUnfinished(opt.Out); err != nil {
		return nil, err
	}
	if opt.Restart {
		if err := removeRun(opt.Out); err != nil {
			return nil, err
		}
	}
	r := &run{Options: opt, done: idSet{}, recipe: recipe.Recipe{
		Model: opt.Model.Name, Template: opt.Template, MaxTokens: opt.MaxTokens, Sampling: opt.Sampling, Stop: opt.Stop, Grammar: opt.Grammar,
	}}
	err = r.stages(ctx)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = ErrInterrupted
	}
	return r.manifest, err
}

func (o *Options) setDefaults() error {
	var missing []string
	for name, absent := range map[string]bool{"Input": o.Input == "", "Out": o.Out == "", "Template": o.Template == nil, "Model.Open": o.Model.Open == nil} {
		if absent {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("run needs %s", strings.Join(missing, ", "))
	}
	if o.BatchSize == 0 {
		o.BatchSize = DefaultBatchSize
	}
	if o.MaxTokens == 0 {
		o.MaxTokens = DefaultMaxTokens
	}
	var faults []error
	if o.BatchSize < 1 {
		faults = append(faults, fmt.Errorf("batch size is %d, want at least 1", o.BatchSize))
	}
	if o.MaxTokens < 1 {
		faults = append(faults, fmt.Errorf("max tokens is %d, want at least 1", o.MaxTokens))
	}
	if o.Limit < 0 {
		faults = append(faults, fmt.Errorf("number of items is %d, want at least 1, or 0 for all", o.Limit))
	}
	if o.OnProgress == nil {
		o.OnProgress = func(Progress) {}
	}
	return errors.Join(faults...)
}

// removeRun removes what a run leaves, and nothing else.
func removeRun(dir string) error {
	for _, name := range []string{ManifestName, NormalisedName, RejectsName, BriefingsDir, MailDir, ReportName, LedgerName} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("remove earlier run: %w", err)
		}
	}
	return nil
}

// removeUnfinished removes the files that a killed process was writing.
func removeUnfinished(dir string) error {
	for _, name := range []string{ManifestName, ReportName} {
		unfinished, err := fs.Glob(os.DirFS(dir), name+".*.tmp")
		if err != nil {
			return fmt.Errorf("look for unfinished files: %w", err)
		}
		for _, name := range unfinished {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return fmt.Errorf("remove unfinished file: %w", err)
			}
		}
	}
	return nil
}

func (r *run) path(name string) string { return filepath.Join(r.Out, name) }

func (r *run) stages(ctx context.Context) error {
	if err := r.timed(StageNormalise, func() error { return r.normalise(ctx) }); err != nil {
		return err
	}
	if err := r.gatherAll(ctx); err != nil {
		return r.stop(err)
	}
	if r.Mail != nil {
		if err := r.timed(StageDeliver, func() error { return r.deliver(ctx) }); err != nil {
			return r.stop(err)
		}
	}
	var samples []briefing.Row
	if err := r.timed(StageReconcile, func() (err error) { samples, err = r.reconcile(); return err }); err != nil {
		return r.stop(err)
	}
	r.manifest.State, r.manifest.FinishedAt = StateComplete, now()
	var incomplete error
	if c := r.manifest.Counts; c.Missing > 0 || c.Duplicate > 0 {
		r.manifest.State = StateIncomplete
		incomplete = &IncompleteError{Missing: c.Missing, Duplicate: c.Duplicate}
	}
	if err := r.writeReport(samples); err != nil {
		return err
	}
	return errors.Join(r.manifest.write(r.Out), incomplete)
}

// stop keeps the manifest of a session that ended early.
func (r *run) stop(err error) error {
	if errors.Is(err, context.Canceled) {
		r.manifest.State = StateInterrupted
	}
	return errors.Join(err, r.manifest.write(r.Out))
}

// timed adds the time of a stage to the manifest.
func (r *run) timed(stage string, f func() error) error {
	r.progress = Progress{Stage: stage, Tokens: r.progress.Tokens}
	r.OnProgress(r.progress)
	start := time.Now()
	err := f()
	if r.manifest != nil {
		r.manifest.Seconds[stage] += time.Since(start).Seconds()
	}
	return err
}

func now() time.Time { return recipe.Now() }

// normalise reads the input, settles which run this is, and keeps its canonical
// form. It does so in every session: the result is the same, and only reading
// the input tells whether it still is.
func (r *run) normalise(ctx context.Context) error {
	input, err := os.Open(r.Input)
	if err != nil {
		return fmt.Errorf("open input: %w", err)
	}
	defer input.Close() // opened for reading: nothing to lose
	var settings Settings
	hashing, hashCtx := errgroup.WithContext(ctx)
	hashing.Go(func() (err error) { settings, err = r.settings(hashCtx); return err })

	outTemp, rejectsTemp := r.path(NormalisedName+".tmp"), r.path(RejectsName+".tmp")
	summary, err := r.normaliseTo(ctx, input, outTemp, rejectsTemp)
	if err := errors.Join(err, hashing.Wait()); err != nil {
		return errors.Join(err, removeAll(outTemp, rejectsTemp))
	}
	r.summary = summary
	facts := InputFacts{Name: filepath.Base(r.Input), Format: summary.Format.String(), Gzip: summary.Gzip, Bytes: summary.InputBytes, SHA256: summary.SHA256}
	if r.manifest, err = r.openRun(facts, settings); err != nil {
		return errors.Join(err, removeAll(outTemp, rejectsTemp))
	}
	if err := errors.Join(os.Rename(outTemp, r.path(NormalisedName)), os.Rename(rejectsTemp, r.path(RejectsName))); err != nil {
		return fmt.Errorf("keep normalised input: %w", err)
	}
	if r.manifest == nil {
		start := now()
		sum := sha256.Sum256(fmt.Append(nil, facts.SHA256, settings))
		r.manifest = &Manifest{
			Schema: ManifestSchema, StartedAt: start, RerunOf: r.RerunOf, Input: facts, Settings: settings, Seconds: map[string]float64{},
			RunID: fmt.Sprintf("run-%s-%s", start.Format("20060102T150405Z"), hex.EncodeToString(sum[:4])),
		}
	}
	r.manifest.State = StateRunning
	r.manifest.Counts.Records, r.manifest.Counts.Rejected = summary.Records, summary.Rejected
	r.manifest.Counts.RejectsByCode = summary.ByCode
	return r.manifest.write(r.Out)
}

// openRun returns the manifest of the run to go on with, or nil. Another run is
// in the way only if it got as far as a row.
func (r *run) openRun(input InputFacts, settings Settings) (*Manifest, error) {
	m, err := openRun(r.Out, input, settings)
	var conflict *ConflictError
	if errors.As(err, &conflict) {
		parts, partsErr := gather.Parts(r.path(BriefingsDir))
		if partsErr == nil && len(parts) == 0 {
			return nil, nil
		}
		err = errors.Join(err, partsErr)
	}
	return m, err
}

func (r *run) normaliseTo(ctx context.Context, input io.Reader, outPath, rejectsPath string) (s briefing.Summary, err error) {
	reader, err := briefing.NewReader(bufio.NewReaderSize(input, 1<<20), briefing.ReaderOptions{Format: r.Format, Name: filepath.Base(r.Input)})
	if err != nil {
		return s, fmt.Errorf("read %s: %w", filepath.Base(r.Input), err)
	}
	out, err := os.Create(outPath)
	if err != nil {
		return s, fmt.Errorf("write normalised records: %w", err)
	}
	defer func() { err = errors.Join(err, out.Sync(), out.Close()) }()
	rejects, err := os.Create(rejectsPath)
	if err != nil {
		return s, fmt.Errorf("write rejects: %w", err)
	}
	defer func() { err = errors.Join(err, rejects.Sync(), rejects.Close()) }()
	s, err = briefing.Normalise(ctx, reader, out, rejects, briefing.NormaliseOptions{
		Limit: r.Limit,
		OnRecord: func(briefing.Record, int64) error {
			if r.progress.Done++; r.progress.Done%10_000 == 0 {
				r.OnProgress(r.progress)
			}
			return nil
		},
	})
	if err != nil {
		return s, fmt.Errorf("read %s: %w", filepath.Base(r.Input), err)
	}
	return s, nil
}

func removeAll(paths ...string) error {
	var errs []error
	for _, p := range paths {
		errs = append(errs, os.RemoveAll(p))
	}
	return errors.Join(errs...)
}

// settings returns what decides the texts of this run.
func (r *run) settings(ctx context.Context) (Settings, error) {
	prompt := sha256.New()
	fmt.Fprintf(prompt, "%d %s %s", len(r.Template.System()), r.Template.System(), r.Template.Source())
	s := Settings{
		Model: r.Model.Name, PromptSHA256: hex.EncodeToString(prompt.Sum(nil)), MaxTokens: r.MaxTokens,
		Temperature: r.Sampling.Temperature, TopP: r.Sampling.TopP, MinP: r.Sampling.MinP, Seed: r.Sampling.Seed,
		Stop: r.Stop, Grammar: r.Grammar, Limit: r.Limit,
	}
	if r.Model.Path == "" {
		return s, nil
	}
	f, err := os.Open(r.Model.Path)
	if err != nil {
		return s, fmt.Errorf("open model: %w", err)
	}
	defer f.Close() // opened for reading: nothing to lose
	h := sha256.New()
	if s.ModelBytes, err = io.Copy(h, &contextReader{ctx, f}); err != nil {
		return s, fmt.Errorf("hash model: %w", err)
	}
	s.ModelSHA256 = hex.EncodeToString(h.Sum(nil))
	return s, nil
}

// contextReader stops reading when ctx ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// gatherAll makes sure that every user has a row.
func (r *run) gatherAll(ctx context.Context) (err error) {
	dir := r.path(BriefingsDir)
	if r.sink, err = gather.OpenParquetDir(dir, r.Parquet); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.sink.Close()) }()
	type id struct {
		UserID string `parquet:"user_id"`
	}
	for row, err := range gather.DirRows[id](dir) {
		if err != nil {
			return err
		}
		r.done.add(row.UserID)
	}
	r.rows = int64(len(r.done))
	left, err := r.countLeft()
	if err != nil {
		return err
	}
	if left == 0 {
		return r.gatherRejects()
	}
	// The model comes first: a run whose model does not load leaves no row.
	if err := r.timed(StageLoad, func() error { return r.load(ctx) }); err != nil {
		return err
	}
	if err := r.gatherRejects(); err != nil {
		return errors.Join(err, r.unload())
	}
	return r.timed(StageGenerate, func() error { return r.generate(ctx, left) })
}

// gatherRejects writes a failed row for each rejected user.
func (r *run) gatherRejects() error {
	f, err := os.Open(r.path(RejectsName))
	if err != nil {
		return fmt.Errorf("open rejects: %w", err)
	}
	defer f.Close() // opened for reading: nothing to lose
	for row, err := range r.summary.FailedRows(f) {
		if err != nil {
			return err
		}
		if r.done.has(row.UserID) {
			continue
		}
		row.RunID, row.Model, row.GeneratedAt = r.manifest.RunID, r.Model.Name, now()
		if err := r.sink.Write(row); err != nil {
			return err
		}
		r.rows++
	}
	return nil
}

// records calls f with each normalised record, until f fails.
func (r *run) records(f func(briefing.Record) error) error {
	return r.lines(func(line []byte) error {
		rec, err := briefing.ParseRecord(line)
		if err != nil {
			return fmt.Errorf("read normalised records: %w", err)
		}
		return f(rec)
	})
}

// lines calls f with each line of the normalised records, until f fails. The
// line is f's only until it returns.
func (r *run) lines(f func([]byte) error) error {
	file, err := os.Open(r.path(NormalisedName))
	if err != nil {
		return fmt.Errorf("open normalised records: %w", err)
	}
	defer file.Close() // opened for reading: nothing to lose
	lines := bufio.NewScanner(file)
	// A canonical line is within briefing.MaxRecordBytes.
	lines.Buffer(make([]byte, 0, 256<<10), 2*briefing.MaxRecordBytes)
	for lines.Scan() {
		if err := f(bytes.TrimSpace(lines.Bytes())); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read normalised records: %w", err)
	}
	return nil
}

// countWithout returns how many records have a user who is not in users.
func (r *run) countWithout(users idSet) (n int64, err error) {
	err = r.lines(func(line []byte) error {
		key, ok := lineKey(line)
		if !ok {
			rec, err := briefing.ParseRecord(line)
			if err != nil {
				return fmt.Errorf("read normalised records: %w", err)
			}
			key = keyOf(rec.UserID)
		}
		if !users.hasKey(key) {
			n++
		}
		return nil
	})
	return n, err
}

// lineKey returns the key of a canonical line's user_id, which comes first.
// It is not ok where the id holds an escape: then the line has to be parsed.
func lineKey(line []byte) (key idKey, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"user_id":"`))
	if !ok {
		return key, false
	}
	end := bytes.IndexAny(rest, `"\`)
	if end < 0 || rest[end] == '\\' {
		return key, false
	}
	return keyOfBytes(rest[:end]), true
}

// countLeft returns how many records have no row yet.
func (r *run) countLeft() (int64, error) {
	if len(r.done) == 0 {
		return r.summary.Records, nil
	}
	return r.countWithout(r.done)
}
