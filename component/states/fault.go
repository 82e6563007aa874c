package states

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// FieldError says what is wrong with one field of a Run or a Delivery.
type FieldError struct {
	// Field has the Go name, Value what it holds, Want what it may hold.
	Field, Value, Want string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s is %s: want %s", e.Field, e.Value, e.Want)
}

// Limits of AWS, as read in a public copy of its documentation on 2026-11-30.
const (
	maxConcurrency = 10_000
	lambdaMaxSec   = 900
	// executionMaxSec is a year, the most that a STANDARD execution lasts.
	executionMaxSec = 365 * 24 * 3600
	// firehoseBufferMaxSec is the longest buffer of Firehose.
	firehoseBufferMaxSec = 900
)

// maxInputBytes is what a batch may have of the 256 KiB that Step Functions
// allows for the data of a state: beside the items a child keeps what all
// batches have in common and the receipts of two calls.
const maxInputBytes = 262_144 - 8<<10

// maxItems is what the handlers take in one batch.
const maxItems = 10_000

var (
	// functionARN has the partition and the qualifier as groups.
	functionARN = regexp.MustCompile(`^arn:(aws[a-z-]*):lambda:[a-z0-9-]+:\d{12}:function:[A-Za-z0-9_-]{1,64}:([A-Za-z0-9$_-]{1,128})$`)
	topicARN    = regexp.MustCompile(`^arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,256}$`)
	bucketName  = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	tableName   = regexp.MustCompile(`^[A-Za-z0-9_.-]{3,255}$`)
)

// faults collects what is wrong.
type faults []error

func (f *faults) add(field, value, want string) {
	*f = append(*f, &FieldError{Field: field, Value: value, Want: want})
}

func (f *faults) match(field, value string, pattern *regexp.Regexp, want string) {
	if !pattern.MatchString(value) {
		f.add(field, fmt.Sprintf("%q", value), want)
	}
}

func (f *faults) between(field string, value, least, most int, unit string) {
	if value < least || value > most {
		f.add(field, fmt.Sprint(value), fmt.Sprintf("%d to %d %s", least, most, unit))
	}
}

// functions checks ARNs by field, and that all are of one partition.
func (f *faults) functions(arns map[string]string) {
	fields := make([]string, 0, len(arns))
	for field := range arns {
		fields = append(fields, field)
	}
	slices.Sort(fields)
	partitions := map[string]bool{}
	for _, field := range fields {
		arn := arns[field]
		parts := functionARN.FindStringSubmatch(arn)
		switch {
		case parts == nil:
			f.add(field, fmt.Sprintf("%q", arn), "the ARN of a Lambda function with a version or an alias, arn:aws:lambda:REGION:ACCOUNT:function:NAME:QUALIFIER")
		case parts[2] == "$LATEST":
			f.add(field, fmt.Sprintf("%q", arn), "a version or an alias instead of $LATEST, which may change while a run is going on")
		default:
			partitions[parts[1]] = true
		}
	}
	if len(partitions) > 1 {
		f.add(strings.Join(fields, ", "), "of several partitions", "functions of one partition")
	}
}

// maxComment is the longest text that is taken over as a comment.
const maxComment = 200

func (f *faults) comment(field, value string) {
	if !utf8.ValidString(value) || utf8.RuneCountInString(value) > maxComment {
		f.add(field, fmt.Sprintf("%d characters", utf8.RuneCountInString(value)), fmt.Sprintf("up to %d characters of UTF-8", maxComment))
	}
}

func (f faults) err() error { return errors.Join(f...) }
