package briefing

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Fault codes. They are stable: manifests, rejects files and alarms count by
// them.
const (
	// Of a file, of which then nothing can be read.
	CodeFileEmpty       = "file_empty"
	CodeFileNotText     = "file_not_text" // a workbook, an archive, Parquet
	CodeFileUTF16       = "file_utf16"    // UTF-16 or UTF-32, with or without a BOM
	CodeHeaderOnly      = "header_only"
	CodeHeaderTooLarge  = "header_too_large"
	CodeHeaderNoUserID  = "header_no_user_id"
	CodeHeaderEmpty     = "header_empty"
	CodeHeaderDuplicate = "header_duplicate"
	CodeHeaderLineEnds  = "header_line_ends" // carriage returns alone

	// Of a row; those of UTF-8, NUL and quotes of a header too.
	CodeRecordTooLarge   = "record_too_large"
	CodeInvalidUTF8      = "invalid_utf8"
	CodeNUL              = "nul_byte"
	CodeColumnsMissing   = "columns_missing"
	CodeColumnsExtra     = "columns_extra"
	CodeQuoteStray       = "quote_stray" // a quote where CSV allows none
	CodeQuoteOpen        = "quote_open"  // a quote that is never closed
	CodeJSONSyntax       = "json_syntax"
	CodeJSONNotObject    = "json_not_object"
	CodeJSONDuplicateKey = "json_duplicate_key"
	CodeJSONEmptyKey     = "json_empty_key"
	CodeJSONTooDeep      = "json_too_deep"
	CodeJSONSurrogate    = "json_lone_surrogate"
	CodeFieldType        = "field_type"
	CodeUserIDMissing    = "user_id_missing"
	CodeUserIDType       = "user_id_type"
	CodeUserIDSpaces     = "user_id_spaces"
	CodeUserIDControl    = "user_id_control"
	CodeUserIDTooLong    = "user_id_too_long"
	CodeUserIDDuplicate  = "user_id_duplicate"
	CodeEmailInvalid     = "email_invalid"
)

// Fault is one thing wrong with a file or a row.
type Fault struct {
	// Code is one of the Code constants.
	Code string
	// Line is the physical line of the fault, from 1, or 0 where no file is
	// read.
	Line int64
	// Field is the field or column concerned, or empty.
	Field string
	// Message says what is wrong and what to do. It holds no text of a user.
	Message string
}

// RowError says why one row is rejected. The Reader that returned it can be
// read on.
type RowError struct {
	// Row counts records from 1, the first after the header; 0 where no file
	// is read.
	Row int64
	// Line is the physical line the row starts on, from 1.
	Line int64
	// UserID is the row's user_id where it was read whole and is usable by
	// itself, else empty. In a row with too few or too many columns only a
	// user_id in the first column counts as read.
	UserID string
	// Faults has at least one entry.
	Faults []Fault
}

// Error lists all faults of the row.
func (e *RowError) Error() string {
	if e.Row == 0 {
		return joinFaults(e.Faults)
	}
	return fmt.Sprintf("row %d (line %d): %s", e.Row, e.Line, joinFaults(e.Faults))
}

// Code is the code of the first fault.
func (e *RowError) Code() string { return e.Faults[0].Code }

// FileError says why nothing of a file can be read.
type FileError struct {
	// Faults has at least one entry.
	Faults []Fault
}

// Error lists all faults of the file.
func (e *FileError) Error() string { return joinFaults(e.Faults) }

// Code is the code of the first fault.
func (e *FileError) Code() string { return e.Faults[0].Code }

// ReadError says why the rest of a file cannot be read: its source failed, or
// its gzip stream is damaged or cut short. Rows returned before it are whole.
type ReadError struct {
	// Row is the last row read, 0 if none.
	Row int64
	// Line is the line that could not be read to its end.
	Line int64
	// Err is the cause.
	Err error
}

// Error names the place and the cause.
func (e *ReadError) Error() string {
	return fmt.Sprintf("read input after row %d, in line %d: %v", e.Row, e.Line, e.Err)
}

// Unwrap returns the cause.
func (e *ReadError) Unwrap() error { return e.Err }

func joinFaults(faults []Fault) string {
	var b strings.Builder
	for i, f := range faults {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(f.Message)
	}
	return b.String()
}

// fileError makes a FileError of one fault.
func fileError(code string, line int64, message string) *FileError {
	return &FileError{Faults: []Fault{{Code: code, Line: line, Message: message}}}
}

// maxShownName bounds a field name in a message: names come from the file too.
const maxShownName = 60

// showName quotes a field name for a message.
func showName(name string) string { return strconv.Quote(cutRunes(name, maxShownName)) }

// cutRunes returns at most n runes of s, without allocating.
func cutRunes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// firstInvalidUTF8 is the offset of the first byte of b that is not UTF-8, or
// -1.
func firstInvalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		if b[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}
