package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

// lintGCPercent keeps the memory of a lint close to what it holds: the file is
// streamed, and the one thing that grows is the set of ids.
const lintGCPercent = 25

func newLintCmd() *cobra.Command {
	var opt lintOptions
	cmd := &cobra.Command{
		Use:   "lint FILE",
		Short: "Check an input file and list all its faults",
		Long: `Lint reads a CSV or JSON Lines file of users, gzip or not, as a run would, and
lists every fault with its line and row. FILE is a path, or - for standard input.

A row with a fault is left out of a run, the others are not affected. Warnings
are about rows that a run takes as they are, but that other readers, Step
Functions' own CSV reader among them, would change.

The file is streamed: a million rows need less than 100 MB of memory.

Exit code: 0 no fault, 1 faults, 2 the call was wrong or FILE cannot be opened.`,
		Example: `  swarm lint users.csv
  swarm lint --json users.jsonl.gz | jq -r 'select(.type == "fault") | .code' | sort | uniq -c
  zcat export.gz | swarm lint --format csv -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &exitError{Code: exitUsage, Err: fmt.Errorf("lint takes one FILE, got %d; see 'swarm lint --help'", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if opt.maxFaults < 0 {
				return &exitError{Code: exitUsage, Err: fmt.Errorf("--max-faults is %d: use 0 for all, or a limit", opt.maxFaults)}
			}
			var err error
			if opt.reader.Format, err = briefing.ParseFormat(opt.format); err != nil {
				return &exitError{Code: exitUsage, Err: fmt.Errorf("--format: %w", err)}
			}
			defer debug.SetGCPercent(debug.SetGCPercent(lintGCPercent))
			return lintFile(cmd, args[0], opt)
		},
	}
	cmd.Flags().BoolVar(&opt.json, "json", false, "write JSON Lines: faults, warnings, then one summary")
	cmd.Flags().Int64Var(&opt.maxFaults, "max-faults", 1000, "list this many faults and count the rest; 0 lists all")
	cmd.Flags().StringVar(&opt.format, "format", "auto", "auto, csv or jsonl; auto goes by FILE's name, else by its content")
	return cmd
}

type lintOptions struct {
	json      bool
	maxFaults int64
	format    string
	reader    briefing.ReaderOptions
}

func lintFile(cmd *cobra.Command, name string, opt lintOptions) error {
	in := cmd.InOrStdin()
	shown := "stdin"
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return &exitError{Code: exitUsage, Err: err}
		}
		defer file.Close()
		if info, err := file.Stat(); err == nil && info.IsDir() {
			return &exitError{Code: exitUsage, Err: fmt.Errorf("%s is a directory: lint takes one file", name)}
		}
		in, shown, opt.reader.Name = file, name, name
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	l := &linter{out: out, name: shown, opt: opt}
	err := l.run(cmd.Context(), in)
	if flushErr := out.Flush(); flushErr != nil && err == nil {
		err = fmt.Errorf("write findings: %w", flushErr)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return &exitError{Code: exitInterrupted, Err: errors.New("interrupted before the end of the file")}
	case err != nil:
		return err
	case l.faults > 0:
		return &exitError{Code: exitFault}
	}
	return nil
}

// linter writes what it finds in one file.
type linter struct {
	out    io.Writer
	name   string
	opt    lintOptions
	faults int64
}

// lintFinding is a fault or a warning as lint writes it under --json.
type lintFinding struct {
	Type string `json:"type"` // fault or warning
	briefing.Reject
	Count int64 `json:"count,omitempty"` // rows a warning concerns
}

// lintSummary is the last line under --json.
type lintSummary struct {
	Type       string           `json:"type"` // summary
	File       string           `json:"file"`
	Format     string           `json:"format,omitempty"`
	Gzip       bool             `json:"gzip"`
	Records    int64            `json:"records"`
	Rejected   int64            `json:"rejected"`
	BlankLines int64            `json:"blank_lines"`
	Faults     int64            `json:"faults"`
	NotListed  int64            `json:"faults_not_listed"`
	ByCode     map[string]int64 `json:"by_code"`
	Warnings   int              `json:"warnings"`
	SHA256     string           `json:"sha256,omitempty"`
	InputBytes int64            `json:"input_bytes,omitempty"`
}

// codeReadFailed is the code of a source that fails while it is read.
const codeReadFailed = "read_failed"

func (l *linter) run(ctx context.Context, in io.Reader) error {
	summary := briefing.Summary{ByCode: make(map[string]int64)}
	format := ""
	r, err := briefing.NewReader(in, l.opt.reader)
	if err == nil {
		format = r.Format().String()
		summary, err = briefing.Normalise(ctx, r, nil, nil, briefing.NormaliseOptions{
			OnReject: func(e *briefing.RowError) error {
				for _, reject := range e.Rejects() {
					if err := l.fault(reject); err != nil {
						return err
					}
				}
				return nil
			},
		})
	}
	var fileErr *briefing.FileError
	var readErr *briefing.ReadError
	switch {
	case errors.As(err, &fileErr):
		for _, f := range fileErr.Faults {
			summary.ByCode[f.Code]++
			if err := l.fault(briefing.Reject{Line: f.Line, Code: f.Code, Field: f.Field, Message: f.Message}); err != nil {
				return err
			}
		}
	case errors.As(err, &readErr):
		summary.ByCode[codeReadFailed]++
		reject := briefing.Reject{Line: readErr.Line, Code: codeReadFailed, Message: readErr.Error()}
		if err := l.fault(reject); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	return l.finish(summary, format)
}

// fault lists one fault, or only counts it once the list is full.
func (l *linter) fault(f briefing.Reject) error {
	l.faults++
	if l.opt.maxFaults > 0 && l.faults > l.opt.maxFaults {
		return nil
	}
	if l.opt.json {
		return l.writeJSON(lintFinding{Type: "fault", Reject: f})
	}
	where := ""
	if f.Row > 0 {
		where = fmt.Sprintf("row %d: ", f.Row)
	}
	if f.Field != "" {
		where += shownField(f.Field) + ": "
	}
	return l.printf("%s:%d: %s%s (%s)\n", l.name, f.Line, where, f.Message, f.Code)
}

// shownField keeps a field name from a file on one short line.
func shownField(name string) string {
	const most = 60
	short := []rune(name)
	if len(short) > most {
		name = string(short[:most]) + "..."
	}
	for _, r := range name {
		if r < '0' || r > 'z' {
			return fmt.Sprintf("%q", name)
		}
	}
	return name
}

func (l *linter) finish(summary briefing.Summary, format string) error {
	notListed := int64(0)
	if l.opt.maxFaults > 0 {
		notListed = max(0, l.faults-l.opt.maxFaults)
	}
	if l.opt.json {
		for _, w := range summary.Warnings {
			finding := lintFinding{Type: "warning", Count: w.Count,
				Reject: briefing.Reject{Row: w.Row, Line: w.Line, Code: w.Code, Message: w.Message}}
			if err := l.writeJSON(finding); err != nil {
				return err
			}
		}
		return l.writeJSON(lintSummary{
			Type: "summary", File: l.name, Format: format, Gzip: summary.Gzip,
			Records: summary.Records, Rejected: summary.Rejected, BlankLines: summary.BlankLines,
			Faults: l.faults, NotListed: notListed, ByCode: summary.ByCode, Warnings: len(summary.Warnings),
			SHA256: summary.SHA256, InputBytes: summary.InputBytes,
		})
	}
	if notListed > 0 {
		if err := l.printf("%s: %s more not listed, raise --max-faults to see them\n", l.name, counted(notListed, "fault")); err != nil {
			return err
		}
	}
	for _, w := range summary.Warnings {
		first := ""
		if w.Row > 0 {
			first = fmt.Sprintf(", first in row %d", w.Row)
		}
		if err := l.printf("%s:%d: warning: %s (%s%s)\n", l.name, w.Line, w.Message, w.Code, first); err != nil {
			return err
		}
	}
	return l.printf("%s: %s good, %s rejected, %s, %s\n", l.name,
		counted(summary.Records, "record"), counted(summary.Rejected, "row"),
		counted(l.faults, "fault"), counted(int64(len(summary.Warnings)), "warning"))
}

// counted writes a number with its noun.
func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func (l *linter) writeJSON(v any) error {
	encoder := json.NewEncoder(l.out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("write findings: %w", err)
	}
	return nil
}

func (l *linter) printf(format string, args ...any) error {
	if _, err := fmt.Fprintf(l.out, format, args...); err != nil {
		return fmt.Errorf("write findings: %w", err)
	}
	return nil
}
