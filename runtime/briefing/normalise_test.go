package briefing

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func newReader(t testing.TB, input string) *Reader {
	t.Helper()
	r, err := NewReader(strings.NewReader(input), ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const mixedCSV = "user_id,email,city\n" +
	"1,a@example.com,Ulm\n" +
	"2,bad,Bonn\n" + // rejected, and 2 comes again below
	"3,bad,Bonn,x\n" + // rejected for two reasons, and never comes again
	"1,b@example.com,Ulm\n" + // a duplicate
	",c@example.com,Ulm\n" + // no id
	"2,d@example.com,Köln\n" +
	"3,,\n,,\n3,e@example.com,\n" + // 3 comes after all, and then twice
	"4,bad,\n4,bad,\n"

func TestNormalise(t *testing.T) {
	t.Parallel()
	for _, input := range []string{mixedCSV, zipped(t, mixedCSV)} {
		var out, rejects bytes.Buffer
		var rejected, accepted []int64
		summary, err := Normalise(context.Background(), newReader(t, input), &out, &rejects, NormaliseOptions{
			OnReject: func(e *RowError) error { rejected = append(rejected, e.Row); return nil },
			OnRecord: func(_ Record, row int64) error { accepted = append(accepted, row); return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		const wantOut = `{"user_id":"1","email":"a@example.com","city":"Ulm"}
{"user_id":"2","email":"d@example.com","city":"Köln"}
{"user_id":"3","city":""}
`
		if diff := cmp.Diff(wantOut, out.String()); diff != "" {
			t.Errorf("output (-want +got)\n%s", diff)
		}
		var lines []Reject
		for decoder := json.NewDecoder(&rejects); ; {
			var line Reject
			if err := decoder.Decode(&line); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line)
		}
		want := []Reject{
			{Row: 2, Line: 3, Code: CodeEmailInvalid, Field: "email", UserID: "2"},
			{Row: 3, Line: 4, Code: CodeColumnsExtra, UserID: "3"},
			{Row: 3, Line: 4, Code: CodeEmailInvalid, Field: "email", UserID: "3"},
			{Row: 4, Line: 5, Code: CodeUserIDDuplicate, Field: "user_id", UserID: "1"},
			{Row: 5, Line: 6, Code: CodeUserIDMissing, Field: "user_id"},
			{Row: 8, Line: 9, Code: CodeUserIDMissing, Field: "user_id"},
			{Row: 9, Line: 10, Code: CodeUserIDDuplicate, Field: "user_id", UserID: "3"},
			{Row: 10, Line: 11, Code: CodeEmailInvalid, Field: "email", UserID: "4"},
			{Row: 11, Line: 12, Code: CodeEmailInvalid, Field: "email", UserID: "4"},
		}
		if diff := cmp.Diff(want, lines, cmpopts.IgnoreFields(Reject{}, "Message")); diff != "" {
			t.Errorf("rejects (-want +got)\n%s", diff)
		}
		if !strings.Contains(lines[3].Message, "row 1:") || !strings.Contains(lines[6].Message, "row 7:") {
			t.Errorf("duplicates do not name the first row: %q, %q", lines[3].Message, lines[6].Message)
		}
		if diff := cmp.Diff([]int64{2, 3, 4, 5, 8, 9, 10, 11}, rejected); diff != "" {
			t.Errorf("OnReject rows (-want +got)\n%s", diff)
		}
		if diff := cmp.Diff([]int64{1, 6, 7}, accepted); diff != "" {
			t.Errorf("OnRecord rows (-want +got)\n%s", diff)
		}
		sum := sha256.Sum256([]byte(input))
		wantSummary := Summary{
			Format: FormatCSV, Gzip: input != mixedCSV, Records: 3, Rejected: 8,
			ByCode:     map[string]int64{CodeEmailInvalid: 4, CodeColumnsExtra: 1, CodeUserIDDuplicate: 2, CodeUserIDMissing: 2},
			InputBytes: int64(len(input)), SHA256: hex.EncodeToString(sum[:]), OutputBytes: int64(len(wantOut)),
		}
		if diff := cmp.Diff(wantSummary, summary, cmpopts.IgnoreUnexported(Summary{}), cmpopts.IgnoreFields(Summary{}, "Warnings")); diff != "" {
			t.Errorf("summary (-want +got)\n%s", diff)
		}
		// Normalising its own output changes nothing.
		var again bytes.Buffer
		if _, err := Normalise(context.Background(), newReader(t, out.String()), &again, nil, NormaliseOptions{}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wantOut, again.String()); diff != "" {
			t.Errorf("second pass (-first +second)\n%s", diff)
		}
	}
}

func TestFailedRows(t *testing.T) {
	t.Parallel()
	var rejects bytes.Buffer
	input := mixedCSV + "5,bad,x,y\n"
	summary, err := Normalise(context.Background(), newReader(t, input), nil, &rejects, NormaliseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file := rejects.String()
	var got []Row
	for row, err := range summary.FailedRows(strings.NewReader(file)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, row)
	}
	// 1, 2 and 3 have a good row, 4 is rejected twice and comes once.
	want := []Row{
		{UserID: "4", Status: StatusFailed, ErrorCode: CodeEmailInvalid, Attributes: "{}"},
		{UserID: "5", Status: StatusFailed, ErrorCode: CodeColumnsExtra, Attributes: "{}"},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Row{}, "ErrorMessage")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if message := got[1].ErrorMessage; !strings.Contains(message, "columns") || !strings.Contains(message, "no @") {
		t.Errorf("message %q does not hold both faults", message)
	}
	for range summary.FailedRows(strings.NewReader(file)) {
		t.Error("a second call yields a row again")
	}
	var last error
	for _, last = range summary.FailedRows(strings.NewReader(`{"row":1,"code":"x","user_id":"9"}` + "\n{broken")) {
	}
	if last == nil {
		t.Error("a broken rejects file gives no error")
	}
	for row := range (&Summary{}).FailedRows(strings.NewReader(file)) {
		if row.UserID == "" {
			t.Error("row without user_id")
		}
		break // must not go on
	}
}

func TestNormaliseLimit(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name              string
		limit             int64
		records, rejected int64
		limited           bool
	}{
		{"none", 0, 3, 8, false},
		{"first", 1, 1, 0, true},
		{"rejected rows do not count", 2, 2, 4, true},
		{"as many as there are", 3, 3, 4, true}, // rejected rows follow
		{"more than there are", 9, 3, 8, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			summary, err := Normalise(context.Background(), newReader(t, mixedCSV), nil, nil, NormaliseOptions{Limit: tt.limit})
			if err != nil {
				t.Fatal(err)
			}
			if summary.Records != tt.records || summary.Rejected != tt.rejected || summary.Limited != tt.limited {
				t.Errorf("%d records, %d rejected, limited %v", summary.Records, summary.Rejected, summary.Limited)
			}
			// The sum is of the whole file all the same.
			if sum := sha256.Sum256([]byte(mixedCSV)); summary.SHA256 != hex.EncodeToString(sum[:]) {
				t.Error("the sum is not that of the file")
			}
		})
	}
	summary, err := Normalise(context.Background(), newReader(t, "user_id\n1\n2\n"), nil, nil, NormaliseOptions{Limit: 2})
	if err != nil || summary.Limited {
		t.Errorf("a limit of all rows: limited %v, %v", summary.Limited, err)
	}
}

func TestNormaliseErrors(t *testing.T) {
	t.Parallel()
	full := errors.New("disk full")
	long := "user_id,note\n" + strings.Repeat(strings.Repeat("x", 100)+",y,z\n", 5000)
	good := "user_id\n"
	for i := range 50_000 {
		good += strconv.Itoa(i) + "\n"
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	tests := []struct {
		name         string
		ctx          context.Context
		input        string
		out, rejects io.Writer
		opt          NormaliseOptions
		want         error
	}{
		{"output", context.Background(), good, failing{full}, nil, NormaliseOptions{}, full},
		{"output at the flush", context.Background(), "user_id\n1\n", failing{full}, nil, NormaliseOptions{}, full},
		{"rejects", context.Background(), long, nil, failing{full}, NormaliseOptions{}, full},
		{"OnReject", context.Background(), long, nil, nil, NormaliseOptions{OnReject: func(*RowError) error { return full }}, full},
		{"OnRecord", context.Background(), good, nil, nil, NormaliseOptions{OnRecord: func(Record, int64) error { return full }}, full},
		{"cancelled", cancelled, good, nil, nil, NormaliseOptions{}, context.Canceled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Normalise(tt.ctx, newReader(t, tt.input), tt.out, tt.rejects, tt.opt)
			if !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
		})
	}
}

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// What was read before a source fails is written.
func TestNormaliseKeepsWhatWasRead(t *testing.T) {
	t.Parallel()
	reset := errors.New("connection reset")
	r, err := NewReader(io.MultiReader(strings.NewReader("user_id\n1\n2\n3"), failing{reset}), ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	summary, err := Normalise(context.Background(), r, &out, nil, NormaliseOptions{})
	if !errors.Is(err, reset) || summary.Records != 2 || summary.SHA256 != "" ||
		out.String() != "{\"user_id\":\"1\"}\n{\"user_id\":\"2\"}\n" {
		t.Errorf("%+v, %q, %v", summary, out.String(), err)
	}
}

// Normalise is idempotent: its output is its own canonical form.
func FuzzNormalise(f *testing.F) {
	f.Add([]byte(mixedCSV))
	f.Add([]byte(`{"user_id":1,"b":{"x": [1, 2]},"a":"\u00e9"}` + "\n" + `{"user_id":"1"}`))
	f.Fuzz(func(t *testing.T, input []byte) {
		r, err := NewReader(bytes.NewReader(input), ReaderOptions{})
		if err != nil {
			return
		}
		var first, second bytes.Buffer
		summary, err := Normalise(context.Background(), r, &first, nil, NormaliseOptions{})
		if err != nil || summary.Records == 0 {
			return
		}
		if r, err = NewReader(bytes.NewReader(first.Bytes()), ReaderOptions{Format: FormatJSONL}); err != nil {
			t.Fatal(err)
		}
		again, err := Normalise(context.Background(), r, &second, nil, NormaliseOptions{})
		if err != nil || again.Rejected != 0 || again.Records != summary.Records || !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Fatalf("%q becomes %q, %+v, %v", first.Bytes(), second.Bytes(), again, err)
		}
	})
}

func TestIDSet(t *testing.T) {
	t.Parallel()
	var set idSet
	const n = 100_000
	for i := range n {
		if first, added, _ := set.Add([]byte(fmt.Sprint(i)), int64(i+1)); !added || first != int64(i+1) {
			t.Fatalf("id %d: %d, %v", i, first, added)
		}
	}
	slots := 0
	for i := range n {
		if first, added, _ := set.Add([]byte(fmt.Sprint(i)), 7); added || first != int64(i+1) {
			t.Fatalf("id %d again: %d, %v", i, first, added)
		}
	}
	for i := range set.shards {
		slots += len(set.shards[i].keys)
	}
	if slots > 2*n {
		t.Errorf("%d slots for %d ids", slots, n)
	}
	if first, added, _ := set.Add([]byte("far"), 1<<40); !added || first != 1<<40 {
		t.Errorf("far row: %d, %v", first, added)
	}
}
