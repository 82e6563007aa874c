package briefing

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ParseRecord reads the record of one JSON line, with every check a Reader
// makes. Its error is a *RowError whose Row is 0. The record shares no memory
// with line.
func ParseRecord(line []byte) (Record, error) {
	var (
		d     draft
		s     jsonScan
		names nameTable
	)
	d.reset(0, 0)
	if len(line) > maxWindowBytes {
		d.tooLarge(fmt.Sprintf("the line has %d bytes", len(line)))
	} else {
		d.readJSON(&s, line, &names)
	}
	if len(d.faults) > 0 {
		return Record{}, d.rowError(0)
	}
	return d.record(), nil
}

// rowError makes the error of a row out of the draft's faults.
func (d *draft) rowError(row int64) *RowError {
	e := &RowError{Row: row, Line: d.line, Faults: append([]Fault(nil), d.faults...)}
	if d.usableID {
		e.UserID = string(d.userID)
	}
	return e
}

// UnmarshalJSON reads the flat form; see ParseRecord.
func (r *Record) UnmarshalJSON(line []byte) error {
	rec, err := ParseRecord(line)
	if err != nil {
		return err
	}
	*r = rec
	return nil
}

// MarshalJSON returns the flat form; see AppendJSON. json.Marshal then escapes
// <, > and & in it, so that the canonical line comes from AppendJSON alone.
func (r Record) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil) }

// AppendJSON appends the record's canonical JSON line, without a line end.
// ParseRecord reads it back as the same Record, with nil and empty Context
// alike and values compacted. The error names every field that ParseRecord
// would refuse; dst is then returned as it was.
func (r Record) AppendJSON(dst []byte) ([]byte, error) {
	if faults := r.faults(); faults != nil {
		return dst, fmt.Errorf("encode record: %w", &RowError{Faults: faults})
	}
	out := append(dst, `{"user_id":`...)
	out = appendJSONString(out, r.UserID)
	if r.Email != "" {
		out = appendJSONString(append(out, `,"email":`...), r.Email)
	}
	if r.Name != "" {
		out = appendJSONString(append(out, `,"name":`...), r.Name)
	}
	if r.Locale != "" {
		out = appendJSONString(append(out, `,"locale":`...), r.Locale)
	}
	var s jsonScan
	for _, f := range r.Context {
		out = appendJSONString(append(out, ','), f.Name)
		out = append(out, ':')
		var err error
		if out, err = appendCompact(out, f, &s); err != nil {
			return dst, err
		}
	}
	out = append(out, '}')
	if size := len(out) - len(dst); size > MaxRecordBytes {
		return dst, fmt.Errorf("encode record: it has %d bytes as a JSON line, the limit is %d", size, MaxRecordBytes)
	}
	return out, nil
}

// Attributes returns the context fields as one JSON object, for
// Row.Attributes; without any it is {}. Values that are no JSON are left out.
func (r Record) Attributes() string {
	if len(r.Context) == 0 {
		return "{}"
	}
	size := 2
	for _, f := range r.Context {
		size += len(f.Name) + len(f.Value) + 4
	}
	var s jsonScan
	out := append(make([]byte, 0, size), '{')
	for _, f := range r.Context {
		mark := len(out)
		if mark > 1 {
			out = append(out, ',')
		}
		out = append(appendJSONString(out, f.Name), ':')
		whole, err := appendCompact(out, f, &s)
		if err != nil {
			out = out[:mark]
			continue
		}
		out = whole
	}
	return string(append(out, '}'))
}

// appendCompact appends the value of f without white space.
func appendCompact(dst []byte, f Field, s *jsonScan) ([]byte, error) {
	if simpleString(f.Value) {
		return append(dst, f.Value...), nil
	}
	s.reset(f.Value)
	s.out, s.depth = dst, 1
	s.space()
	ok := s.value()
	if ok {
		s.space()
		ok = s.pos == len(f.Value) || s.fail("text after the value")
	}
	out := s.out
	s.out = nil
	switch {
	case !ok:
		return dst, fmt.Errorf("encode record: field %s: %s", showName(f.Name), s.wrong)
	case s.flaws != 0 || !utf8.Valid(f.Value):
		return dst, fmt.Errorf("encode record: field %s holds a NUL, half a surrogate pair, invalid UTF-8, "+
			"or an empty or repeated key", showName(f.Name))
	}
	return out, nil
}

// simpleString says that value is a JSON string of ASCII text without escapes,
// which needs no closer look.
func simpleString(value json.RawMessage) bool {
	if len(value) < 2 || value[0] != '"' || value[len(value)-1] != '"' {
		return false
	}
	for _, c := range value[1 : len(value)-1] {
		if !plainJSON[c] || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// faults checks all but the context values.
func (r Record) faults() []Fault {
	var d draft
	d.setUserID([]byte(r.UserID))
	for _, known := range [...]struct{ field, text string }{
		{FieldEmail, r.Email}, {FieldName, r.Name}, {FieldLocale, r.Locale},
	} {
		if known.text == "" {
			continue
		}
		if strings.TrimSpace(known.text) != known.text {
			d.fault(CodeFieldType, known.field, fmt.Sprintf("%s has white space around it", known.field))
		}
		if known.field == FieldEmail {
			if why := emailFault(known.text); why != "" {
				d.fault(CodeEmailInvalid, FieldEmail, "the e-mail address "+why)
			}
		}
		d.checkText(known.field, known.text)
	}
	d.checkText(FieldUserID, r.UserID)
	var seen map[string]struct{}
	if len(r.Context) > 32 {
		seen = make(map[string]struct{}, len(r.Context))
	}
	for i, f := range r.Context {
		switch f.Name {
		case "":
			d.fault(CodeJSONEmptyKey, "", "a context field has no name")
		case FieldUserID, FieldEmail, FieldName, FieldLocale:
			d.fault(CodeJSONDuplicateKey, f.Name, f.Name+" is among the context fields")
		}
		if i == 0 && strings.HasPrefix(f.Name, "\ufeff") {
			d.fault(CodeJSONEmptyKey, "", "the first context field's name starts with a byte order mark")
		}
		if repeatedName(r.Context[:i], f.Name, seen) {
			d.fault(CodeJSONDuplicateKey, f.Name, "context field "+showName(f.Name)+" is there twice")
		}
		d.checkText(f.Name, f.Name)
	}
	return d.faults
}

func repeatedName(before []Field, name string, seen map[string]struct{}) bool {
	if seen != nil {
		_, ok := seen[name]
		seen[name] = struct{}{}
		return ok
	}
	for _, f := range before {
		if f.Name == name {
			return true
		}
	}
	return false
}

func (d *draft) checkText(field, text string) {
	if !utf8.ValidString(text) {
		d.fault(CodeInvalidUTF8, field, "field "+showName(field)+" or its name is not UTF-8")
	}
	if strings.IndexByte(text, 0) >= 0 {
		d.fault(CodeNUL, field, "field "+showName(field)+" or its name holds a NUL")
	}
}
