package gather_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
)

func row(i int) briefing.Row {
	return briefing.Row{
		RunID: "run-1", UserID: fmt.Sprintf("u-%d", i), Email: "ana@example.com", Name: "Ana 🎉", Locale: "pt-BR",
		Status: briefing.StatusOK, Subject: "Bom dia", Briefing: "Chuva até às nove.\nDepois sol.", FinishReason: briefing.FinishStop,
		Model: "fake", PromptTokens: 200, CachedTokens: 180, CompletionTokens: int32(i), Attributes: `{"city":"Lisboa"}`,
		GeneratedAt: time.Date(2026, 11, 30, 7, 50, 0, 123e6, time.UTC),
	}
}

func readAll(t *testing.T, dir string) []briefing.Row {
	t.Helper()
	var rows []briefing.Row
	for r, err := range gather.DirRows[briefing.Row](dir) {
		if err != nil {
			t.Fatal(err)
		}
		r.GeneratedAt = r.GeneratedAt.UTC()
		rows = append(rows, r)
	}
	return rows
}

func TestParquetDirRoundTrip(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "briefings")
	var want []briefing.Row
	for session := range 3 {
		d, err := gather.OpenParquetDir(dir, gather.ParquetOptions{FlushRows: 300})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			want = append(want, row(session*1000+i))
			if err := d.Write(want[len(want)-1]); err != nil {
				t.Fatal(err)
			}
		}
		if d.Pending() != 100 {
			t.Errorf("%d rows are pending after 1000 with parts of 300", d.Pending())
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(want, readAll(t, dir)); d != "" {
		t.Errorf("(-written +read):\n%s", d)
	}
	parts, err := gather.Parts(dir)
	if err != nil || len(parts) != 12 {
		t.Errorf("%d parts, error %v; want 12", len(parts), err)
	}
}

func TestFlushByAge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := gather.OpenParquetDir(dir, gather.ParquetOptions{FlushAfter: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		time.Sleep(time.Millisecond)
		if err := d.Write(row(i)); err != nil {
			t.Fatal(err)
		}
		if d.Pending() != 0 {
			t.Errorf("row %d is still pending", i)
		}
	}
}

func TestUnfinishedPartIsRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	left := filepath.Join(dir, "part-00007.parquet.tmp")
	if err := os.WriteFile(left, []byte("PAR1 half a file"), 0o644); err != nil {
		t.Fatal(err)
	}
	if rows := readAll(t, dir); len(rows) != 0 {
		t.Errorf("%d rows were read out of an unfinished part", len(rows))
	}
	d, err := gather.OpenParquetDir(dir, gather.ParquetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("the unfinished part is still there: %v", err)
	}
	if err := d.Write(row(1)); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if rows := readAll(t, dir); len(rows) != 1 {
		t.Errorf("%d rows, want 1", len(rows))
	}
}

func TestReadSomeColumns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := gather.OpenParquetDir(dir, gather.ParquetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Write(row(1), row(2)); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	type key struct {
		UserID string `parquet:"user_id"`
		Status string `parquet:"status"`
	}
	var got []key
	for k, err := range gather.DirRows[key](dir) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, k)
	}
	if d := cmp.Diff([]key{{"u-1", "ok"}, {"u-2", "ok"}}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	type other struct {
		Wrong string `parquet:"wrong"`
	}
	for _, err := range gather.DirRows[other](dir) {
		if err == nil || !strings.Contains(err.Error(), "part-00001.parquet: it has no column wrong") {
			t.Errorf("error %v", err)
		}
	}
}

func TestDamagedFileIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "part-00001.parquet"), []byte("nothing of the kind"), 0o644); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range gather.DirRows[briefing.Row](dir) {
		n++
		if err == nil || !strings.Contains(err.Error(), "part-00001.parquet") {
			t.Errorf("error %v", err)
		}
	}
	if n != 1 {
		t.Errorf("%d errors, want 1", n)
	}
}

func BenchmarkParquetDir(b *testing.B) {
	d, err := gather.OpenParquetDir(b.TempDir(), gather.ParquetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		if err := d.Write(row(i)); err != nil {
			b.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		b.Fatal(err)
	}
}
