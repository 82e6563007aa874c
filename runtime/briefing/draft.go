package briefing

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// MaxUserIDBytes is the longest user_id accepted, in bytes. It keeps an id
// usable as part of a key in DynamoDB and S3, whose keys end at 1,024 bytes.
const MaxUserIDBytes = 256

// draft gathers one record and its faults before it becomes a Record. All its
// slices are reused from one record to the next.
type draft struct {
	userID, email, name, locale []byte
	fields                      []draftField
	values                      []byte // all fields' values, one after the other
	scratch                     []byte // decoded text the other slices point into
	faults                      []Fault
	hasUserID                   bool
	usableID                    bool  // userID was read whole and is fine by itself
	line, offset                int64 // where the record starts
}

type draftField struct {
	name       string
	start, end int // in values
}

func (d *draft) reset(line, offset int64) {
	d.userID, d.email, d.name, d.locale = nil, nil, nil, nil
	d.fields, d.values, d.scratch, d.faults = d.fields[:0], d.values[:0], d.scratch[:0], d.faults[:0]
	d.hasUserID, d.usableID, d.line, d.offset = false, false, line, offset
}

func (d *draft) fault(code, field, message string) {
	d.faults = append(d.faults, Fault{Code: code, Line: d.line, Field: field, Message: message})
}

// setUserID takes the row's user_id.
func (d *draft) setUserID(text []byte) {
	d.hasUserID = true
	if len(bytes.TrimSpace(text)) == 0 {
		d.fault(CodeUserIDMissing, FieldUserID, "user_id is empty: give every user an id")
		return
	}
	before := len(d.faults)
	if len(text) > MaxUserIDBytes {
		d.fault(CodeUserIDTooLong, FieldUserID,
			fmt.Sprintf("user_id has %d bytes, the limit is %d: use a shorter id", len(text), MaxUserIDBytes))
	}
	if len(bytes.TrimSpace(text)) != len(text) {
		d.fault(CodeUserIDSpaces, FieldUserID,
			"user_id has white space before or after it: remove it, ids are compared byte for byte")
	}
	// NUL is reported for the whole row.
	if bytes.ContainsFunc(text, func(r rune) bool { return r != 0 && unicode.IsControl(r) }) {
		d.fault(CodeUserIDControl, FieldUserID, "user_id holds a control character, such as a line end: remove it")
	}
	d.userID = text
	d.usableID = len(d.faults) == before && utf8.Valid(text) && bytes.IndexByte(text, 0) < 0
}

// setKnown takes the text of another known field. White space around it means
// nothing there and is dropped.
func (d *draft) setKnown(field string, text []byte) {
	text = bytes.TrimSpace(text)
	switch field {
	case FieldEmail:
		d.email = text
		if len(text) == 0 {
			return
		}
		if why := emailFault(string(text)); why != "" {
			d.fault(CodeEmailInvalid, FieldEmail,
				"the e-mail address "+why+"; correct it, or leave it empty for a user without mail")
		}
	case FieldName:
		d.name = text
	case FieldLocale:
		d.locale = text
	}
}

// finish checks what only the whole record shows.
func (d *draft) finish() {
	if !d.hasUserID {
		d.fault(CodeUserIDMissing, FieldUserID, "the record has no user_id: give every user an id")
	}
	if size := d.canonicalSize(); size > MaxRecordBytes {
		d.tooLarge(fmt.Sprintf("the record has %d bytes as a JSON line", size))
	}
}

func (d *draft) tooLarge(what string) {
	d.fault(CodeRecordTooLarge, "",
		fmt.Sprintf("%s, the limit is %d: shorten or drop context fields", what, MaxRecordBytes))
}

// canonicalSize is the length of the record's canonical line.
func (d *draft) canonicalSize() int {
	size := len(`{"user_id":}`) + jsonStringLen(d.userID) + len(d.values)
	if len(d.email) > 0 {
		size += len(`,"email":`) + jsonStringLen(d.email)
	}
	if len(d.name) > 0 {
		size += len(`,"name":`) + jsonStringLen(d.name)
	}
	if len(d.locale) > 0 {
		size += len(`,"locale":`) + jsonStringLen(d.locale)
	}
	for _, f := range d.fields {
		size += len(`,:`) + jsonStringLen(f.name)
	}
	return size
}

// record copies the draft into a Record that shares nothing with it. All text
// of a record lies in two blocks, so that a million records stay cheap.
func (d *draft) record() Record {
	a := len(d.userID)
	b := a + len(d.email)
	c := b + len(d.name)
	d.scratch = append(d.scratch, d.userID...)
	d.scratch = append(d.scratch, d.email...)
	d.scratch = append(d.scratch, d.name...)
	d.scratch = append(d.scratch, d.locale...)
	text := string(d.scratch[len(d.scratch)-c-len(d.locale):])
	rec := Record{UserID: text[:a], Email: text[a:b], Name: text[b:c], Locale: text[c:]}
	if len(d.fields) == 0 {
		return rec
	}
	values := bytes.Clone(d.values)
	rec.Context = make([]Field, len(d.fields))
	for i, f := range d.fields {
		rec.Context[i] = Field{Name: f.name, Value: values[f.start:f.end:f.end]}
	}
	return rec
}

// readJSON takes the record of one JSON line. names interns the field names.
func (d *draft) readJSON(s *jsonScan, line []byte, names *nameTable) {
	if i := firstInvalidUTF8(line); i >= 0 {
		d.fault(CodeInvalidUTF8, "",
			fmt.Sprintf("byte 0x%02x at byte offset %d is not UTF-8: save the file as UTF-8", line[i], d.offset+int64(i)))
	}
	if i := bytes.IndexByte(line, 0); i >= 0 {
		d.fault(CodeNUL, "", fmt.Sprintf("NUL byte at byte offset %d: remove it", d.offset+int64(i)))
	}
	s.reset(line)
	s.space()
	if c := s.peek(); c != '{' && s.pos < len(line) && !(c == 0) {
		d.notObject(c)
		return
	}
	field := ""
	rawNUL := len(d.faults) > 0 && d.faults[len(d.faults)-1].Code == CodeNUL
	if s.peek() != '{' {
		s.fail("want {")
	} else if s.members(func(key, _ []byte) bool {
		before := s.flaws
		s.flaws = 0
		field = names.intern(key)
		ok := d.member(s, field)
		d.flaws(s.flaws, field, &rawNUL)
		s.flaws = before
		return ok
	}) {
		s.space()
		if s.pos < len(line) {
			s.fail("text after the object: write one object per line")
		}
	}
	// What is left are flaws of the keys themselves.
	d.flaws(s.flaws, "", &rawNUL)
	if s.wrong.code != "" {
		message := s.wrong.String()
		if s.wrong.code == CodeJSONTooDeep {
			message = fmt.Sprintf("the JSON nests deeper than %d levels: flatten it", maxJSONDepth)
		}
		d.fault(s.wrong.code, "", message)
		return
	}
	d.values = s.out
	d.finish()
}

func (d *draft) notObject(first byte) {
	what := "text that is not JSON"
	switch {
	case first == '[':
		what = "a JSON list"
	case first == '"':
		what = "a JSON string"
	case first == '-' || '0' <= first && first <= '9':
		what = "a number"
	case first == 't' || first == 'f' || first == 'n':
		what = "true, false, null or text that is not JSON"
	}
	d.fault(CodeJSONNotObject, "", "the line holds "+what+": write one JSON object per line and record")
}

// flaws turns the flaws found in one field, or in the keys, into faults.
func (d *draft) flaws(flaws jsonFlaw, field string, nul *bool) {
	if flaws == 0 {
		return
	}
	where := "a key"
	if field != "" {
		where = "field " + showName(field)
	}
	if flaws&flawNUL != 0 && !*nul {
		*nul = true
		d.fault(CodeNUL, field, "NUL character (\\u0000) in "+where+": remove it")
	}
	if flaws&flawSurrogate != 0 {
		d.fault(CodeJSONSurrogate, field,
			"half a surrogate pair in "+where+": the text was cut inside an emoji, write it whole")
	}
	if flaws&flawDuplicateKey != 0 {
		d.fault(CodeJSONDuplicateKey, field, "the same key twice in the object "+place(field)+": keep one")
	}
	if flaws&flawEmptyKey != 0 {
		d.fault(CodeJSONEmptyKey, field, "an empty key in the object "+place(field)+": name it or remove it")
	}
}

func place(field string) string {
	if field == "" {
		return "of the record"
	}
	return "in field " + showName(field)
}

// member scans the value of one top-level member.
func (d *draft) member(s *jsonScan, field string) bool {
	switch field {
	case FieldUserID, FieldEmail, FieldName, FieldLocale:
	default:
		start := len(s.out)
		if !s.value() {
			return false
		}
		d.fields = append(d.fields, draftField{name: field, start: start, end: len(s.out)})
		return true
	}
	first, start := s.peek(), s.pos
	mark := len(s.out)
	if !s.value() {
		return false
	}
	s.out = s.out[:mark]
	raw := s.src[start:s.pos]
	switch {
	case first == '"':
		text := raw[1 : len(raw)-1]
		if bytes.IndexByte(text, '\\') >= 0 {
			from := len(d.scratch)
			d.scratch = appendUnescaped(d.scratch, text)
			text = d.scratch[from:len(d.scratch):len(d.scratch)]
		}
		if field == FieldUserID {
			d.setUserID(text)
		} else {
			d.setKnown(field, text)
		}
	case field == FieldUserID:
		d.otherUserID(first, raw)
	case first == 'n':
		// null is the same as leaving the field out.
	default:
		d.fault(CodeFieldType, field, fmt.Sprintf("field %q is %s: write it as a string", field, jsonKind(first)))
	}
	return true
}

// otherUserID takes a user_id that is no string. An integer is an id by its
// digits; 1e3 or 1.0 is not, because tools disagree on how to write those.
func (d *draft) otherUserID(first byte, raw []byte) {
	d.hasUserID = true
	switch {
	case first == 'n':
		d.fault(CodeUserIDMissing, FieldUserID, "user_id is null: give every user an id")
	case first != '-' && (first < '0' || first > '9'):
		d.fault(CodeUserIDType, FieldUserID,
			"user_id is "+jsonKind(first)+": write it as a string or an integer")
	case bytes.ContainsAny(raw, ".eE") || string(raw) == "-0":
		d.fault(CodeUserIDType, FieldUserID,
			"user_id is a number but not a plain integer: write it as a string or an integer")
	default:
		d.setUserID(raw)
	}
}

func jsonKind(first byte) string {
	switch first {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	case '"':
		return "a string"
	}
	return "a number"
}

// nameTable interns field names: a file repeats a few names a million times.
type nameTable struct{ names map[string]string }

// maxInternedNames bounds the table for a file that makes up names.
const maxInternedNames = 4096

func (t *nameTable) intern(name []byte) string {
	if s, ok := t.names[string(name)]; ok {
		return s
	}
	s := string(name)
	if t.names == nil {
		t.names = make(map[string]string)
	}
	if len(t.names) < maxInternedNames && len(s) <= 256 {
		t.names[s] = s
	}
	return s
}
