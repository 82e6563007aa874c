package briefing

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// result is what a whole file reads as, in a form easy to write down.
type result struct {
	// Rows has one entry per row: its canonical line, or "CODE[,CODE...] USER_ID".
	Rows []string
	// Lines are the physical lines of the rows.
	Lines []int64
	// End is the code of the FileError or what the ReadError wraps.
	End string
}

func readAll(t *testing.T, input io.Reader, opt ReaderOptions) (result, []*RowError) {
	t.Helper()
	var (
		res  result
		errs []*RowError
	)
	r, err := NewReader(input, opt)
	if err != nil {
		res.End = endOf(t, err)
		return res, nil
	}
	for want := int64(1); ; want++ {
		rec, err := r.Next()
		var rowErr *RowError
		switch {
		case err == io.EOF:
			if _, again := r.Next(); again != io.EOF {
				t.Errorf("Next after the end = %v, want io.EOF", again)
			}
			return res, errs
		case errors.As(err, &rowErr):
			errs = append(errs, rowErr)
			var codes []string
			for _, f := range rowErr.Faults {
				codes = append(codes, f.Code)
				if f.Message == "" || f.Line < rowErr.Line {
					t.Errorf("row %d: fault %+v has no message or a line before its row's", rowErr.Row, f)
				}
			}
			res.Rows = append(res.Rows, strings.TrimSpace(strings.Join(codes, ",")+" "+rowErr.UserID))
			if rowErr.Row != r.Row() || rowErr.Line != r.Line() {
				t.Errorf("error at row %d line %d, Reader at row %d line %d", rowErr.Row, rowErr.Line, r.Row(), r.Line())
			}
		case err != nil:
			res.End = endOf(t, err)
			if _, again := r.Next(); again != err {
				t.Errorf("Next after %v = %v, want the same", err, again)
			}
			return res, errs
		default:
			line, err := rec.AppendJSON(nil)
			if err != nil {
				t.Fatalf("row %d: %v", want, err)
			}
			res.Rows = append(res.Rows, string(line))
		}
		if r.Row() != want {
			t.Fatalf("Row() = %d, want %d", r.Row(), want)
		}
		res.Lines = append(res.Lines, r.Line())
	}
}

func endOf(t *testing.T, err error) string {
	t.Helper()
	var fileErr *FileError
	var readErr *ReadError
	switch {
	case errors.As(err, &fileErr):
		var codes []string
		for _, f := range fileErr.Faults {
			codes = append(codes, f.Code)
		}
		return strings.Join(codes, ",")
	case errors.As(err, &readErr):
		return fmt.Sprintf("after row %d: %v", readErr.Row, errors.Unwrap(readErr.Err))
	}
	t.Fatalf("unexpected kind of error: %v", err)
	return ""
}

func zipped(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func utf16Text(text string, order interface {
	AppendUint16([]byte, uint16) []byte
}) string {
	var b []byte
	for _, u := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, u)
	}
	return string(b)
}

type bigEndian struct{}

func (bigEndian) AppendUint16(b []byte, v uint16) []byte { return append(b, byte(v>>8), byte(v)) }

type littleEndian struct{}

func (littleEndian) AppendUint16(b []byte, v uint16) []byte { return append(b, byte(v), byte(v>>8)) }

func TestReader(t *testing.T) {
	t.Parallel()
	const ana = `{"user_id":"1","name":"Ana"}`
	big := strings.Repeat("x", MaxRecordBytes)
	tests := []struct {
		name  string
		input string
		want  result
		// message, if set, must be part of the first fault's message.
		message string
	}{
		// The file.
		{name: "empty file", input: "", want: result{End: CodeFileEmpty}},
		{name: "nothing but blank lines", input: "\n \r\n\t\n", want: result{End: CodeFileEmpty}},
		{name: "nothing but a BOM", input: "\ufeff", want: result{End: CodeFileEmpty}},
		{name: "header only", input: "user_id,name\n", want: result{End: CodeHeaderOnly}},
		{name: "header only, no line end", input: "user_id,name", want: result{End: CodeHeaderOnly}},
		{name: "header and blank lines", input: "user_id,name\n\n\n", want: result{End: CodeHeaderOnly}},
		{name: "UTF-16 LE with BOM", input: "\xff\xfe" + utf16Text("user_id\n1\n", littleEndian{}), want: result{End: CodeFileUTF16}},
		{name: "UTF-16 BE with BOM", input: "\xfe\xff" + utf16Text("user_id\n1\n", bigEndian{}), want: result{End: CodeFileUTF16}},
		{name: "UTF-16 LE without BOM", input: utf16Text("user_id\n1\n", littleEndian{}), want: result{End: CodeFileUTF16}},
		{name: "UTF-16 BE without BOM", input: utf16Text("user_id\n1\n", bigEndian{}), want: result{End: CodeFileUTF16}},
		{name: "UTF-16 JSON in gzip", input: zipped(t, utf16Text(`{"user_id":"1"}`, littleEndian{})), want: result{End: CodeFileUTF16}},
		{name: "Excel workbook", input: "PK\x03\x04rest", want: result{End: CodeFileNotText}},
		{name: "Parquet", input: "PAR1rest", want: result{End: CodeFileNotText}},
		{name: "no user_id column", input: "id,name\n1,Ana\n", want: result{End: CodeHeaderNoUserID}},
		{name: "several headers at once", input: "name,,name,city,city\n1,2,3,4,5\n",
			want: result{End: strings.Join([]string{CodeHeaderEmpty, CodeHeaderDuplicate, CodeHeaderDuplicate, CodeHeaderNoUserID}, ",")}},
		{name: "duplicate header", input: "user_id,name,name\n1,a,b\n", want: result{End: CodeHeaderDuplicate}},
		{name: "duplicate header but for spaces", input: "user_id,name, name\n1,a,b\n", want: result{End: CodeHeaderDuplicate}},
		{name: "empty header", input: "user_id,,name\n1,a,b\n", want: result{End: CodeHeaderEmpty}},
		{name: "header that ends in a comma", input: "user_id,name,\n1,a,\n", want: result{End: CodeHeaderEmpty}},
		{name: "header over 10 KiB", input: "user_id," + strings.Repeat("h", MaxHeaderBytes) + "\n1,a\n", want: result{End: CodeHeaderTooLarge}},
		{name: "header far over 10 KiB", input: "user_id," + strings.Repeat("h", 3<<20) + "\n1,a\n", want: result{End: CodeHeaderTooLarge}},
		{name: "header of 10 KiB", input: "user_id," + strings.Repeat("h", MaxHeaderBytes-8) + "\n1,a\n",
			want: result{Rows: []string{`{"user_id":"1","` + strings.Repeat("h", MaxHeaderBytes-8) + `":"a"}`}, Lines: []int64{2}}},
		{name: "header with an open quote", input: "user_id,\"name\n1,a\n", want: result{End: CodeQuoteOpen}},
		{name: "header with a stray quote", input: "user_id,na\"me\n1,a\n", want: result{End: CodeQuoteStray}},
		{name: "header in Latin-1", input: "user_id,gr\xfc\xdfe\n1,a\n", want: result{End: CodeInvalidUTF8}},
		{name: "header with NUL", input: "user_id,na\x00me\n1,a\n", want: result{End: CodeNUL}},
		{name: "carriage returns alone", input: "user_id,name\r1,Ana\r", want: result{End: CodeHeaderLineEnds}},
		{name: "damaged gzip head", input: "\x1f\x8b\x00", want: result{End: "after row 0: unexpected EOF"}},

		// Layout of a CSV file.
		{name: "plain", input: "user_id,name\n1,Ana\n", want: result{Rows: []string{ana}, Lines: []int64{2}}},
		{name: "no final line end", input: "user_id,name\n1,Ana", want: result{Rows: []string{ana}, Lines: []int64{2}}},
		{name: "carriage return at the end", input: "user_id,name\r\n1,Ana\r", want: result{Rows: []string{ana}, Lines: []int64{2}}},
		{name: "BOM", input: "\ufeffuser_id,name\n1,Ana\n", want: result{Rows: []string{ana}, Lines: []int64{2}}},
		{name: "BOM before a quoted header", input: "\ufeff\"user_id\",name\n1,Ana\n", want: result{Rows: []string{ana}, Lines: []int64{2}}},
		{name: "CRLF", input: "user_id,name\r\n1,Ana\r\n", want: result{Rows: []string{ana}, Lines: []int64{2}}},
		{name: "gzip", input: zipped(t, "user_id,name\n1,Ana\n"), want: result{Rows: []string{ana}, Lines: []int64{2}}},
		{name: "gzip of two members", input: zipped(t, "user_id,name\n1,Ana\n") + zipped(t, "2,Ben\n"),
			want: result{Rows: []string{ana, `{"user_id":"2","name":"Ben"}`}, Lines: []int64{2, 3}}},
		{name: "BOM in gzip", input: zipped(t, "\ufeffuser_id,name\n1,Ana\n"), want: result{Rows: []string{ana}, Lines: []int64{2}}},
		{name: "blank lines are not rows", input: "\n\nuser_id,name\n\n1,Ana\n \t\n2,Ben\n\n",
			want: result{Rows: []string{ana, `{"user_id":"2","name":"Ben"}`}, Lines: []int64{5, 7}}},
		{name: "spaces around header names", input: " user_id , name\n1,Ana\n", want: result{Rows: []string{ana}, Lines: []int64{2}}},
		{name: "user_id is not the first column", input: "name,user_id\nAna,1\n", want: result{Rows: []string{ana}, Lines: []int64{2}}},
		{name: "one column", input: "user_id\n1\n", want: result{Rows: []string{`{"user_id":"1"}`}, Lines: []int64{2}}},

		// Text of CSV fields.
		{name: "quoted comma, newline and quote", input: "user_id,note\n1,\"a, b\nc \"\"d\"\"\"\n2,x\n",
			want: result{Rows: []string{`{"user_id":"1","note":"a, b\nc \"d\""}`, `{"user_id":"2","note":"x"}`}, Lines: []int64{2, 4}}},
		{name: "quoted CRLF is kept", input: "user_id,note\r\n1,\"a\r\nb\"\r\n", want: result{Rows: []string{`{"user_id":"1","note":"a\r\nb"}`}, Lines: []int64{2}}},
		{name: "blank line within quotes", input: "user_id,note\n1,\"a\n\nb\"\n", want: result{Rows: []string{`{"user_id":"1","note":"a\n\nb"}`}, Lines: []int64{2}}},
		{name: "nothing but doubled quotes", input: "user_id,note\n1,\"\"\"\"\n2,\"\"\n",
			want: result{Rows: []string{`{"user_id":"1","note":"\""}`, `{"user_id":"2","note":""}`}, Lines: []int64{2, 3}}},
		{name: "backslashes are text", input: "user_id,note\n1,C:\\new\\\"\n2,\"a\\\"\n3,\\\n",
			want: result{Rows: []string{CodeQuoteStray + " 1", `{"user_id":"2","note":"a\\"}`, `{"user_id":"3","note":"\\"}`}, Lines: []int64{2, 3, 4}}},
		{name: "spaces in context are kept", input: "user_id,note\n1,  a  \n", want: result{Rows: []string{`{"user_id":"1","note":"  a  "}`}, Lines: []int64{2}}},
		{name: "spaces around name and e-mail are not", input: "user_id,name,email\n1, Ana , ana@example.com\n",
			want: result{Rows: []string{`{"user_id":"1","email":"ana@example.com","name":"Ana"}`}, Lines: []int64{2}}},
		{name: "carriage return within a line", input: "user_id,note\n1,a\rb\n", want: result{Rows: []string{`{"user_id":"1","note":"a\rb"}`}, Lines: []int64{2}}},
		{name: "emoji and right-to-left text", input: "user_id,name,note\n1,עמית 👩‍🚀,مرحبا 🎉\n",
			want: result{Rows: []string{`{"user_id":"1","name":"עמית 👩‍🚀","note":"مرحبا 🎉"}`}, Lines: []int64{2}}},
		{name: "control tokens are kept", input: "user_id,note\n1,<|eot_id|></s>[INST]\n",
			want: result{Rows: []string{`{"user_id":"1","note":"<|eot_id|></s>[INST]"}`}, Lines: []int64{2}}},
		{name: "numbers stay text", input: "user_id,n\n9007199254740993,1e3\n007,007\n",
			want: result{Rows: []string{`{"user_id":"9007199254740993","n":"1e3"}`, `{"user_id":"007","n":"007"}`}, Lines: []int64{2, 3}}},

		// Rows that are rejected.
		{name: "short row", input: "user_id,name,city\n1,Ana\n2,Ben,Ulm\n", message: "2 columns, the header has 3",
			want: result{Rows: []string{CodeColumnsMissing + " 1", `{"user_id":"2","name":"Ben","city":"Ulm"}`}, Lines: []int64{2, 3}}},
		{name: "long row", input: "user_id,name\n1,Ana,x,y\n", message: "4 columns, the header has 2",
			want: result{Rows: []string{CodeColumnsExtra + " 1"}, Lines: []int64{2}}},
		{name: "long row with a bad e-mail", input: "user_id,email\n1,ana,x\n",
			want: result{Rows: []string{CodeColumnsExtra + "," + CodeEmailInvalid + " 1"}, Lines: []int64{2}}},
		{name: "ragged row, id not in the first column", input: "name,user_id\nAna,1,x\n",
			want: result{Rows: []string{CodeColumnsExtra}, Lines: []int64{2}}},
		{name: "row too short for its user_id", input: "name,city,user_id\nAna\n", want: result{Rows: []string{CodeColumnsMissing}, Lines: []int64{2}}},
		{name: "missing user_id", input: "user_id,name\n,Ana\n", want: result{Rows: []string{CodeUserIDMissing}, Lines: []int64{2}}},
		{name: "white space for a user_id", input: "user_id,name\n \t,Ana\n", want: result{Rows: []string{CodeUserIDMissing}, Lines: []int64{2}}},
		{name: "white space around user_id", input: "user_id,name\n1 ,Ana\n", want: result{Rows: []string{CodeUserIDSpaces}, Lines: []int64{2}}},
		{name: "user_id with a line end", input: "user_id,name\n\"1\n2\",Ana\n", want: result{Rows: []string{CodeUserIDControl}, Lines: []int64{2}}},
		{name: "user_id too long", input: "user_id,name\n" + strings.Repeat("a", 257) + ",Ana\n" + strings.Repeat("b", 256) + ",Ben\n", message: "257 bytes",
			want: result{Rows: []string{CodeUserIDTooLong, `{"user_id":"` + strings.Repeat("b", 256) + `","name":"Ben"}`}, Lines: []int64{2, 3}}},
		{name: "an e-mail address that is none", input: "user_id,email\n1,ana at example.com\n2,\n",
			want: result{Rows: []string{CodeEmailInvalid + " 1", `{"user_id":"2"}`}, Lines: []int64{2, 3}}},
		{name: "several faults of one row", input: "user_id,email,name\n,ana,A\x00\xff\n",
			want: result{Rows: []string{strings.Join([]string{CodeInvalidUTF8, CodeNUL, CodeUserIDMissing, CodeEmailInvalid}, ",")}, Lines: []int64{2}}},
		{name: "invalid UTF-8", input: "user_id,name\n1,Gr\xfc\xdfe\n2,Ben\n", message: "byte 0xfc at byte offset 17 ",
			want: result{Rows: []string{CodeInvalidUTF8 + " 1", `{"user_id":"2","name":"Ben"}`}, Lines: []int64{2, 3}}},
		{name: "invalid UTF-8 in user_id", input: "user_id,name\n\xfc,Ana\n", want: result{Rows: []string{CodeInvalidUTF8}, Lines: []int64{2}}},
		{name: "NUL", input: "user_id,name\n1,A\x00\n", message: "byte offset 16", want: result{Rows: []string{CodeNUL + " 1"}, Lines: []int64{2}}},
		{name: "record over 64 KiB", input: "user_id,note\n1," + big + "\n2,x\n", message: "limit is 65536",
			want: result{Rows: []string{CodeRecordTooLarge + " 1", `{"user_id":"2","note":"x"}`}, Lines: []int64{2, 3}}},
		{name: "record of just 64 KiB", input: "user_id,note\n1," + big[:MaxRecordBytes-len(`{"user_id":"1","note":""}`)] + "\n",
			want: result{Rows: []string{`{"user_id":"1","note":"` + big[:MaxRecordBytes-len(`{"user_id":"1","note":""}`)] + `"}`}, Lines: []int64{2}}},
		{name: "record over 64 KiB by its escapes", input: "user_id,note\n1," + strings.Repeat("\t", MaxRecordBytes/2) + "\n",
			want: result{Rows: []string{CodeRecordTooLarge + " 1"}, Lines: []int64{2}}},
		{name: "line of 5 MiB", input: "user_id,note\n1," + strings.Repeat("x", 5<<20) + "\n2,x\n",
			want: result{Rows: []string{CodeRecordTooLarge + " 1", `{"user_id":"2","note":"x"}`}, Lines: []int64{2, 3}}},
		{name: "quoted field over 64 KiB with lines that look like rows", input: "user_id,note\n1,\"" + strings.Repeat("6,x\n", 20<<10) + "\"\n2,x\n",
			want: result{Rows: []string{CodeRecordTooLarge + " 1", `{"user_id":"2","note":"x"}`}, Lines: []int64{2, 3 + 20<<10}}},
		{name: "quoted field of 5 MiB on one line", input: "user_id,note\n1,\"" + strings.Repeat("x", 5<<20) + "\"\n2,x\n",
			want: result{Rows: []string{CodeQuoteOpen + " 1", `{"user_id":"2","note":"x"}`}, Lines: []int64{2, 3}}},
		{name: "quoted field of 5 MiB on many lines", input: "user_id,note\n1,\"" + strings.Repeat("some text\n", 500<<10) + "\"\n2,x\n",
			want: result{Rows: []string{CodeQuoteOpen + " 1", `{"user_id":"2","note":"x"}`}, Lines: []int64{2, 3 + 500<<10}}},

		// Quotes gone wrong.
		{name: "quote in a bare field", input: "user_id,note\n1,28\" wheel\n2,x\n", message: "the quote at byte 5 of line 2",
			want: result{Rows: []string{CodeQuoteStray + " 1", `{"user_id":"2","note":"x"}`}, Lines: []int64{2, 3}}},
		{name: "quotes not doubled", input: "user_id,note\n1,\"a \"b\" c\"\nshort\n2,x\n",
			want: result{Rows: []string{CodeQuoteStray + " 1", CodeColumnsMissing + " short", `{"user_id":"2","note":"x"}`}, Lines: []int64{2, 3, 4}}},
		{name: "open quote, next row follows", input: "user_id,note\n1,\"open\n2,x\n3,y\n", message: "the quote at byte 3 of line 2 is never closed",
			want: result{Rows: []string{CodeQuoteOpen + " 1", `{"user_id":"2","note":"x"}`, `{"user_id":"3","note":"y"}`}, Lines: []int64{2, 3, 4}}},
		{name: "open quote, a later row has quotes", input: "user_id,note,n\n1,\"open,a\n2,x,b\n3,\"y, z\",c\n4,x,d\n",
			want: result{Rows: []string{CodeQuoteStray + " 1", `{"user_id":"2","note":"x","n":"b"}`, `{"user_id":"3","note":"y, z","n":"c"}`,
				`{"user_id":"4","note":"x","n":"d"}`}, Lines: []int64{2, 3, 4, 5}}},
		{name: "open quote before long rows", input: "user_id,note\n0,\"open\n" + "1,x\n" + strings.Repeat("2,"+strings.Repeat("y", 60_000)+"\n", 3),
			want: result{Rows: append([]string{CodeQuoteOpen + " 0", `{"user_id":"1","note":"x"}`},
				repeat(`{"user_id":"2","note":"`+strings.Repeat("y", 60_000)+`"}`, 3)...), Lines: []int64{2, 3, 4, 5, 6}}},
		{name: "stray quote deep in a text of many lines", input: "user_id,note\n1,\"first\nsecond \"line\" is odd\nthird\"\n2,x\n", message: "reading goes on after line 4",
			want: result{Rows: []string{CodeQuoteStray + " 1", `{"user_id":"2","note":"x"}`}, Lines: []int64{2, 5}}},
		{name: "cut inside a quoted field", input: "user_id,note\n1,x\n2,\"cut he", message: "line 3 is never closed",
			want: result{Rows: []string{`{"user_id":"1","note":"x"}`, CodeQuoteOpen + " 2"}, Lines: []int64{2, 3}}},
		{name: "open quote far below its row's start", input: "user_id,a,b\n1,\"x\ny\",\"open\n", message: "the quote at byte 4 of line 3",
			want: result{Rows: []string{CodeQuoteOpen + " 1"}, Lines: []int64{2}}},
		{name: "cut inside a bare row", input: "user_id,name,note\n1,Ana,x\n2,Be",
			want: result{Rows: []string{`{"user_id":"1","name":"Ana","note":"x"}`, CodeColumnsMissing + " 2"}, Lines: []int64{2, 3}}},
		{name: "open quote before the user_id", input: "note,user_id\n\"open,1\nx,2\n",
			want: result{Rows: []string{CodeQuoteOpen, `{"user_id":"2","note":"x"}`}, Lines: []int64{2, 3}}},

		{name: "the same open quote in every row", input: "user_id,note\n1,\"a\n2,\"b\n3,\"c\n4,d\n",
			want: result{Rows: []string{CodeQuoteStray + " 1", CodeQuoteStray + " 2", CodeQuoteOpen + " 3", `{"user_id":"4","note":"d"}`}, Lines: []int64{2, 3, 4, 5}}},

		// JSON Lines.
		{name: "JSONL", input: `{"user_id":"1","name":"Ana"}` + "\n\n\r\n" + `{"user_id":"2"}`,
			want: result{Rows: []string{ana, `{"user_id":"2"}`}, Lines: []int64{1, 4}}},
		{name: "JSONL with BOM and CRLF", input: "\ufeff{\"name\":\"Ana\",\"user_id\":\"1\"}\r\n", want: result{Rows: []string{ana}, Lines: []int64{1}}},
		{name: "JSONL with a BOM in the first key", input: `{"` + "\ufeff" + `user_id":"1","name":"Ana"}`, want: result{Rows: []string{ana}, Lines: []int64{1}}},
		{name: "JSONL in gzip", input: zipped(t, `{"user_id":"1","name":"Ana"}`), want: result{Rows: []string{ana}, Lines: []int64{1}}},
		{name: "nested JSON is kept", input: `{"user_id":"1", "a": { "b" : [1.50, true, null, {"c":"\u00e9\/"}] }, "n": 1e3, "z": null}`,
			want: result{Rows: []string{`{"user_id":"1","a":{"b":[1.50,true,null,{"c":"\u00e9\/"}]},"n":1e3,"z":null}`}, Lines: []int64{1}}},
		{name: "user_id as a number", input: `{"user_id":9007199254740993}` + "\n" + `{"user_id":-5}` + "\n" + `{"user_id":123456789012345678901234567890}`,
			want: result{Rows: []string{`{"user_id":"9007199254740993"}`, `{"user_id":"-5"}`, `{"user_id":"123456789012345678901234567890"}`}, Lines: []int64{1, 2, 3}}},
		{name: "user_id as a number but no integer", input: `{"user_id":1e3}` + "\n" + `{"user_id":1.0}` + "\n" + `{"user_id":-0}`,
			want: result{Rows: []string{CodeUserIDType, CodeUserIDType, CodeUserIDType}, Lines: []int64{1, 2, 3}}},
		{name: "user_id of another kind", input: `{"user_id":null}` + "\n" + `{"user_id":true}` + "\n" + `{"user_id":["1"]}` + "\n" + `{"user_id":{}}` + "\n" + `{"user_id":""}` + "\n" + `{"user_id":" "}` + "\n" + `{"name":"Ana"}` + "\n{}",
			want: result{Rows: []string{CodeUserIDMissing, CodeUserIDType, CodeUserIDType, CodeUserIDType, CodeUserIDMissing, CodeUserIDMissing, CodeUserIDMissing, CodeUserIDMissing},
				Lines: []int64{1, 2, 3, 4, 5, 6, 7, 8}}},
		{name: "known fields of another kind", input: `{"user_id":"1","name":5,"email":null,"locale":["de"]}`,
			want: result{Rows: []string{CodeFieldType + "," + CodeFieldType + " 1"}, Lines: []int64{1}}},
		{name: "known fields that are null", input: `{"user_id":"1","name":null,"email":null,"locale":null}`,
			want: result{Rows: []string{`{"user_id":"1"}`}, Lines: []int64{1}}},
		{name: "not an object", input: `{"user_id":"1"}` + "\n[1]\n\"a\"\n5\nnull\n<html>\n",
			want: result{Rows: []string{`{"user_id":"1"}`, CodeJSONNotObject, CodeJSONNotObject, CodeJSONNotObject, CodeJSONNotObject, CodeJSONNotObject}, Lines: []int64{1, 2, 3, 4, 5, 6}}},
		{name: "a file that is one JSON list", input: `[{"user_id":"1"}]`, message: "a JSON list", want: result{Rows: []string{CodeJSONNotObject}, Lines: []int64{1}}},
		{name: "broken JSON", input: `{"user_id":"1",}` + "\n" + `{"user_id":"2" "a":1}` + "\n" + `{'user_id':"3"}` + "\n" + `{"user_id":"4","a":01}` + "\n" + `{"user_id":"5"} {"user_id":"6"}` + "\n" + `{"user_id":"7","a":"\x"}` + "\n" + `{"user_id":"8","a":tru}`,
			want: result{Rows: []string{CodeJSONSyntax + " 1", CodeJSONSyntax + " 2", CodeJSONSyntax, CodeJSONSyntax + " 4", CodeJSONSyntax + " 5", CodeJSONSyntax + " 7", CodeJSONSyntax + " 8"},
				Lines: []int64{1, 2, 3, 4, 5, 6, 7}}},
		{name: "cut inside a JSON record", input: `{"user_id":"1"}` + "\n" + `{"user_id":"2","note":"cut he`, message: "ends too early",
			want: result{Rows: []string{`{"user_id":"1"}`, CodeJSONSyntax + " 2"}, Lines: []int64{1, 2}}},
		{name: "repeated key", input: `{"user_id":"1","a":1,"\u0061":2}` + "\n" + `{"user_id":"2","user_id":"2"}` + "\n" + `{"user_id":"3","o":{"k":1,"k":1}}`,
			want: result{Rows: []string{CodeJSONDuplicateKey + " 1", CodeJSONDuplicateKey + " 2", CodeJSONDuplicateKey + " 3"}, Lines: []int64{1, 2, 3}}},
		{name: "empty key", input: `{"user_id":"1","":1}`, want: result{Rows: []string{CodeJSONEmptyKey + " 1"}, Lines: []int64{1}}},
		{name: "NUL in JSON", input: `{"user_id":"1","a":"x\u0000"}` + "\n" + `{"user_id":"2","a":{"b":["\u0000"]}}` + "\n" + "{\"user_id\":\"3\",\"a\":\"x\x00\"}" + "\n" + `{"user_id":"4","a\u0000":1}` + "\n" + `{"user_id":"5","a":"\\u0000"}` + "\n" + `{"user_id":"\u0000"}`,
			want: result{Rows: []string{CodeNUL + " 1", CodeNUL + " 2", CodeNUL + " 3", CodeNUL + " 4", `{"user_id":"5","a":"\\u0000"}`, CodeNUL}, Lines: []int64{1, 2, 3, 4, 5, 6}}},
		{name: "lone surrogate", input: `{"user_id":"1","a":"\ud83d"}` + "\n" + `{"user_id":"2","a":"\ude00\ud83d"}` + "\n" + `{"user_id":"3","a":"\ud83d\ude00"}` + "\n" + `{"user_id":"4","name":"\ud83d\u0041"}`,
			want: result{Rows: []string{CodeJSONSurrogate + " 1", CodeJSONSurrogate + " 2", `{"user_id":"3","a":"\ud83d\ude00"}`, CodeJSONSurrogate + " 4"}, Lines: []int64{1, 2, 3, 4}}},
		{name: "escapes in known fields", input: `{"user_id":"\u0061\"\\","name":"\ud83d\ude00\n\t\/\b\f\r."}`,
			want: result{Rows: []string{`{"user_id":"a\"\\","name":"😀\n\t/\u0008\u000c\r."}`}, Lines: []int64{1}}},
		{name: "invalid UTF-8 in JSON", input: "{\"user_id\":\"1\",\"a\":\"\xe9\"}\n", message: "byte 0xe9 at byte offset 20 ", want: result{Rows: []string{CodeInvalidUTF8 + " 1"}, Lines: []int64{1}}},
		{name: "JSON over 64 KiB", input: `{"user_id":"1","a":"` + big + `"}` + "\n" + `{"user_id":"2"}`,
			want: result{Rows: []string{CodeRecordTooLarge + " 1", `{"user_id":"2"}`}, Lines: []int64{1, 2}}},
		{name: "JSON over 64 KiB by white space alone", input: `{"user_id":"1"` + strings.Repeat(" ", MaxRecordBytes) + `}` + "\n",
			want: result{Rows: []string{`{"user_id":"1"}`}, Lines: []int64{1}}},
		{name: "JSON line of 5 MiB", input: `{"user_id":"1","a":"` + strings.Repeat("x", 5<<20) + `"}` + "\n" + `{"user_id":"2"}`,
			want: result{Rows: []string{CodeRecordTooLarge + " 1", `{"user_id":"2"}`}, Lines: []int64{1, 2}}},
		{name: "JSON too deep", input: `{"user_id":"1","a":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}`,
			want: result{Rows: []string{CodeJSONTooDeep + " 1"}, Lines: []int64{1}}},
		{name: "user_id with spaces in JSON", input: `{"user_id":"1 "}`, want: result{Rows: []string{CodeUserIDSpaces}, Lines: []int64{1}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, errs := readAll(t, strings.NewReader(tt.input), ReaderOptions{})
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if tt.message != "" && (len(errs) == 0 || !strings.Contains(errs[0].Error(), tt.message)) {
				t.Errorf("errors %v, want one with %q first", errs, tt.message)
			}
			// Where the text is cut into windows and reads must make no difference.
			for window := 4; window < 12 && len(tt.input) < 4096; window++ {
				small, _ := readAll(t, oneByteReader{strings.NewReader(tt.input)}, ReaderOptions{window: window})
				if diff := cmp.Diff(got, small); diff != "" {
					t.Errorf("window of %d bytes (-large +small)\n%s", window, diff)
				}
			}
		})
	}
}

type oneByteReader struct{ r io.Reader }

func (o oneByteReader) Read(p []byte) (int, error) { return o.r.Read(p[:min(1, len(p))]) }

func repeat(s string, n int) []string {
	var all []string
	for range n {
		all = append(all, s)
	}
	return all
}

// An open quote costs its own row and no other, however long the file.
func TestReaderOpenQuoteInLongFile(t *testing.T) {
	t.Parallel()
	const rows = 200_000
	var text strings.Builder
	text.WriteString("user_id,note\n")
	for i := 1; i <= rows; i++ {
		quote := ""
		if i == 1000 || i == 150_000 {
			quote = "\""
		}
		fmt.Fprintf(&text, "%d,%sa note\n", i, quote)
	}
	res, errs := readAll(t, strings.NewReader(text.String()), ReaderOptions{})
	if len(res.Rows) != rows || len(errs) != 2 || errs[0].UserID != "1000" || errs[1].UserID != "150000" {
		t.Errorf("%d rows, errors %v", len(res.Rows), errs)
	}
}

func TestReaderTruncatedGzip(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("user_id,name\n")
	for i := range 200_000 {
		fmt.Fprintf(&text, "%d,%x\n", i, i*i*7919)
	}
	whole := zipped(t, text.String())
	r, err := NewReader(strings.NewReader(whole[:len(whole)/2]), ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rows := int64(0)
	for ; ; rows++ {
		if _, err = r.Next(); err != nil {
			break
		}
	}
	var readErr *ReadError
	if !errors.As(err, &readErr) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("error %v, want a ReadError for an unexpected end", err)
	}
	if rows < 1000 || readErr.Row != rows || readErr.Line != rows+2 {
		t.Errorf("%d rows read, error %v", rows, err)
	}
	// A checksum that does not fit is damage too.
	damaged := []byte(zipped(t, "user_id\n1\n"))
	damaged[len(damaged)-8]++
	if res, _ := readAll(t, bytes.NewReader(damaged), ReaderOptions{}); !strings.Contains(res.End, "checksum") {
		t.Errorf("result %+v, want a checksum error", res)
	}
}

func TestReaderFormat(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, file, input string
		format, want      Format
	}{
		{"by content, CSV", "", "user_id\n1\n", FormatAuto, FormatCSV},
		{"by content, JSONL", "", "\n {\"user_id\":\"1\"}", FormatAuto, FormatJSONL},
		{"by name", "users.JSONL", "user_id\n1\n", FormatAuto, FormatJSONL},
		{"by name before .gz", "inputs/users.csv.gz", "user_id\n1\n", FormatAuto, FormatCSV},
		{"by option before the name", "users.csv", "{}", FormatJSONL, FormatJSONL},
		{"unknown name", "users.txt", "user_id\n1\n", FormatAuto, FormatCSV},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := NewReader(strings.NewReader(tt.input), ReaderOptions{Name: tt.file, Format: tt.format})
			if err != nil {
				t.Fatal(err)
			}
			if r.Format() != tt.want {
				t.Errorf("format %v, want %v", r.Format(), tt.want)
			}
			back, err := ParseFormat(tt.want.String())
			if err != nil || back != tt.want {
				t.Errorf("ParseFormat(%q) = %v, %v", tt.want, back, err)
			}
		})
	}
	if _, err := ParseFormat("xml"); err == nil {
		t.Error("ParseFormat takes xml")
	}
}

func TestReaderHints(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, file, input, want string }{
		{"other case", "", "Email,User_ID\na,b\n", `rename column 2, "User_ID"`},
		{"semicolons", "", "user_id;name\n1;Ana\n", "semicolons"},
		{"tabs", "", "user_id\tname\n1\tAna\n", "tabs"},
		{"JSON named CSV", "users.csv", `{"user_id":1}` + "\n", "JSON"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := NewReader(strings.NewReader(tt.input), ReaderOptions{Name: tt.file})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestReaderSourceError(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	r, err := NewReader(io.MultiReader(strings.NewReader("user_id,name\n1,Ana\n2,\"Be"), failing{broken}), ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if rec, err := r.Next(); err != nil || rec.UserID != "1" {
		t.Fatalf("Next = %+v, %v", rec, err)
	}
	// The row the source broke off in is no faulty row: the source is at fault.
	for range 2 {
		_, err := r.Next()
		var readErr *ReadError
		if !errors.As(err, &readErr) || !errors.Is(err, broken) || readErr.Row != 1 || readErr.Line != 3 {
			t.Fatalf("Next = %v", err)
		}
	}
	if _, err := NewReader(failing{broken}, ReaderOptions{}); !errors.Is(err, broken) {
		t.Errorf("NewReader = %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestReaderWarnings(t *testing.T) {
	t.Parallel()
	input := "user_id,email,Name,context,note\n" +
		"1,ana@example.com,A,,C:\\temp\n" +
		"2,ben@example.com,B,,<|eot_id|> and <|im_end|>\n" +
		"3,zoë@example.com,C,,x\n" +
		"4,d@example.com,D,,\\\n" +
		"5,e@example.com,E\n" +
		"6,f@example.com,F,,x,y\n" +
		"7,g@example.com,G,,< | [INST]"
	r, err := NewReader(strings.NewReader(input), ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for err != io.EOF {
		_, err = r.Next()
	}
	want := []Warning{
		{Code: WarnNearName, Count: 1, Line: 1},
		{Code: WarnContextShadowed, Count: 1, Line: 1},
		{Code: WarnBackslashes, Count: 2, Row: 1, Line: 2},
		{Code: WarnPadded, Count: 1, Row: 5, Line: 6},
		{Code: WarnDropped, Count: 1, Row: 6, Line: 7},
		{Code: WarnControlTokens, Count: 2, Row: 2, Line: 3},
		{Code: WarnLocalPart, Count: 1, Row: 3, Line: 4},
		{Code: WarnNoFinalLineEnd, Count: 1, Row: 7, Line: 8},
	}
	got := r.Warnings()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Warning{}, "Message")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if !strings.Contains(got[5].Message, "3 in all") {
		t.Errorf("message %q", got[5].Message)
	}
}

func TestCountControlTokens(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text   string
		format Format
		want   int
	}{
		{"plain < text > | here", FormatCSV, 0},
		{"<|eot_id|>", FormatCSV, 1},
		{"<|<|a|>", FormatCSV, 1},
		{"<||> <|a b|>", FormatCSV, 0},
		{"<s>x</s><start_of_turn>", FormatCSV, 3},
		{"[INST] [/INST] <<SYS>>", FormatCSV, 3},
		{`{"a":"\u003c|eot_id|\u003E"}`, FormatJSONL, 1},
		{`{"a":"\u003c\u007ceot_id\u007C\u003E \u00e9 \u00"}`, FormatJSONL, 1},
		{strings.Repeat("<|", 20_000), FormatCSV, 0},
	}
	for _, tt := range tests {
		if got := countControlTokens([]byte(tt.text), tt.format); got != tt.want {
			t.Errorf("%.40q: %d, want %d", tt.text, got, tt.want)
		}
	}
}

// No message may quote what a user wrote.
func TestFaultsHoldNoPersonalData(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	for _, input := range []string{
		"user_id,email,note\n" + secret + " ," + secret + ",x\n",
		"user_id,email,note\n1,\"" + secret + "\n",
		"user_id,email,note\n1,a\"" + secret + ",x\n",
		"user_id,email,note\n1," + secret + "@x,\xff" + secret + "\x00,y\n",
		secret + "," + secret + "\n",
		secret + "\r" + secret + "\n",
		`{"user_id":"1","email":"` + secret + `","name":{"` + secret + `":1},"a":"` + secret,
		`{"user_id":["` + secret + `"]}`,
		`{"user_id":true,` + secret,
	} {
		r, err := NewReader(strings.NewReader(input), ReaderOptions{})
		if err == nil {
			_, err = r.Next()
		}
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("input %q: error %v", input, err)
		}
		var rowErr *RowError
		if errors.As(err, &rowErr) {
			text, err := json.Marshal(rowErr.Rejects())
			if err != nil || bytes.Contains(text, []byte(secret)) {
				t.Errorf("input %q: rejects %s, %v", input, text, err)
			}
		}
	}
}
