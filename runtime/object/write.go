package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// PartBytes is the size of a part of an upload. S3 takes 10,000 parts, so an
// object can have 156 GiB.
const PartBytes = 16 << 20

// maxParts is S3's limit.
const maxParts = 10_000

// abortTimeout bounds the clean-up after a failed upload, whose own context may
// have ended.
const abortTimeout = 10 * time.Second

// Writer writes one object, which appears whole when Close returns nil, or not
// at all. It holds two parts in memory: one that fills while the other is sent.
// It is not safe for concurrent use.
type Writer struct {
	ctx      context.Context // of the whole upload, as an io.Writer has none
	client   *s3.Client
	ref      Ref
	partSize int

	buf, spare []byte
	upload     string // id, "" until there is a second part
	parts      []types.CompletedPart
	sending    chan error // of the part on its way, nil where none is
	n          int64
	err        error
	closed     bool
}

// Create begins to write an object. Every Writer must be closed or aborted.
func Create(ctx context.Context, client *s3.Client, ref Ref) *Writer {
	return &Writer{ctx: ctx, client: client, ref: ref, partSize: PartBytes}
}

// Bytes returns how many bytes were written so far.
func (w *Writer) Bytes() int64 { return w.n }

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		if w.err != nil {
			return written, w.err
		}
		if w.buf == nil {
			w.buf = make([]byte, 0, 64<<10)
		}
		room := w.partSize - len(w.buf)
		n := min(room, len(p))
		w.buf = append(w.buf, p[:n]...)
		p = p[n:]
		written += n
		w.n += int64(n)
		if len(w.buf) == w.partSize {
			w.err = w.send()
		}
	}
	return written, w.err
}

// send hands the full buffer to the background.
func (w *Writer) send() error {
	if w.upload == "" {
		out, err := w.client.CreateMultipartUpload(w.ctx, &s3.CreateMultipartUploadInput{Bucket: &w.ref.Bucket, Key: &w.ref.Key})
		if err != nil {
			return fmt.Errorf("begin to write %s: %w", w.ref, err)
		}
		w.upload = *out.UploadId
	}
	if err := w.wait(); err != nil {
		return err
	}
	if len(w.parts) == maxParts {
		return fmt.Errorf("write %s: it has more than %d parts of %d bytes: split the input", w.ref, maxParts, w.partSize)
	}
	number := int32(len(w.parts) + 1)
	w.parts = append(w.parts, types.CompletedPart{PartNumber: &number})
	part, body := &w.parts[number-1], w.buf
	w.buf, w.spare = w.spare[:0], body
	done := make(chan error, 1)
	w.sending = done
	go func() {
		etag, err := w.sendPart(number, body)
		part.ETag = etag
		done <- err
	}()
	return nil
}

// sendPart tries harder than the client's own retries: a part is long, and what
// was read to fill it is gone.
func (w *Writer) sendPart(number int32, body []byte) (*string, error) {
	for failed := 0; ; {
		out, err := w.client.UploadPart(w.ctx, &s3.UploadPartInput{
			Bucket: &w.ref.Bucket, Key: &w.ref.Key, UploadId: &w.upload, PartNumber: &number, Body: bytes.NewReader(body),
		})
		if err == nil {
			return out.ETag, nil
		}
		if failed++; w.ctx.Err() != nil || failed > maxResumes || refused(err) {
			return nil, fmt.Errorf("write part %d of %s: %w", number, w.ref, err)
		}
		if err := pause(w.ctx, failed); err != nil {
			return nil, fmt.Errorf("write part %d of %s: %w", number, w.ref, err)
		}
	}
}

// refused reports whether S3 has said no, and will again.
func refused(err error) bool {
	status := statusOf(err)
	return status >= 400 && status < 500 && status != 408 && status != 429
}

// wait waits for the part on its way.
func (w *Writer) wait() error {
	if w.sending == nil {
		return nil
	}
	err := <-w.sending
	w.sending = nil
	return err
}

// Close sends what is left and makes the object appear. After an error nothing
// of it stays behind.
func (w *Writer) Close() error {
	if w.closed {
		return w.err
	}
	err := w.err
	if err == nil {
		err = w.finish()
	}
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	w.closed = true
	return nil
}

func (w *Writer) finish() error {
	if w.upload == "" {
		return w.putWhole()
	}
	if len(w.buf) > 0 {
		if err := w.send(); err != nil {
			return err
		}
	}
	if err := w.wait(); err != nil {
		return err
	}
	_, err := w.client.CompleteMultipartUpload(w.ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &w.ref.Bucket, Key: &w.ref.Key, UploadId: &w.upload, MultipartUpload: &types.CompletedMultipartUpload{Parts: w.parts},
	})
	if err != nil && statusOf(err) == 404 {
		// A call whose answer was lost has done it: then the upload is gone and
		// the object is there.
		if head, headErr := w.client.HeadObject(w.ctx, &s3.HeadObjectInput{Bucket: &w.ref.Bucket, Key: &w.ref.Key}); headErr == nil && head.ContentLength != nil && *head.ContentLength == w.n {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", w.ref, err)
	}
	return nil
}

func (w *Writer) putWhole() error {
	for failed := 0; ; {
		_, err := w.client.PutObject(w.ctx, &s3.PutObjectInput{Bucket: &w.ref.Bucket, Key: &w.ref.Key, Body: bytes.NewReader(w.buf)})
		if err == nil {
			return nil
		}
		if failed++; w.ctx.Err() != nil || failed > maxResumes || refused(err) {
			return fmt.Errorf("write %s: %w", w.ref, err)
		}
		if err := pause(w.ctx, failed); err != nil {
			return fmt.Errorf("write %s: %w", w.ref, err)
		}
	}
}

// Abort drops what was written. After Close it does nothing.
func (w *Writer) Abort() error {
	if w.closed {
		return nil
	}
	w.closed = true
	if w.err == nil {
		w.err = fmt.Errorf("write %s: aborted", w.ref)
	}
	if w.sending != nil {
		<-w.sending // its error changes nothing
		w.sending = nil
	}
	if w.upload == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), abortTimeout)
	defer cancel()
	if _, err := w.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &w.ref.Bucket, Key: &w.ref.Key, UploadId: &w.upload}); err != nil && statusOf(err) != 404 {
		return fmt.Errorf("abort the upload of %s: %w", w.ref, err)
	}
	return nil
}

// Put writes a small object whole.
func Put(ctx context.Context, client *s3.Client, ref Ref, body []byte) error {
	w := Create(ctx, client, ref)
	w.buf, w.n = body, int64(len(body))
	return w.Close()
}
