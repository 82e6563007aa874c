package model

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
)

// GeneratorVersion changes when WriteRandom writes other bytes for the same
// arguments; it is part of the cached file's name.
const GeneratorVersion = 1

// Metadata keys of our own in a random-weight file.
const (
	keyRandomWeights    = "briefing_swarm.random_weights"
	keyRecipe           = "briefing_swarm.recipe"
	keySeed             = "briefing_swarm.seed"
	keyGeneratorVersion = "briefing_swarm.generator_version"
)

// writeAlignment is the alignment of tensors in the files we write: GGUF's
// default.
const writeAlignment = 32

// normEpsilon is the layer norm's epsilon of the llama family.
const normEpsilon = 1e-5

// WriteRandom writes a GGUF file of shape s with random weights, quantized by
// recipe r. The same arguments give the same bytes on the same kind of processor. The weights are normally
// distributed with a deviation of 1/sqrt(Embedding), so that activations and
// logits stay around 1; the tokenizer is a working byte-level BPE with the
// family's control tokens and chat template. Such a file runs exactly as fast
// as the real one, and writes nonsense.
//
// WriteRandom stops with ctx's error when ctx ends. It writes sequentially;
// w needs no buffer.
func WriteRandom(ctx context.Context, w io.Writer, s NamedShape, r Recipe, seed uint64) error {
	mix, err := r.find()
	if err != nil {
		return err
	}
	tensors, err := mix.plan(s)
	if err != nil {
		return err
	}
	e := &encoder{w: bufio.NewWriterSize(w, 1<<20)}
	e.header(s, mix, seed, tensors)
	weights := newWeightWriter(seed, 1/math.Sqrt(float64(s.Embedding)))
	for _, t := range tensors {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if e.err != nil {
			break
		}
		switch t.fill {
		case fillNorm:
			rng := weights.rng("tensor " + t.Name)
			for range t.Elements() {
				e.f32(float32(1 + float64(0.05*rng.NormFloat64())))
			}
		case fillRope:
			for _, f := range ropeFactors(s) {
				e.f32(f)
			}
		default:
			if err := weights.write(e, t.Tensor); err != nil {
				return err
			}
		}
		e.pad()
	}
	if e.err == nil {
		e.err = e.w.Flush()
	}
	return e.err
}

// ropeFactors are the divisors of the rotary frequencies by which Llama 3
// stretches its 8,192 tokens of context: 1 for fast frequencies, the scale
// for slow ones, and a ramp between.
func ropeFactors(s NamedShape) []float32 {
	const trained, lowFactor, highFactor = 8192, 1.0, 4.0
	factors := make([]float32, s.HeadDim/2)
	for i := range factors {
		wavelength := 2 * math.Pi * math.Pow(s.ropeBase, float64(2*i)/float64(s.HeadDim))
		switch {
		case wavelength < trained/highFactor:
			factors[i] = 1
		case wavelength > trained/lowFactor:
			factors[i] = float32(s.ropeScale)
		default:
			ramp := (trained/wavelength - lowFactor) / (highFactor - lowFactor)
			factors[i] = float32(1 / ((1-ramp)/s.ropeScale + ramp))
		}
	}
	return factors
}

// encoder writes little-endian GGUF, and keeps the first error.
type encoder struct {
	w   *bufio.Writer
	n   int64
	err error
	buf [8]byte
}

// Write implements io.Writer for the tensors' data.
func (e *encoder) Write(p []byte) (int, error) {
	if e.err != nil {
		return 0, e.err
	}
	n, err := e.w.Write(p)
	e.n += int64(n)
	e.err = err
	return n, err
}

func (e *encoder) u32(v uint32) {
	binary.LittleEndian.PutUint32(e.buf[:4], v)
	e.Write(e.buf[:4])
}

func (e *encoder) u64(v uint64) {
	binary.LittleEndian.PutUint64(e.buf[:8], v)
	e.Write(e.buf[:8])
}

func (e *encoder) f32(v float32) { e.u32(math.Float32bits(v)) }

func (e *encoder) text(s string) {
	e.u64(uint64(len(s)))
	if e.err == nil {
		_, e.err = e.w.WriteString(s)
		e.n += int64(len(s))
	}
}

var zeros [writeAlignment]byte

// pad writes zeros up to the next alignment.
func (e *encoder) pad() { e.Write(zeros[:-e.n&(writeAlignment-1)]) }

// pair is one metadata entry to write.
type pair struct {
	key   string
	value any
}

// value writes a metadata value with its type.
func (e *encoder) value(v any) {
	switch v := v.(type) {
	case string:
		e.u32(kindString)
		e.text(v)
	case uint32:
		e.u32(kindUint32)
		e.u32(v)
	case uint64:
		e.u32(kindUint64)
		e.u64(v)
	case float32:
		e.u32(kindFloat32)
		e.f32(v)
	case bool:
		e.u32(kindBool)
		b := byte(0)
		if v {
			b = 1
		}
		e.Write([]byte{b})
	case []string:
		e.u32(kindArray)
		e.u32(kindString)
		e.u64(uint64(len(v)))
		for _, s := range v {
			e.text(s)
		}
	case []int32:
		e.u32(kindArray)
		e.u32(kindInt32)
		e.u64(uint64(len(v)))
		for _, n := range v {
			e.u32(uint32(n))
		}
	default:
		panic(fmt.Sprintf("no GGUF type for %T", v))
	}
}

func (e *encoder) header(s NamedShape, r recipe, seed uint64, tensors []tensorPlan) {
	voc := newVocabulary(s.dialect, s.Vocab)
	a := s.Architecture + "."
	pairs := []pair{
		{"general.architecture", s.Architecture},
		{"general.type", "model"},
		{"general.name", s.Name + " shape, random weights"},
		{"general.file_type", r.fileType},
		{"general.quantization_version", uint32(2)},
		{keyRandomWeights, true},
		{keyRecipe, string(r.name)},
		{keySeed, seed},
		{keyGeneratorVersion, uint32(GeneratorVersion)},
		{a + "block_count", uint32(s.Layers)},
		{a + "context_length", uint32(s.Context)},
		{a + "embedding_length", uint32(s.Embedding)},
		{a + "feed_forward_length", uint32(s.FeedForward)},
		{a + "attention.head_count", uint32(s.Heads)},
		{a + "attention.head_count_kv", uint32(s.KVHeads)},
		{a + "attention.key_length", uint32(s.HeadDim)},
		{a + "attention.value_length", uint32(s.HeadDim)},
		{a + "attention.layer_norm_rms_epsilon", float32(normEpsilon)},
		{a + "rope.dimension_count", uint32(s.HeadDim)},
		{a + "rope.freq_base", float32(s.ropeBase)},
		{a + "vocab_size", uint32(s.Vocab)},
		{"tokenizer.ggml.model", "gpt2"},
		{"tokenizer.ggml.pre", voc.pre},
		{"tokenizer.ggml.tokens", voc.tokens},
		{"tokenizer.ggml.token_type", voc.kinds},
		{"tokenizer.ggml.merges", voc.merges},
		{"tokenizer.ggml.bos_token_id", voc.bos},
		{"tokenizer.ggml.eos_token_id", voc.eos},
		{"tokenizer.ggml.add_bos_token", voc.addBOS},
		{"tokenizer.chat_template", voc.template},
	}
	e.Write([]byte("GGUF"))
	e.u32(3)
	e.u64(uint64(len(tensors)))
	e.u64(uint64(len(pairs)))
	for _, p := range pairs {
		e.text(p.key)
		e.value(p.value)
	}
	for _, t := range tensors {
		e.text(t.Name)
		e.u32(uint32(len(t.Dims)))
		for _, d := range t.Dims {
			e.u64(uint64(d))
		}
		e.u32(uint32(t.Type))
		e.u64(uint64(t.Offset))
	}
	e.pad()
}

// RandomFile returns the path of a random-weight file with the named shape
// and recipe in dir, and writes it if it is not there yet. An empty dir means
// ShapesDir. The name carries shape, recipe, seed and generator version. The
// file appears under its name only when it is complete; progress, which may
// be nil, is called from time to time with the bytes written so far and the
// bytes in all.
func RandomFile(ctx context.Context, dir, shape string, r Recipe, seed uint64, progress func(done, total int64)) (path string, err error) {
	s, err := LookupShape(shape)
	if err != nil {
		return "", err
	}
	mix, err := r.find()
	if err != nil {
		return "", err
	}
	if dir == "" {
		if dir, err = ShapesDir(); err != nil {
			return "", err
		}
	}
	path = filepath.Join(dir, fmt.Sprintf("%s.%s.random-%d.v%d.gguf", s.Name, r, seed, GeneratorVersion))
	if _, err := Open(path); err == nil {
		return path, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		// Nothing but a complete file is ever renamed to this name, so a
		// broken one was damaged later: it is written again.
		if rmErr := os.Remove(path); rmErr != nil {
			return "", fmt.Errorf("replace the damaged %s: %w", path, rmErr)
		}
	}
	tensors, err := mix.plan(s)
	if err != nil {
		return "", err
	}
	last := tensors[len(tensors)-1]
	total := last.Offset + last.Bytes
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("write random weights: %w", err)
	}
	if err := needSpace(dir, total); err != nil {
		return "", fmt.Errorf("write random weights: %w", err)
	}
	if err := writeRandomFile(ctx, path, s, r, seed, total, progress); err != nil {
		return "", fmt.Errorf("write random weights: %w", err)
	}
	return path, nil
}

// writeRandomFile writes the file beside its place, then puts it there.
func writeRandomFile(ctx context.Context, path string, s NamedShape, r Recipe, seed uint64, total int64, progress func(done, total int64)) (err error) {
	f, err := openPart(path + partSuffix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
		f.Close()
	}()
	if err := f.Truncate(0); err != nil {
		return err
	}
	if err := WriteRandom(ctx, &progressWriter{w: f, total: total, report: progress}, s, r, seed); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// progressWriter reports what has passed through it.
type progressWriter struct {
	w      io.Writer
	done   int64
	total  int64
	report func(done, total int64)
}

func (p *progressWriter) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.done += int64(n)
	if p.report != nil {
		p.report(p.done, max(p.total, p.done))
	}
	return n, err
}
