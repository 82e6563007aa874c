package briefing

import (
	"fmt"
	"reflect"
	"time"
)

// Column is a column of a Glue table, in Glue's terms.
type Column struct {
	Name string
	Type string // "string", "int" or "timestamp"
}

// GlueColumns returns the columns of a table of rows in the order of
// its fields. Names are those of its JSON form, which Firehose converts by this
// table; the Parquet files that swarms write themselves have the same.
func GlueColumns() []Column {
	row := reflect.TypeFor[Row]()
	columns := make([]Column, row.NumField())
	for i := range columns {
		field := row.Field(i)
		columns[i] = Column{Name: field.Tag.Get("json"), Type: glueType(field.Type)}
	}
	return columns
}

func glueType(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "timestamp"
	case t.Kind() == reflect.String:
		return "string"
	case t.Kind() == reflect.Int32:
		return "int"
	}
	panic(fmt.Sprintf("a row has a field of type %v, for which no type of Glue is known", t)) // a mistake in the program
}
