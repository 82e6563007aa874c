package engine

import "time"

// Token is an index into the model's vocabulary.
type Token = int32

// Seq names a sequence in the KV cache, from 0 to Info.MaxSeqs-1.
type Seq = int32

// Backend is what the engine needs of an inference library. Its methods are
// called from one goroutine at a time.
type Backend interface {
	// Info describes the loaded model and the context it runs in.
	Info() Info

	// Host describes the machine and how the model runs on it.
	Host() Host

	// ChatPieces renders the model's own chat template around messages of these
	// roles, up to the place where the assistant answers, and returns what stands
	// before, between and after their contents: one piece more than roles.
	ChatPieces(roles []string) ([]string, error)

	// AppendTokens appends the tokens of text to dst. Control tokens such as
	// <|eot_id|> are recognised only where special is true. first is true at the
	// start of a prompt; it is where a tokenizer puts its own leading space or
	// begin-of-sequence token.
	AppendTokens(dst []Token, text string, special, first bool) ([]Token, error)

	// Piece returns the bytes a token stands for, nothing for a control token.
	// They need not be whole UTF-8 characters. The caller must not change them.
	Piece(t Token) []byte

	// EndOfGeneration reports whether the model ends its text with t.
	EndOfGeneration(t Token) bool

	// CopySeq makes dst hold what src holds, without computing anything. dst
	// must be empty.
	CopySeq(src, dst Seq) error

	// TruncateSeq removes the positions of seq from n on; 0 empties it.
	TruncateSeq(seq Seq, n int) error

	// Decode evaluates the batch and stores its keys and values.
	Decode(b *Batch) error

	// Logits returns one score per token of the vocabulary for the batch entry i
	// of the last Decode, whose Output was set. It is valid until the next Decode.
	Logits(i int) ([]float32, error)

	// NewGrammar compiles a GBNF grammar with the start rule "root".
	NewGrammar(gbnf string) (Grammar, error)

	// Close frees the model.
	Close() error
}

// Grammar constrains what one sequence may continue with. It is stateful.
type Grammar interface {
	// Allow clears ok[i] for every candidate token that may not come next.
	Allow(candidates []Token, ok []bool)
	// Accept moves the state past t, which must be allowed.
	Accept(t Token)
	// Clone returns an independent copy in the same state.
	Clone() Grammar
	// Close frees the grammar.
	Close()
}

// Info describes a loaded model and its context.
type Info struct {
	Model        string // name and quantization, for Row.Model
	Vocab        int    // tokens in the vocabulary
	ContextCells int    // KV cache cells of all sequences together
	SeqCells     int    // the most cells one sequence may take
	MaxSeqs      int    // sequences in the KV cache, the prefix's own included
	MaxBatch     int    // tokens in one Decode
}

// Host says what a model runs on, for reports and calibrations.
type Host struct {
	CPU      string        // the processor's name
	Arch     string        // "arm64" or "x86_64", Lambda's names
	Features []string      // instruction sets in use
	Variant  string        // the build of the library that was chosen for them
	Threads  int           // compute threads
	CPUs     float64       // CPUs the process may use, its quota included
	LoadTime time.Duration // from opening the file to being ready
	// LambdaMemoryMib is the memory setting of the Lambda function that this
	// process is, 0 elsewhere.
	LambdaMemoryMib int

	// Of the model's file:
	Quantization string
	Parameters   int64
	WeightBytes  int64
	Layers       int
	KVBytesToken int64 // KV cache, bytes a token
	Random       bool  // made-up weights
}

// Batch is the input of one Decode: parallel columns, one entry per token.
// Positions of one sequence must ascend without a gap.
type Batch struct {
	Tokens []Token
	Pos    []int32
	Seqs   []Seq
	Output []bool // whether Logits will be asked for
}

// Add appends one entry.
func (b *Batch) Add(t Token, pos int, seq Seq, output bool) {
	b.Tokens = append(b.Tokens, t)
	b.Pos = append(b.Pos, int32(pos))
	b.Seqs = append(b.Seqs, seq)
	b.Output = append(b.Output, output)
}

// Len returns the number of entries.
func (b *Batch) Len() int { return len(b.Tokens) }

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.Tokens, b.Pos, b.Seqs, b.Output = b.Tokens[:0], b.Pos[:0], b.Seqs[:0], b.Output[:0]
}
