package gather_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/internal/mototest"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
)

// mailRows are rows with everything that a mail needs, and with nothing.
func mailRows() []briefing.Row {
	at := time.Date(2026, time.November, 30, 7, 1, 2, 3e6, time.UTC)
	var rows []briefing.Row
	for i := range 700 {
		rows = append(rows, briefing.Row{
			RunID: "run-1", UserID: fmt.Sprint("user-", i), Email: fmt.Sprintf("u%d@example.com", i), Name: "Ünal", Locale: "tr", Status: briefing.StatusOK,
			Subject: "Konu", Briefing: strings.Repeat("metin ", i%7), GeneratedAt: at,
		})
	}
	rows[3] = briefing.Row{RunID: "run-1", UserID: "user-3", Status: briefing.StatusFailed, GeneratedAt: at}
	return rows
}

func collect(t *testing.T, paths ...string) []briefing.Row {
	t.Helper()
	var rows []briefing.Row
	for row, err := range gather.MailRows(paths...) {
		if err != nil {
			t.Fatal(err)
		}
		row.GeneratedAt = row.GeneratedAt.UTC()
		rows = append(rows, row)
	}
	return rows
}

// TestMailRows reads the same rows in both forms.
func TestMailRows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sink, err := gather.OpenParquetDir(dir, gather.ParquetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rows := mailRows()
	if err := sink.Write(rows...); err != nil {
		t.Fatal(err)
	}
	if err := sink.Flush(); err != nil {
		t.Fatal(err)
	}
	local, err := gather.Parts(dir)
	if err != nil {
		t.Fatal(err)
	}
	converted := filepath.Join(dir, "converted.parquet")
	if err := os.WriteFile(converted, mototest.Converted(t, rows), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, paths := range map[string][]string{"local": local, "converted": {converted}} {
		if diff := cmp.Diff(rows, collect(t, paths...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := collect(t, append(local, converted)...); len(got) != 2*len(rows) {
		t.Errorf("%d rows of both, want %d", len(got), 2*len(rows))
	}
	if n, err := gather.CountRows(append(local, converted)...); n != int64(2*len(rows)) || err != nil {
		t.Errorf("the footers tell of %d rows, %v", n, err)
	}
	// Whoever has enough after some rows gets no more.
	seen := 0
	for range gather.MailRows(append(local, converted)...) {
		if seen++; seen == 5 {
			break
		}
	}
}

func TestMailRowsRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "text.parquet")
	if err := os.WriteFile(text, []byte("user_id,email\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{text, filepath.Join(dir, "missing.parquet")} {
		if _, err := gather.CountRows(path); err == nil || !strings.Contains(err.Error(), filepath.Base(path)) {
			t.Errorf("%s: error %v", path, err)
		}
		failed := false
		for _, err := range gather.MailRows(path, path) {
			if err == nil || failed || !strings.Contains(err.Error(), filepath.Base(path)) {
				t.Errorf("%s: error %v", path, err)
			}
			failed = true
		}
		if !failed {
			t.Errorf("%s was read", path)
		}
	}
}
