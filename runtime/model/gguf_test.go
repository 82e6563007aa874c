package model

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ggufFile builds small GGUF files, right or wrong.
type ggufFile struct {
	version uint32
	pairs   []pair
	tensors []Tensor
	// nTensors and nPairs override the counts in the file's head.
	nTensors, nPairs uint64
	data             int // bytes after the header; -1 means what the tensors need
}

func smallGGUF() ggufFile {
	return ggufFile{
		version: 3,
		data:    -1,
		pairs: []pair{
			{"general.architecture", "llama"},
			{"general.name", "small"},
			{"llama.block_count", uint32(2)},
			{"llama.context_length", uint32(128)},
			{"llama.embedding_length", uint32(64)},
			{"llama.feed_forward_length", uint32(96)},
			{"llama.attention.head_count", uint32(4)},
			{"llama.attention.head_count_kv", uint32(2)},
			{"tokenizer.ggml.model", "gpt2"},
			{"tokenizer.ggml.tokens", []string{"a", "b", "c"}},
		},
		tensors: []Tensor{
			{Name: "token_embd.weight", Dims: []int64{64, 3}, Type: TypeQ4_0, Offset: 0},
			{Name: "output_norm.weight", Dims: []int64{64}, Type: TypeF32, Offset: 128},
		},
	}
}

// with returns the file with key set to value; nil removes it.
func (g ggufFile) with(key string, value any) ggufFile {
	var pairs []pair
	for _, p := range g.pairs {
		if p.key != key {
			pairs = append(pairs, p)
		}
	}
	if value != nil {
		pairs = append(pairs, pair{key, value})
	}
	g.pairs = pairs
	return g
}

func (g ggufFile) encode() []byte {
	var out bytes.Buffer
	e := &encoder{w: bufio.NewWriter(&out)}
	e.Write([]byte("GGUF"))
	e.u32(g.version)
	nTensors, nPairs := uint64(len(g.tensors)), uint64(len(g.pairs))
	if g.nTensors != 0 {
		nTensors = g.nTensors
	}
	if g.nPairs != 0 {
		nPairs = g.nPairs
	}
	e.u64(nTensors)
	e.u64(nPairs)
	for _, p := range g.pairs {
		e.text(p.key)
		e.value(p.value)
	}
	end := int64(0)
	for _, t := range g.tensors {
		e.text(t.Name)
		e.u32(uint32(len(t.Dims)))
		for _, d := range t.Dims {
			e.u64(uint64(d))
		}
		e.u32(uint32(t.Type))
		e.u64(uint64(t.Offset))
		if len(t.Dims) > 0 {
			end = max(end, t.Offset+t.Type.RowBytes(t.Dims[0])*t.Elements()/max(t.Dims[0], 1))
		}
	}
	e.pad()
	if g.data >= 0 {
		end = int64(g.data)
	}
	if end < 1<<20 {
		e.Write(make([]byte, end))
	}
	e.w.Flush()
	return out.Bytes()
}

func read(b []byte) (*Header, error) { return ReadHeader(bytes.NewReader(b), int64(len(b))) }

func TestReadHeader(t *testing.T) {
	t.Parallel()
	h, err := read(smallGGUF().encode())
	if err != nil {
		t.Fatal(err)
	}
	want := Shape{Architecture: "llama", Layers: 2, Embedding: 64, FeedForward: 96, Heads: 4, KVHeads: 2, HeadDim: 16, Vocab: 3, Context: 128, TiedHead: true, KVValuesPerToken: 2 * 2 * 2 * 16}
	if diff := cmp.Diff(want, h.Shape); diff != "" {
		t.Errorf("shape (-want +got):\n%s", diff)
	}
	if h.Name != "small" || h.Tokenizer != "gpt2" || h.Quantization != "F32" || h.HeadType != TypeQ4_0 {
		t.Errorf("name %q, tokenizer %q, quantization %q, head %v", h.Name, h.Tokenizer, h.Quantization, h.HeadType)
	}
	if h.WeightBytes != 3*36+256 || h.Parameters != 3*64+64 || h.HeadBytes != 108 {
		t.Errorf("weights %d bytes, %d parameters, head %d bytes", h.WeightBytes, h.Parameters, h.HeadBytes)
	}
	if h.KVBytesPerToken() != 256 {
		t.Errorf("KV %d bytes a token, want 256", h.KVBytesPerToken())
	}
}

func TestReadHeaderVersion2(t *testing.T) {
	t.Parallel()
	g := smallGGUF()
	g.version = 2
	if h, err := read(g.encode()); err != nil || h.Version != 2 {
		t.Fatalf("version 2: %v", err)
	}
}

func TestReadHeaderPerLayerHeads(t *testing.T) {
	t.Parallel()
	g := smallGGUF().
		with("llama.attention.head_count_kv", []int32{4, 0}).
		with("llama.attention.key_length", uint32(32)).
		with("llama.attention.value_length", uint32(8))
	h, err := read(g.encode())
	if err != nil {
		t.Fatal(err)
	}
	if h.KVHeads != 4 || h.HeadDim != 32 || h.KVValuesPerToken != 4*(32+8) {
		t.Errorf("KV heads %d, head %d, values a token %d", h.KVHeads, h.HeadDim, h.KVValuesPerToken)
	}
}

func TestReadHeaderSeparateHead(t *testing.T) {
	t.Parallel()
	g := smallGGUF()
	g.tensors = append(g.tensors, Tensor{Name: "output.weight", Dims: []int64{64, 3}, Type: TypeF16, Offset: 384})
	h, err := read(g.encode())
	if err != nil {
		t.Fatal(err)
	}
	if h.TiedHead || h.HeadType != TypeF16 || h.HeadBytes != 384 {
		t.Errorf("tied %v, head %v of %d bytes", h.TiedHead, h.HeadType, h.HeadBytes)
	}
}

func TestReadHeaderQuantizationName(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		fileType any
		want     string
	}{{uint32(15), "Q4_K_M"}, {uint32(7), "Q8_0"}, {uint32(999), "F32"}, {nil, "F32"}} {
		h, err := read(smallGGUF().with("general.file_type", tc.fileType).encode())
		if err != nil {
			t.Fatal(err)
		}
		if h.Quantization != tc.want {
			t.Errorf("file type %v: %q, want %q", tc.fileType, h.Quantization, tc.want)
		}
	}
}

// TestReadHeaderFaults lists what a file can be wrong with, and that the
// error says so and what to do.
func TestReadHeaderFaults(t *testing.T) {
	t.Parallel()
	good := smallGGUF()
	edit := func(f func(*ggufFile)) []byte {
		g := smallGGUF()
		g.tensors = append([]Tensor(nil), g.tensors...)
		f(&g)
		return g.encode()
	}
	bigEndian := good.encode()
	binary.BigEndian.PutUint32(bigEndian[4:], 3)
	for _, tc := range []struct {
		name  string
		file  []byte
		fault FileFault
		say   string // part of the message
	}{
		{"empty", nil, FaultNotGGUF, "an empty file; download"},
		{"three bytes", []byte("GGU"), FaultNotGGUF, "47 47 55"},
		{"safetensors", append(binary.LittleEndian.AppendUint64(nil, 40), `{"__metadata__":{}}`...), FaultNotGGUF, "safetensors file; convert"},
		{"PyTorch", []byte("PK\x03\x04........archive/data.pkl"), FaultNotGGUF, "PyTorch checkpoint (ZIP); convert"},
		{"wheel", []byte("PK\x03\x04.......llm_x/__init__.py"), FaultNotGGUF, "ZIP archive"},
		{"pickle", []byte("\x80\x02}q\x00"), FaultNotGGUF, "pickle"},
		{"HTML", []byte("\n <!DOCTYPE html><html><body>Log in"), FaultNotGGUF, "an HTML page; the address led"},
		{"HTML with BOM", []byte("\xef\xbb\xbf<html>"), FaultNotGGUF, "an HTML page"},
		{"XML", []byte("<?xml version=\"1.0\"?><Error><Code>AccessDenied"), FaultNotGGUF, "XML document"},
		{"JSON", []byte(`{"error":"Repository not found"}`), FaultNotGGUF, "JSON document"},
		{"LFS pointer", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"), FaultNotGGUF, "Git LFS pointer, not the file it points to; run"},
		{"gzip", []byte{0x1f, 0x8b, 8, 0}, FaultNotGGUF, "gzip archive; unpack"},
		{"zstd", []byte{0x28, 0xb5, 0x2f, 0xfd, 0}, FaultNotGGUF, "zstd archive"},
		{"xz", []byte("\xfd7zXZ\x00"), FaultNotGGUF, "xz archive"},
		{"GGML", []byte("lmgg\x00\x00"), FaultNotGGUF, "retired format GGML"},
		{"GGJT", []byte("tjgg\x03\x00"), FaultNotGGUF, "retired format GGJT"},
		{"zeros", make([]byte, 4096), FaultNotGGUF, "zero bytes"},
		{"version 1", edit(func(g *ggufFile) { g.version = 1 }), FaultVersion, "version 1"},
		{"version 4", edit(func(g *ggufFile) { g.version = 4 }), FaultVersion, "version 4"},
		{"big-endian", bigEndian, FaultBigEndian, "big-endian GGUF (version 3)"},
		{"magic only", []byte("GGUF"), FaultTruncated, "inside its header"},
		{"cut in the metadata", good.encode()[:100], FaultTruncated, "inside its header (metadata key"},
		{"cut in the tensors", edit(func(g *ggufFile) { g.data = 200 }), FaultTruncated, "of at least"},
		{"no data", edit(func(g *ggufFile) { g.data = 0 }), FaultTruncated, "truncated"},
		{"no tensors", edit(func(g *ggufFile) { g.tensors = nil }), FaultNoTensors, "vocabulary"},
		{"split", good.with("split.count", uint32(3)).with("split.no", uint32(1)).encode(), FaultSplit, "part 2 of a model in 3 files; join"},
		{"unknown tensor type", edit(func(g *ggufFile) { g.tensors[1].Type = 99 }), FaultType, "type 99"},
		{"retired tensor type", edit(func(g *ggufFile) { g.tensors[1].Type = 31 }), FaultType, "type 31"},
		{"no architecture", good.with("general.architecture", nil).encode(), FaultMissing, "general.architecture"},
		{"no layers", good.with("llama.block_count", nil).encode(), FaultMissing, "llama.block_count"},
		{"layers are a text", good.with("llama.block_count", "many").encode(), FaultMissing, "llama.block_count"},
		{"a billion layers", good.with("llama.block_count", uint32(1e9)).encode(), FaultMalformed, "1000000000"},
		{"key twice", edit(func(g *ggufFile) { g.pairs = append(g.pairs, g.pairs[0]) }), FaultMalformed, "appears twice"},
		{"tensor twice", edit(func(g *ggufFile) { g.tensors[1].Name = g.tensors[0].Name }), FaultMalformed, "appears twice"},
		{"tensor name too long", edit(func(g *ggufFile) { g.tensors[1].Name = strings.Repeat("x", 64) }), FaultMalformed, "64 bytes"},
		{"tensor elsewhere", edit(func(g *ggufFile) { g.tensors[1].Offset = 1 << 40 }), FaultMalformed, "where byte 128 is next"},
		{"tensors overlap", edit(func(g *ggufFile) { g.tensors[1].Offset = 0 }), FaultMalformed, "starts at byte 0"},
		{"no dimensions", edit(func(g *ggufFile) { g.tensors[1].Dims = nil }), FaultMalformed, "0 dimensions"},
		{"five dimensions", edit(func(g *ggufFile) { g.tensors[1].Dims = []int64{1, 1, 1, 1, 64} }), FaultMalformed, "5 dimensions"},
		{"dimension of zero", edit(func(g *ggufFile) { g.tensors[1].Dims = []int64{64, 0} }), FaultMalformed, "impossible"},
		{"overflow", edit(func(g *ggufFile) { g.tensors[1].Dims = []int64{1 << 32, 1 << 33} }), FaultMalformed, "impossible"},
		{"row of half a block", edit(func(g *ggufFile) { g.tensors[0].Dims = []int64{48, 3} }), FaultMalformed, "no multiple"},
		{"alignment of 7", good.with("general.alignment", uint32(7)).encode(), FaultMalformed, "general.alignment"},
		{"alignment of 0", good.with("general.alignment", uint32(0)).encode(), FaultMalformed, "general.alignment"},
		{"too many keys", edit(func(g *ggufFile) { g.nPairs = 1 << 40 }), FaultMalformed, "metadata keys"},
		{"too many tensors", edit(func(g *ggufFile) { g.nTensors = 1 << 40 }), FaultMalformed, "tensors"},
		{"more keys than there are", edit(func(g *ggufFile) { g.nPairs = 60000 }), "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := read(tc.file)
			var fault *FileError
			if !errors.As(err, &fault) {
				t.Fatalf("got %v, want a *FileError", err)
			}
			if tc.fault != "" && fault.Fault != tc.fault {
				t.Errorf("fault %q, want %q (%v)", fault.Fault, tc.fault, err)
			}
			if !strings.Contains(err.Error(), tc.say) {
				t.Errorf("error %q does not say %q", err, tc.say)
			}
			if fault.Advice == "" {
				t.Errorf("error %q does not say what to do", err)
			}
		})
	}
}

func TestTruncatedSaysSizes(t *testing.T) {
	t.Parallel()
	whole := smallGGUF().encode()
	_, err := read(whole[:len(whole)-1])
	var fault *FileError
	if !errors.As(err, &fault) || fault.ExpectedBytes != int64(len(whole)) || fault.PresentBytes != int64(len(whole)-1) {
		t.Fatalf("got %+v", fault)
	}
}

// TestHostileLengthsAllocateLittle gives lengths no file can back.
func TestHostileLengthsAllocateLittle(t *testing.T) {
	head := func(kind, element uint32, n uint64) []byte {
		b := []byte("GGUF")
		b = binary.LittleEndian.AppendUint32(b, 3)
		b = binary.LittleEndian.AppendUint64(b, 1)
		b = binary.LittleEndian.AppendUint64(b, 1)
		b = binary.LittleEndian.AppendUint64(b, 1)
		b = append(b, 'k')
		b = binary.LittleEndian.AppendUint32(b, kind)
		if kind == kindArray {
			b = binary.LittleEndian.AppendUint32(b, element)
		}
		b = binary.LittleEndian.AppendUint64(b, n)
		return append(b, make([]byte, 1000)...)
	}
	for name, file := range map[string][]byte{
		"text":                head(kindString, 0, math.MaxUint64),
		"text of 1 GB":        head(kindString, 0, 1<<30),
		"bytes":               head(kindArray, kindUint8, 1<<62),
		"numbers, overflow":   head(kindArray, kindUint64, 1<<61),
		"texts":               head(kindArray, kindString, 1<<40),
		"arrays":              head(kindArray, kindArray, 1<<60),
		"type not in format":  head(kindArray, 77, 1),
		"nested without end":  bytes.Repeat(head(kindArray, kindArray, 1), 2),
		"more than it can be": head(kindArray, kindFloat64, math.MaxUint64),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := read(file)
			runtime.ReadMemStats(&after)
			var fault *FileError
			if !errors.As(err, &fault) {
				t.Errorf("got %v, want a *FileError", err)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
				t.Errorf("%d bytes allocated for a file of %d", used, len(file))
			}
		})
	}
}

func TestLongArraysKeepTheirLength(t *testing.T) {
	t.Parallel()
	tokens := make([]string, 5000)
	for i := range tokens {
		tokens[i] = strings.Repeat("x", i%7)
	}
	h, err := read(smallGGUF().with("tokenizer.ggml.tokens", tokens).encode())
	if err != nil {
		t.Fatal(err)
	}
	if h.Vocab != 5000 {
		t.Errorf("vocabulary of %d, want 5000", h.Vocab)
	}
	if a := h.Metadata["tokenizer.ggml.tokens"].(Array); a.Values != nil {
		t.Errorf("%d values kept of a long array", len(a.Values))
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "absent.gguf")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "a directory") {
		t.Errorf("directory: %v", err)
	}
	page := filepath.Join(dir, "page.gguf")
	if err := os.WriteFile(page, []byte("<html>"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(page)
	var fault *FileError
	if !errors.As(err, &fault) || fault.Path != page || !strings.HasPrefix(err.Error(), page+": not a GGUF") {
		t.Errorf("HTML page: %v", err)
	}
}

func FuzzReadHeader(f *testing.F) {
	f.Add(smallGGUF().encode())
	f.Add(smallGGUF().with("llama.attention.head_count_kv", []int32{4, 0}).encode())
	f.Add(smallGGUF().with("split.count", uint32(3)).encode())
	f.Add([]byte("GGUF"))
	f.Add([]byte("<!doctype html>"))
	var tiny bytes.Buffer
	s, err := LookupShape("tiny")
	if err != nil {
		f.Fatal(err)
	}
	if err := WriteRandom(context.Background(), &tiny, s, RecipeQ4K, 1); err != nil {
		f.Fatal(err)
	}
	f.Add(tiny.Bytes()[:1<<12])
	f.Fuzz(func(t *testing.T, file []byte) {
		h, err := read(file)
		if err != nil {
			var fault *FileError
			if !errors.As(err, &fault) {
				t.Fatalf("an error that is no *FileError: %v", err)
			}
			return
		}
		// What was accepted must be consistent, and must not crash what comes
		// after.
		if h.WeightBytes < 0 || h.WeightBytes > h.FileBytes || h.Parameters < 1 || h.Layers < 1 {
			t.Fatalf("accepted with weights %d of %d bytes, %d parameters, %d layers", h.WeightBytes, h.FileBytes, h.Parameters, h.Layers)
		}
		h.MemoryNeed(MemoryOptions{Parallel: 4}).MinMemoryMib()
	})
}
