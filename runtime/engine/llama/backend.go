package llama

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	cpp "github.com/hybridgroup/yzma/pkg/llama"

	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
	"github.com/briefing-swarm/briefing-swarm/runtime/model"
)

// Options say which model to load and how. The zero value of a field takes its
// default.
type Options struct {
	// LibraryDir holds the shared libraries. Default: LibraryDir().
	LibraryDir string
	// Path is the GGUF file.
	Path string
	// Name is what results call the model. Default: Name(Path, header).
	Name string
	// Parallel is how many sequences run together, 1 to 255. Default 16.
	Parallel int
	// ContextPerSequence is the most tokens of one sequence, prompt and output.
	// The KV cache is laid out for Parallel+1 of them, one for the shared prefix.
	// Default 1024.
	ContextPerSequence int
	// MaxBatch is the most tokens of one step. Default 512.
	MaxBatch int
	// Threads to compute with. Default 1; callers pass engine.Threads.
	Threads int
	// UnifiedKV puts all sequences into one KV cache. Then a sequence may take
	// room that others leave, and the prefix is there once; but attention goes
	// over everyone's cells, which was slower where it was measured, see
	// docs/engine.md.
	UnifiedKV bool
	// NoFlashAttention switches flash attention off, for measuring.
	NoFlashAttention bool
	// NoRepack keeps the weights in the file's own layout: half the memory where
	// the file is also mapped, at about half the speed.
	NoRepack bool
	// ReadWeights reads the file from start to end instead of mapping it. It is
	// right where the file lies on storage that is fetched lazily, as a Lambda
	// image's is.
	ReadWeights bool
	// SelfTest computes something in a process of its own first, so that
	// libraries made for another processor give an error and not a crash. The
	// program's main must begin with RunSelfTest.
	SelfTest bool
	// ChatTemplate replaces the file's own, in Jinja.
	ChatTemplate string
}

// Defaults of Options.
const (
	DefaultContextPerSequence = 1024
	defaultMaxBatch           = 512
	maxParallel               = 255 // llama.cpp has 256 sequences, one is the prefix's
)

// Backend is a model loaded with llama.cpp.
type Backend struct {
	opt    Options
	header *model.Header
	model  cpp.Model
	ctx    cpp.Context
	mem    cpp.Memory
	vocab  cpp.Vocab
	batch  cpp.Batch
	info   engine.Info
	chat   *chatTemplate
	chatIs error // why there is no chat template
	bos    engine.Token
	addBOS bool
	spm    []engine.Token // tokens of spmLead, see AppendTokens
	pieces [][]byte       // by token, nil where not asked for yet
	buf    []byte
	load   time.Duration
}

var _ engine.Backend = (*Backend)(nil)

// Open loads the model. The error says what to do about it: *LibraryError,
// *model.FileError or *ModelError.
func Open(opt Options) (*Backend, error) {
	start := time.Now()
	if opt.LibraryDir == "" {
		dir, err := LibraryDir()
		if err != nil {
			return nil, err
		}
		opt.LibraryDir = dir
	}
	if err := opt.setDefaults(); err != nil {
		return nil, err
	}
	header, err := readHeader(opt.Path)
	if err != nil {
		return nil, err
	}
	if err := checkMemory(header, opt, availableMemory("/", os.Getenv)); err != nil {
		return nil, err
	}
	if opt.SelfTest {
		if err := SelfTest(context.Background(), opt.LibraryDir); err != nil {
			return nil, err
		}
	}
	if err := loadLibrary(opt.LibraryDir); err != nil {
		return nil, err
	}
	b := &Backend{opt: opt, header: header}
	if err := b.open(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.load = time.Since(start)
	return b, nil
}

func (o *Options) setDefaults() error {
	if o.Parallel == 0 {
		o.Parallel = engine.DefaultParallel
	}
	if o.Parallel < 1 || o.Parallel > maxParallel {
		return &engine.OptionError{Field: "parallel", Value: o.Parallel, Want: fmt.Sprintf("1 to %d", maxParallel)}
	}
	if o.ContextPerSequence == 0 {
		o.ContextPerSequence = DefaultContextPerSequence
	}
	if o.ContextPerSequence < 64 {
		return &engine.OptionError{Field: "context", Value: o.ContextPerSequence, Want: "at least 64 tokens"}
	}
	if o.MaxBatch == 0 {
		o.MaxBatch = defaultMaxBatch
	}
	if o.MaxBatch < o.Parallel {
		return &engine.OptionError{Field: "max batch", Value: o.MaxBatch, Want: fmt.Sprintf("at least parallel, which is %d", o.Parallel)}
	}
	if o.Threads == 0 {
		o.Threads = 1
	}
	if o.Threads < 1 || o.Threads > 512 {
		return &engine.OptionError{Field: "threads", Value: o.Threads, Want: "1 to 512"}
	}
	return nil
}

// cells returns the size of the whole KV cache.
func (o *Options) cells() int { return (o.Parallel + 1) * o.ContextPerSequence }

func (b *Backend) open() error {
	library.log.take()
	mp := cpp.ModelDefaultParams()
	mp.NGpuLayers = 0
	mp.LoadMode = cpp.LoadModeMmap
	if b.opt.ReadWeights {
		mp.LoadMode = cpp.LoadModeNone
	}
	mp.UseExtraBufts = flag(!b.opt.NoRepack)
	var err error
	if b.model, err = cpp.ModelLoadFromFile(b.opt.Path, mp); err != nil {
		return newModelError(b.opt.Path, library.log.take())
	}
	cp := cpp.ContextDefaultParams()
	cp.NCtx = uint32(b.opt.cells())
	cp.NBatch, cp.NUbatch = uint32(b.opt.MaxBatch), uint32(b.opt.MaxBatch)
	cp.NSeqMax = uint32(b.opt.Parallel + 1)
	// Without a bound the graph is laid out for logits of every batch entry:
	// 260 MB more for a vocabulary of 128,000. llama.cpp wants one for each
	// sequence, the idle one of the prefix included.
	cp.NOutputsMax = uint32(b.opt.Parallel + 1)
	cp.NThreads, cp.NThreadsBatch = int32(b.opt.Threads), int32(b.opt.Threads)
	cp.KVUnified = flag(b.opt.UnifiedKV)
	cp.FlashAttentionType = cpp.FlashAttentionTypeEnabled
	if b.opt.NoFlashAttention {
		cp.FlashAttentionType = cpp.FlashAttentionTypeDisabled
	}
	cp.NoPerf = 1
	if b.ctx, err = cpp.InitFromModel(b.model, cp); err != nil {
		return newModelError(b.opt.Path, append(library.log.take(), err.Error()))
	}
	if b.mem, err = cpp.GetMemory(b.ctx); err != nil {
		return fmt.Errorf("open KV cache: %w", err)
	}
	b.vocab = cpp.ModelGetVocab(b.model)
	b.batch = cpp.BatchInit(int32(b.opt.MaxBatch), 0, 1)
	b.describe()
	return b.initVocabulary()
}

// describe fills info from what llama.cpp made of the options.
func (b *Backend) describe() {
	cells := int(cpp.NCtx(b.ctx))
	b.info = engine.Info{
		Model:        b.opt.Name,
		Vocab:        int(cpp.VocabNTokens(b.vocab)),
		ContextCells: cells,
		SeqCells:     min(cells, int(cpp.ModelNCtxTrain(b.model))),
		MaxSeqs:      b.opt.Parallel + 1,
		MaxBatch:     b.opt.MaxBatch,
	}
	if !b.opt.UnifiedKV {
		// llama.cpp rounds up; what was asked for is what is promised.
		b.info.SeqCells = min(b.info.SeqCells, b.opt.ContextPerSequence)
	}
	if b.info.Model == "" {
		b.info.Model = Name(b.opt.Path, b.header)
	}
}

// spmLead is put before text that continues a prompt, where the tokenizer is
// SentencePiece: it would put a space before the text otherwise. It is always a
// token of its own.
const spmLead = "\n"

func (b *Backend) initVocabulary() error {
	b.pieces = make([][]byte, b.info.Vocab)
	b.bos = engine.Token(cpp.VocabBOS(b.vocab))
	b.addBOS = cpp.VocabGetAddBOS(b.vocab) && b.bos >= 0
	if cpp.GetVocabType(b.vocab) == cpp.VocabTypeSPM {
		for _, t := range cpp.Tokenize(b.vocab, spmLead, false, false) {
			b.spm = append(b.spm, engine.Token(t))
		}
	}
	source := b.opt.ChatTemplate
	if source == "" {
		source = cpp.ModelChatTemplate(b.model, "")
	}
	eos := cpp.VocabGetText(b.vocab, cpp.VocabEOS(b.vocab))
	b.chat, b.chatIs = compileTemplate(source, cpp.VocabGetText(b.vocab, cpp.Token(b.bos)), eos)
	return nil
}

// Name returns the file's name without its ending, and with the quantization
// where the name does not tell it.
func Name(path string, h *model.Header) string {
	name := strings.TrimSuffix(filepath.Base(path), ".gguf")
	if h.Quantization == "" || strings.Contains(strings.ToUpper(name), strings.ToUpper(h.Quantization)) {
		return name
	}
	return name + " " + h.Quantization
}

// Host implements engine.Backend.
func (b *Backend) Host() engine.Host {
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x86_64"
	}
	lambdaMib, err := strconv.Atoi(os.Getenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE"))
	if err != nil {
		lambdaMib = 0 // not on Lambda
	}
	return engine.Host{
		LambdaMemoryMib: lambdaMib,
		CPU:             cpuName("/proc/cpuinfo"), Arch: arch, Features: Features(), Variant: Variant(), Threads: b.opt.Threads,
		CPUs: engine.CPUs(runtime.NumCPU()), LoadTime: b.load, Quantization: b.header.Quantization, Parameters: b.header.Parameters,
		WeightBytes: b.header.WeightBytes, Layers: b.header.Layers, KVBytesToken: b.header.KVBytesPerToken(), Random: b.header.RandomWeights,
	}
}

// Info describes the model and its context.
func (b *Backend) Info() engine.Info { return b.info }

// ChatPieces implements engine.Backend with the model's own template.
func (b *Backend) ChatPieces(roles []string) ([]string, error) {
	if b.chat == nil {
		return nil, b.chatIs
	}
	return b.chat.pieces(roles)
}

// AppendTokens implements engine.Backend.
func (b *Backend) AppendTokens(dst []engine.Token, text string, special, first bool) ([]engine.Token, error) {
	if text == "" && !first {
		return dst, nil
	}
	if strings.IndexByte(text, 0) >= 0 {
		return dst, errors.New("text holds a NUL, which llama.cpp takes as its end")
	}
	lead := !first && len(b.spm) > 0
	if lead {
		text = spmLead + text
	}
	tokens := cpp.Tokenize(b.vocab, text, false, special)
	if lead && len(tokens) >= len(b.spm) {
		tokens = tokens[len(b.spm):]
	}
	if first && b.addBOS && (len(tokens) == 0 || engine.Token(tokens[0]) != b.bos) {
		dst = append(dst, b.bos)
	}
	for _, t := range tokens {
		dst = append(dst, engine.Token(t))
	}
	return dst, nil
}

// Piece implements engine.Backend.
func (b *Backend) Piece(t engine.Token) []byte {
	if t < 0 || int(t) >= len(b.pieces) {
		return nil
	}
	if b.pieces[t] == nil {
		if b.buf == nil {
			b.buf = make([]byte, 256)
		}
		n := cpp.TokenToPiece(b.vocab, cpp.Token(t), b.buf, 0, false)
		if n < 0 {
			b.buf = make([]byte, -n)
			n = cpp.TokenToPiece(b.vocab, cpp.Token(t), b.buf, 0, false)
		}
		b.pieces[t] = append([]byte{}, b.buf[:max(n, 0)]...)
	}
	return b.pieces[t]
}

// EndOfGeneration implements engine.Backend.
func (b *Backend) EndOfGeneration(t engine.Token) bool {
	return cpp.VocabIsEOG(b.vocab, cpp.Token(t))
}

// CopySeq implements engine.Backend.
func (b *Backend) CopySeq(src, dst engine.Seq) error {
	return cpp.MemorySeqCp(b.mem, cpp.SeqId(src), cpp.SeqId(dst), -1, -1)
}

// TruncateSeq implements engine.Backend.
func (b *Backend) TruncateSeq(seq engine.Seq, n int) error {
	ok, err := cpp.MemorySeqRm(b.mem, cpp.SeqId(seq), cpp.Pos(n), -1)
	if err == nil && !ok {
		err = errors.New("this model's cache can't drop part of a sequence")
	}
	return err
}

// Decode implements engine.Backend.
func (b *Backend) Decode(batch *engine.Batch) error {
	n := batch.Len()
	if n > b.opt.MaxBatch {
		return fmt.Errorf("batch of %d tokens, at most %d", n, b.opt.MaxBatch)
	}
	b.batch.NTokens = int32(n)
	copy(unsafe.Slice((*engine.Token)(unsafe.Pointer(b.batch.Token)), n), batch.Tokens)
	copy(unsafe.Slice((*int32)(unsafe.Pointer(b.batch.Pos)), n), batch.Pos)
	seqs := unsafe.Slice(b.batch.SeqId, n)
	counts := unsafe.Slice(b.batch.NSeqId, n)
	outputs := unsafe.Slice(b.batch.Logits, n)
	for i := range n {
		counts[i] = 1
		*seqs[i] = cpp.SeqId(batch.Seqs[i])
		outputs[i] = int8(flag(batch.Output[i]))
	}
	code, err := cpp.Decode(b.ctx, b.batch)
	if err != nil {
		return err
	}
	switch code {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("the KV cache of %d cells is full", b.info.ContextCells)
	default:
		return fmt.Errorf("llama.cpp returned %d: %s", code, strings.Join(library.log.take(), "; "))
	}
}

// Logits implements engine.Backend.
func (b *Backend) Logits(i int) ([]float32, error) {
	logits, err := cpp.GetLogitsIth(b.ctx, int32(i), b.info.Vocab)
	if err == nil && logits == nil {
		err = fmt.Errorf("no logits for batch entry %d", i)
	}
	return logits, err
}

// Close frees the model. The library stays loaded.
func (b *Backend) Close() error {
	var errs []error
	if b.batch.Token != nil {
		errs = append(errs, cpp.BatchFree(b.batch))
		b.batch = cpp.Batch{}
	}
	if b.ctx != 0 {
		errs = append(errs, cpp.Free(b.ctx))
		b.ctx = 0
	}
	if b.model != 0 {
		errs = append(errs, cpp.ModelFree(b.model))
		b.model = 0
	}
	return errors.Join(errs...)
}

func flag(on bool) uint8 {
	if on {
		return 1
	}
	return 0
}

// grammar is llama.cpp's grammar sampler for one sequence.
type grammar struct {
	backend *Backend
	sampler cpp.Sampler
	data    []cpp.TokenData
}

// NewGrammar implements engine.Backend.
func (b *Backend) NewGrammar(gbnf string) (engine.Grammar, error) {
	if strings.IndexByte(gbnf, 0) >= 0 {
		return nil, errors.New("grammar holds a NUL")
	}
	library.log.take()
	s := cpp.SamplerInitGrammar(b.vocab, gbnf, "root")
	if s == 0 {
		return nil, fmt.Errorf("grammar does not compile: %s", strings.Join(library.log.take(), "; "))
	}
	return &grammar{backend: b, sampler: s}, nil
}

// Allow implements engine.Grammar.
func (g *grammar) Allow(candidates []engine.Token, ok []bool) {
	g.data = slices.Grow(g.data[:0], len(candidates))[:len(candidates)]
	for i, t := range candidates {
		g.data[i] = cpp.TokenData{Id: cpp.Token(t), Logit: 1}
	}
	array := cpp.TokenDataArray{Data: unsafe.SliceData(g.data), Size: uint64(len(g.data)), Selected: -1}
	cpp.SamplerApply(g.sampler, &array)
	for i := range g.data {
		if g.data[i].Logit < 0 {
			ok[i] = false
		}
	}
}

// Accept implements engine.Grammar.
func (g *grammar) Accept(t engine.Token) { cpp.SamplerAccept(g.sampler, cpp.Token(t)) }

// Clone implements engine.Grammar.
func (g *grammar) Clone() engine.Grammar {
	return &grammar{backend: g.backend, sampler: cpp.SamplerClone(g.sampler)}
}

// Close implements engine.Grammar.
func (g *grammar) Close() { cpp.SamplerFree(g.sampler) }
