package briefing

import (
	"bytes"
	"io"
)

const (
	// windowBytes is the usual size of a window: large enough that few records
	// straddle a refill.
	windowBytes = 256 << 10
	// maxWindowBytes bounds the raw text of one record, and so the memory a
	// damaged file can claim. It is far above MaxRecordBytes so that an
	// over-long quoted field is still seen to end.
	maxWindowBytes = 1 << 20
)

// window is a sliding view of a stream that keeps the bytes of one record
// together.
type window struct {
	src    io.Reader
	buf    []byte
	r, w   int   // buf[r:w] is read but not consumed
	offset int64 // offset of buf[r] in the stream
	line   int64 // physical line of buf[r], from 1
	err    error // why src gives no more; io.EOF at the end
}

// newWindow returns a window that starts at size bytes, at windowBytes if 0.
func newWindow(src io.Reader, size int) *window {
	if size == 0 {
		size = windowBytes
	}
	return &window{src: src, buf: make([]byte, size), line: 1}
}

// data is the text read but not consumed.
func (w *window) data() []byte { return w.buf[w.r:w.w] }

// atEOF says that data reaches the end of the stream.
func (w *window) atEOF() bool { return w.err == io.EOF }

// failed is the error that ended the stream early, or nil.
func (w *window) failed() error {
	if w.err == io.EOF {
		return nil
	}
	return w.err
}

// fill reads until the window is full or the stream ends. It is true where that
// tells more than before, be it only that this is the end, and false where the
// window is at its largest or the end was known.
func (w *window) fill() bool {
	if w.err != nil {
		return false
	}
	if w.r > 0 {
		w.w = copy(w.buf, w.buf[w.r:w.w])
		w.r = 0
	}
	if w.w == len(w.buf) {
		if len(w.buf) >= maxWindowBytes {
			return false
		}
		grown := make([]byte, 2*len(w.buf))
		copy(grown, w.buf[:w.w])
		w.buf = grown
	}
	before := w.w
	for empty := 0; w.w < len(w.buf) && w.err == nil; {
		n, err := w.src.Read(w.buf[w.w:])
		w.w += n
		w.err = err
		if n > 0 {
			empty = 0
		} else if empty++; empty == 100 && err == nil {
			w.err = io.ErrNoProgress
		}
	}
	return w.w > before || w.err != nil
}

// advance consumes n bytes that hold lines line ends.
func (w *window) advance(n int, lines int64) {
	w.r += n
	w.offset += int64(n)
	w.line += lines
}

// skipLine consumes up to and including the next line end, in bounded memory.
// It is false at the end of the stream.
func (w *window) skipLine() bool {
	for {
		if i := bytes.IndexByte(w.data(), '\n'); i >= 0 {
			w.advance(i+1, 1)
			return true
		}
		w.advance(w.w-w.r, 0)
		if !w.fill() {
			return false
		}
	}
}

// skipBlank consumes lines of nothing but spaces and tabs and counts them. It
// is false at the end of the stream.
func (w *window) skipBlank(count *int64) bool {
	for {
		blank, n, lines := true, 0, int64(0)
		data := w.data()
		for i, c := range data {
			if c == '\n' {
				n = i + 1
				lines++
			} else if c != ' ' && c != '\t' && c != '\r' {
				blank = false
				break
			}
		}
		*count += lines
		w.advance(n, lines)
		if !blank {
			return true
		}
		if w.fill() {
			continue
		}
		// A whole window of spaces is one blank line that goes on.
		w.advance(w.w-w.r, 0)
		if w.err != nil {
			return false
		}
	}
}
