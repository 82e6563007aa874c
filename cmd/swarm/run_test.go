package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/idna"

	"github.com/briefing-swarm/briefing-swarm/internal/chromium"
	"github.com/briefing-swarm/briefing-swarm/internal/demomodel"
	"github.com/briefing-swarm/briefing-swarm/internal/mailpittest"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
	"github.com/briefing-swarm/briefing-swarm/runtime/local"
	"github.com/briefing-swarm/briefing-swarm/runtime/model"
	"github.com/briefing-swarm/briefing-swarm/runtime/recipe"
)

// shared is what all tests of this file use: the swarm program as it ships, and
// a model of random weights that is small enough to run in no time.
var shared struct {
	once      sync.Once
	dir       string
	program   string
	tinyModel string
	err       error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.dir != "" {
		os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

func build(t *testing.T) {
	t.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "swarm-test-"); shared.err != nil {
			return
		}
		shared.program = filepath.Join(shared.dir, "swarm")
		// Without cgo, as it ships; and without the race detector, which would
		// slow the loop around the model for nothing.
		cmd := exec.Command("go", "build", "-o", shared.program, ".")
		cmd.Dir, cmd.Env = testDir, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			shared.err = fmt.Errorf("%w\n%s", err, out)
			return
		}
		shared.tinyModel, shared.err = model.RandomFile(context.Background(), shared.dir, "tiny", model.RecipeQ4K, 1, nil)
	})
	if shared.err != nil {
		t.Fatalf("build swarm: %v", shared.err)
	}
}

// program returns a command that runs swarm in a folder of its own.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	build(t)
	cmd := exec.CommandContext(t.Context(), shared.program, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "SWARM_LLAMA_LIB="+demomodel.LibraryDir(t), "SWARM_MODEL=", "SWARM_CACHE="+cmd.Dir)
	return cmd
}

// runProgram runs cmd to its end.
func runProgram(t *testing.T, cmd *exec.Cmd) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}

// tinyRun runs the random model; its texts mean nothing.
func tinyRun(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	build(t)
	return runProgram(t, program(t, append([]string{"run", "--model", shared.tinyModel, "--threads", "1", "--max-tokens", "12"}, args...)...))
}

// mustRun is tinyRun for calls that have to end well.
func mustRun(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	code, stdout, stderr := tinyRun(t, args...)
	if code != 0 {
		t.Fatalf("swarm run %s: exit code %d\n%s", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

func example(name string) string { return filepath.Join(testDir, "..", "..", "examples", name) }

// rowsOf reads the rows of a run's folder by user_id, which must be unique.
func rowsOf(t *testing.T, out string) map[string]briefing.Row {
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

func manifestOf(t *testing.T, out string) *local.Manifest {
	t.Helper()
	m, err := local.ReadManifest(filepath.Join(out, local.ManifestName))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// exampleUsers returns the records of examples/users.csv by user_id.
func exampleUsers(t *testing.T) map[string]briefing.Record {
	t.Helper()
	f, err := os.Open(example("users.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := briefing.NewReader(f, briefing.ReaderOptions{Name: "users.csv"})
	if err != nil {
		t.Fatal(err)
	}
	users := map[string]briefing.Record{}
	_, err = briefing.Normalise(t.Context(), r, nil, nil, briefing.NormaliseOptions{OnRecord: func(rec briefing.Record, _ int64) error {
		users[rec.UserID] = rec
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return users
}

// volatile are the parts of the output that differ from run to run.
var volatile = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`run-\d{8}T\d{6}Z-[0-9a-f]{8}`), "RUN"},
	{regexp.MustCompile(`[\d.]+ users/s, \d+ tokens/s with (\d+) threads \([^)]*\)`), "N users/s, N tokens/s with $1 threads (VARIANT)"},
}

func stable(text string) string {
	for _, v := range volatile {
		text = v.pattern.ReplaceAllString(text, v.instead)
	}
	return text
}

// TestRunRealModel takes all example users through the program with the real
// model, and looks at everything that comes out.
func TestRunRealModel(t *testing.T) {
	t.Parallel()
	m := demomodel.Find(t)
	cmd := program(t, append([]string{"run", "--input", example("users.csv"), "--out", "out", "--threads", "1", "--max-tokens", "24"}, m.Args()...)...)
	code, stdout, stderr := runProgram(t, cmd)
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	golden(t, "run/summary.txt", stable(stdout))
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "swarm: ") {
			t.Errorf("progress line %q", line)
		}
	}
	out := filepath.Join(cmd.Dir, "out")
	users, rows, manifest := exampleUsers(t), rowsOf(t, out), manifestOf(t, out)
	for id, user := range users {
		row, ok := rows[id]
		if !ok {
			t.Errorf("user %s has no row", id)
			continue
		}
		if row.Status != briefing.StatusOK || strings.TrimSpace(row.Briefing) == "" || row.Subject == "" || row.CompletionTokens < 1 || row.CompletionTokens > 24 {
			t.Errorf("row %+v", row)
		}
		if row.Email != user.Email || row.Name != user.Name || row.Locale != user.Locale || row.Attributes != user.Attributes() || row.RunID != manifest.RunID {
			t.Errorf("row %+v of record %+v", row, user)
		}
		if row.CachedTokens >= row.PromptTokens || row.CachedTokens*2 < row.PromptTokens {
			t.Errorf("%d of %d prompt tokens of user %s are from the shared prefix", row.CachedTokens, row.PromptTokens, id)
		}
	}
	if len(rows) != len(users) {
		t.Errorf("%d rows for %d users", len(rows), len(users))
	}
	checkManifest(t, out, manifest, rows)
	if sum := sha256Of(t, m.Path); manifest.Settings.ModelSHA256 != sum {
		t.Errorf("the manifest says that the model's hash is %s, it is %s", manifest.Settings.ModelSHA256, sum)
	}
	if sum := sha256Of(t, example("users.csv")); manifest.Input.SHA256 != sum || manifest.Input.Name != "users.csv" {
		t.Errorf("input %+v, its hash is %s", manifest.Input, sum)
	}
	checkMails(t, out, rows)
	checkReport(t, out, manifest)
}

func sha256Of(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// checkManifest adds up what the manifest says, and compares it with the rows
// and files that are there.
func checkManifest(t *testing.T, out string, m *local.Manifest, rows map[string]briefing.Row) {
	t.Helper()
	var counts local.Counts
	var tokens local.Tokens
	counts.ByFinish, counts.ByErrorCode = map[string]int64{}, map[string]int64{}
	for _, row := range rows {
		if row.Status == briefing.StatusOK {
			counts.OK++
			counts.ByFinish[row.FinishReason]++
		} else {
			counts.Failed++
			counts.ByErrorCode[row.ErrorCode]++
		}
		tokens.Prompt += int64(row.PromptTokens)
		tokens.Cached += int64(row.CachedTokens)
		tokens.Completion += int64(row.CompletionTokens)
	}
	got := m.Counts
	if got.OK != counts.OK || got.Failed != counts.Failed || got.Missing+got.Duplicate != 0 || m.State != local.StateComplete {
		t.Errorf("state %s, counts %+v; the rows say %+v", m.State, got, counts)
	}
	if d := cmp.Diff(counts.ByFinish, got.ByFinish); d != "" {
		t.Errorf("finish reasons (-rows +manifest):\n%s", d)
	}
	for code, n := range got.ByErrorCode {
		if counts.ByErrorCode[code] != n {
			t.Errorf("error code %s: %d rows, the manifest says %d", code, counts.ByErrorCode[code], n)
		}
	}
	if m.Tokens != tokens {
		t.Errorf("tokens %+v, the rows have %+v", m.Tokens, tokens)
	}
	if mails := got.Mail; mails != nil && mails.Sent+mails.NoAddress+mails.NotOK+mails.Failed+mails.Unknown+mails.Unsent != int64(len(rows)) {
		t.Errorf("the mail counts %+v do not add up to %d rows", mails, len(rows))
	}
	if e := m.Engine; e == nil || e.Records == 0 || e.DecodeSec <= 0 || e.WallSec < e.DecodeSec || e.Threads != 1 {
		t.Errorf("engine %+v", m.Engine)
	}
	for _, stage := range []string{local.StageNormalise, local.StageLoad, local.StageGenerate, local.StageReconcile} {
		if m.Seconds[stage] <= 0 {
			t.Errorf("no seconds of stage %s: %v", stage, m.Seconds)
		}
	}
	for _, f := range m.Files {
		var bytes int64
		files := 0
		err := filepath.WalkDir(filepath.Join(out, f.Path), func(_ string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err == nil {
				bytes += info.Size()
				files++
			}
			return err
		})
		if err != nil || bytes != f.Bytes || (f.Files > 0 && files != f.Files) {
			t.Errorf("%+v: %d bytes in %d files, error %v", f, bytes, files, err)
		}
	}
}

// mailbox is an address as a mail has it, with an international domain in ASCII.
func mailbox(t *testing.T, address string) string {
	t.Helper()
	local, domain, _ := strings.Cut(address, "@")
	ascii, err := idna.Lookup.ToASCII(domain)
	if err != nil {
		t.Fatalf("address %q: %v", address, err)
	}
	return local + "@" + ascii
}

// checkMails holds that each good row with an address has one mail that parses.
func checkMails(t *testing.T, out string, rows map[string]briefing.Row) {
	t.Helper()
	want := map[string]briefing.Row{}
	for _, row := range rows {
		if row.Status == briefing.StatusOK && row.Email != "" {
			want[mailbox(t, row.Email)] = row
		}
	}
	files, err := filepath.Glob(filepath.Join(out, local.MailDir, "*"))
	if err != nil || len(files) != len(want) {
		t.Errorf("%d mails for %d users, error %v", len(files), len(want), err)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		m, err := mail.ReadMessage(f)
		if err != nil {
			t.Errorf("%s: %v", filepath.Base(name), err)
			f.Close()
			continue
		}
		to, err := m.Header.AddressList("To")
		if err != nil || len(to) != 1 {
			t.Errorf("%s: to %v, error %v", filepath.Base(name), to, err)
			f.Close()
			continue
		}
		row, ok := want[to[0].Address]
		if !ok {
			t.Errorf("%s: a mail to nobody, or the second one to somebody", filepath.Base(name))
		}
		delete(want, to[0].Address)
		if to[0].Name != row.Name {
			t.Errorf("the mail of user %s names somebody else", row.UserID)
		}
		if kind := m.Header.Get("Content-Type"); !strings.HasPrefix(kind, "multipart/alternative") {
			t.Errorf("the mail of user %s is %s", row.UserID, kind)
		}
		if body, err := io.ReadAll(m.Body); err != nil || !bytes.Contains(body, []byte("text/html")) || !bytes.Contains(body, []byte("text/plain")) {
			t.Errorf("the mail of user %s has no two parts, error %v", row.UserID, err)
		}
		f.Close()
	}
}

// checkReport opens report.html in a browser.
func checkReport(t *testing.T, out string, m *local.Manifest) {
	t.Helper()
	page := chromium.Open(t)
	page.Navigate(filepath.Join(out, local.ReportName))
	if got := page.ConsoleErrors(); len(got) > 0 {
		t.Errorf("console errors: %q", got)
	}
	if got := page.ExternalRequests(); len(got) > 0 {
		t.Errorf("the report asks for %q", got)
	}
	text := chromium.Eval[string](page, "document.body.textContent")
	for _, want := range []string{m.RunID, m.Settings.Model, fmt.Sprint(m.Counts.OK), "swarm run --input"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
}

// waitFor returns a writer, and a channel that is closed once mark was written.
func waitFor(mark string) (*markWriter, <-chan struct{}) {
	w := &markWriter{mark: mark, seen: make(chan struct{})}
	return w, w.seen
}

type markWriter struct {
	mu   sync.Mutex
	text strings.Builder
	mark string
	seen chan struct{}
}

func (w *markWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := strings.Contains(w.text.String(), w.mark)
	w.text.Write(p)
	if !before && strings.Contains(w.text.String(), w.mark) {
		close(w.seen)
	}
	return len(p), nil
}

func (w *markWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// interrupt starts cmd and interrupts it some time into a stage, as often as
// there are delays.
func interrupt(t *testing.T, cmd *exec.Cmd, stage string, delays ...time.Duration) (stderr string) {
	t.Helper()
	said, reached := waitFor("swarm: " + stage + "\n")
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-reached:
	case <-ended:
		t.Fatalf("it ended before it could be interrupted:\n%s", said)
	}
	for _, delay := range delays {
		time.Sleep(delay)
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
	}
	<-ended
	return said.String()
}

func TestRunInterruptAndResume(t *testing.T) {
	t.Parallel()
	const users = 8
	prompt := filepath.Join(t.TempDir(), "system.txt")
	if err := os.WriteFile(prompt, []byte("Write a friendly morning message."), 0o644); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"run", "--input", example("users.csv"), "--out", "out", "--system-prompt", prompt, "--items", fmt.Sprint(users),
		"--threads", "1", "--max-tokens", "24", "--parallel", "2"}, demomodel.Find(t).Args()...)
	first := program(t, args...)
	stderr := interrupt(t, first, local.StageGenerate, time.Second)
	if code := first.ProcessState.ExitCode(); code != exitInterrupted || !strings.Contains(stderr, "the same command goes on from here") {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	out := filepath.Join(first.Dir, "out")
	kept := rowsOf(t, out)
	if m := manifestOf(t, out); m.State != local.StateInterrupted || len(kept) == 0 || len(kept) >= users {
		t.Fatalf("state %s, %d rows of %d users", m.State, len(kept), users)
	}
	second := program(t, args...)
	second.Dir = first.Dir
	if code, _, stderr := runProgram(t, second); code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	rows := rowsOf(t, out)
	checkManifest(t, out, manifestOf(t, out), rows)
	if len(rows) != users {
		t.Errorf("%d rows for %d users", len(rows), users)
	}
	for id, row := range kept {
		if d := cmp.Diff(row, rows[id]); d != "" {
			t.Errorf("the row of user %s changed:\n%s", id, d)
		}
	}
	checkMails(t, out, rows)
}

func TestRunSecondInterruptEndsAtOnce(t *testing.T) {
	t.Parallel()
	build(t)
	// Four users of 1,500 tokens each take far longer than this test waits.
	cmd := program(t, "run", "--input", example("users.csv"), "--out", "out", "--model", shared.tinyModel, "--threads", "1",
		"--parallel", "4", "--max-tokens", "1500", "--context", "12000", "--stop", "never said by it")
	start := time.Now()
	interrupt(t, cmd, local.StageGenerate, 300*time.Millisecond, 200*time.Millisecond)
	if state := cmd.ProcessState; state.ExitCode() != -1 || !strings.Contains(state.String(), "interrupt") {
		t.Errorf("it ended with %v after %v, want the signal to end it", state, time.Since(start))
	}
}

func TestRunItems(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	mustRun(t, "--input", example("users.csv"), "--out", out, "--items", "5", "--mail", "none")
	if rows, m := rowsOf(t, out), manifestOf(t, out); len(rows) != 5 || m.Counts.Records != 5 || m.Settings.Limit != 5 || m.Counts.Mail != nil {
		t.Errorf("%d rows, manifest %+v", len(rows), m)
	}
	if _, err := os.Stat(filepath.Join(out, local.MailDir)); err == nil {
		t.Error("mails were written in spite of --mail none")
	}
}

func TestRunTagsAndGrammar(t *testing.T) {
	t.Parallel()
	grammar := filepath.Join(t.TempDir(), "yesno.gbnf")
	if err := os.WriteFile(grammar, []byte(`root ::= "yes" | "no" " indeed"?`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		args    []string
		allowed []string
	}{
		{"tags", []string{"--tags", "sports,money and jobs,größe"}, []string{"sports", "money and jobs", "größe"}},
		{"grammar", []string{"--grammar", grammar}, []string{"yes", "no", "no indeed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "out")
			mustRun(t, append(tt.args, "--input", example("users.csv"), "--out", out, "--mail", "none", "--max-tokens", "40")...)
			rows := rowsOf(t, out)
			for id, row := range rows {
				if row.Status != briefing.StatusOK || !slices.Contains(tt.allowed, row.Briefing) {
					t.Errorf("user %s: %+v", id, row)
				}
			}
			if len(rows) != len(exampleUsers(t)) {
				t.Errorf("%d rows", len(rows))
			}
		})
	}
}

func TestRunRerunFailed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	prompt := filepath.Join(dir, "system.txt")
	if err := os.WriteFile(prompt, []byte("Write."), 0o644); err != nil {
		t.Fatal(err)
	}
	all, some, again := filepath.Join(dir, "all"), filepath.Join(dir, "some"), filepath.Join(dir, "again")
	args := []string{"--input", example("users.csv"), "--system-prompt", prompt, "--mail", "none", "--parallel", "1"}
	mustRun(t, append(args, "--out", all)...)
	var lengths []int
	for _, row := range rowsOf(t, all) {
		lengths = append(lengths, int(row.PromptTokens))
	}
	slices.Sort(lengths)
	median := lengths[len(lengths)/2]
	want := map[string]bool{}
	for id, row := range rowsOf(t, all) {
		if int(row.PromptTokens) > median {
			want[id] = true
		}
	}

	// The context is rounded up to a multiple of 256, so the bound on the output
	// is what leaves too little room for the longer half of the prompts.
	context := (median/256 + 1) * 256
	stdout := mustRun(t, append(args, "--out", some, "--context", fmt.Sprint(context), "--max-tokens", fmt.Sprint(context-median))...)
	if !strings.Contains(stdout, fmt.Sprintf("%d failed", len(want))) {
		t.Errorf("%d users should have failed:\n%s", len(want), stdout)
	}
	first := manifestOf(t, some)
	if first.Counts.ByErrorCode[recipe.CodePromptTooLong] != int64(len(want)) || len(want) == 0 {
		t.Fatalf("failures %v, want %d", first.Counts.ByErrorCode, len(want))
	}
	for range 2 { // the second time there is nothing to do
		mustRun(t, "--rerun-failed", filepath.Join(some, local.ManifestName), "--out", again, "--system-prompt", prompt, "--mail", "none")
		rows := rowsOf(t, again)
		for id, row := range rows {
			if !want[id] || row.Status != briefing.StatusOK {
				t.Errorf("user %s ran again: %+v", id, row)
			}
		}
		if m := manifestOf(t, again); len(rows) != len(want) || m.RerunOf != first.RunID {
			t.Errorf("%d rows of %d, rerun of %q", len(rows), len(want), m.RerunOf)
		}
	}
	code, _, stderr := tinyRun(t, "--rerun-failed", filepath.Join(again, local.ManifestName), "--out", filepath.Join(dir, "none"))
	if code != exitFault || !strings.Contains(stderr, "no failed user") {
		t.Errorf("nothing to run again: exit code %d, %s", code, stderr)
	}
}

func TestRunConflictAndRestart(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	args := []string{"--input", example("users.csv"), "--out", out, "--items", "3"}
	mustRun(t, args...)
	first := manifestOf(t, out)
	code, stdout, stderr := tinyRun(t, append(args, "--temperature", "0.7")...)
	if code != exitUsage || stdout != "" {
		t.Errorf("exit code %d, stdout %q", code, stdout)
	}
	for _, want := range []string{first.RunID, "its temperature is 0, not 0.7", "--restart", "another --out"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q lacks %q", stderr, want)
		}
	}
	if d := cmp.Diff(first, manifestOf(t, out)); d != "" {
		t.Errorf("the refused run changed the manifest:\n%s", d)
	}
	mustRun(t, append(args, "--temperature", "0.7", "--restart")...)
	if m := manifestOf(t, out); m.RunID == first.RunID || m.Settings.Temperature != 0.7 || len(rowsOf(t, out)) != 3 {
		t.Errorf("after --restart: %+v", m)
	}
}

func TestRunFaults(t *testing.T) {
	t.Parallel()
	build(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	page := write("page.gguf", "<!doctype html><title>Sign in</title>")
	badGrammar := write("bad.gbnf", "root ::= (")
	badTemplate := write("bad.tmpl", "{{.name")
	good := []string{"--input", example("users.csv"), "--out", "out"}
	tests := []struct {
		name string
		args []string
		env  string
		code int
		say  []string // on standard error
	}{
		{name: "unknown model", args: append(good, "--model", "lama-3.2-3b"), code: exitUsage, say: []string{`"lama-3.2-3b"`, "llama-3.2-3b", "did you mean"}},
		{name: "model that is not pulled", args: append(good, "--model", "llama-3.2-3b"), code: exitFault, say: []string{"swarm model pull llama-3.2-3b"}},
		{name: "not a GGUF", args: append(good, "--model", page), code: exitFault, say: []string{"not a GGUF model: this is an HTML page"}},
		{name: "missing model file", args: append(good, "--model", filepath.Join(dir, "absent.gguf")), code: exitFault, say: []string{"does not exist"}},
		{name: "missing libraries", args: append(good, "--model", shared.tinyModel), env: "SWARM_LLAMA_LIB=/nonexistent", code: exitFault, say: []string{"/nonexistent", "make setup", "SWARM_LLAMA_LIB"}},
		{name: "missing input", args: []string{"--input", filepath.Join(dir, "absent.csv"), "--out", "out", "--model", shared.tinyModel}, code: exitFault, say: []string{"open input", "absent.csv"}},
		{name: "bad grammar", args: append(good, "--model", shared.tinyModel, "--grammar", badGrammar), code: exitFault, say: []string{"grammar"}},
		{name: "bad template", args: append(good, "--model", shared.tinyModel, "--user-template", badTemplate), code: exitUsage, say: []string{"user template"}},
		{name: "context too small to be one", args: append(good, "--model", shared.tinyModel, "--context", "5"), code: exitUsage, say: []string{"context is 5, want at least 64 tokens"}},
		{name: "manifest that is none", args: []string{"--rerun-failed", page, "--out", "out", "--model", shared.tinyModel}, code: exitFault, say: []string{"read manifest"}},
		{name: "mail server that is not there", args: append(good, "--model", shared.tinyModel, "--items", "2", "--max-tokens", "3", "--mail", "smtp://127.0.0.1:1"), code: exitFault, say: []string{"127.0.0.1:1"}},
		{name: "unknown flag", args: []string{"--nope"}, code: exitUsage, say: []string{"unknown flag: --nope", "swarm run --help"}},
		{name: "argument", args: append(good, "more"), code: exitUsage, say: []string{"more"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cmd := program(t, append([]string{"run", "--threads", "1"}, tt.args...)...)
			cmd.Env = append(cmd.Env, tt.env)
			code, stdout, stderr := runProgram(t, cmd)
			if code != tt.code || stdout != "" {
				t.Errorf("exit code %d, want %d; stdout %q\n%s", code, tt.code, stdout, stderr)
			}
			for _, want := range tt.say {
				if !strings.Contains(stderr, want) {
					t.Errorf("%q lacks %q", stderr, want)
				}
			}
			if strings.Contains(stderr, "goroutine") {
				t.Errorf("it panicked:\n%s", stderr)
			}
		})
	}
}

// A run that made nothing before it failed is no reason to refuse the next one.
func TestRunAfterOneThatMadeNothing(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	grammar := filepath.Join(t.TempDir(), "bad.gbnf")
	if err := os.WriteFile(grammar, []byte("root ::= ("), 0o644); err != nil {
		t.Fatal(err)
	}
	// The rejected users of this input get a row only once the model is there.
	args := []string{"--input", example("users-with-faults.csv"), "--out", out}
	if code, _, stderr := tinyRun(t, append(args, "--grammar", grammar)...); code != exitFault {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	mustRun(t, args...)
	if m := manifestOf(t, out); m.Settings.Grammar != "" || m.Counts.OK != 4 {
		t.Errorf("manifest %+v", m)
	}
}

func TestRunUsageFaultsAreNamedAtOnce(t *testing.T) {
	t.Setenv(modelEnv, "")
	code, stdout, stderr := swarm(t, "run", "--format", "xml", "--temperature", "9", "--top-p", "2", "--min-p", "-1", "--batch-size", "0", "--max-tokens", "0",
		"--parallel", "0", "--context", "-1", "--threads", "-2", "--items", "-1", "--mail", "ftp://localhost", "--mail-rate", "-3",
		"--grammar", "a.gbnf", "--tags", "a,b", "--system-prompt", "absent.txt", "--input", "a.csv", "--rerun-failed", "manifest.json")
	if code != exitUsage || stdout != "" {
		t.Errorf("exit code %d, stdout %q", code, stdout)
	}
	golden(t, "run/usage-faults.txt", stderr)
}

func TestRunRejectedUsers(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	stdout := mustRun(t, "--input", example("users-with-faults.csv"), "--out", out)
	golden(t, "run/summary-rejected.txt", strings.ReplaceAll(stable(stdout), out, "out"))
	status := map[string]string{}
	for id, row := range rowsOf(t, out) {
		status[id] = strings.TrimSpace(row.Status + " " + row.ErrorCode)
		if strings.Contains(row.ErrorMessage, row.Email) && row.Email != "" || strings.Contains(row.ErrorMessage, "example.com") {
			t.Errorf("user %s: the message holds an address: %s", id, row.ErrorMessage)
		}
	}
	var lines strings.Builder
	for _, id := range slices.Sorted(mapKeys(status)) {
		fmt.Fprintf(&lines, "%s %s\n", id, status[id])
	}
	golden(t, "run/rows-rejected.txt", lines.String())
	checkManifest(t, out, manifestOf(t, out), rowsOf(t, out))
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func TestRunSMTP(t *testing.T) {
	t.Parallel()
	server := mailpittest.Start(t)
	out := filepath.Join(t.TempDir(), "out")
	args := []string{"--input", example("users.csv"), "--out", out, "--items", "12", "--from", "Morning <morning@example.com>"}

	// Mails that were written as files are not mails that were sent.
	mustRun(t, args...)
	// The server cannot be reached at first. The run keeps its rows, and the
	// same run sends later.
	if code, _, stderr := tinyRun(t, append(args, "--mail", "smtp://127.0.0.1:1")...); code != exitFault {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	before := rowsOf(t, out)
	if len(before) != 12 {
		t.Fatalf("%d rows were kept of 12", len(before))
	}
	for session := range 2 {
		mustRun(t, append(args, "--mail", "smtp://"+server.SMTPAddr)...)
		want := map[string]briefing.Row{}
		for _, row := range rowsOf(t, out) {
			if row.Status == briefing.StatusOK && row.Email != "" {
				want[mailbox(t, row.Email)] = row
			}
		}
		messages := server.Messages()
		sent, already := int64(len(want)), int64(0)
		if session > 0 {
			sent, already = 0, sent
		}
		if m := manifestOf(t, out); len(messages) != len(want) || len(want) < 8 || m.Counts.Mail.Sent != sent || m.Counts.Mail.Already != already {
			t.Fatalf("session %d: %d messages for %d users, counts %+v", session, len(messages), len(want), m.Counts.Mail)
		}
		for _, summary := range messages {
			m := server.Message(summary.ID)
			if len(m.To) != 1 {
				t.Fatalf("message to %v", m.To)
			}
			row, ok := want[m.To[0].Address]
			if !ok {
				t.Errorf("a mail to nobody, or a second one")
			}
			delete(want, m.To[0].Address)
			if m.Subject != row.Subject || m.From.Address != "morning@example.com" || m.HTML == "" || !strings.Contains(words(m.Text), words(row.Briefing)) {
				t.Errorf("user %s: subject %q, from %v; the text\n%q\nlacks\n%q", row.UserID, m.Subject, m.From, m.Text, row.Briefing)
			}
		}
	}
}

func TestRunInterruptWhileSending(t *testing.T) {
	t.Parallel()
	build(t)
	server := mailpittest.Start(t)
	const users = 10
	args := []string{"run", "--input", example("users.csv"), "--out", "out", "--model", shared.tinyModel, "--threads", "1", "--max-tokens", "6",
		"--items", fmt.Sprint(users), "--mail", "smtp://" + server.SMTPAddr, "--mail-rate", "4"}
	first := program(t, args...)
	stderr := interrupt(t, first, local.StageDeliver, 800*time.Millisecond)
	if code := first.ProcessState.ExitCode(); code != exitInterrupted {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	sent := len(server.Messages())
	if m := manifestOf(t, filepath.Join(first.Dir, "out")); m.State != local.StateInterrupted || m.Counts.Mail.Sent != int64(sent) || sent == 0 || sent > users/2+1 {
		t.Errorf("state %s, mail %+v, %d messages", m.State, m.Counts.Mail, sent)
	}
	second := program(t, args...)
	second.Dir = first.Dir
	if code, _, stderr := runProgram(t, second); code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	out := filepath.Join(first.Dir, "out")
	want := map[string]bool{}
	for _, row := range rowsOf(t, out) {
		if row.Status == briefing.StatusOK && row.Email != "" {
			want[mailbox(t, row.Email)] = true
		}
	}
	for _, m := range server.Messages() {
		if !want[m.To[0].Address] {
			t.Errorf("message %s is to nobody, or the second one to somebody", m.ID)
		}
		delete(want, m.To[0].Address)
	}
	if m := manifestOf(t, out); len(want) > 0 || m.State != local.StateComplete || m.Counts.Mail.Unknown != 0 || m.Counts.Mail.Already != int64(sent) {
		t.Errorf("%d users have no mail; state %s, mail %+v", len(want), m.State, m.Counts.Mail)
	}
}

// words drops how a text was wrapped.
func words(s string) string { return strings.Join(strings.Fields(s), "") }
