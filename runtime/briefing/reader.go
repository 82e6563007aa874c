package briefing

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxHeaderBytes is the longest CSV header accepted, the same as the limit of
// Step Functions' own reader.
const MaxHeaderBytes = 10 << 10

// Format is how records lie in a file.
type Format int

const (
	// FormatAuto decides by the name, else by the first character: an object or
	// list begins JSON Lines, anything else CSV.
	FormatAuto Format = iota
	// FormatCSV is comma-separated values by RFC 4180 under one header.
	FormatCSV
	// FormatJSONL is one JSON object per line.
	FormatJSONL
)

// String returns "auto", "csv" or "jsonl".
func (f Format) String() string {
	switch f {
	case FormatCSV:
		return "csv"
	case FormatJSONL:
		return "jsonl"
	}
	return "auto"
}

// ParseFormat reads what String writes, for a flag.
func ParseFormat(s string) (Format, error) {
	for _, f := range []Format{FormatAuto, FormatCSV, FormatJSONL} {
		if s == f.String() {
			return f, nil
		}
	}
	return FormatAuto, fmt.Errorf("unknown format %q: use auto, csv or jsonl", s)
}

// ReaderOptions says how to read a file. The zero value finds out by itself.
type ReaderOptions struct {
	// Format overrides what the name and the content suggest.
	Format Format
	// Name is the file's name, if it has one: .csv, .jsonl, .ndjson and .json
	// settle the format, with or without .gz after it.
	Name string

	// window is the first size of the window, for tests; 0 is windowBytes.
	window int
}

// Reader streams the records of a CSV or JSON Lines file in bounded memory. It
// is not safe for concurrent use.
//
// Text must be UTF-8, with or without a byte order mark; gzip is recognised by
// its first bytes. Blank lines are skipped and not counted. A NUL, in CSV or as
// \u0000 in JSON, rejects the row, because it ends a string in too many of the
// places a record goes to.
//
// In CSV, header names lose the white space around them and every value is a
// string. A row with a quote that is not closed, or stands where none may, is
// rejected alone: reading goes on with the next line that again is a row of
// the header's width.
type Reader struct {
	raw    *digester
	window *window
	format Format
	gzip   bool

	columns []column // of CSV
	scan    csvScan
	json    jsonScan
	names   nameTable
	draft   draft
	watch   watch

	row    int64 // of the record or RowError returned last
	line   int64
	blanks int64
	err    error // sticky
}

// column is one column of a CSV file.
type column struct {
	name  string
	known bool
}

// digester sums the input as it is read, before decompression.
type digester struct {
	src  io.Reader
	hash hash.Hash
	n    int64
}

func (d *digester) Read(p []byte) (int, error) {
	n, err := d.src.Read(p)
	d.hash.Write(p[:n])
	d.n += int64(n)
	return n, err
}

// NewReader reads the head of r. Its error is a *FileError where no record can
// be read, naming all faults of a header at once, or a *ReadError where r
// fails.
func NewReader(r io.Reader, opt ReaderOptions) (*Reader, error) {
	rd := &Reader{raw: &digester{src: r, hash: sha256.New()}}
	src, err := rd.sniff()
	if err != nil {
		return nil, err
	}
	rd.window = newWindow(src, opt.window)
	rd.window.fill()
	if err := rd.checkEncoding(); err != nil {
		return nil, err
	}
	if bytes.HasPrefix(rd.window.data(), []byte("\ufeff")) {
		rd.window.advance(len("\ufeff"), 0)
	}
	if !rd.window.skipBlank(&rd.blanks) {
		if err := rd.window.failed(); err != nil {
			return nil, rd.readError(err)
		}
		return nil, fileError(CodeFileEmpty, 1, "the file is empty: write a CSV header and rows, or one JSON object per line")
	}
	rd.format = opt.Format
	if rd.format == FormatAuto {
		rd.format = formatOf(opt.Name, rd.window.data())
	}
	if rd.format == FormatCSV {
		if err := rd.readHeader(); err != nil {
			return nil, err
		}
	}
	return rd, nil
}

// sniff looks at the first bytes and undoes gzip.
func (r *Reader) sniff() (io.Reader, error) {
	buffered := bufio.NewReaderSize(r.raw, 128<<10)
	head, err := buffered.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, &ReadError{Line: 1, Err: err}
	}
	for _, known := range []struct{ magic, what string }{
		{"PK\x03\x04", "a zip archive or an Excel workbook"},
		{"\xd0\xcf\x11\xe0", "an Excel workbook"},
		{"PAR1", "a Parquet file"},
		{"\x28\xb5\x2f\xfd", "a zstd archive"},
		{"\xfd7zX", "an xz archive"},
		{"BZh", "a bzip2 archive"},
	} {
		if bytes.HasPrefix(head, []byte(known.magic)) {
			return nil, fileError(CodeFileNotText, 1,
				"the file is "+known.what+": save it as CSV (UTF-8) or JSON Lines, plain or gzip")
		}
	}
	if !bytes.HasPrefix(head, []byte{0x1f, 0x8b}) {
		return buffered, nil
	}
	r.gzip = true
	unzipped, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, &ReadError{Line: 1, Err: gzipError(err)}
	}
	return unzipped, nil
}

// gzipError says what to do about a damaged gzip stream.
func gzipError(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("the gzip file is cut short, copy it again: %w", io.ErrUnexpectedEOF)
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		return fmt.Errorf("the gzip file is damaged, copy it again: %w", err)
	}
	return err
}

// checkEncoding refuses UTF-16 and UTF-32, by their marks or by the zeros that
// ASCII has in them.
func (r *Reader) checkEncoding() error {
	head := r.window.data()
	wide := bytes.HasPrefix(head, []byte{0xff, 0xfe}) || bytes.HasPrefix(head, []byte{0xfe, 0xff}) ||
		bytes.HasPrefix(head, []byte{0, 0, 0xfe, 0xff})
	if len(head) >= 4 {
		wide = wide || head[0] == 0 && head[1] != 0 && head[2] == 0 && head[3] != 0 ||
			head[0] != 0 && head[1] == 0 && head[2] != 0 && head[3] == 0 ||
			head[0] != 0 && head[1] == 0 && head[2] == 0 && head[3] == 0 ||
			head[0] == 0 && head[1] == 0 && head[2] == 0 && head[3] != 0
	}
	if wide {
		return fileError(CodeFileUTF16, 1,
			"the file is UTF-16 or UTF-32: save it as UTF-8, or convert it with iconv -f UTF-16 -t UTF-8")
	}
	return nil
}

// formatOf is the format the name says, else the one the content looks like.
func formatOf(name string, head []byte) Format {
	name = strings.TrimSuffix(strings.ToLower(name), ".gz")
	switch path.Ext(name) {
	case ".csv":
		return FormatCSV
	case ".jsonl", ".ndjson", ".json":
		return FormatJSONL
	}
	if head = bytes.TrimLeft(head, " \t\r\n"); len(head) > 0 && (head[0] == '{' || head[0] == '[') {
		return FormatJSONL
	}
	return FormatCSV
}

// readHeader reads the CSV header and makes sure that a row follows.
func (r *Reader) readHeader() error {
	w := r.window
	r.scan.scan(w.data(), w.atEOF())
	for r.scan.status == csvMore && len(w.data()) <= 2*MaxHeaderBytes && w.fill() {
		r.scan.scan(w.data(), w.atEOF())
	}
	if err := w.failed(); err != nil && r.scan.status != csvDone {
		return r.readError(err)
	}
	line := w.line
	size := r.scan.size
	if r.scan.status != csvDone {
		size = len(w.data())
	}
	if len(bytes.TrimRight(w.data()[:size], "\r\n")) > MaxHeaderBytes {
		return fileError(CodeHeaderTooLarge, line, fmt.Sprintf(
			"the header has more than %d bytes: shorten its names, or close the quote that makes it run on", MaxHeaderBytes))
	}
	switch r.scan.status {
	case csvStray:
		if first := w.data()[0]; first == '{' || first == '[' {
			return fileError(CodeHeaderNoUserID, line, "the file is not CSV but looks like JSON, read it as JSON Lines")
		}
		return fileError(CodeQuoteStray, line,
			"the header has a quote where none may be: quote the whole name and double the quotes inside it")
	case csvOpenQuote, csvMore:
		return fileError(CodeQuoteOpen, line, "the header has a quote that is never closed: close it")
	}
	if faults := r.setColumns(w.data()[:size], line); len(faults) > 0 {
		return &FileError{Faults: faults}
	}
	w.advance(size, r.scan.lines)
	if !w.skipBlank(&r.blanks) {
		if err := w.failed(); err != nil {
			return r.readError(err)
		}
		return fileError(CodeHeaderOnly, w.line, "the file has a header but no rows: add one row per user")
	}
	return nil
}

// setColumns names the columns by the header and returns its faults.
func (r *Reader) setColumns(raw []byte, line int64) (faults []Fault) {
	add := func(code, field, message string) {
		faults = append(faults, Fault{Code: code, Line: line, Field: field, Message: message})
	}
	text := bytes.TrimRight(raw, "\r\n")
	if i := firstInvalidUTF8(text); i >= 0 {
		add(CodeInvalidUTF8, "", fmt.Sprintf(
			"byte 0x%02x at byte offset %d, in the header, is not UTF-8: save the file as UTF-8",
			text[i], r.window.offset+int64(i)))
	}
	if i := bytes.IndexByte(text, 0); i >= 0 {
		add(CodeNUL, "", fmt.Sprintf("NUL byte at byte offset %d, in the header: remove it", r.window.offset+int64(i)))
	}
	if bytes.IndexByte(text, '\r') >= 0 && bytes.IndexByte(text, '\n') < 0 {
		// All rows would be taken for header names.
		add(CodeHeaderLineEnds, "", "the header holds a carriage return alone: write line ends as LF or CRLF")
		return faults
	}
	first := make(map[string]int)
	var scratch []byte
	names := make([]string, 0, len(r.scan.fields))
	for i, f := range r.scan.fields {
		name := string(bytes.TrimSpace(f.text(raw, &scratch)))
		names = append(names, name)
		if name == "" {
			add(CodeHeaderEmpty, "", fmt.Sprintf("column %d has no name: name it or remove the column", i+1))
			continue
		}
		if before, ok := first[name]; ok {
			add(CodeHeaderDuplicate, name, fmt.Sprintf(
				"column %d has the same name as column %d: rename or remove one", i+1, before))
			continue
		}
		first[name] = i + 1
		known := name == FieldUserID || name == FieldEmail || name == FieldName || name == FieldLocale
		r.columns = append(r.columns, column{name: name, known: known})
	}
	if first[FieldUserID] == 0 {
		// The header may be missing, and these then are a user's data.
		for i := range faults {
			faults[i].Field = ""
		}
		add(CodeHeaderNoUserID, FieldUserID, "the header has no column user_id"+noUserIDHint(names, text))
	}
	if len(faults) == 0 {
		r.watch.header(names, line)
	}
	return faults
}

// noUserIDHint guesses what a header without user_id was meant to be.
func noUserIDHint(names []string, text []byte) string {
	for i, name := range names {
		if nearKnownName(name) == FieldUserID {
			return fmt.Sprintf(": rename column %d, %s", i+1, showName(name))
		}
	}
	if len(text) > 0 && (text[0] == '{' || text[0] == '[') {
		return ": the file looks like JSON, read it as JSON Lines"
	}
	if len(names) == 1 {
		for _, separator := range []struct{ text, name string }{{";", "semicolons"}, {"\t", "tabs"}, {"|", "bars"}} {
			if bytes.Contains(text, []byte(separator.text)) {
				return ": the file looks separated by " + separator.name + ", write commas"
			}
		}
	}
	return ": name the column that identifies the user so"
}

// Format is the format of the file.
func (r *Reader) Format() Format { return r.format }

// Gzip says whether the file is compressed.
func (r *Reader) Gzip() bool { return r.gzip }

// Header returns the column names of a CSV file, nil for JSON Lines.
func (r *Reader) Header() []string {
	var names []string
	for _, c := range r.columns {
		names = append(names, c.name)
	}
	return names
}

// Row is the number of the record or RowError that Next returned last, from 1.
func (r *Reader) Row() int64 { return r.row }

// Line is the physical line it starts on, from 1.
func (r *Reader) Line() int64 { return r.line }

// BlankLines is the number of blank lines skipped so far.
func (r *Reader) BlankLines() int64 { return r.blanks }

// Warnings returns what was odd in the rows read so far.
func (r *Reader) Warnings() []Warning { return r.watch.list() }

// Digest reads the rest of the input, without looking at it, and returns the
// SHA-256 and the size in bytes of the whole as it lies in storage. Next
// returns io.EOF afterwards.
func (r *Reader) Digest() (sum [sha256.Size]byte, size int64, err error) {
	if r.err == nil {
		r.err = io.EOF
	}
	if _, err := io.Copy(io.Discard, r.raw); err != nil {
		return sum, 0, fmt.Errorf("sum input: %w", err)
	}
	copy(sum[:], r.raw.hash.Sum(nil))
	return sum, r.raw.n, nil
}

// readError makes a ReadError of what the source said.
func (r *Reader) readError(err error) error {
	if r.gzip {
		err = gzipError(err)
	}
	return &ReadError{Row: r.row, Line: r.window.line, Err: err}
}

// Next returns the next record. A *RowError rejects one row, and Next can be
// called again; io.EOF is the end; any other error, a *ReadError, means that
// the rest cannot be read. Errors but RowError come again on every call. The
// Record shares no memory with the Reader.
func (r *Reader) Next() (Record, error) {
	if r.err != nil {
		return Record{}, r.err
	}
	if !r.window.skipBlank(&r.blanks) {
		return Record{}, r.end()
	}
	// The numbers move only once the row is seen to be one: an error of the
	// source names the last whole row.
	r.draft.reset(r.window.line, r.window.offset)
	var err error
	if r.format == FormatCSV {
		err = r.nextCSV()
	} else {
		err = r.nextJSONL()
	}
	if err != nil {
		r.err = err
		return Record{}, err
	}
	r.row++
	r.line = r.draft.line
	if len(r.draft.faults) > 0 {
		return Record{}, r.draft.rowError(r.row)
	}
	return r.draft.record(), nil
}

// end is the error at the end of the stream.
func (r *Reader) end() error {
	r.err = io.EOF
	if err := r.window.failed(); err != nil {
		r.err = r.readError(err)
	}
	return r.err
}

// nextJSONL drafts the record of the next line.
func (r *Reader) nextJSONL() error {
	w, d := r.window, &r.draft
	end := bytes.IndexByte(w.data(), '\n')
	for end < 0 && w.fill() {
		end = bytes.IndexByte(w.data(), '\n')
	}
	if end < 0 && w.failed() != nil {
		return r.end()
	}
	size, lines := end+1, int64(1)
	if end < 0 {
		end, size, lines = len(w.data()), len(w.data()), 0
		if !w.atEOF() {
			// The start of the line may still tell whose it is.
			d.readJSON(&r.json, w.data(), &r.names)
			d.userID = bytes.Clone(d.userID)
			d.faults = d.faults[:0]
			d.tooLarge(fmt.Sprintf("the line has more than %d bytes", maxWindowBytes))
			w.skipLine()
			if w.failed() != nil {
				return r.end()
			}
			return nil
		}
		r.watch.finalLine.add(r.row+1, d.line, 1)
	}
	line := w.data()[:end]
	d.readJSON(&r.json, line, &r.names)
	if len(d.faults) == 0 {
		r.watch.record(line, d, r.row+1, FormatJSONL)
		if r.row == 0 {
			names := make([]string, 0, len(d.fields))
			for _, f := range d.fields {
				names = append(names, f.name)
			}
			r.watch.header(names, d.line)
		}
	}
	w.advance(size, lines)
	return nil
}

// nextCSV drafts the next record.
func (r *Reader) nextCSV() error {
	w, d := r.window, &r.draft
	r.scan.scan(w.data(), w.atEOF())
	for r.scan.status == csvMore && w.fill() {
		r.scan.scan(w.data(), w.atEOF())
	}
	if r.scan.status == csvMore && w.failed() != nil {
		return r.end()
	}
	switch r.scan.status {
	case csvDone:
		raw := w.data()[:r.scan.size]
		r.readCSV(raw)
		if raw[len(raw)-1] != '\n' {
			r.watch.finalLine.add(r.row+1, d.line, 1)
		}
		w.advance(r.scan.size, r.scan.lines)
		return nil
	case csvMore:
		// The record outgrew the window.
		if !r.scan.quoted {
			r.partUserID(w.data())
			d.tooLarge(fmt.Sprintf("the row has more than %d bytes", maxWindowBytes))
			w.skipLine()
			break
		}
		r.partUserID(w.data())
		r.quoteFault(CodeQuoteOpen, fmt.Sprintf("is not closed within %d bytes: close it", maxWindowBytes))
	case csvOpenQuote:
		r.partUserID(w.data())
		r.quoteFault(CodeQuoteOpen, "is never closed: close it, or copy the file again if it was cut short")
	case csvStray:
		// Whether the next line is a row shows in the whole of this one.
		for bytes.IndexByte(w.data(), '\n') < 0 && w.fill() {
		}
		r.partUserID(w.data())
		r.quoteFault(CodeQuoteStray,
			"stands where none may: quote the whole field and double the quotes inside it")
	}
	if w.failed() != nil {
		return r.end()
	}
	return nil
}

// partUserID takes the user_id of a row that is not whole, if its column was.
// It is copied, because the window moves on before the draft is used.
func (r *Reader) partUserID(raw []byte) {
	for i, f := range r.scan.fields {
		if i < len(r.columns) && r.columns[i].name == FieldUserID {
			r.draft.setUserID(f.text(raw, &r.draft.scratch))
		}
	}
	r.draft.userID = bytes.Clone(r.draft.userID)
	// What is wrong with it is of no use beside the fault of the whole row.
	r.draft.faults = r.draft.faults[:0]
}

// quoteFault rejects the row for a quote and finds where reading can go on.
func (r *Reader) quoteFault(code, what string) {
	w, d := r.window, &r.draft
	data := w.data()
	at := r.scan.fault
	line := w.line + int64(bytes.Count(data[:at], []byte{'\n'}))
	message := fmt.Sprintf("the quote at byte %d of line %d %s", at-bytes.LastIndexByte(data[:at], '\n'), line, what)
	field := ""
	if i := len(r.scan.fields); i < len(r.columns) {
		field = r.columns[i].name
	}
	if last := r.resync(code == CodeQuoteStray); last > line {
		message += fmt.Sprintf("; reading goes on after line %d", last)
	}
	d.fault(code, field, message)
	d.faults[len(d.faults)-1].Line = line
}

// resync moves on from a row with a faulty quote and returns the last line
// that is given up with it.
//
// The line after the row's first is the next row, unless the quotes of that
// first line leave open whether a field goes on below it: then the next row is
// the next line that scans as one of the right width with a user_id, or that
// breaks off in the same column after a user_id, as where a program forgot
// that quote in every row. Lines within a long text rarely do. No line is scanned more than twice, since a
// record that opens a quote on one line ends on the next line that has an odd
// number of them.
func (r *Reader) resync(stray bool) (last int64) {
	w := r.window
	broken, inQuotes := len(r.scan.fields), r.scan.quoted
	first := w.data()
	whole := false
	if i := bytes.IndexByte(first, '\n'); i >= 0 {
		first, whole = first[:i], true
	}
	quotes := bytes.Count(first, []byte{'"'})
	if stray && whole && r.scan.fault < len(first) && !r.scan.quoted {
		// A quote in the middle of a bare field opens nothing.
		quotes = bytes.Count(first[r.scan.fault+1:], []byte{'"'})
	}
	settled := stray && whole && quotes%2 == 0
	for {
		last = w.line
		if !w.skipLine() || settled {
			return last
		}
		var blank int64
		if !w.skipBlank(&blank) {
			return last
		}
		r.scan.scan(w.data(), w.atEOF())
		for r.scan.status == csvMore && w.fill() {
			r.scan.scan(w.data(), w.atEOF())
		}
		width := len(r.columns)
		if r.scan.status != csvDone {
			if !inQuotes || !r.scan.quoted {
				continue
			}
			width = broken
		}
		if len(r.scan.fields) == width && r.hasUserID(w.data()) {
			return last
		}
	}
}

// hasUserID says whether what was scanned of a record holds a usable user_id.
func (r *Reader) hasUserID(raw []byte) bool {
	for i, f := range r.scan.fields {
		if i >= len(r.columns) || r.columns[i].name != FieldUserID {
			continue
		}
		id := f.text(raw, &r.draft.scratch)
		return len(id) > 0 && len(id) <= MaxUserIDBytes && len(bytes.TrimSpace(id)) == len(id) &&
			utf8.Valid(id) && !bytes.ContainsFunc(id, unicode.IsControl)
	}
	return false
}

// readCSV takes the scanned record.
func (r *Reader) readCSV(raw []byte) {
	d, fields := &r.draft, r.scan.fields
	ragged := len(fields) != len(r.columns)
	if len(fields) < len(r.columns) {
		r.watch.short.add(r.row+1, d.line, 1)
		d.fault(CodeColumnsMissing, r.columns[len(fields)].name, fmt.Sprintf(
			"the row has %d columns, the header has %d: add what is missing, or copy the file again if it was cut short",
			len(fields), len(r.columns)))
	} else if ragged {
		r.watch.long.add(r.row+1, d.line, 1)
		d.fault(CodeColumnsExtra, "", fmt.Sprintf(
			"the row has %d columns, the header has %d: quote fields that hold commas", len(fields), len(r.columns)))
	}
	if bytes.IndexByte(raw, '\\') >= 0 {
		r.watch.backslashes.add(r.row+1, d.line, 1)
	}
	if i := firstInvalidUTF8(raw); i >= 0 {
		d.fault(CodeInvalidUTF8, r.fieldAt(i), fmt.Sprintf(
			"byte 0x%02x at byte offset %d is not UTF-8: save the file as UTF-8", raw[i], r.window.offset+int64(i)))
	}
	if i := bytes.IndexByte(raw, 0); i >= 0 {
		d.fault(CodeNUL, r.fieldAt(i), fmt.Sprintf(
			"NUL byte at byte offset %d: remove it", r.window.offset+int64(i)))
	}
	// Encoding a row makes it no shorter, so a much too long one needs none.
	long := len(raw) > 2*MaxRecordBytes
	for i, f := range fields[:min(len(fields), len(r.columns))] {
		c := &r.columns[i]
		if c.known {
			text := f.text(raw, &d.scratch)
			if c.name == FieldUserID {
				d.setUserID(text)
				// Where columns may have shifted, only the first is sure.
				d.usableID = d.usableID && (!ragged || i == 0)
			} else {
				d.setKnown(c.name, text)
			}
			continue
		}
		if long {
			continue
		}
		start := len(d.values)
		text := raw[f.start:f.end]
		if f.doubled {
			mark := len(d.scratch)
			text = f.text(raw, &d.scratch)
			d.values = appendJSONString(d.values, text)
			d.scratch = d.scratch[:mark]
		} else {
			d.values = appendJSONString(d.values, text)
		}
		d.fields = append(d.fields, draftField{name: c.name, start: start, end: len(d.values)})
	}
	switch {
	case long:
		d.tooLarge(fmt.Sprintf("the row has %d bytes", len(raw)))
	case ragged && !d.hasUserID:
		// The column count says it already.
	default:
		d.finish()
	}
	if len(d.faults) == 0 {
		r.watch.record(raw, d, r.row+1, FormatCSV)
	}
}

// fieldAt names the column that holds the byte at offset i of the record.
func (r *Reader) fieldAt(i int) string {
	for n, f := range r.scan.fields {
		if i <= f.end && n < len(r.columns) {
			return r.columns[n].name
		}
	}
	return ""
}
