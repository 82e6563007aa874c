package briefing

import "bytes"

// csvStatus is how the scan of one CSV record ended.
type csvStatus int

const (
	csvDone      csvStatus = iota // a whole record
	csvMore                       // the text ends before the record does
	csvStray                      // a quote where none may be
	csvOpenQuote                  // the stream ends inside a quoted field
)

// csvField is one field of a record, as offsets into its raw text without the
// quotes around it.
type csvField struct {
	start, end int
	doubled    bool // holds doubled quotes
}

// text is the field's content: a part of raw, or a copy in scratch where
// doubled quotes have to be undone.
func (f csvField) text(raw []byte, scratch *[]byte) []byte {
	b := raw[f.start:f.end]
	if !f.doubled {
		return b
	}
	start := len(*scratch)
	for {
		i := bytes.IndexByte(b, '"')
		if i < 0 {
			*scratch = append(*scratch, b...)
			return (*scratch)[start:len(*scratch):len(*scratch)]
		}
		*scratch = append(*scratch, b[:i+1]...)
		b = b[i+2:]
	}
}

// csvScan is the result of scanning one record.
type csvScan struct {
	status csvStatus
	fields []csvField
	// size is the length of the record with its line end; only of csvDone.
	size int
	// lines is the number of line ends in size.
	lines int64
	// fault is where the stray or the open quote stands.
	fault int
	// quoted says that the text ended, or the stray quote stands, inside the
	// quoted field after fields.
	quoted bool
}

// scan reads the record at the start of data by RFC 4180: fields in double
// quotes may hold commas, line ends and doubled quotes; a quote anywhere else
// is a fault; a backslash is a character like any other. Line ends inside a
// quoted field are kept as they are. eof says that data is all there is.
//
// encoding/csv is not used because it neither bounds a record nor can go on
// after an unbalanced quote.
func (s *csvScan) scan(data []byte, eof bool) {
	s.fields = s.fields[:0]
	s.size, s.lines, s.fault, s.quoted = 0, 0, 0, false

	end, next := bytes.IndexByte(data, '\n'), 0
	switch {
	case end >= 0:
		next, s.lines = end+1, 1
	case eof:
		end, next = len(data), len(data)
	}
	// Most records are one line without a quote.
	if end >= 0 && bytes.IndexByte(data[:end], '"') < 0 {
		if end > 0 && data[end-1] == '\r' {
			end--
		}
		start := 0
		for i, c := range data[:end] {
			if c == ',' {
				s.fields = append(s.fields, csvField{start: start, end: i})
				start = i + 1
			}
		}
		s.fields = append(s.fields, csvField{start: start, end: end})
		s.size, s.status = next, csvDone
		return
	}
	s.scanQuoted(data, eof)
}

func (s *csvScan) scanQuoted(data []byte, eof bool) {
	s.lines = 0
	for i := 0; ; {
		if i < len(data) && data[i] == '"' {
			end, after, ok := s.scanQuotedField(data, i, eof)
			if !ok {
				return
			}
			if end {
				s.finish(data, after)
				return
			}
			i = after
			continue
		}
		j := i
		for j < len(data) && data[j] != ',' && data[j] != '\n' && data[j] != '"' {
			j++
		}
		if j == len(data) {
			if !eof {
				s.status = csvMore
				return
			}
			s.fields = append(s.fields, csvField{start: i, end: trimCR(data, i, len(data))})
			s.finish(data, len(data))
			return
		}
		switch data[j] {
		case ',':
			s.fields = append(s.fields, csvField{start: i, end: j})
			i = j + 1
		case '\n':
			s.fields = append(s.fields, csvField{start: i, end: trimCR(data, i, j)})
			s.finish(data, j+1)
			return
		default:
			s.status, s.fault = csvStray, j
			return
		}
	}
}

// scanQuotedField reads the quoted field whose opening quote is at data[open].
// It returns whether the record ends with it and where the text goes on; ok is
// false where the field is not whole, with the status set.
func (s *csvScan) scanQuotedField(data []byte, open int, eof bool) (end bool, after int, ok bool) {
	doubled := false
	for j := open + 1; ; {
		k := bytes.IndexByte(data[j:], '"')
		if k < 0 {
			s.status, s.fault, s.quoted = csvMore, open, true
			if eof {
				s.status = csvOpenQuote
			}
			return false, 0, false
		}
		j += k
		field := csvField{start: open + 1, end: j, doubled: doubled}
		rest := data[j+1:]
		switch {
		case len(rest) > 0 && rest[0] == '"':
			doubled = true
			j += 2
			continue
		case len(rest) > 0 && rest[0] == ',':
			s.fields = append(s.fields, field)
			return false, j + 2, true
		case len(rest) > 0 && rest[0] == '\n':
			s.fields = append(s.fields, field)
			return true, j + 2, true
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			s.fields = append(s.fields, field)
			return true, j + 3, true
		case len(rest) == 0 || len(rest) == 1 && rest[0] == '\r':
			if !eof {
				s.status, s.fault, s.quoted = csvMore, open, true
				return false, 0, false
			}
			s.fields = append(s.fields, field)
			return true, len(data), true
		default:
			s.status, s.fault, s.quoted = csvStray, j, true
			return false, 0, false
		}
	}
}

func (s *csvScan) finish(data []byte, size int) {
	s.status, s.size = csvDone, size
	s.lines = int64(bytes.Count(data[:size], []byte{'\n'}))
}

// trimCR leaves out one carriage return before a line end.
func trimCR(data []byte, start, end int) int {
	if end > start && data[end-1] == '\r' {
		return end - 1
	}
	return end
}
