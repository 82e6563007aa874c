package briefing

import "encoding/json"

// MaxRecordBytes is the largest input record accepted, measured on the record's
// canonical JSON line. It keeps a single record well under Step Functions'
// 256 KiB payload, the state that carries a batch.
const MaxRecordBytes = 64 << 10

// The input fields the pipeline knows by name. Every other field is context
// for the prompt and passes through untouched.
const (
	FieldUserID = "user_id"
	FieldEmail  = "email"
	FieldName   = "name"
	FieldLocale = "locale"
)

// Record is one user of an input file.
//
// Its JSON form is flat: user_id first, then email, name and locale where they
// are not empty, then the context fields in the order of the input, each value
// byte for byte as it was (compacted). Reading that form back gives the same
// Record.
type Record struct {
	// UserID is required and unique in a file. A JSON number is kept by its
	// digits, so that 9007199254740993 stays that.
	UserID string
	// Email may be empty: such a user gets a row, but no mail.
	Email string
	// Name may be empty.
	Name string
	// Locale is a BCP 47 tag such as "de-CH", or empty.
	Locale string
	// Context holds the pass-through fields in input order.
	Context []Field
}

// Field is one pass-through field of a Record.
type Field struct {
	Name string
	// Value is one compact JSON value; for a CSV column always a string.
	Value json.RawMessage
}
