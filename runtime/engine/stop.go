package engine

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// textStream puts the bytes of tokens together into text: it never lets out a
// partial UTF-8 character, nor anything that may turn out to be the start of a
// stop string.
type textStream struct {
	stops   [][]byte
	emit    func(string) // nil where nobody listens
	held    []byte       // not let out yet
	text    []byte       // let out
	stopped bool
}

func newTextStream(stops []string, emit func(string)) *textStream {
	s := &textStream{emit: emit}
	for _, stop := range stops {
		if stop != "" {
			s.stops = append(s.stops, []byte(stop))
		}
	}
	return s
}

// write adds the bytes of one token and reports whether a stop string was met.
// What comes after the stop string, and the stop string itself, is dropped.
func (s *textStream) write(piece []byte) bool {
	if s.stopped {
		return true
	}
	s.held = append(s.held, piece...)
	at := -1
	for _, stop := range s.stops {
		if i := bytes.Index(s.held, stop); i >= 0 && (at < 0 || i < at) {
			at = i
		}
	}
	if at >= 0 {
		s.stopped = true
		s.release(at)
		s.held = s.held[:0]
		return true
	}
	s.release(len(s.held) - max(s.maybeStop(), partialRune(s.held)))
	return false
}

// finish lets out what is held. Bytes that never became a character are shown
// as U+FFFD.
func (s *textStream) finish() string {
	if !s.stopped {
		s.release(len(s.held))
	}
	return string(s.text)
}

func (s *textStream) release(n int) {
	if n <= 0 {
		return
	}
	out := s.held[:n]
	if !utf8.Valid(out) {
		out = []byte(strings.ToValidUTF8(string(out), "\uFFFD"))
	}
	s.text = append(s.text, out...)
	if s.emit != nil {
		s.emit(string(out))
	}
	s.held = append(s.held[:0], s.held[n:]...)
}

// maybeStop returns the length of the longest end of held that begins a stop
// string.
func (s *textStream) maybeStop() int {
	longest := 0
	for _, stop := range s.stops {
		for n := min(len(stop)-1, len(s.held)); n > longest; n-- {
			if bytes.HasSuffix(s.held, stop[:n]) {
				longest = n
				break
			}
		}
	}
	return longest
}

// partialRune returns how many bytes at the end of b are the start of a
// character that is not complete.
func partialRune(b []byte) int {
	for n := 1; n <= min(utf8.UTFMax-1, len(b)); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return n
			}
			return 0
		}
	}
	return 0
}
