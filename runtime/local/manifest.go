package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/briefing-swarm/briefing-swarm/plan"
	"github.com/briefing-swarm/briefing-swarm/runtime/report"
)

// ManifestSchema names the version of the Manifest document.
const ManifestSchema = "briefing-swarm/manifest/1"

// States of a run.
const (
	StateRunning     = "running"     // or ended by force
	StateInterrupted = "interrupted" // ended on request; the same run goes on
	StateComplete    = "complete"
	StateIncomplete  = "incomplete" // ended by itself, but not every user has one row
)

// Names of what a run leaves in its folder.
const (
	ManifestName   = "manifest.json"
	NormalisedName = "normalised.jsonl"
	RejectsName    = "rejects.jsonl"
	BriefingsDir   = "briefings"
	MailDir        = "mail"
	ReportName     = "report.html"
	LedgerName     = "sent.ledger"
	lockName       = ".lock"
)

// Manifest is the account of a run, kept as manifest.json.
type Manifest struct {
	Schema     string    `json:"schema"`
	RunID      string    `json:"run_id"`
	State      string    `json:"state"`
	StartedAt  time.Time `json:"started_at"`
	FinishedAt time.Time `json:"finished_at,omitzero"`
	RerunOf    string    `json:"rerun_of,omitempty"`

	Input    InputFacts `json:"input"`
	Settings Settings   `json:"settings"`

	Counts Counts `json:"counts"`
	Tokens Tokens `json:"tokens"`
	// Seconds by stage, summed over all sessions of the run.
	Seconds map[string]float64 `json:"seconds"`
	// Engine is how the last session that generated anything ran.
	Engine *EngineFacts `json:"engine,omitempty"`
	// Calibration is what that session measured, for `swarm plan`. It is left
	// out where too little was generated to measure anything.
	Calibration *plan.Calibration `json:"calibration,omitempty"`
	Files       []FileFacts       `json:"files,omitempty"`
}

// InputFacts identify the input.
type InputFacts struct {
	Name   string `json:"name"`
	Format string `json:"format"`
	Gzip   bool   `json:"gzip"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Settings decide what a run's texts are. Two runs with the same input and the
// same settings are the same run.
type Settings struct {
	Model        string   `json:"model"`
	ModelSHA256  string   `json:"model_sha256"`
	ModelBytes   int64    `json:"model_bytes"`
	PromptSHA256 string   `json:"prompt_sha256"` // system prompt and user template
	MaxTokens    int      `json:"max_tokens"`
	Temperature  float32  `json:"temperature"`
	TopP         float32  `json:"top_p"`
	MinP         float32  `json:"min_p"`
	Seed         uint64   `json:"seed"`
	Stop         []string `json:"stop,omitempty"`
	Grammar      string   `json:"grammar,omitempty"`
	Limit        int64    `json:"limit,omitempty"`
}

// Counts of a run. Records + Rejected is the number of input rows read.
type Counts struct {
	Records  int64 `json:"records"`
	Rejected int64 `json:"rejected"`
	// OK and Failed are rows; rejected rows whose user is known are among the
	// failed.
	OK            int64            `json:"ok"`
	Failed        int64            `json:"failed"`
	Missing       int64            `json:"missing"`   // users without a row
	Duplicate     int64            `json:"duplicate"` // users with more than one
	ByErrorCode   map[string]int64 `json:"by_error_code,omitempty"`
	ByFinish      map[string]int64 `json:"by_finish_reason,omitempty"`
	RejectsByCode map[string]int64 `json:"rejects_by_code,omitempty"`
	Mail          *MailCounts      `json:"mail,omitempty"`
}

// MailCounts of a run; their sum is the number of rows.
type MailCounts struct {
	Sent      int64            `json:"sent"`    // by the last session
	Already   int64            `json:"already"` // by an earlier one, or another row is about the same user
	NoAddress int64            `json:"no_address"`
	NotOK     int64            `json:"not_ok"`
	Failed    int64            `json:"failed"`
	Unknown   int64            `json:"unknown"` // perhaps sent; not sent again by itself
	Unsent    int64            `json:"unsent"`
	ByCode    map[string]int64 `json:"by_code,omitempty"`
}

// Tokens of a run's rows.
type Tokens struct {
	Prompt     int64 `json:"prompt"`
	Cached     int64 `json:"cached"` // of Prompt: not computed again
	Completion int64 `json:"completion"`
}

// EngineFacts say how fast a session was.
type EngineFacts struct {
	CPU              string  `json:"cpu"`
	Variant          string  `json:"variant"`
	Threads          int     `json:"threads"`
	Parallel         int     `json:"parallel"`
	BatchSize        int     `json:"batch_size"`
	Records          int64   `json:"records"`
	RecordsPerSec    float64 `json:"records_per_sec"`
	CompletionPerSec float64 `json:"completion_tokens_per_sec"`
	LoadSec          float64 `json:"load_sec"`
	WallSec          float64 `json:"wall_sec"`
	DecodeSec        float64 `json:"decode_sec"` // of WallSec: inside llama.cpp
	// Timeline is how far the session was over time, for the report of a later
	// one that has nothing left to do.
	Timeline []report.Point `json:"timeline,omitempty"`
}

// FileFacts is a file or folder that a run left, relative to its folder.
type FileFacts struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	Files int    `json:"files,omitempty"` // of a folder
}

// ReadManifest reads the manifest at path.
func ReadManifest(path string) (*Manifest, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("read manifest %s: %w", path, err)
	}
	if m.Schema != ManifestSchema {
		return nil, fmt.Errorf("read manifest %s: its schema is %q, this program reads %q", path, m.Schema, ManifestSchema)
	}
	return &m, nil
}

// write keeps m in dir, whole or not at all.
func (m *Manifest) write(dir string) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	if err := writeFile(filepath.Join(dir, ManifestName), append(b, '\n')); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

// writeFile replaces the file at path at once.
func writeFile(path string, data []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	err = errors.Join(err, temp.Chmod(0o644), temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return nil
}

// ConflictError says that the folder holds another run.
type ConflictError struct {
	Dir   string
	RunID string
	// Differences are what sets the two apart, in words.
	Differences []string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s holds run %s, which is another one: %s. Choose another --out, or remove that run with --restart",
		e.Dir, e.RunID, strings.Join(e.Differences, "; "))
}

// openRun returns the manifest of the run in dir, nil where there is none, and
// a *ConflictError where it is not the run of input and settings.
func openRun(dir string, input InputFacts, s Settings) (*Manifest, error) {
	m, err := ReadManifest(filepath.Join(dir, ManifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var diff []string
	differs := func(what string, had, has any) {
		if h, n := fmt.Sprint(had), fmt.Sprint(has); h != n {
			diff = append(diff, fmt.Sprintf("its %s is %s, not %s", what, short(h), short(n)))
		}
	}
	differs("input (sha256)", m.Input.SHA256, input.SHA256)
	o := m.Settings
	differs("model (sha256)", o.ModelSHA256, s.ModelSHA256)
	if o.ModelSHA256 == s.ModelSHA256 {
		differs("model", o.Model, s.Model)
	}
	differs("prompt (sha256)", o.PromptSHA256, s.PromptSHA256)
	differs("max tokens", o.MaxTokens, s.MaxTokens)
	differs("temperature", o.Temperature, s.Temperature)
	differs("top-p", o.TopP, s.TopP)
	differs("min-p", o.MinP, s.MinP)
	differs("seed", o.Seed, s.Seed)
	differs("stop strings", o.Stop, s.Stop)
	differs("grammar", o.Grammar, s.Grammar)
	differs("number of items", o.Limit, s.Limit)
	if len(diff) > 0 {
		return nil, &ConflictError{Dir: dir, RunID: m.RunID, Differences: diff}
	}
	return m, nil
}

func short(s string) string {
	const most = 40
	if s == "" {
		return "none"
	}
	if r := []rune(s); len(r) > most {
		return string(r[:12]) + "…"
	}
	return s
}
