package briefing

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func field(name, value string) Field { return Field{Name: name, Value: json.RawMessage(value)} }

func TestAppendJSON(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		rec  Record
		want string
	}{
		{"id alone", Record{UserID: "1"}, `{"user_id":"1"}`},
		{"all known", Record{UserID: "1", Email: "a@example.com", Name: "A", Locale: "de"},
			`{"user_id":"1","email":"a@example.com","name":"A","locale":"de"}`},
		{"context in order, compacted", Record{UserID: "1", Context: []Field{
			field("z", ` { "b" : [ 1.0 , "x y" ] } `), field("a", `null`), field("n", `-1.50e+3`)}},
			`{"user_id":"1","z":{"b":[1.0,"x y"]},"a":null,"n":-1.50e+3}`},
		{"escapes", Record{UserID: "a\"\\", Name: "x\ty\u2028<&>\x7f", Context: []Field{field("k\n", `"\u00e9é"`)}},
			`{"user_id":"a\"\\","name":"x\ty` + "\u2028<&>\x7f" + `","k\n":"\u00e9é"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := tt.rec.AppendJSON([]byte("head"))
			if err != nil || string(got) != "head"+tt.want {
				t.Fatalf("AppendJSON = %s, %v, want %s", got, err, tt.want)
			}
			back, err := ParseRecord(got[4:])
			if err != nil {
				t.Fatal(err)
			}
			again, err := back.AppendJSON(nil)
			if err != nil || string(again) != tt.want {
				t.Errorf("read back and written again: %s, %v", again, err)
			}
			// The json package's way must agree but for its own escapes.
			marshalled, err := json.Marshal(tt.rec)
			if err != nil || !json.Valid(marshalled) {
				t.Fatalf("Marshal = %s, %v", marshalled, err)
			}
			var viaJSON Record
			if err := json.Unmarshal([]byte(tt.want), &viaJSON); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(back, viaJSON, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Unmarshal (-parse +unmarshal)\n%s", diff)
			}
		})
	}
}

// What ParseRecord would refuse must not be written in the first place.
func TestAppendJSONRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		rec  Record
	}{
		{"no id", Record{}},
		{"spaces around the id", Record{UserID: " 1"}},
		{"id too long", Record{UserID: strings.Repeat("a", MaxUserIDBytes+1)}},
		{"id with a NUL", Record{UserID: "a\x00"}},
		{"id that is not UTF-8", Record{UserID: "\xff"}},
		{"no address", Record{UserID: "1", Email: "ana"}},
		{"spaces around the name", Record{UserID: "1", Name: "Ana "}},
		{"name that is not UTF-8", Record{UserID: "1", Name: "\xff"}},
		{"known field in the context", Record{UserID: "1", Context: []Field{field("email", `"x"`)}}},
		{"field without a name", Record{UserID: "1", Context: []Field{field("", `1`)}}},
		{"field twice", Record{UserID: "1", Context: []Field{field("a", `1`), field("a", `2`)}}},
		{"BOM at the head of the first name", Record{UserID: "1", Context: []Field{field("\ufeffa", `1`)}}},
		{"value that is not JSON", Record{UserID: "1", Context: []Field{field("a", `x`)}}},
		{"no value", Record{UserID: "1", Context: []Field{{Name: "a"}}}},
		{"two values", Record{UserID: "1", Context: []Field{field("a", `1 2`)}}},
		{"value that breaks out", Record{UserID: "1", Context: []Field{field("a", `"x","b":"y"`)}}},
		{"value with a NUL", Record{UserID: "1", Context: []Field{field("a", `"\u0000"`)}}},
		{"value with a repeated key", Record{UserID: "1", Context: []Field{field("a", `{"b":1,"b":2}`)}}},
		{"value that is not UTF-8", Record{UserID: "1", Context: []Field{field("a", "\"\xff\"")}}},
		{"too deep", Record{UserID: "1", Context: []Field{field("a", strings.Repeat("[", 64)+strings.Repeat("]", 64))}}},
		{"too large", Record{UserID: "1", Context: []Field{field("a", `"`+strings.Repeat("x", MaxRecordBytes)+`"`)}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := tt.rec.AppendJSON([]byte("head"))
			if err == nil || string(got) != "head" {
				t.Errorf("AppendJSON = %.100s, %v, want an error", got, err)
			}
		})
	}
	// Many fields take another way to find the repeated one.
	rec := Record{UserID: "1"}
	for i := range 100 {
		rec.Context = append(rec.Context, field(strings.Repeat("n", i+1), `1`))
	}
	if _, err := rec.AppendJSON(nil); err != nil {
		t.Error(err)
	}
	rec.Context = append(rec.Context, field("nnn", `1`))
	var rowErr *RowError
	if _, err := rec.AppendJSON(nil); !errors.As(err, &rowErr) || rowErr.Code() != CodeJSONDuplicateKey {
		t.Errorf("error %v", err)
	}
}

func TestParseRecordSharesNoMemory(t *testing.T) {
	t.Parallel()
	line := []byte(`{"user_id":"abc","name":"Ana","city":"Lisbon"}`)
	rec, err := ParseRecord(line)
	if err != nil {
		t.Fatal(err)
	}
	for i := range line {
		line[i] = '#'
	}
	want := Record{UserID: "abc", Name: "Ana", Context: []Field{field("city", `"Lisbon"`)}}
	if diff := cmp.Diff(want, rec); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if cap(rec.Context[0].Value) != len(rec.Context[0].Value) {
		t.Error("appending to a value would write into its neighbour")
	}
}

func TestParseRecordTooLarge(t *testing.T) {
	t.Parallel()
	var rowErr *RowError
	_, err := ParseRecord([]byte(strings.Repeat(" ", maxWindowBytes+1)))
	if !errors.As(err, &rowErr) || rowErr.Code() != CodeRecordTooLarge {
		t.Errorf("error %v", err)
	}
}

func TestAttributes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		rec  Record
		want string
	}{
		{"none", Record{UserID: "1", Email: "a@example.com"}, `{}`},
		{"in order", Record{UserID: "1", Context: []Field{field("b", `{"x": 1}`), field("a\"", `"y"`)}}, `{"b":{"x":1},"a\"":"y"}`},
		{"a value that is no JSON", Record{UserID: "1", Context: []Field{field("b", `x`), field("a", `1`)}}, `{"a":1}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.rec.Attributes(); got != tt.want {
				t.Errorf("Attributes() = %s, want %s", got, tt.want)
			}
		})
	}
}

// FuzzParseRecord holds the scanner against encoding/json: what it takes is
// valid JSON of the same content, and reads back the same.
func FuzzParseRecord(f *testing.F) {
	for _, seed := range []string{
		`{"user_id":"1","name":"Ana","a":{"b":[1,2.5e-3,null,true,"\ud83d\ude00"]}}`,
		`{"user_id":9007199254740993,"email":"a@example.com","\u0061":" x "}`,
		`{"user_id":"1","a":01}`, `{"user_id":"1","a":"\ud800"}`, `{"user_id":"1","a":{"k":1,"k":2}}`,
		` { "user_id" : "1" , "a" : [ [ ] , { } ] } `, `{"user_id":"1"`, `[]`, "", `{"user_id":"\u0000"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		rec, err := ParseRecord(line)
		if err != nil {
			var rowErr *RowError
			if !errors.As(err, &rowErr) || len(rowErr.Faults) == 0 {
				t.Fatalf("error %v is no RowError with faults", err)
			}
			if rowErr.Code() == CodeJSONSyntax && json.Valid(line) {
				t.Fatalf("%q is valid JSON, but: %v", line, err)
			}
			return
		}
		if !json.Valid(line) {
			t.Fatalf("%q is not valid JSON but was accepted", line)
		}
		checkRoundTrip(t, rec)
		var want map[string]json.RawMessage
		if err := json.Unmarshal(bytes.Replace(line, []byte("\ufeff"), nil, 1), &want); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		for _, f := range rec.Context {
			var compact bytes.Buffer
			if err := json.Compact(&compact, want[f.Name]); err == nil && !bytes.Contains(line, []byte("\ufeff")) &&
				compact.String() != string(f.Value) {
				t.Fatalf("field %q is %s, want %s", f.Name, f.Value, &compact)
			}
		}
	})
}

// checkRoundTrip makes sure that a record written and read back is the same,
// and is written the same again.
func checkRoundTrip(t testing.TB, rec Record) {
	t.Helper()
	line, err := rec.AppendJSON(nil)
	if err != nil {
		t.Fatalf("AppendJSON(%+v): %v", rec, err)
	}
	if bytes.ContainsAny(line, "\n\r\x00") || len(line) > MaxRecordBytes || !json.Valid(line) {
		t.Fatalf("line %q is not one valid line", line)
	}
	back, err := ParseRecord(line)
	if err != nil {
		t.Fatalf("ParseRecord(%s): %v", line, err)
	}
	if diff := cmp.Diff(rec, back, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("read back (-written +read)\n%s", diff)
	}
	if !json.Valid([]byte(rec.Attributes())) {
		t.Fatalf("attributes %s", rec.Attributes())
	}
}
