//go:build unix

package local_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/engine/fake"
	"github.com/briefing-swarm/briefing-swarm/runtime/local"
)

const (
	killInputEnv  = "SWARM_TEST_KILL_INPUT"
	killOutEnv    = "SWARM_TEST_KILL_OUT"
	killUsers     = 400
	killFlushRows = 20
	kills         = 20
)

// TestKillChild is the process that TestKill kills. It writes a line for every
// step of its progress.
func TestKillChild(t *testing.T) {
	input := os.Getenv(killInputEnv)
	if input == "" {
		t.Skip("only as a child of TestKill")
	}
	opt := withMail(t, options(t, input, os.Getenv(killOutEnv), fake.Options{StepTime: 2 * time.Millisecond}))
	opt.Parquet.FlushRows, opt.Parquet.FlushAfter = killFlushRows, 100*time.Millisecond
	opt.BatchSize = 60
	opt.OnProgress = func(p local.Progress) {
		if p.Total > 0 && p.Done > p.Total {
			t.Errorf("%s: %d done of %d", p.Stage, p.Done, p.Total)
		}
		fmt.Printf("progress %s %d\n", p.Stage, p.Done)
	}
	if _, err := local.Run(t.Context(), opt); err != nil {
		t.Fatal(err)
	}
}

// TestKill kills a run at random moments. Each time at most one flush of rows
// may be lost, and in the end every user has one row and one mail.
func TestKill(t *testing.T) {
	t.Parallel()
	const seed = 20261130
	rng := rand.New(rand.NewPCG(seed, 1))
	input := killInput(t)
	killedIn := map[string]int{}
	killed := 0
	for round := 1; killed < kills; round++ {
		out := filepath.Join(t.TempDir(), "out")
		before := 0
		for killed < kills {
			after := time.Duration(rng.IntN(700)) * time.Millisecond
			stage, done, finished := killedRun(t, input, out, after)
			if finished {
				break
			}
			killed++
			killedIn[stage]++
			// Reading fails where a part does not read, or has a user twice.
			now := len(rows(t, out))
			t.Logf("run %d, kill %d of %d (seed %d): %v after the start, in stage %q with %d done; %d rows, %d before", round, killed, kills, seed, after, stage, done, now, before)
			if now < before {
				t.Errorf("rows that were there are gone: %d, then %d", before, now)
			}
			if stage == local.StageGenerate && now < before+done-killFlushRows {
				t.Errorf("%d rows were there, %d more were reported, only %d are there now: more than a flush of %d rows is lost", before, done, now, killFlushRows)
			}
			if stage == local.StageDeliver && now != killUsers+1 {
				t.Errorf("mails were sent when only %d rows of %d were there", now, killUsers+1)
			}
			before = now
		}
		if _, _, finished := killedRun(t, input, out, time.Hour); !finished {
			t.Fatal("the last session did not end by itself")
		}
		checkWhole(t, out)
	}
	for _, stage := range []string{local.StageGenerate, local.StageDeliver} {
		if killedIn[stage] == 0 {
			t.Errorf("no kill struck in stage %s: %v; choose other moments", stage, killedIn)
		}
	}
}

// killInput has users with and without an address, and one that is rejected.
func killInput(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users.csv")
	var b strings.Builder
	b.WriteString("user_id,email,name,city\n")
	for i := range killUsers {
		address := fmt.Sprintf("u%d@example.com", i)
		if i%10 == 0 {
			address = ""
		}
		fmt.Fprintf(&b, "u-%d,%s,User %d,City %d\n", i, address, i, i)
	}
	b.WriteString("u-rejected,no address,Nobody,Nowhere\n")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// killedRun starts a session and kills it at some time after its first sign of
// life. It returns the last progress that the child had reported, and whether
// the child ended by itself before.
func killedRun(t *testing.T, input, out string, after time.Duration) (stage string, done int, finished bool) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKillChild$")
	child.Env = append(os.Environ(), killInputEnv+"="+input, killOutEnv+"="+out)
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	child.Stderr = &said
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var timer *time.Timer
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if timer == nil {
			timer = time.AfterFunc(after, func() { _ = child.Process.Kill() })
			defer timer.Stop()
		}
		// A line that the kill cut short has no number.
		if _, err := fmt.Sscanf(lines.Text(), "progress %s %d", &stage, &done); err != nil {
			said.WriteString(lines.Text() + "\n")
		}
	}
	err = child.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return stage, done, true
	case errors.As(err, &exit) && exit.ExitCode() == -1:
		return stage, done, false
	}
	t.Fatalf("the child failed by itself: %v\n%s", err, said.String())
	return "", 0, false
}

// checkWhole holds that out is complete: a row for each user, a mail for each
// good row with an address, a manifest that says so, and nothing left behind.
func checkWhole(t *testing.T, out string) {
	t.Helper()
	got := rows(t, out)
	want := map[string]bool{}
	for id, row := range got {
		if row.Status == briefing.StatusOK && row.Email != "" {
			want[row.Email] = true
		}
		if row.UserID != id {
			t.Errorf("row %+v under %s", row, id)
		}
	}
	if len(got) != killUsers+1 {
		t.Errorf("%d rows for %d users", len(got), killUsers+1)
	}
	for i := range killUsers {
		if _, ok := got[fmt.Sprintf("u-%d", i)]; !ok {
			t.Errorf("user u-%d has no row", i)
		}
	}
	if got["u-rejected"].Status != briefing.StatusFailed {
		t.Errorf("the rejected user's row: %+v", got["u-rejected"])
	}
	entries, err := os.ReadDir(filepath.Join(out, local.MailDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		mail, err := os.ReadFile(filepath.Join(out, local.MailDir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		address := addressee(string(mail))
		if !want[address] {
			t.Errorf("mail %s to %q: nobody, or somebody who has one already", e.Name(), address)
		}
		delete(want, address)
	}
	if len(want) > 0 {
		t.Errorf("%d users have no mail", len(want))
	}
	m, err := local.ReadManifest(filepath.Join(out, local.ManifestName))
	if err != nil {
		t.Fatal(err)
	}
	if c := m.Counts; m.State != local.StateComplete || c.OK+c.Failed != killUsers+1 || c.Missing+c.Duplicate != 0 || c.Mail.Sent != int64(len(entries)) || c.Mail.Unknown != 0 {
		t.Errorf("state %s, counts %+v, mail %+v", m.State, c, c.Mail)
	}
	if left, _ := filepath.Glob(filepath.Join(out, "*.tmp")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// addressee returns the address of a mail's To header.
func addressee(mail string) string {
	_, rest, ok := strings.Cut(mail, "\r\nTo: ")
	if !ok {
		return ""
	}
	header, _, _ := strings.Cut(rest, "\r\n")
	_, header, _ = strings.Cut(header, "<")
	address, _, _ := strings.Cut(header, ">")
	return address
}
