package model

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
	"strings"
)

// Header is what a GGUF file says about the model in it. The weights
// themselves are not read.
type Header struct {
	Shape
	Version uint32 // of the GGUF format: 2 or 3
	// Name is the model's own name for itself; it may be empty or odd.
	Name    string
	Licence string
	// Quantization names the file's quantization, for example "Q4_K_M".
	Quantization string
	// HeadType is the type of the output head's weights, which are the
	// embedding table's where TiedHead is set.
	HeadType     TensorType
	ChatTemplate string // Jinja, empty if the file has none
	Tokenizer    string // for example "gpt2" for byte-level BPE, "llama" for SentencePiece
	PreTokenizer string // for example "llama-bpe"; may be empty
	// RandomWeights is set for files written by WriteRandom.
	RandomWeights bool
	Parameters    int64 // values in all tensors
	WeightBytes   int64 // bytes of all tensors
	HeadBytes     int64 // bytes of the tensor that serves as output head
	FileBytes     int64
	DataOffset    int64 // where the tensors start, in bytes from the start of the file
	Tensors       []Tensor
	Metadata      Metadata
}

// Bounds of what ReadHeader takes from a file. The largest vocabularies in
// use have 260,000 tokens and make headers of about 16 MB; the bounds lie far
// above, and far below what would hurt.
const (
	maxHeaderBytes = 512 << 20
	maxStringBytes = 16 << 20
	maxKeyBytes    = 1 << 10
	maxKeys        = 1 << 16
	maxTensors     = 1 << 20
	maxArrayDepth  = 3
	keptElements   = 1 << 10 // arrays up to this length keep their values
	keptText       = 1 << 16 // and do so as long as their text is shorter than this
	maxLayers      = 1 << 12
)

// Open reads the header of the GGUF file at path. A file that cannot be used
// as a model gives a *FileError that says why and what to do; a file that
// cannot be read gives the operating system's error.
func Open(path string) (*Header, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open model: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("open model: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open model: %s is %s; give the path of a .gguf file", path, fileKind(info.Mode()))
	}
	h, err := ReadHeader(f, info.Size())
	var fault *FileError
	if errors.As(err, &fault) {
		fault.Path = path
		return nil, fault
	}
	if err != nil {
		return nil, fmt.Errorf("read model %s: %w", path, err)
	}
	return h, nil
}

func fileKind(m os.FileMode) string {
	if m.IsDir() {
		return "a directory"
	}
	return "not a regular file"
}

// ReadHeader reads the header of a GGUF file of size bytes, and checks that
// the file holds all the tensors the header lists. Memory is bounded by the
// header's real size, whatever lengths it claims. Faults of the file are
// returned as *FileError, errors of r as they are.
func ReadHeader(r io.ReaderAt, size int64) (*Header, error) {
	d := &decoder{r: bufio.NewReaderSize(io.NewSectionReader(r, 0, min(size, maxHeaderBytes)), 1<<16), size: size}
	head, err := d.r.Peek(int(min(max(size, 0), 512)))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(head) < 4 || string(head[:4]) != "GGUF" {
		return nil, notGGUF(head)
	}
	h := &Header{FileBytes: size}
	nTensors, nKeys := d.preamble(h)
	d.metadata(h, nKeys)
	if d.err == nil {
		d.err = refuseSplit(h.Metadata)
	}
	d.tensors(h, nTensors)
	if d.err == nil {
		d.err = h.layOut(d.pos)
	}
	if d.err == nil {
		d.err = h.derive()
	}
	if d.err != nil {
		return nil, d.err
	}
	return h, nil
}

// decoder reads the little-endian header, and keeps the first error.
type decoder struct {
	r    *bufio.Reader
	pos  int64
	size int64
	err  error
	// what names the part being read, for error messages.
	what string
	buf  [8]byte
}

func malformed(format string, args ...any) *FileError {
	return &FileError{
		Fault:  FaultMalformed,
		Detail: "broken GGUF header: " + fmt.Sprintf(format, args...),
		Advice: adviceAgain + ", and compare its checksum with the source's",
	}
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// need fails if fewer than n bytes are left in the file or in the largest
// header we accept.
func (d *decoder) need(n uint64) bool {
	if d.err != nil {
		return false
	}
	if left := uint64(d.size - d.pos); n > left {
		d.fail(&FileError{
			Fault:         FaultTruncated,
			Detail:        fmt.Sprintf("truncated: the file ends at %d bytes, inside its header (%s)", d.size, d.what),
			Advice:        adviceAgain,
			ExpectedBytes: addSaturated(d.pos, n),
			PresentBytes:  d.size,
		})
		return false
	}
	if n > uint64(maxHeaderBytes-d.pos) {
		d.fail(malformed("%s reaches beyond %d MiB, the longest header accepted", d.what, maxHeaderBytes>>20))
		return false
	}
	return true
}

func addSaturated(pos int64, n uint64) int64 {
	if n > uint64(math.MaxInt64-pos) {
		return math.MaxInt64
	}
	return pos + int64(n)
}

func (d *decoder) bytes(n int) []byte {
	if !d.need(uint64(n)) {
		return nil
	}
	b := d.buf[:n]
	if _, err := io.ReadFull(d.r, b); err != nil {
		d.fail(err)
		return nil
	}
	d.pos += int64(n)
	return b
}

func (d *decoder) u32() uint32 {
	if b := d.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) text(limit uint64) string {
	n := d.u64()
	if !d.need(n) {
		return ""
	}
	if n > limit {
		d.fail(malformed("%s is a text of %d bytes, longer than %d", d.what, n, limit))
		return ""
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(d.r, b); err != nil {
		d.fail(err)
		return ""
	}
	d.pos += int64(n)
	return string(b)
}

func (d *decoder) skip(n uint64) {
	if !d.need(n) {
		return
	}
	if _, err := d.r.Discard(int(n)); err != nil {
		d.fail(err)
		return
	}
	d.pos += int64(n)
}

func (d *decoder) preamble(h *Header) (nTensors, nKeys uint64) {
	d.what = "the first 24 bytes"
	d.skip(4)
	h.Version = d.u32()
	if d.err != nil {
		return 0, 0
	}
	switch {
	case h.Version == 2 || h.Version == 3:
	case h.Version&0xffff == 0 && h.Version != 0:
		d.fail(&FileError{
			Fault:  FaultBigEndian,
			Detail: fmt.Sprintf("a big-endian GGUF (version %d)", bits.ReverseBytes32(h.Version)),
			Advice: "get the little-endian file; Lambda's processors, and yours, are little-endian",
		})
	case h.Version == 1:
		d.fail(&FileError{Fault: FaultVersion, Detail: "GGUF version 1, which llama.cpp no longer reads (versions 2 and 3 are read)", Advice: "get a newer file of the same model, or convert it again"})
	default:
		d.fail(&FileError{Fault: FaultVersion, Detail: fmt.Sprintf("GGUF version %d (versions 2 and 3 are read)", h.Version), Advice: "the file is newer than this program's engine: update the program, or get an older file of the model"})
	}
	nTensors, nKeys = d.u64(), d.u64()
	if nKeys > maxKeys {
		d.fail(malformed("it claims %d metadata keys, more than %d", nKeys, maxKeys))
	}
	if nTensors > maxTensors {
		d.fail(malformed("it claims %d tensors, more than %d", nTensors, maxTensors))
	}
	return nTensors, nKeys
}

// The types of metadata values.
const (
	kindUint8 = iota
	kindInt8
	kindUint16
	kindInt16
	kindUint32
	kindInt32
	kindFloat32
	kindBool
	kindString
	kindArray
	kindUint64
	kindInt64
	kindFloat64
)

// kindBytes is the size of each kind of value in the file; a text or an array
// takes at least its length.
var kindBytes = [...]uint64{1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8}

func (d *decoder) metadata(h *Header, nKeys uint64) {
	h.Metadata = Metadata{}
	for i := uint64(0); i < nKeys && d.err == nil; i++ {
		d.what = fmt.Sprintf("metadata key %d of %d", i+1, nKeys)
		key := d.text(maxKeyBytes)
		if d.err != nil {
			return
		}
		if key == "" {
			d.fail(malformed("%s is empty", d.what))
			return
		}
		if _, twice := h.Metadata[key]; twice {
			d.fail(malformed("metadata key %q appears twice", key))
			return
		}
		d.what = fmt.Sprintf("metadata key %q", key)
		if v := d.value(d.u32(), 0); d.err == nil {
			h.Metadata[key] = v
		}
	}
}

func (d *decoder) value(kind uint32, depth int) any {
	switch kind {
	case kindUint8, kindUint16, kindUint32, kindUint64:
		return d.unsigned(kind)
	case kindInt8:
		return int64(int8(d.unsigned(kind)))
	case kindInt16:
		return int64(int16(d.unsigned(kind)))
	case kindInt32:
		return int64(int32(d.unsigned(kind)))
	case kindInt64:
		return int64(d.unsigned(kind))
	case kindFloat32:
		return float64(math.Float32frombits(d.u32()))
	case kindFloat64:
		return math.Float64frombits(d.u64())
	case kindBool:
		return d.unsigned(kind) != 0
	case kindString:
		return d.text(maxStringBytes)
	case kindArray:
		return d.array(depth)
	default:
		d.fail(malformed("%s has a value of type %d, which the format does not have", d.what, kind))
		return nil
	}
}

func (d *decoder) unsigned(kind uint32) uint64 {
	var wide [8]byte
	copy(wide[:], d.bytes(int(kindBytes[kind])))
	return binary.LittleEndian.Uint64(wide[:])
}

func (d *decoder) array(depth int) Array {
	kind, n := d.u32(), d.u64()
	if d.err != nil {
		return Array{}
	}
	if kind >= uint32(len(kindBytes)) {
		d.fail(malformed("%s is an array of type %d, which the format does not have", d.what, kind))
		return Array{}
	}
	if depth >= maxArrayDepth {
		d.fail(malformed("%s has arrays nested deeper than %d", d.what, maxArrayDepth))
		return Array{}
	}
	// Every element takes some bytes of the file, so that a length that cannot
	// be true is seen before anything is allocated for it.
	if hi, total := bits.Mul64(n, kindBytes[kind]); hi != 0 || !d.need(total) {
		d.need(math.MaxInt64)
		return Array{}
	}
	a := Array{Len: int(n)}
	if n > keptElements {
		d.skipElements(kind, n, depth)
		return a
	}
	start := d.pos
	for i := uint64(0); i < n && d.err == nil; i++ {
		v := d.value(kind, depth+1)
		if d.pos-start <= keptText {
			a.Values = append(a.Values, v)
		}
	}
	if len(a.Values) < a.Len {
		a.Values = nil
	}
	return a
}

func (d *decoder) skipElements(kind uint32, n uint64, depth int) {
	switch kind {
	case kindString:
		for i := uint64(0); i < n && d.err == nil; i++ {
			d.skip(d.u64())
		}
	case kindArray:
		for i := uint64(0); i < n && d.err == nil; i++ {
			d.array(depth + 1)
		}
	default:
		d.skip(n * kindBytes[kind])
	}
}

func refuseSplit(meta Metadata) error {
	count, ok := meta.Int("split.count")
	if !ok || count <= 1 {
		return nil
	}
	part, _ := meta.Int("split.no")
	return &FileError{
		Fault:  FaultSplit,
		Detail: fmt.Sprintf("part %d of a model in %d files", part+1, count),
		Advice: "join them with 'llama-gguf-split --merge', or get a quantization that is one file",
	}
}

// ggml's own limits on the tensor list.
const (
	maxTensorName = 64
	maxDims       = 4
)

func (d *decoder) tensors(h *Header, n uint64) {
	if d.err != nil {
		return
	}
	if n == 0 {
		d.fail(&FileError{Fault: FaultNoTensors, Detail: "a GGUF without tensors (a vocabulary only?)", Advice: "get the file with the model's weights"})
		return
	}
	seen := map[string]bool{}
	for i := uint64(0); i < n && d.err == nil; i++ {
		d.what = fmt.Sprintf("tensor %d of %d", i+1, n)
		t := Tensor{Name: d.text(maxKeyBytes)}
		nDims := d.u32()
		if d.err != nil {
			return
		}
		d.what = fmt.Sprintf("tensor %q", t.Name)
		if len(t.Name) >= maxTensorName {
			d.fail(malformed("a tensor name of %d bytes, longer than %d", len(t.Name), maxTensorName-1))
			return
		}
		if seen[t.Name] {
			d.fail(malformed("%s appears twice", d.what))
			return
		}
		seen[t.Name] = true
		if nDims == 0 || nDims > maxDims {
			d.fail(malformed("%s has %d dimensions, not 1 to %d", d.what, nDims, maxDims))
			return
		}
		for range nDims {
			t.Dims = append(t.Dims, int64(d.u64()))
		}
		t.Type = TensorType(d.u32())
		t.Offset = int64(d.u64())
		if d.err != nil {
			return
		}
		if d.measure(&t) {
			h.Tensors = append(h.Tensors, t)
		}
	}
}

// measure fills in the size of t, or fails.
func (d *decoder) measure(t *Tensor) bool {
	layout, ok := tensorTypes[t.Type]
	if !ok {
		d.fail(&FileError{
			Fault:  FaultType,
			Detail: fmt.Sprintf("tensor %q has type %d, which this program's engine (llama.cpp v0.4.0) does not have", t.Name, uint32(t.Type)),
			Advice: "get another quantization of the model, for example Q4_K_M",
		})
		return false
	}
	elements := uint64(1)
	for _, dim := range t.Dims {
		hi, product := bits.Mul64(elements, uint64(dim))
		if dim < 1 || hi != 0 || product > math.MaxInt64/8 {
			d.fail(malformed("tensor %q has the impossible dimensions %v", t.Name, t.Dims))
			return false
		}
		elements = product
	}
	if t.Dims[0]%layout.values != 0 {
		d.fail(malformed("tensor %q has rows of %d values, no multiple of %s's block of %d", t.Name, t.Dims[0], layout.name, layout.values))
		return false
	}
	t.Bytes = int64(elements) / layout.values * layout.bytes
	return true
}

// layOut checks that the tensors lie one after the other, each on the
// alignment the file declares, as the format requires, and that the file
// reaches to the end of the last. headerEnd is where the tensor list ends.
func (h *Header) layOut(headerEnd int64) error {
	alignment := int64(32)
	if v, ok := h.Metadata["general.alignment"]; ok {
		a, isInt := toInt(v)
		if !isInt || a < 1 || a > 1<<20 || a&(a-1) != 0 {
			return malformed("general.alignment is %v, not a power of two up to 1 MiB", v)
		}
		alignment = int64(a)
	}
	pad := func(n int64) int64 { return (n + alignment - 1) &^ (alignment - 1) }
	h.DataOffset = pad(headerEnd)
	var next, end int64
	for _, t := range h.Tensors {
		if t.Offset != next {
			return malformed("tensor %q starts at byte %d of the data, where byte %d is next", t.Name, t.Offset, next)
		}
		end = next + t.Bytes
		if end < 0 || end > math.MaxInt64/4 {
			return malformed("tensor %q ends beyond any file", t.Name)
		}
		next = pad(end)
		h.WeightBytes += t.Bytes
		h.Parameters += t.Elements()
	}
	if want := h.DataOffset + end; want > h.FileBytes {
		return &FileError{
			Fault:         FaultTruncated,
			Detail:        fmt.Sprintf("truncated: %d of at least %d bytes are there (%.1f%%)", h.FileBytes, want, 100*float64(h.FileBytes)/float64(want)),
			Advice:        "'swarm model pull' resumes a download; a copied file has to be copied again",
			ExpectedBytes: want,
			PresentBytes:  h.FileBytes,
		}
	}
	return nil
}

// derive fills in what the metadata says about the model.
func (h *Header) derive() error {
	m := h.Metadata
	h.Architecture, _ = m.String("general.architecture")
	if h.Architecture == "" {
		return missing("general.architecture")
	}
	key := func(name string) string { return h.Architecture + "." + name }
	h.Name, _ = m.String("general.name")
	h.Licence, _ = m.String("general.license")
	h.ChatTemplate, _ = m.String("tokenizer.chat_template")
	h.Tokenizer, _ = m.String("tokenizer.ggml.model")
	h.PreTokenizer, _ = m.String("tokenizer.ggml.pre")
	h.RandomWeights, _ = m.Bool(keyRandomWeights)
	h.Quantization = quantizationName(m, h.Tensors)

	layers, ok := m.Int(key("block_count"))
	if !ok {
		return missing(key("block_count"))
	}
	if layers < 1 || layers > maxLayers {
		return malformed("%s is %d, not 1 to %d", key("block_count"), layers, maxLayers)
	}
	h.Layers = layers
	if h.Embedding, ok = m.Int(key("embedding_length")); !ok {
		return missing(key("embedding_length"))
	}
	if h.Context, ok = m.Int(key("context_length")); !ok {
		return missing(key("context_length"))
	}
	if ffn, ok := m.Ints(key("feed_forward_length"), layers); ok {
		h.FeedForward = largest(ffn)
	}
	if err := h.deriveAttention(key); err != nil {
		return err
	}
	if n, ok := m.ArrayLen("tokenizer.ggml.tokens"); ok {
		h.Vocab = n
	} else if n, ok := m.Int(key("vocab_size")); ok {
		h.Vocab = n
	}
	h.deriveHead()
	return nil
}

// deriveAttention fills in heads, and the KV cache's values per token. Models
// without attention (Mamba, RWKV) have neither and keep zeros.
func (h *Header) deriveAttention(key func(string) string) error {
	m := h.Metadata
	heads, ok := m.Ints(key("attention.head_count"), h.Layers)
	if !ok || largest(heads) == 0 {
		return nil
	}
	h.Heads = largest(heads)
	kv, ok := m.Ints(key("attention.head_count_kv"), h.Layers)
	if !ok {
		kv = heads
	}
	h.KVHeads = largest(kv)
	dim := h.Embedding / h.Heads
	if v, ok := m.Int(key("attention.key_length")); ok {
		dim = v
	}
	valueDim := dim
	if v, ok := m.Int(key("attention.value_length")); ok {
		valueDim = v
	}
	h.HeadDim = dim
	const plausible = 1 << 16
	if dim < 0 || valueDim < 0 || dim > plausible || valueDim > plausible {
		return malformed("heads of %d and %d values", dim, valueDim)
	}
	for i := range kv {
		if kv[i] < 0 || kv[i] > plausible {
			return malformed("layer %d has %d key and value heads", i, kv[i])
		}
		h.KVValuesPerToken += int64(kv[i]) * int64(dim+valueDim)
	}
	return nil
}

func (h *Header) deriveHead() {
	h.TiedHead = true
	for _, t := range h.Tensors {
		switch t.Name {
		case "output.weight":
			h.TiedHead, h.HeadType, h.HeadBytes = false, t.Type, t.Bytes
			return
		case "token_embd.weight":
			h.HeadType, h.HeadBytes = t.Type, t.Bytes
		}
	}
}

func largest(values []int) int {
	most := 0
	for _, v := range values {
		most = max(most, v)
	}
	return most
}

func missing(key string) error {
	what := "this does not look like a language model's file"
	if strings.HasPrefix(key, "general.") {
		what = "the file does not say what it is"
	}
	return &FileError{Fault: FaultMissing, Detail: fmt.Sprintf("the metadata key %q is missing: %s", key, what), Advice: "get a GGUF of a text-generation model, for example one of 'swarm model list'"}
}
