package briefing

import "time"

// Status values of a Row.
const (
	StatusOK     = "ok"
	StatusFailed = "failed"
)

// Finish reasons of a Row: why generation ended.
const (
	FinishStop     = "stop"     // the model ended the text, or a stop string was met
	FinishLength   = "length"   // max_tokens reached
	FinishDeadline = "deadline" // the wall-clock limit was reached
)

// Row is one result. It is the single source of the Parquet schema, the Glue
// table and the JSON that Firehose receives: flat, lower-case snake_case, and
// no type that the OpenX deserializer reads differently from Parquet.
// Times are UTC with millisecond precision.
type Row struct {
	RunID            string    `parquet:"run_id,dict,zstd" json:"run_id"`
	UserID           string    `parquet:"user_id,zstd" json:"user_id"`
	Email            string    `parquet:"email,zstd" json:"email"`
	Name             string    `parquet:"name,zstd" json:"name"`
	Locale           string    `parquet:"locale,dict,zstd" json:"locale"`
	Status           string    `parquet:"status,dict,zstd" json:"status"`
	Subject          string    `parquet:"subject,zstd" json:"subject"`
	Briefing         string    `parquet:"briefing,zstd" json:"briefing"`
	ErrorCode        string    `parquet:"error_code,dict,zstd" json:"error_code"`
	ErrorMessage     string    `parquet:"error_message,dict,zstd" json:"error_message"`
	FinishReason     string    `parquet:"finish_reason,dict,zstd" json:"finish_reason"`
	Model            string    `parquet:"model,dict,zstd" json:"model"`
	PromptTokens     int32     `parquet:"prompt_tokens,zstd" json:"prompt_tokens"`
	CachedTokens     int32     `parquet:"cached_tokens,zstd" json:"cached_tokens"`
	CompletionTokens int32     `parquet:"completion_tokens,zstd" json:"completion_tokens"`
	GeneratedAt      time.Time `parquet:"generated_at,timestamp(millisecond),zstd" json:"generated_at"`
	Attributes       string    `parquet:"attributes,zstd" json:"attributes"`
}
