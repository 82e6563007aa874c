package briefing

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
)

// NormaliseOptions bounds and watches a Normalise. The zero value reads all.
type NormaliseOptions struct {
	// Limit stops after that many accepted records; 0 reads all.
	Limit int64
	// IDs remembers the user_ids of accepted records. Where it is nil they are
	// held in memory, at about 30 bytes each.
	IDs IDs
	// OnReject is called for every rejected row as it is met, duplicates
	// included. Its error ends the run.
	OnReject func(*RowError) error
	// OnRecord is called for every accepted record after it is written, with
	// its row. Its error ends the run.
	OnRecord func(rec Record, row int64) error
}

// IDs remembers the row in which each user_id was first seen. It lets a caller
// bound the memory of very long files.
type IDs interface {
	// Add enters id, which it may not keep, with its row. Where id is there
	// already, it returns false and the row it was first added with; an
	// implementation may cap rows at 4,294,967,295.
	Add(id []byte, row int64) (first int64, added bool, err error)
}

// Summary is what Normalise found.
type Summary struct {
	// Format is the format read, Gzip whether it was compressed.
	Format Format
	Gzip   bool
	// Records is the number of accepted records, Rejected that of rejected rows.
	Records, Rejected int64
	// ByCode counts the faults of rejected rows by code. A row can have several.
	ByCode map[string]int64
	// BlankLines is the number of blank lines skipped.
	BlankLines int64
	// InputBytes and SHA256 (in hexadecimal) identify the input as it lies in
	// storage, compressed if it is. They cover the whole file under a Limit
	// too, and are zero and empty where it could not be read to its end.
	InputBytes int64
	SHA256     string
	// OutputBytes is the size of the canonical JSON Lines.
	OutputBytes int64
	// Limited says that a Limit left rows unread.
	Limited bool
	// Warnings is what was odd about the file.
	Warnings []Warning

	ids IDs
}

// Reject is one line of a rejects file: one fault of one row. A row with
// several faults has as many lines, one after the other. It holds no personal
// data beyond the user_id.
type Reject struct {
	Row     int64  `json:"row"`
	Line    int64  `json:"line"`
	Code    string `json:"code"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	UserID  string `json:"user_id,omitempty"`
}

// Rejects returns the lines of a rejects file for one row.
func (e *RowError) Rejects() []Reject {
	rejects := make([]Reject, len(e.Faults))
	for i, f := range e.Faults {
		rejects[i] = Reject{Row: e.Row, Line: f.Line, Code: f.Code, Field: f.Field, Message: f.Message, UserID: e.UserID}
	}
	return rejects
}

// Normalise reads r to its end and writes every good record to out as
// canonical JSON Lines and every fault to rejects as JSON Lines of Reject. out
// and rejects may be nil.
//
// A user_id that an accepted record had is a fault that names the first row; a
// rejected row does not reserve its user_id. Memory is bounded but for what
// opt.IDs takes.
//
// The error is that of ctx, of r (*ReadError), of a writer or of a callback;
// the Summary then counts what was read until then, all of which is written.
func Normalise(ctx context.Context, r *Reader, out, rejects io.Writer, opt NormaliseOptions) (Summary, error) {
	if opt.IDs == nil {
		opt.IDs = new(idSet)
	}
	n := &normaliser{
		opt:     opt,
		summary: Summary{Format: r.Format(), Gzip: r.Gzip(), ByCode: make(map[string]int64), ids: opt.IDs},
		out:     bufferedWriter(out),
		rejects: bufferedWriter(rejects),
	}
	err := n.run(ctx, r)
	n.summary.BlankLines = r.BlankLines()
	n.summary.Warnings = r.Warnings()
	if err == nil {
		sum, size, digestErr := r.Digest()
		if digestErr == nil {
			n.summary.SHA256, n.summary.InputBytes = hex.EncodeToString(sum[:]), size
		}
		err = digestErr
	}
	if flushErr := n.out.Flush(); flushErr != nil {
		err = errors.Join(err, fmt.Errorf("write normalised records: %w", flushErr))
	}
	if flushErr := n.rejects.Flush(); flushErr != nil {
		err = errors.Join(err, fmt.Errorf("write rejects: %w", flushErr))
	}
	return n.summary, err
}

func bufferedWriter(w io.Writer) *bufio.Writer {
	if w == nil {
		return bufio.NewWriterSize(io.Discard, 1)
	}
	return bufio.NewWriterSize(w, 256<<10)
}

type normaliser struct {
	opt          NormaliseOptions
	summary      Summary
	out, rejects *bufio.Writer
	line, id     []byte // reused
}

func (n *normaliser) run(ctx context.Context, r *Reader) error {
	for round := 0; ; round++ {
		if round%256 == 0 {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("normalise: %w", err)
			}
		}
		rec, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if n.opt.Limit > 0 && n.summary.Records == n.opt.Limit {
			// Only now is it known that the limit leaves something out.
			n.summary.Limited = true
			return nil
		}
		var rowErr *RowError
		switch {
		case errors.As(err, &rowErr):
			err = n.reject(rowErr)
		case err == nil:
			err = n.accept(rec, r)
		}
		if err != nil {
			return err
		}
	}
}

func (n *normaliser) accept(rec Record, r *Reader) error {
	n.id = append(n.id[:0], rec.UserID...)
	first, added, err := n.summary.ids.Add(n.id, r.Row())
	if err != nil {
		return fmt.Errorf("row %d: %w", r.Row(), err)
	}
	if !added {
		return n.reject(&RowError{Row: r.Row(), Line: r.Line(), UserID: rec.UserID, Faults: []Fault{{
			Code: CodeUserIDDuplicate, Line: r.Line(), Field: FieldUserID,
			Message: fmt.Sprintf("user_id is the same as in row %d: keep one of the two", first),
		}}})
	}
	if n.line, err = rec.AppendJSON(n.line[:0]); err != nil {
		return fmt.Errorf("row %d: %w", r.Row(), err)
	}
	n.line = append(n.line, '\n')
	if _, err := n.out.Write(n.line); err != nil {
		return fmt.Errorf("write normalised records: %w", err)
	}
	n.summary.Records++
	n.summary.OutputBytes += int64(len(n.line))
	if n.opt.OnRecord != nil {
		return n.opt.OnRecord(rec, r.Row())
	}
	return nil
}

func (n *normaliser) reject(e *RowError) error {
	n.summary.Rejected++
	for _, reject := range e.Rejects() {
		n.summary.ByCode[reject.Code]++
		line, err := appendReject(n.line[:0], reject)
		if err != nil {
			return err
		}
		n.line = line
		if _, err := n.rejects.Write(line); err != nil {
			return fmt.Errorf("write rejects: %w", err)
		}
	}
	if n.opt.OnReject != nil {
		return n.opt.OnReject(e)
	}
	return nil
}

func appendReject(dst []byte, reject Reject) ([]byte, error) {
	b := bytes.NewBuffer(dst)
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(reject); err != nil {
		return nil, fmt.Errorf("encode reject: %w", err)
	}
	return b.Bytes(), nil
}

// FailedRows reads a rejects file that Normalise has written and yields one Row
// with status failed per user_id that was rejected and that no accepted record
// has, once each, with the code of its first fault and the messages of all.
// run_id, model and generated_at are left to the caller. Email, name and
// locale stay empty: a rejected row's are not trusted. An error ends the
// sequence.
//
// It enters the ids it yields into those of the Normalise, so that a second
// call yields none of them again. It is not safe for concurrent use.
func (s *Summary) FailedRows(rejects io.Reader) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		if s.ids == nil {
			s.ids = new(idSet)
		}
		decoder := json.NewDecoder(bufio.NewReaderSize(rejects, 64<<10))
		var (
			pending Row
			row     int64
		)
		flush := func() bool {
			if pending.UserID == "" {
				return true
			}
			_, added, err := s.ids.Add([]byte(pending.UserID), max(1, row))
			if err != nil {
				yield(Row{}, fmt.Errorf("read rejects: row %d: %w", row, err))
				return false
			}
			return !added || yield(pending, nil)
		}
		for {
			var reject Reject
			err := decoder.Decode(&reject)
			if err != nil {
				if flush() && err != io.EOF {
					yield(Row{}, fmt.Errorf("read rejects: %w", err))
				}
				return
			}
			if reject.Row == row && pending.ErrorCode != "" {
				pending.ErrorMessage += "; " + reject.Message
				continue
			}
			if !flush() {
				return
			}
			row = reject.Row
			pending = Row{
				UserID: reject.UserID, Status: StatusFailed, Attributes: "{}",
				ErrorCode: reject.Code, ErrorMessage: reject.Message,
			}
		}
	}
}
