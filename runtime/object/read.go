package object

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// Ref names an object, or one version of it.
type Ref struct {
	Bucket  string `json:"bucket"`
	Key     string `json:"key"`
	Version string `json:"version_id,omitempty"`
}

// String returns s3://bucket/key.
func (r Ref) String() string { return "s3://" + r.Bucket + "/" + r.Key }

// ParseRef reads s3://bucket/key.
func ParseRef(url string) (Ref, error) {
	rest, ok := strings.CutPrefix(url, "s3://")
	bucket, key, found := strings.Cut(rest, "/")
	if !ok || !found || bucket == "" || key == "" {
		return Ref{}, fmt.Errorf("%q is no s3://bucket/key", url)
	}
	return Ref{Bucket: bucket, Key: key}, nil
}

// NotFoundError says that there is no such object, or no permission to see it.
type NotFoundError struct {
	Ref Ref
	Err error
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("%s does not exist, or this function may not read it", e.Ref)
}

func (e *NotFoundError) Unwrap() error { return e.Err }

// ChangedError says that an object was replaced while it was read.
type ChangedError struct {
	Ref Ref
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s was replaced while it was read: start again", e.Ref)
}

// How reading and writing get over failures: each waits twice as long as the
// one before, up to maxPause, less up to half of it by chance.
const (
	maxResumes = 8
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)

// pause waits before the attempt after n failed ones.
func pause(ctx context.Context, n int) error {
	d := min(maxPause, firstPause<<min(n, 10))
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// permanent reports whether trying again can't help.
func permanent(err error) bool {
	var missing *NotFoundError
	var changed *ChangedError
	return errors.As(err, &missing) || errors.As(err, &changed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Open returns a reader of the object from start to end. It picks up a
// connection that breaks where it broke, as long as the object is the same.
func Open(ctx context.Context, client *s3.Client, ref Ref) (io.ReadCloser, error) {
	r := &reader{ctx: ctx, client: client, ref: ref}
	if err := r.connect(); err != nil {
		return nil, err
	}
	return r, nil
}

type reader struct {
	ctx    context.Context // of the whole read, as an io.Reader has none
	client *s3.Client
	ref    Ref
	etag   string
	size   int64
	at     int64
	failed int // connections in a row that brought nothing
	body   io.ReadCloser
}

func (r *reader) connect() error {
	in := &s3.GetObjectInput{Bucket: &r.ref.Bucket, Key: &r.ref.Key, VersionId: optional(r.ref.Version)}
	if r.etag != "" {
		in.Range, in.IfMatch = aws.String(fmt.Sprintf("bytes=%d-", r.at)), &r.etag
	}
	out, err := r.client.GetObject(r.ctx, in)
	if err != nil {
		return readError(r.ref, err)
	}
	if r.etag == "" {
		r.etag, r.size = aws.ToString(out.ETag), aws.ToInt64(out.ContentLength)
	}
	r.body = out.Body
	return nil
}

func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if r.at >= r.size {
			return 0, io.EOF
		}
		// What the connection still holds is not given out to a caller that has
		// stopped waiting.
		err := r.ctx.Err()
		if err == nil && r.body == nil {
			err = r.connect()
		}
		if err == nil {
			var n int
			n, err = r.body.Read(p)
			if n > 0 {
				r.at += int64(n)
				r.failed = 0
				return n, nil
			}
			if err == nil {
				continue
			}
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			r.body.Close() // broken anyway
			r.body = nil
		}
		if r.ctx.Err() != nil {
			return 0, fmt.Errorf("read %s at byte %d: %w", r.ref, r.at, r.ctx.Err())
		}
		if r.failed++; permanent(err) || r.failed > maxResumes {
			return 0, fmt.Errorf("read %s at byte %d: %w", r.ref, r.at, err)
		}
		if err := pause(r.ctx, r.failed); err != nil {
			return 0, fmt.Errorf("read %s at byte %d: %w", r.ref, r.at, err)
		}
	}
}

func (r *reader) Close() error {
	if r.body == nil {
		return nil
	}
	return r.body.Close()
}

// ReaderAt reads parts of an object by ranged GETs.
type ReaderAt struct {
	ctx    context.Context // of all reads, as an io.ReaderAt has none
	client *s3.Client
	ref    Ref
	etag   string
	size   int64
	tail   []byte // the object's last bytes
	read   int64
}

// tailBytes is what OpenAt reads at once: a Parquet file's footer is there.
const tailBytes = 64 << 10

// OpenAt opens an object of known size for reading parts of it.
func OpenAt(ctx context.Context, client *s3.Client, ref Ref, size int64) (*ReaderAt, error) {
	r := &ReaderAt{ctx: ctx, client: client, ref: ref, size: size}
	tail := make([]byte, min(size, tailBytes))
	if _, err := r.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	r.tail = tail
	return r, nil
}

// Size returns the size of the object.
func (r *ReaderAt) Size() int64 { return r.size }

// BytesRead returns how many bytes were fetched so far.
func (r *ReaderAt) BytesRead() int64 { return r.read }

// ReadAt implements io.ReaderAt.
func (r *ReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > r.size {
		return 0, fmt.Errorf("read %s: offset %d is outside of its %d bytes", r.ref, off, r.size)
	}
	want := int(min(int64(len(p)), r.size-off))
	if tailStart := r.size - int64(len(r.tail)); off >= tailStart && want > 0 {
		copy(p[:want], r.tail[off-tailStart:])
	} else if err := r.fetch(p[:want], off); err != nil {
		return 0, err
	}
	if want < len(p) {
		return want, io.EOF
	}
	return want, nil
}

func (r *ReaderAt) fetch(p []byte, off int64) error {
	for n, failed := 0, 0; n < len(p); {
		got, err := r.get(p[n:], off+int64(n))
		n += got
		if err == nil {
			continue
		}
		if got > 0 {
			failed = 0
		}
		if failed++; permanent(err) || failed > maxResumes || r.ctx.Err() != nil {
			return fmt.Errorf("read %s at byte %d: %w", r.ref, off+int64(n), err)
		}
		if err := pause(r.ctx, failed); err != nil {
			return fmt.Errorf("read %s at byte %d: %w", r.ref, off+int64(n), err)
		}
	}
	return nil
}

func (r *ReaderAt) get(p []byte, off int64) (n int, err error) {
	out, err := r.client.GetObject(r.ctx, &s3.GetObjectInput{
		Bucket: &r.ref.Bucket, Key: &r.ref.Key, VersionId: optional(r.ref.Version), IfMatch: optional(r.etag),
		Range: aws.String("bytes=" + strconv.FormatInt(off, 10) + "-" + strconv.FormatInt(off+int64(len(p))-1, 10)),
	})
	if err != nil {
		return 0, readError(r.ref, err)
	}
	defer out.Body.Close() // opened for reading: nothing to lose
	if r.etag == "" {
		r.etag = aws.ToString(out.ETag)
	}
	n, err = io.ReadFull(out.Body, p)
	r.read += int64(n)
	return n, err
}

// readError types what a caller decides on.
func readError(ref Ref, err error) error {
	var noKey *types.NoSuchKey
	if errors.As(err, &noKey) {
		return &NotFoundError{Ref: ref, Err: err}
	}
	switch statusOf(err) {
	case 403, 404:
		return &NotFoundError{Ref: ref, Err: err}
	case 412, 416:
		return &ChangedError{Ref: ref}
	}
	return fmt.Errorf("read %s: %w", ref, err)
}

// statusOf returns the HTTP status behind err, 0 where there is none.
func statusOf(err error) int {
	var response interface{ HTTPStatusCode() int }
	if errors.As(err, &response) {
		return response.HTTPStatusCode()
	}
	return 0
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
