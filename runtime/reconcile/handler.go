package reconcile

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
	"github.com/briefing-swarm/briefing-swarm/runtime/gather"
	"github.com/briefing-swarm/briefing-swarm/runtime/idtable"
	"github.com/briefing-swarm/briefing-swarm/runtime/normalise"
	"github.com/briefing-swarm/briefing-swarm/runtime/object"
	"github.com/briefing-swarm/briefing-swarm/runtime/recipe"
)

// Event names the run to settle.
type Event struct {
	RunID string `json:"run_id"`
}

// Handler reconciles.
type Handler struct {
	S3  *s3.Client
	Log *slog.Logger
	Settings
}

// clockSkew is how far this machine's clock and that of S3 may lie apart: older
// objects are not looked at.
const clockSkew = 5 * time.Minute

// columns are what is read of a row.
type columns struct {
	RunID            string `parquet:"run_id"`
	UserID           string `parquet:"user_id"`
	Status           string `parquet:"status"`
	ErrorCode        string `parquet:"error_code"`
	FinishReason     string `parquet:"finish_reason"`
	PromptTokens     int32  `parquet:"prompt_tokens"`
	CachedTokens     int32  `parquet:"cached_tokens"`
	CompletionTokens int32  `parquet:"completion_tokens"`
}

// Values in the table of users: what is known of one. From firstFailed on it is
// a failed row, with the error code of that place in settling.codes.
const (
	hasOK       = 1
	isMissing   = 2 // no row, and counted as such
	firstFailed = 3
)

// settling is one Handle.
type settling struct {
	*Handler
	ctx   context.Context // of the invocation: all of its steps need it
	m     Manifest
	facts normalise.Result
	table *idtable.Table
	codes []string // error codes met
}

// Handle compares the rows of a run with its input, and writes the manifest and
// the list for a rerun. It may be called again and again while Firehose still
// delivers: only the last answer counts, and Complete says whether it is final.
func (h *Handler) Handle(ctx context.Context, e Event) (m Manifest, err error) {
	if e.RunID == "" {
		return Manifest{}, &normalise.EventError{Field: "run_id", Want: "the run to reconcile"}
	}
	place := func(name string) object.Ref {
		return object.Ref{Bucket: h.RunsBucket, Key: normalise.RunPrefix(e.RunID) + name}
	}
	s := &settling{Handler: h, ctx: ctx, table: idtable.New(idtable.Options{MemoryIDs: h.MemoryIDs, MaxIDs: 2 * h.MaxRecords, Dir: h.TempDir})}
	defer func() { err = errors.Join(err, s.table.Close()) }()
	if err := s.readFacts(place(normalise.FactsName)); err != nil {
		return Manifest{}, err
	}
	s.m = Manifest{
		Schema: ManifestSchema, RunID: e.RunID, StartedAt: s.facts.StartedAt, Input: s.facts.Input,
		Briefings: Briefings{Bucket: h.BriefingsBucket, Prefix: h.BriefingsPrefix}, Rerun: place(RerunName), Manifest: place(ManifestName),
		Counts: Counts{Rejected: s.facts.Rejected, ByErrorCode: map[string]int64{}, ByFinish: map[string]int64{}, RejectsByCode: s.facts.ByCode},
	}
	for _, step := range []func() error{s.readRows, s.compareRecords, s.compareRejects} {
		if err := step(); err != nil {
			return Manifest{}, err
		}
	}
	c := &s.m.Counts
	c.Unexpected = c.OK + c.Failed - (c.Records + c.MissingRejected - c.Missing) - (s.facts.FailedRows - c.MissingRejected)
	maps.DeleteFunc(c.ByErrorCode, func(_ string, n int64) bool { return n == 0 })
	s.m.Complete = c.Missing == 0
	s.m.State = StateIncomplete
	if s.m.Complete {
		s.m.State = StateComplete
	}
	s.m.ReconciledAt = recipe.Now()
	text, err := json.MarshalIndent(s.m, "", "  ")
	if err != nil {
		return Manifest{}, fmt.Errorf("encode manifest: %w", err)
	}
	if err := object.Put(ctx, h.S3, s.m.Manifest, append(text, '\n')); err != nil {
		return Manifest{}, err
	}
	h.Log.InfoContext(ctx, "reconciled", "run_id", e.RunID, "state", s.m.State, "records", c.Records, "ok", c.OK, "failed", c.Failed,
		"missing", c.Missing, "duplicate", c.Duplicate, "unexpected", c.Unexpected, "objects", s.m.Briefings.Objects,
		"bytes_read", s.m.Briefings.BytesRead, "spilled_ids", s.table.Spilled())
	return s.m, nil
}

func (s *settling) readFacts(ref object.Ref) (err error) {
	in, err := object.Open(s.ctx, s.S3, ref)
	if err != nil {
		return err
	}
	defer in.Close() // opened for reading: nothing to lose
	if err := json.NewDecoder(io.LimitReader(in, 1<<20)).Decode(&s.facts); err != nil {
		return fmt.Errorf("read %s: %w", ref, err)
	}
	return nil
}

// readRows enters all rows of the run into the table and counts them.
func (s *settling) readRows() error {
	pages := s3.NewListObjectsV2Paginator(s.S3, &s3.ListObjectsV2Input{Bucket: &s.BriefingsBucket, Prefix: &s.BriefingsPrefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(s.ctx)
		if err != nil {
			return fmt.Errorf("list s3://%s/%s: %w", s.BriefingsBucket, s.BriefingsPrefix, err)
		}
		for _, o := range page.Contents {
			if aws.ToTime(o.LastModified).Before(s.facts.StartedAt.Add(-clockSkew)) || aws.ToInt64(o.Size) == 0 {
				continue
			}
			if err := s.readObject(object.Ref{Bucket: s.BriefingsBucket, Key: aws.ToString(o.Key)}, aws.ToInt64(o.Size)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *settling) readObject(ref object.Ref, size int64) error {
	in, err := object.OpenAt(s.ctx, s.S3, ref, size)
	if err != nil {
		return err
	}
	ours := false
	for row, err := range gather.FileRows[columns](ref.String(), in, size) {
		if err != nil {
			return err
		}
		if row.RunID != s.m.RunID {
			continue
		}
		ours = true
		if err := s.count(row); err != nil {
			return err
		}
	}
	s.m.Briefings.BytesRead += in.BytesRead()
	if ours {
		s.m.Briefings.Objects++
		s.m.Briefings.Bytes += size
	}
	return nil
}

// count enters a row.
func (s *settling) count(row columns) error {
	c, ok := &s.m.Counts, row.Status == briefing.StatusOK
	known, seen, err := s.table.Get([]byte(row.UserID))
	if err != nil {
		return err
	}
	if seen {
		c.Duplicate++
		if !ok || known == hasOK {
			return nil
		}
		// A user with whom it failed once and then did not is fine.
		c.Failed--
		c.ByErrorCode[s.codes[known-firstFailed]]--
	}
	value := uint32(hasOK)
	if ok {
		c.OK++
		c.ByFinish[row.FinishReason]++
	} else {
		c.Failed++
		c.ByErrorCode[row.ErrorCode]++
		value = s.failedWith(row.ErrorCode)
	}
	s.m.Tokens.Prompt += int64(row.PromptTokens)
	s.m.Tokens.Cached += int64(row.CachedTokens)
	s.m.Tokens.Completion += int64(row.CompletionTokens)
	return s.table.Put([]byte(row.UserID), value)
}

// failedWith returns the table's value for an error code. There are about a
// dozen of them.
func (s *settling) failedWith(code string) uint32 {
	i := slices.Index(s.codes, code)
	if i < 0 {
		i = len(s.codes)
		s.codes = append(s.codes, code)
	}
	return firstFailed + uint32(i)
}

// compareRecords looks for the rows of all records and writes the list for a
// rerun.
func (s *settling) compareRecords() (err error) {
	c := &s.m.Counts
	rerun := object.Create(s.ctx, s.S3, s.m.Rerun)
	defer func() {
		if err != nil {
			err = errors.Join(err, rerun.Abort())
		}
	}()
	out := bufio.NewWriterSize(rerun, 64<<10)
	err = s.lines(s.facts.Normalised, func(line []byte) error {
		rec, err := briefing.ParseRecord(line)
		if err != nil {
			return err
		}
		c.Records++
		value, seen, err := s.table.Get([]byte(rec.UserID))
		if err != nil {
			return err
		}
		if seen && value == hasOK {
			return nil
		}
		if !seen {
			c.Missing++
			if err := s.table.Put([]byte(rec.UserID), isMissing); err != nil {
				return err
			}
		}
		s.m.RerunCount++
		if _, err := out.Write(line); err != nil {
			return err
		}
		return out.WriteByte('\n')
	})
	if err != nil {
		return err
	}
	if c.Records != s.facts.Records {
		return fmt.Errorf("%s has %d records, %s counts %d: the run's objects were changed", s.facts.Normalised, c.Records, s.facts.Facts, s.facts.Records)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return rerun.Close()
}

// compareRejects looks for the rows of rejected users.
func (s *settling) compareRejects() error {
	if s.facts.FailedRows == 0 {
		return nil
	}
	c := &s.m.Counts
	return s.lines(s.facts.Rejects, func(line []byte) error {
		var reject briefing.Reject
		if err := json.Unmarshal(line, &reject); err != nil {
			return err
		}
		if reject.UserID == "" {
			return nil
		}
		// The id of a duplicate is that of a record, which has been looked at.
		if _, seen, err := s.table.Get([]byte(reject.UserID)); seen || err != nil {
			return err
		}
		c.Missing++
		c.MissingRejected++
		return s.table.Put([]byte(reject.UserID), isMissing)
	})
}

// lines calls f with each line of an object.
func (s *settling) lines(ref object.Ref, f func(line []byte) error) error {
	in, err := object.Open(s.ctx, s.S3, ref)
	if err != nil {
		return err
	}
	defer in.Close() // opened for reading: nothing to lose
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 256<<10), 2*briefing.MaxRecordBytes)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		if err := f(lines.Bytes()); err != nil {
			return fmt.Errorf("read %s: %w", ref, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s: %w", ref, err)
	}
	return nil
}
