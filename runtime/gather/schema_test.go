package gather_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestSchema holds the three forms of a row together: the Parquet files, the
// JSON that Firehose receives, and the Glue table by which it converts it. They
// are a contract with everyone who reads the results.
func TestSchema(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	section := func(name, text string) { fmt.Fprintf(&b, "== %s ==\n%s\n\n", name, strings.TrimSpace(text)) }
	section("Parquet", parquet.SchemaOf(briefing.Row{}).String())
	var line bytes.Buffer
	if err := json.Indent(&line, asJSON(t, row(7)), "", "  "); err != nil {
		t.Fatal(err)
	}
	section("JSON", line.String())
	var columns strings.Builder
	for _, c := range briefing.GlueColumns() {
		fmt.Fprintf(&columns, "%s %s\n", c.Name, c.Type)
	}
	section("Glue", columns.String())

	path := filepath.Join("testdata", "schema.txt")
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(b.String()), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (rewrite golden files with: go test ./runtime/gather -update)", err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("the schema changed, and with it everyone who reads the results (-want +got):\n%s", d)
	}
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The three forms have the same columns in the same order, of types that mean
// the same.
func TestSchemaAgrees(t *testing.T) {
	t.Parallel()
	columns := briefing.GlueColumns()
	fields := parquet.SchemaOf(briefing.Row{}).Fields()
	if len(fields) != len(columns) {
		t.Fatalf("%d Parquet columns, %d of Glue", len(fields), len(columns))
	}
	physical := map[string]parquet.Kind{"string": parquet.ByteArray, "int": parquet.Int32, "timestamp": parquet.Int64}
	decoder := json.NewDecoder(bytes.NewReader(asJSON(t, row(1))))
	if _, err := decoder.Token(); err != nil {
		t.Fatal(err)
	}
	for i, f := range fields {
		c := columns[i]
		if f.Name() != c.Name || f.Type().Kind() != physical[c.Type] || f.Optional() || f.Repeated() {
			t.Errorf("column %d: Parquet has %s %v, Glue has %+v", i, f.Name(), f.Type(), c)
		}
		name, err := decoder.Token()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decoder.Token(); err != nil {
			t.Fatal(err)
		}
		if name != c.Name {
			t.Errorf("column %d: JSON has %v, Glue has %+v", i, name, c)
		}
		if c.Name != strings.ToLower(c.Name) || strings.ContainsAny(c.Name, " ,.-") {
			t.Errorf("column %q is not lower-case snake_case", c.Name)
		}
	}
}

// duckProgram prints what DuckDB reads, as JSON.
const duckProgram = `
import duckdb, json, sys
db = duckdb.connect()
db.execute("set timezone = 'UTC'")
source = "read_parquet('" + sys.argv[1].replace("'", "''") + "/*.parquet')"
types = [[r[0], r[1]] for r in db.execute("describe select * from " + source).fetchall()]
rows = db.execute("select * replace (epoch_ms(generated_at) as generated_at) from " + source + " order by user_id").fetchall()
counts = db.execute("select status, count(*), count(distinct user_id), sum(completion_tokens)::bigint from " + source + " group by status order by status").fetchall()
json.dump({"types": types, "rows": rows, "counts": counts}, sys.stdout)
`

// TestDuckDB lets another reader of Parquet look at the files.
func TestDuckDB(t *testing.T) {
	t.Parallel()
	python := filepath.Join("..", "..", ".cache", "venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Fatalf("no DuckDB for tests: run scripts/test-tools.sh, as 'make test' does (%v)", err)
	}
	dir := filepath.Join(t.TempDir(), "it's here")
	d, err := gather.OpenParquetDir(dir, gather.ParquetOptions{FlushRows: 700})
	if err != nil {
		t.Fatal(err)
	}
	const n = 2000
	odd := row(0)
	odd.UserID, odd.Name, odd.Briefing = "a-odd", "نور 👩‍👩‍👧‍👦 \u202e", "line\nend\t\"quoted\" \\ 天気 🎉"
	odd.Status, odd.ErrorCode, odd.ErrorMessage = briefing.StatusFailed, "engine_error", "it failed"
	odd.GeneratedAt = time.Date(1999, 12, 31, 23, 59, 59, 999e6, time.UTC)
	odd.PromptTokens, odd.CachedTokens = 1<<31-1, -1
	want := []briefing.Row{odd}
	for i := range n {
		r := row(i)
		r.UserID = fmt.Sprintf("u-%06d", i)
		want = append(want, r)
	}
	if err := errors.Join(d.Write(want...), d.Close()); err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), python, "-c", duckProgram, dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var got struct {
		Types  [][2]string
		Rows   [][]any
		Counts [][]any
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&got); err != nil {
		t.Fatal(err)
	}

	duck := map[string]string{"string": "VARCHAR", "int": "INTEGER", "timestamp": "TIMESTAMP WITH TIME ZONE"}
	var types [][2]string
	for _, c := range briefing.GlueColumns() {
		types = append(types, [2]string{c.Name, duck[c.Type]})
	}
	if d := cmp.Diff(types, got.Types); d != "" {
		t.Errorf("columns (-want +DuckDB):\n%s", d)
	}
	if len(got.Rows) != len(want) {
		t.Fatalf("DuckDB reads %d rows of %d", len(got.Rows), len(want))
	}
	for i, r := range want {
		// A row as DuckDB shows it: values in the order of the columns, the time
		// in milliseconds.
		int32s := func(v int32) json.Number { return json.Number(fmt.Sprint(v)) }
		values := []any{r.RunID, r.UserID, r.Email, r.Name, r.Locale, r.Status, r.Subject, r.Briefing, r.ErrorCode, r.ErrorMessage, r.FinishReason, r.Model,
			int32s(r.PromptTokens), int32s(r.CachedTokens), int32s(r.CompletionTokens), json.Number(fmt.Sprint(r.GeneratedAt.UnixMilli())), r.Attributes}
		if d := cmp.Diff(values, got.Rows[i]); d != "" {
			t.Fatalf("row %d (-written +DuckDB):\n%s", i, d)
		}
	}
	counts := [][]any{
		{"failed", json.Number("1"), json.Number("1"), json.Number("0")},
		{"ok", json.Number("2000"), json.Number("2000"), json.Number("1999000")},
	}
	if d := cmp.Diff(counts, got.Counts); d != "" {
		t.Errorf("counts (-want +DuckDB):\n%s", d)
	}
}
