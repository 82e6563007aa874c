package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/briefing-swarm/briefing-swarm/plan"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/deliver"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
	"github.com/briefing-swarm/briefing-swarm/runtime/report"
)

// ShardFrom is the number of mails from which on they are spread over folders:
// file managers and shells want that.
const ShardFrom = 10_000

// deliver mails every good row that was not mailed before.
func (r *run) deliver(ctx context.Context) (err error) {
	opt := deliver.Options{Composer: r.Mail.Composer, Sender: r.Mail.Sender}
	if r.Mail.RatePerSec > 0 {
		opt.Pace = deliver.NewPace(r.Mail.RatePerSec)
	}
	if r.Mail.Folder != "" {
		// Files are written anew without harm. A ledger would leave out those
		// that a killed process had claimed.
		sender, err := deliver.NewEML(r.path(r.Mail.Folder), r.summary.Records > ShardFrom)
		if err != nil {
			return err
		}
		opt.Sender = sender
	} else {
		ledger, openErr := deliver.OpenFileLedger(r.path(LedgerName))
		if openErr != nil {
			return openErr
		}
		defer func() { err = errors.Join(err, ledger.Close()) }()
		opt.Ledger = ledger
	}
	r.progress.Total = r.rows
	counts := &MailCounts{ByCode: map[string]int64{}}
	opt.OnOutcome = func(o deliver.Outcome) {
		counts.add(o)
		r.progress.Done++
		if o.Result == deliver.Failed {
			r.progress.Failed++
		}
		r.OnProgress(r.progress)
	}
	_, err = deliver.Deliver(ctx, gather.DirRows[briefing.Row](r.path(BriefingsDir)), opt)
	r.manifest.Counts.Mail = counts
	return err
}

func (c *MailCounts) add(o deliver.Outcome) {
	switch o.Result {
	case deliver.Sent:
		c.Sent++
	case deliver.AlreadyDone:
		c.Already++
	case deliver.SkippedNoAddress:
		c.NoAddress++
	case deliver.SkippedFailed:
		c.NotOK++
	case deliver.Failed:
		c.Failed++
		c.ByCode[o.Code]++
	case deliver.UnknownFate:
		c.Unknown++
	case deliver.Unsent:
		c.Unsent++
	}
}

// account writes down how the engine ran.
func (r *run) account(eng *engine.Engine) {
	s, h := eng.Stats(), r.backend.Host()
	wall := r.times.took.Seconds()
	parallel := r.Engine.Parallel
	if parallel == 0 {
		parallel = min(engine.DefaultParallel, eng.Info().MaxSeqs-1)
	}
	facts := &EngineFacts{
		CPU: h.CPU, Variant: h.Variant, Threads: h.Threads, Parallel: parallel, BatchSize: r.BatchSize,
		Records: r.progress.Done, LoadSec: h.LoadTime.Seconds(), WallSec: s.Wall.Seconds(), DecodeSec: s.Decode.Seconds(),
	}
	if wall > 0 {
		facts.RecordsPerSec = float64(r.progress.Done) / wall
		facts.CompletionPerSec = float64(s.CompletionTokens) / wall
	}
	facts.Timeline = r.times.points
	r.manifest.Engine = facts
	r.manifest.Calibration = calibration(s, h, eng.Info().Model, parallel, r.progress.Done, wall)
}

// calibration turns what a session measured into the document that plans are
// made from, nil where it measured too little.
func calibration(s engine.Stats, h engine.Host, name string, parallel int, records int64, wallSec float64) *plan.Calibration {
	const enough = 200 // tokens
	if s.PurePrefill.Tokens < enough || s.PureDecode.Tokens < enough || records == 0 || s.PureDecode.Steps == 0 {
		return nil
	}
	// The sequences that ran on average in the steps that were measured.
	running := max(1, int(s.PureDecode.Tokens/s.PureDecode.Steps))
	return &plan.Calibration{
		Schema: plan.CalibrationSchema, MeasuredAt: now(), Source: "swarm run", Confidence: "measured",
		Machine: plan.CalibrationMachine{CPU: h.CPU, Arch: h.Arch, Features: h.Features, Variant: h.Variant, Threads: h.Threads, CPUs: h.CPUs, LambdaMemoryMib: h.LambdaMemoryMib},
		Model: plan.CalibrationModel{
			Name: name, Quantization: h.Quantization, Parameters: h.Parameters, WeightBytes: h.WeightBytes, Layers: h.Layers, KVBytesToken: h.KVBytesToken, RandomWeight: h.Random,
		},
		LoadSec:             h.LoadTime.Seconds(),
		PrefillTokensPerSec: s.PurePrefill.TokensPerSec(),
		Decode:              []plan.DecodeRate{{Parallel: running, TokensPerSec: s.PureDecode.TokensPerSec()}},
		Workloads: []plan.Workload{{
			Name:         "run",
			PrefixTokens: int(s.CachedTokens / records), OwnTokens: int(s.PrefillTokens / records), OutputTokens: int(s.CompletionTokens / records),
			Parallel: parallel, SecPerUser: wallSec / float64(records), Users: int(records),
		}},
	}
}

// files lists what the run left.
func (r *run) files() ([]FileFacts, error) {
	var files []FileFacts
	names := []string{NormalisedName, RejectsName, BriefingsDir}
	if r.Mail != nil && r.Mail.Folder != "" {
		names = append(names, r.Mail.Folder)
	}
	for _, name := range names {
		f := FileFacts{Path: name}
		err := filepath.WalkDir(r.path(name), func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			f.Bytes += info.Size()
			f.Files++
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list what the run left: %w", err)
		}
		if !strings.Contains(name, ".") {
			f.Path += "/"
		} else {
			f.Files = 0
		}
		files = append(files, f)
	}
	return files, nil
}

// writeReport draws the page beside the data.
func (r *run) writeReport(samples []briefing.Row) (err error) {
	m := r.manifest
	d := report.Data{
		RunID: m.RunID, Command: r.Command, OutDir: r.Out, Title: m.Input.Name, Model: m.Settings.Model, Started: m.StartedAt, Finished: m.FinishedAt,
		Records: m.Counts.Records, OK: m.Counts.OK, Failed: m.Counts.Failed, Rejected: m.Counts.Rejected,
		PromptTokens: m.Tokens.Prompt, CachedTokens: m.Tokens.Cached, CompletionTokens: m.Tokens.Completion,
		PromptHist: r.times.prompt.bins(24), OutputHist: r.times.output.bins(24),
		FinishReasons: counts(m.Counts.ByFinish), FailuresBy: counts(m.Counts.ByErrorCode), Samples: samples,
	}
	if mail := m.Counts.Mail; mail != nil {
		d.Mailed, d.MailedBefore, d.NoMail = mail.Sent, mail.Already, mail.NoAddress
	} else {
		d.NoMail = m.Counts.OK
	}
	if e := m.Engine; e != nil {
		d.Timeline = e.Timeline
		d.Parallel, d.BatchSize = e.Parallel, e.BatchSize
		d.LoadSec, d.DecodeSec, d.EngineSec = e.LoadSec, e.DecodeSec, e.WallSec
		d.Host = fmt.Sprintf("%s, %d threads, llama.cpp variant %s", e.CPU, e.Threads, e.Variant)
	}
	for _, f := range append(slices.Clone(m.Files), FileFacts{Path: ManifestName}) {
		d.Files = append(d.Files, report.File{Path: f.Path, Bytes: f.Bytes, About: about[f.Path]})
	}
	file, err := os.CreateTemp(r.Out, ReportName+".*.tmp")
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(file.Name()) // half a report is of no use
		}
	}()
	if err := report.Write(file, d); err != nil {
		file.Close()
		return fmt.Errorf("write report: %w", err)
	}
	if err := file.Chmod(0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return os.Rename(file.Name(), r.path(ReportName))
}

var about = map[string]string{
	NormalisedName:     "the input, one clean record per line",
	RejectsName:        "input rows that are no record, and why",
	BriefingsDir + "/": "one row per user, Parquet",
	MailDir + "/":      "one mail per user, opens in any mail program",
	ManifestName:       "counts, tokens, times and hashes of this run",
}

// counts sorts by number, then name.
func counts(m map[string]int64) []report.Count {
	var list []report.Count
	for _, label := range slices.Sorted(maps.Keys(m)) {
		list = append(list, report.Count{Label: label, N: m[label]})
	}
	slices.SortStableFunc(list, func(a, b report.Count) int { return int(b.N - a.N) })
	return list
}
