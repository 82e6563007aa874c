package deliver

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func openLedger(t testing.TB, path string) *FileLedger {
	t.Helper()
	ledger, err := OpenFileLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	return ledger
}

// TestKeyHash keeps apart what only looks the same when written side by side.
func TestKeyHash(t *testing.T) {
	t.Parallel()
	if (Key{"run-1", "0user"}).hash() == (Key{"run-10", "user"}).hash() {
		t.Error("two users share a key")
	}
}

func TestFileLedgerRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := OpenFileLedger(filepath.Join(dir, "no", "such", "folder")); err == nil {
		t.Error("a ledger in a folder that is not there")
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, bytes.Repeat([]byte("not a ledger\n"), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFileLedger(text); err == nil {
		t.Error("a text file was opened as a ledger")
	}
	path := filepath.Join(dir, "held")
	held := openLedger(t, path)
	defer held.Close()
	if _, err := OpenFileLedger(path); err == nil || !strings.Contains(err.Error(), "another process holds it") {
		t.Errorf("a second holder: error %v", err)
	}
}

// TestLedgerFileHoldsNobody reads the file's bytes after a delivery.
func TestLedgerFileHoldsNobody(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	ledger := openLedger(t, path)
	rows := sampleRows()
	for i := range rows {
		rows[i].UserID = rows[i].Email + fmt.Sprint(i) // an id can be an address
	}
	if _, err := Deliver(t.Context(), rowsOf(rows), Options{Composer: testComposer(t, nil), Sender: Null{}, Ledger: ledger}); err != nil {
		t.Fatal(err)
	}
	if err := ledger.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		local, domain, _ := strings.Cut(row.Email, "@")
		for _, secret := range []string{local, domain, row.Name, row.Subject} {
			if len(secret) >= 6 && bytes.Contains(content, []byte(secret)) {
				t.Errorf("the ledger holds %q", secret)
			}
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
}

// killedEnv makes the test binary play the process that is killed; it names the
// folder of ledger and mails.
const killedEnv = "SWARM_DELIVER_KILLED_IN"

const killedRows = 400

// slowAppend is a sender that writes users to a file, which stands for a server
// that took their mails, and says so.
type slowAppend struct {
	file     *os.File
	progress io.Writer
	mu       *sync.Mutex
}

func (s slowAppend) Send(_ context.Context, message Message) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := fmt.Fprintln(s.file, message.UserID); err != nil {
		return "", &SendError{Kind: Fatal, Code: CodeWrite, Err: err}
	}
	fmt.Fprintln(s.progress, "sent")
	time.Sleep(time.Millisecond)
	return message.ID, nil
}

// TestKilledProcess is the process that TestKillAndResume kills.
func TestKilledProcess(t *testing.T) {
	dir := os.Getenv(killedEnv)
	if dir == "" {
		t.Skip("only runs as the child of TestKillAndResume")
	}
	deliverInto(t, dir, os.Stdout)
}

func deliverInto(t *testing.T, dir string, progress io.Writer) Stats {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(dir, "mails"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ledger := openLedger(t, filepath.Join(dir, "ledger"))
	defer ledger.Close()
	stats, err := Deliver(t.Context(), rowsOf(manyRows(killedRows)), Options{
		Composer: testComposer(t, nil), Sender: slowAppend{file, progress, new(sync.Mutex)}, Ledger: ledger, ClaimBatch: 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

// TestKillAndResume kills a delivery with SIGKILL again and again, then lets it
// end: nobody gets two mails, and whoever got none is counted as unknown.
func TestKillAndResume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kills := 0
	for _, after := range []int{1, 17, 40, 3, 90} {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledProcess$", "-test.v")
		child.Env = append(os.Environ(), killedEnv+"="+dir)
		stdout, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		sent := 0
		for lines := bufio.NewScanner(stdout); sent < after && lines.Scan(); {
			if lines.Text() == "sent" {
				sent++
			}
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if child.Wait() != nil && sent == after {
			kills++
		}
	}
	if kills != 5 {
		t.Fatalf("%d of 5 processes were killed in the middle", kills)
	}
	stats := deliverInto(t, dir, io.Discard)
	sums(t, stats)

	content, err := os.ReadFile(filepath.Join(dir, "mails"))
	if err != nil {
		t.Fatal(err)
	}
	mails := map[string]int{}
	for user := range strings.FieldsSeq(string(content)) {
		mails[user]++
	}
	for user, n := range mails {
		if n > 1 {
			t.Errorf("%s got %d mails", user, n)
		}
	}
	t.Logf("%+v, %d users have a mail", stats, len(mails))
	if stats.Rows != killedRows || stats.Sent == 0 || stats.Already == 0 || stats.Sent+stats.Already+stats.Unknown != killedRows {
		t.Errorf("stats %+v", stats)
	}
	if missing := killedRows - len(mails); missing > stats.Unknown {
		t.Errorf("%d users have no mail, but only %d are counted as unknown", missing, stats.Unknown)
	}
	// A kill leaves at most a batch, the workers' mails and what was about to
	// be confirmed; five of them cannot leave half of the users.
	if stats.Unknown == 0 || stats.Unknown > 5*(2*16+8) {
		t.Errorf("%d users are unknown after 5 kills", stats.Unknown)
	}
}
