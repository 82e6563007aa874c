package mototest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"

	"github.com/briefing-swarm/briefing-swarm/runtime/awsclient"
	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

// parquetRow is a row as Firehose's record format conversion writes it for the
// table's columns: every column optional, timestamps as INT96, Snappy.
type parquetRow struct {
	RunID            *string           `parquet:"run_id,optional,snappy" json:"run_id"`
	UserID           *string           `parquet:"user_id,optional,snappy" json:"user_id"`
	Email            *string           `parquet:"email,optional,snappy" json:"email"`
	Name             *string           `parquet:"name,optional,snappy" json:"name"`
	Locale           *string           `parquet:"locale,optional,snappy" json:"locale"`
	Status           *string           `parquet:"status,optional,snappy" json:"status"`
	Subject          *string           `parquet:"subject,optional,snappy" json:"subject"`
	Briefing         *string           `parquet:"briefing,optional,snappy" json:"briefing"`
	ErrorCode        *string           `parquet:"error_code,optional,snappy" json:"error_code"`
	ErrorMessage     *string           `parquet:"error_message,optional,snappy" json:"error_message"`
	FinishReason     *string           `parquet:"finish_reason,optional,snappy" json:"finish_reason"`
	Model            *string           `parquet:"model,optional,snappy" json:"model"`
	PromptTokens     *int32            `parquet:"prompt_tokens,optional,snappy" json:"prompt_tokens"`
	CachedTokens     *int32            `parquet:"cached_tokens,optional,snappy" json:"cached_tokens"`
	CompletionTokens *int32            `parquet:"completion_tokens,optional,snappy" json:"completion_tokens"`
	GeneratedAt      *deprecated.Int96 `parquet:"generated_at,optional,snappy" json:"-"`
	Attributes       *string           `parquet:"attributes,optional,snappy" json:"attributes"`
	Time             *string           `parquet:"-" json:"generated_at"`
}

// openXTime is a form of timestamp that the OpenX deserializer takes.
var openXTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$`)

// ConvertToParquet stands in for Firehose's record format conversion, which moto
// does not do: it turns each object under from into a Parquet object under to.
// What AWS's converter would send to the error prefix fails the test. Objects
// that were converted before are left alone. It returns the rows converted.
func ConvertToParquet(t testing.TB, c *awsclient.Clients, bucket, from, to string) int {
	t.Helper()
	there := map[string]bool{}
	for _, key := range Keys(t, c, bucket, to) {
		there[key] = true
	}
	total := 0
	for _, key := range Keys(t, c, bucket, from) {
		target := to + strings.TrimPrefix(key, from) + ".parquet"
		if there[target] {
			continue
		}
		rows, err := convert(Get(t, c, bucket, key))
		if err != nil {
			t.Fatalf("%s would be in Firehose's error prefix: %v", key, err)
		}
		Put(t, c, bucket, target, encode(t, rows))
		total += len(rows)
	}
	return total
}

// Converted returns rows as a Parquet object of Firehose's.
func Converted(t testing.TB, rows []briefing.Row) []byte {
	t.Helper()
	var text bytes.Buffer
	for _, row := range rows {
		if err := json.NewEncoder(&text).Encode(row); err != nil {
			t.Fatal(err)
		}
	}
	converted, err := convert(text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return encode(t, converted)
}

func encode(t testing.TB, rows []parquetRow) []byte {
	t.Helper()
	var out bytes.Buffer
	w := parquet.NewGenericWriter[parquetRow](&out)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// convert reads concatenated JSON objects.
func convert(text []byte) ([]parquetRow, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	// AWS drops what the table does not have without a word.
	decoder.DisallowUnknownFields()
	var rows []parquetRow
	for {
		var row parquetRow
		err := decoder.Decode(&row)
		if err == io.EOF {
			return rows, nil
		}
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", len(rows), err)
		}
		if row.Time == nil || !openXTime.MatchString(*row.Time) {
			return nil, fmt.Errorf("record %d: generated_at is no timestamp", len(rows))
		}
		at, err := time.Parse(time.RFC3339Nano, *row.Time)
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", len(rows), err)
		}
		row.GeneratedAt, row.Time = int96(at), nil
		rows = append(rows, row)
	}
}

// int96 is Impala's form: nanoseconds of the day, then the Julian day.
func int96(t time.Time) *deprecated.Int96 {
	const unixEpoch = 2440588
	t = t.UTC()
	days := t.Unix() / 86400
	nanos := uint64(t.Unix()-days*86400)*1e9 + uint64(t.Nanosecond())
	return &deprecated.Int96{uint32(nanos), uint32(nanos >> 32), uint32(days + unixEpoch)}
}
