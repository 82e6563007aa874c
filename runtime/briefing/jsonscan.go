package briefing

import (
	"bytes"
	"fmt"
)

// maxJSONDepth bounds the nesting of one record.
const maxJSONDepth = 64

// jsonScan checks JSON by RFC 8259 and copies it without the white space
// between its parts. Strings and numbers stay byte for byte as they are.
//
// encoding/json is not used because it accepts repeated keys and lone
// surrogates, and turns numbers and escapes into something else.
type jsonScan struct {
	src   []byte
	pos   int
	out   []byte // values so far, compact
	depth int
	// keys are the decoded keys of the objects that are open.
	keys [][]byte
	// wrong is the syntax fault that ended the scan.
	wrong jsonWrong
	// flaws are the faults that do not end it.
	flaws jsonFlaw
}

// jsonWrong is a fault after which the rest of the text means nothing.
type jsonWrong struct {
	code   string
	pos    int
	reason string
	ended  bool // the text ended too early
}

// jsonFlaw is a set of faults within well-formed JSON.
type jsonFlaw uint8

const (
	flawNUL jsonFlaw = 1 << iota
	flawSurrogate
	flawDuplicateKey
	flawEmptyKey
)

func (s *jsonScan) reset(src []byte) {
	s.src, s.pos, s.out, s.depth, s.keys = src, 0, s.out[:0], 0, s.keys[:0]
	s.wrong, s.flaws = jsonWrong{}, 0
}

func (s *jsonScan) fail(reason string) bool {
	s.wrong = jsonWrong{code: CodeJSONSyntax, pos: s.pos, reason: reason, ended: s.pos >= len(s.src)}
	return false
}

// String says what is wrong, for a fault's message.
func (w jsonWrong) String() string {
	if w.ended {
		return fmt.Sprintf("the JSON ends too early, after %d bytes of the line: the line or the file may be cut short", w.pos)
	}
	return fmt.Sprintf("the JSON is not valid at byte %d of the line: %s", w.pos+1, w.reason)
}

func (s *jsonScan) space() {
	for s.pos < len(s.src) {
		switch s.src[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return
		}
	}
}

// peek is the next byte, or 0 at the end; a NUL is valid nowhere either.
func (s *jsonScan) peek() byte {
	if s.pos < len(s.src) {
		return s.src[s.pos]
	}
	return 0
}

// value scans one value and appends it to out.
func (s *jsonScan) value() bool {
	switch c := s.peek(); {
	case c == '"':
		start := s.pos
		if _, ok := s.str(); !ok {
			return false
		}
		s.out = append(s.out, s.src[start:s.pos]...)
		return true
	case c == '{':
		return s.object()
	case c == '[':
		return s.array()
	case c == '-' || '0' <= c && c <= '9':
		start := s.pos
		if !s.number() {
			return false
		}
		s.out = append(s.out, s.src[start:s.pos]...)
		return true
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return s.fail("want a value")
}

func (s *jsonScan) literal(word string) bool {
	if !bytes.HasPrefix(s.src[s.pos:], []byte(word)) {
		if len(s.src)-s.pos < len(word) && word[:len(s.src)-s.pos] == string(s.src[s.pos:]) {
			s.pos = len(s.src)
		}
		return s.fail("want true, false or null")
	}
	s.pos += len(word)
	s.out = append(s.out, word...)
	return true
}

func (s *jsonScan) number() bool {
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if !s.digits() {
		return s.fail("want a digit")
	}
	if s.peek() == '.' {
		s.pos++
		if !s.digits() {
			return s.fail("want a digit after the point")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if !s.digits() {
			return s.fail("want a digit in the exponent")
		}
	}
	return true
}

func (s *jsonScan) digits() bool {
	start := s.pos
	for s.pos < len(s.src) && '0' <= s.src[s.pos] && s.src[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}

// str scans a string, from its opening quote to past its closing one, and says
// whether it holds escapes.
func (s *jsonScan) str() (escaped, ok bool) {
	s.pos++
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; {
		case c == '"':
			s.pos++
			return escaped, true
		case c == '\\':
			escaped = true
			if !s.escape() {
				return false, false
			}
		case c == 0:
			// Wrong as JSON too, but the cure is the same as for \u0000.
			s.flaws |= flawNUL
			s.pos++
		case c < ' ':
			return false, s.fail("a control character in a string must be escaped")
		default:
			s.pos++
		}
	}
	return false, s.fail("want a closing quote")
}

func (s *jsonScan) escape() bool {
	s.pos++
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return true
	case 'u':
	default:
		return s.fail("unknown escape after a backslash")
	}
	r, ok := hex4(s.src[s.pos+1:])
	if !ok {
		if s.pos+5 > len(s.src) {
			s.pos = len(s.src)
		}
		return s.fail(`want four hexadecimal digits after \u`)
	}
	s.pos += 5
	switch {
	case r == 0:
		s.flaws |= flawNUL
	case isHighSurrogate(r):
		rest := s.src[s.pos:]
		low := uint16(0)
		if len(rest) > 2 && rest[0] == '\\' && rest[1] == 'u' {
			low, _ = hex4(rest[2:])
		}
		if isLowSurrogate(low) {
			s.pos += 6
		} else {
			s.flaws |= flawSurrogate
		}
	case isLowSurrogate(r):
		s.flaws |= flawSurrogate
	}
	return true
}

func isHighSurrogate(r uint16) bool { return r&0xfc00 == 0xd800 }
func isLowSurrogate(r uint16) bool  { return r&0xfc00 == 0xdc00 }

func hex4(b []byte) (uint16, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r uint16
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | uint16(c)
	}
	return r, true
}

func (s *jsonScan) enter() bool {
	if s.depth++; s.depth > maxJSONDepth {
		s.fail("")
		s.wrong.code = CodeJSONTooDeep
		return false
	}
	return true
}

func (s *jsonScan) array() bool {
	if !s.enter() {
		return false
	}
	s.pos++
	s.out = append(s.out, '[')
	for first := true; ; first = false {
		s.space()
		if s.peek() == ']' && first {
			break
		}
		if !s.value() {
			return false
		}
		s.space()
		c := s.peek()
		if c == ']' {
			break
		}
		if c != ',' {
			return s.fail("want a comma or ] after a value")
		}
		s.pos++
		s.out = append(s.out, ',')
	}
	s.pos++
	s.depth--
	s.out = append(s.out, ']')
	return true
}

// object scans a nested object.
func (s *jsonScan) object() bool {
	s.out = append(s.out, '{')
	first := true
	ok := s.members(func(key, raw []byte) bool {
		if !first {
			s.out = append(s.out, ',')
		}
		first = false
		s.out = append(append(s.out, raw...), ':')
		return s.value()
	})
	s.out = append(s.out, '}')
	return ok
}

// members scans an object and calls each for every member with the key,
// decoded and as it stands with its quotes; each scans the value. An empty or
// repeated key is flagged, not fatal.
func (s *jsonScan) members(each func(key, raw []byte) bool) bool {
	if !s.enter() {
		return false
	}
	s.pos++
	base := len(s.keys)
	var seen map[string]struct{}
	for first := true; ; first = false {
		s.space()
		c := s.peek()
		if c == '}' && first {
			break
		}
		if c != '"' {
			return s.fail("want a key in double quotes")
		}
		start := s.pos
		escaped, ok := s.str()
		if !ok {
			return false
		}
		raw := s.src[start:s.pos]
		key := raw[1 : len(raw)-1]
		if escaped {
			key = appendUnescaped(nil, key)
		}
		if s.depth == 1 && first {
			// A byte order mark that an earlier conversion left in the name.
			key = bytes.TrimPrefix(key, []byte("\ufeff"))
		}
		if len(key) == 0 {
			s.flaws |= flawEmptyKey
		}
		if s.repeated(base, &seen, key) {
			s.flaws |= flawDuplicateKey
		}
		s.space()
		if s.peek() != ':' {
			return s.fail("want a colon after a key")
		}
		s.pos++
		s.space()
		if !each(key, raw) {
			return false
		}
		s.space()
		if c = s.peek(); c == '}' {
			break
		}
		if c != ',' {
			return s.fail("want a comma or } after a value")
		}
		s.pos++
	}
	s.pos++
	s.depth--
	s.keys = s.keys[:base]
	return true
}

// repeated enters key among the keys from base on and says whether it was
// there. Small objects are searched, large ones get a map, so that a hostile
// record costs no more than its size.
func (s *jsonScan) repeated(base int, seen *map[string]struct{}, key []byte) bool {
	const small = 24
	if *seen == nil {
		for _, k := range s.keys[base:] {
			if bytes.Equal(k, key) {
				return true
			}
		}
		s.keys = append(s.keys, key)
		if len(s.keys)-base < small {
			return false
		}
		*seen = make(map[string]struct{}, 2*small)
		for _, k := range s.keys[base:] {
			(*seen)[string(k)] = struct{}{}
		}
		return false
	}
	if _, ok := (*seen)[string(key)]; ok {
		return true
	}
	(*seen)[string(key)] = struct{}{}
	return false
}

// appendUnescaped appends the text of a JSON string that str has accepted,
// given without its quotes.
func appendUnescaped(dst, raw []byte) []byte {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		c := raw[i+1]
		raw = raw[i+2:]
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, _ := hex4(raw)
			raw = raw[4:]
			code := rune(r)
			if isHighSurrogate(r) && len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' {
				if low, _ := hex4(raw[2:]); isLowSurrogate(low) {
					code = 0x10000 + rune(r&0x3ff)<<10 + rune(low&0x3ff)
					raw = raw[6:]
				}
			}
			dst = append(dst, string(code)...) // a lone surrogate becomes U+FFFD
		default:
			dst = append(dst, c)
		}
	}
}

// plainJSON marks the bytes that stand for themselves in a JSON string.
var plainJSON = func() (plain [256]bool) {
	for c := range plain {
		plain[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return plain
}()

// appendJSONString appends text as a JSON string with no more escapes than
// JSON asks for.
func appendJSONString[T string | []byte](dst []byte, text T) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		if plainJSON[c] {
			continue
		}
		dst = append(dst, text[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			const hex = "0123456789abcdef"
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	dst = append(dst, text[start:]...)
	return append(dst, '"')
}

// jsonStringLen is the number of bytes appendJSONString appends.
func jsonStringLen[T string | []byte](text T) int {
	n := 2 + len(text)
	for i := 0; i < len(text); i++ {
		c := text[i]
		if plainJSON[c] {
			continue
		}
		switch c {
		case '"', '\\', '\n', '\r', '\t':
			n++
		default:
			n += 5
		}
	}
	return n
}
