package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/deliver"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine/fake"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
	"github.com/briefing-swarm/briefing-swarm/runtime/local"
	"github.com/briefing-swarm/briefing-swarm/runtime/recipe"
)

// users writes an input file of n users and returns its path.
func users(t testing.TB, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users.csv")
	var b bytes.Buffer
	b.WriteString("user_id,email,name,locale,city,weather\n")
	for i := range n {
		fmt.Fprintf(&b, "u-%d,u%d@example.com,User %d,%s,\"City %d, somewhere\",rain\n", i, i, i, []string{"en", "de", "fr"}[i%3], i)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// options runs the fake model.
func options(t testing.TB, input, out string, f fake.Options) local.Options {
	t.Helper()
	template, err := briefing.ParseTemplate(briefing.DefaultSystemPrompt(), briefing.DefaultUserTemplate())
	if err != nil {
		t.Fatal(err)
	}
	if f.ContextCells == 0 {
		f.ContextCells = 64 << 10
	}
	return local.Options{
		Input: input, Out: out, Template: template, MaxTokens: 30,
		Model: local.Model{Name: "fake", Open: func(context.Context) (engine.Backend, error) { return fake.New(f), nil }},
	}
}

func withMail(t testing.TB, opt local.Options) local.Options {
	t.Helper()
	composer, err := deliver.NewComposer(deliver.Settings{From: "Briefing <briefing@example.com>"})
	if err != nil {
		t.Fatal(err)
	}
	opt.Mail = &local.Mail{Composer: composer, Folder: local.MailDir}
	return opt
}

func rows(t testing.TB, out string) map[string]briefing.Row {
	t.Helper()
	all := map[string]briefing.Row{}
	for row, err := range gather.DirRows[briefing.Row](filepath.Join(out, local.BriefingsDir)) {
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := all[row.UserID]; twice {
			t.Errorf("user %s has two rows", row.UserID)
		}
		all[row.UserID] = row
	}
	return all
}

func TestRun(t *testing.T) {
	t.Parallel()
	input, out := users(t, 200), filepath.Join(t.TempDir(), "out")
	m, err := local.Run(t.Context(), withMail(t, options(t, input, out, fake.Options{})))
	if err != nil {
		t.Fatal(err)
	}
	if c := m.Counts; m.State != local.StateComplete || c.Records != 200 || c.OK+c.Failed != 200 || c.OK < 180 || c.Missing+c.Duplicate+c.Rejected != 0 {
		t.Errorf("state %s, counts %+v", m.State, c)
	}
	if mail := m.Counts.Mail; mail == nil || mail.Sent != m.Counts.OK || mail.NotOK != m.Counts.Failed {
		t.Errorf("mail %+v for %d good rows", mail, m.Counts.OK)
	}
	if m.Tokens.Cached*10 < m.Tokens.Prompt*4 {
		t.Errorf("only %d of %d prompt tokens came from the shared prefix", m.Tokens.Cached, m.Tokens.Prompt)
	}
	got := rows(t, out)
	if len(got) != 200 {
		t.Errorf("%d rows", len(got))
	}
	row := got["u-7"]
	if row.RunID != m.RunID || row.Email != "u7@example.com" || row.Locale != "de" || row.Attributes != `{"city":"City 7, somewhere","weather":"rain"}` || row.Subject != "Your briefing, User 7" || time.Since(row.GeneratedAt) > time.Minute {
		t.Errorf("row %+v", row)
	}
	eml, err := filepath.Glob(filepath.Join(out, local.MailDir, "*.eml"))
	if err != nil || int64(len(eml)) != m.Counts.OK {
		t.Errorf("%d mails for %d good rows, error %v", len(eml), m.Counts.OK, err)
	}
	page, err := os.ReadFile(filepath.Join(out, local.ReportName))
	if err != nil || !bytes.Contains(page, []byte(m.RunID)) {
		t.Errorf("report of %d bytes lacks the run's id, error %v", len(page), err)
	}
	onDisk, err := local.ReadManifest(filepath.Join(out, local.ManifestName))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(m)
	b, _ := json.Marshal(onDisk)
	if !bytes.Equal(a, b) {
		t.Errorf("manifest on disk differs:\n%s\n%s", a, b)
	}
	leftovers, _ := filepath.Glob(filepath.Join(out, "*.tmp"))
	if len(leftovers) > 0 {
		t.Errorf("left behind: %v", leftovers)
	}

	// The same run again has nothing to do and changes no row.
	opt := withMail(t, options(t, input, out, fake.Options{}))
	opt.Model.Open = func(context.Context) (engine.Backend, error) {
		t.Error("the model was loaded for nothing")
		return nil, errors.New("not needed")
	}
	again, err := local.Run(t.Context(), opt)
	if err != nil || again.RunID != m.RunID || again.Counts.OK != m.Counts.OK || again.Counts.Mail.Sent != m.Counts.OK {
		t.Errorf("again: error %v, counts %+v", err, again.Counts)
	}
	page, err = os.ReadFile(filepath.Join(out, local.ReportName))
	if err != nil || bytes.Contains(page, []byte("No data.")) {
		t.Errorf("the report of the run that had nothing to do lost its time line, error %v", err)
	}
}

func TestRowsDoNotDependOnBatches(t *testing.T) {
	t.Parallel()
	input := users(t, 150)
	texts := func(opt local.Options) map[string]string {
		if _, err := local.Run(t.Context(), opt); err != nil {
			t.Fatal(err)
		}
		m := map[string]string{}
		for id, row := range rows(t, opt.Out) {
			m[id] = row.Briefing
		}
		return m
	}
	one := options(t, input, t.TempDir(), fake.Options{Parallel: 1})
	one.BatchSize, one.Sampling = 1, engine.Sampling{Temperature: 0.8, Seed: 5}
	many := options(t, input, t.TempDir(), fake.Options{Parallel: 16})
	many.BatchSize, many.Sampling = 70, one.Sampling
	a, b := texts(one), texts(many)
	for id := range a {
		if a[id] != b[id] {
			t.Errorf("user %s: %q alone, %q in batches", id, a[id], b[id])
		}
	}
}

func TestRejectedUsersHaveARow(t *testing.T) {
	t.Parallel()
	input := filepath.Join(t.TempDir(), "users.csv")
	text := "user_id,email,city\n" +
		"a,a@example.com,Bern\n" +
		"b,not an address,Bern\n" + // rejected, has an id
		"c,c@example.com\n" + // short
		",d@example.com,Bern\n" + // no id: only in the rejects
		"a,a2@example.com,Bern\n" + // duplicate of a
		"b,b@example.com,Bern\n" // b after all
	if err := os.WriteFile(input, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	for session := range 2 {
		m, err := local.Run(t.Context(), options(t, input, out, fake.Options{Words: 1000}))
		if err != nil {
			t.Fatal(err)
		}
		if m.Counts.Records != 2 || m.Counts.Rejected != 4 || m.Counts.OK != 2 || m.Counts.Failed != 1 {
			t.Errorf("session %d: counts %+v", session, m.Counts)
		}
		got := rows(t, out)
		if len(got) != 3 || got["a"].Email != "a@example.com" || got["b"].Status != briefing.StatusOK || got["c"].ErrorCode == "" || got["c"].Status != briefing.StatusFailed {
			t.Errorf("session %d: rows %+v", session, got)
		}
	}
	rejects, err := os.ReadFile(filepath.Join(out, local.RejectsName))
	if err != nil || bytes.Count(rejects, []byte("\n")) < 4 || bytes.Contains(rejects, []byte("example.com")) {
		t.Errorf("rejects, error %v:\n%s", err, rejects)
	}
}

func TestFailuresBecomeRows(t *testing.T) {
	t.Parallel()
	input := filepath.Join(t.TempDir(), "users.jsonl")
	text := `{"user_id":1,"city":"Bern"}` + "\n" + `{"user_id":2,"city":"` + strings.Repeat("long ", 3000) + `"}` + "\n"
	if err := os.WriteFile(input, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	m, err := local.Run(t.Context(), options(t, input, out, fake.Options{ContextCells: 4000, Words: 1000}))
	if err != nil {
		t.Fatal(err)
	}
	got := rows(t, out)
	if m.Counts.OK != 1 || got["2"].ErrorCode != recipe.CodePromptTooLong || !strings.Contains(got["2"].ErrorMessage, "context of 4000 tokens") {
		t.Errorf("counts %+v, row %+v", m.Counts, got["2"])
	}
	if strings.Contains(got["2"].ErrorMessage, "long long") {
		t.Error("the message repeats the user's text")
	}
}

func TestInterruptAndResume(t *testing.T) {
	t.Parallel()
	input, out := users(t, 300), t.TempDir()
	sessions := 0
	for ; sessions < 50; sessions++ {
		ctx, cancel := context.WithCancel(t.Context())
		opt := options(t, input, out, fake.Options{StepTime: 200 * time.Microsecond})
		opt.BatchSize = 100
		opt.OnProgress = func(p local.Progress) {
			if p.Stage == local.StageGenerate && p.Done >= 40 {
				cancel()
			}
		}
		m, err := local.Run(ctx, opt)
		cancel()
		if err == nil {
			break
		}
		if !errors.Is(err, local.ErrInterrupted) || m.State != local.StateInterrupted {
			t.Fatalf("session %d: error %v, state %s", sessions, err, m.State)
		}
		if n := len(rows(t, out)); n < 40*(sessions+1) {
			t.Errorf("session %d kept %d rows, want at least %d", sessions, n, 40*(sessions+1))
		}
	}
	if sessions < 3 || sessions == 50 {
		t.Errorf("%d sessions were interrupted", sessions)
	}
	if n := len(rows(t, out)); n != 300 {
		t.Errorf("%d rows, want 300", n)
	}
}

func TestModelFailureKeepsWhatIsDone(t *testing.T) {
	t.Parallel()
	input, out := users(t, 300), t.TempDir()
	m, err := local.Run(t.Context(), options(t, input, out, fake.Options{FailAfter: 100}))
	if !errors.Is(err, fake.ErrDecode) {
		t.Fatalf("error %v", err)
	}
	kept := len(rows(t, out))
	if kept == 0 || m.State == local.StateComplete {
		t.Errorf("%d rows kept, state %s", kept, m.State)
	}
	m, err = local.Run(t.Context(), options(t, input, out, fake.Options{}))
	if err != nil || m.Counts.OK+m.Counts.Failed != 300 || len(rows(t, out)) != 300 {
		t.Errorf("error %v, counts %+v", err, m.Counts)
	}
}

func TestAnotherRunIsRefused(t *testing.T) {
	t.Parallel()
	input, out := users(t, 5), t.TempDir()
	first, err := local.Run(t.Context(), options(t, input, out, fake.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	opt := options(t, users(t, 6), out, fake.Options{})
	opt.MaxTokens, opt.Sampling.Temperature = 31, 0.5
	_, err = local.Run(t.Context(), opt)
	var conflict *local.ConflictError
	if !errors.As(err, &conflict) || len(conflict.Differences) != 3 {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"input (sha256)", "max tokens is 30, not 31", "temperature is 0, not 0.5", "--restart", first.RunID} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
	if n := len(rows(t, out)); n != 5 {
		t.Errorf("the refused run left %d rows", n)
	}
	opt.Restart = true
	m, err := local.Run(t.Context(), opt)
	if err != nil || m.RunID == first.RunID || len(rows(t, out)) != 6 {
		t.Errorf("restart: error %v, run %s, %d rows", err, m.RunID, len(rows(t, out)))
	}
}

func TestInputErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tests := []struct{ name, text, want string }{
		{"missing", "", "no such file"},
		{"empty.csv", "", "empty"},
		{"header.csv", "user_id,email\n", ""},
		{"utf16.csv", "\xff\xfeu\x00s\x00", "UTF-16"},
		{"noid.csv", "name,email\nAna,ana@example.com\n", "user_id"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(dir, tt.name)
			if tt.name != "missing" {
				if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out := filepath.Join(t.TempDir(), "out")
			_, err := local.Run(t.Context(), options(t, path, out, fake.Options{}))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want one with %q", err, tt.want)
			}
			left, _ := filepath.Glob(filepath.Join(out, "[^.]*"))
			if len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestTwoRunsInOneFolder(t *testing.T) {
	t.Parallel()
	input, out := users(t, 50), t.TempDir()
	opt := options(t, input, out, fake.Options{})
	var second error
	opt.OnProgress = func(p local.Progress) {
		if p.Stage == local.StageGenerate && second == nil {
			_, second = local.Run(t.Context(), options(t, input, out, fake.Options{}))
		}
	}
	if _, err := local.Run(t.Context(), opt); err != nil {
		t.Fatal(err)
	}
	if second == nil || !strings.Contains(second.Error(), "in use by another run") {
		t.Errorf("the second run: %v", second)
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	opt := options(t, users(t, 50), t.TempDir(), fake.Options{})
	opt.Limit = 7
	m, err := local.Run(t.Context(), opt)
	if err != nil || m.Counts.Records != 7 || len(rows(t, opt.Out)) != 7 {
		t.Errorf("error %v, counts %+v", err, m.Counts)
	}
}
