package briefing

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// FuzzReader reads anything, as either format: no panic, an end, faults with a
// place, and accepted records that read back the same.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		"user_id,name,email\n1,Ana,ana@example.com\n2,\"B\n,\"\"b\",\n",
		"\ufeffuser_id,note\r\n1,\"open\r\n2,x\r\n3,\"y\"\r\n",
		"user_id,a,b\n1,\"x\"y,z\n\n2,28\" w,z\n3,\\,\x00\n4,\xff",
		"{\"user_id\":1,\"a\":[1,{\"b\":null}]}\n\n{\"user_id\":\"2\"\n[]\n{\"user_id\":\"\\ud800\"}",
		"note,user_id\n\"a,1\nb,2\n\"c,3\nd\",4\n",
		"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff*-N-\x8a\xcfL\xe12\xe4\x02\x04\x00\x00\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00",
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, input []byte, lines bool) {
		opt := ReaderOptions{Format: FormatCSV, window: 8}
		if lines {
			opt.Format = FormatJSONL
		}
		r, err := NewReader(bytes.NewReader(input), opt)
		if err != nil {
			return
		}
		last := int64(0)
		for {
			rec, err := r.Next()
			var rowErr *RowError
			switch {
			case errors.As(err, &rowErr):
				if len(rowErr.Faults) == 0 || rowErr.Row != r.Row() {
					t.Fatalf("row error %+v in row %d", rowErr, r.Row())
				}
				if rowErr.UserID != "" {
					checkRoundTrip(t, Record{UserID: rowErr.UserID})
				}
			case err != nil:
				return
			default:
				checkRoundTrip(t, rec)
			}
			if r.Line() <= last {
				t.Fatalf("row %d is on line %d, the one before on line %d", r.Row(), r.Line(), last)
			}
			last = r.Line()
			if len(r.window.buf) > maxWindowBytes {
				t.Fatalf("the window grew to %d bytes", len(r.window.buf))
			}
		}
	})
}

// FuzzCSVAgainstStandard holds the scanner against encoding/csv: where that
// takes a file, both see the same fields; where it finds a quote at fault, so
// does the scanner.
func FuzzCSVAgainstStandard(f *testing.F) {
	for _, seed := range []string{
		"a,b\n1,\"x, y\"\n", "\"a\"\"b\",\"\nc\"\r\n,,\n", "a\rb,c\r\r\n", "a,\"b\"\r", "\"\"", "a\"b", "\"a\"b\n", "\"a", ",\n\n,",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input string) {
		// Two differences are meant: blank lines may hold white space, and line
		// ends in quotes are kept as they are.
		for line := range strings.SplitSeq(input, "\n") {
			if line != "" && strings.Trim(line, " \t\r") == "" && line != "\r" {
				t.Skip()
			}
		}
		standard := csv.NewReader(strings.NewReader(input))
		standard.FieldsPerRecord = -1
		w := newWindow(strings.NewReader(input), 8)
		var (
			scan   csvScan
			blanks int64
		)
		for {
			want, wantErr := standard.Read()
			if !w.skipBlank(&blanks) {
				if wantErr != io.EOF {
					t.Fatalf("the scanner ends, encoding/csv has %q, %v", want, wantErr)
				}
				return
			}
			scan.scan(w.data(), w.atEOF())
			for scan.status == csvMore && w.fill() {
				scan.scan(w.data(), w.atEOF())
			}
			if wantErr != nil {
				if scan.status == csvDone {
					t.Fatalf("the scanner accepts what encoding/csv refuses with %v", wantErr)
				}
				return
			}
			if scan.status != csvDone {
				t.Fatalf("the scanner refuses (status %d) what encoding/csv reads as %q", scan.status, want)
			}
			var got []string
			var scratch []byte
			for _, field := range scan.fields {
				got = append(got, strings.ReplaceAll(string(field.text(w.data(), &scratch)), "\r\n", "\n"))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("the scanner reads %q, encoding/csv %q", got, want)
			}
			w.advance(scan.size, scan.lines)
		}
	})
}
