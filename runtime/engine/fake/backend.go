// Package fake is a deterministic stand-in for a language model. It computes
// nothing, but it keeps the books of a KV cache as strictly as a real one: each
// next token is a function of all tokens that its sequence holds, so a prefix
// copied wrong, a position skipped or a cell leaked changes the text or fails.
package fake

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
)

// The vocabulary: one token a byte, then words, then control tokens.
const (
	firstWord    engine.Token = 256
	controlStart engine.Token = firstWord + engine.Token(len(words))
	tokenBegin                = controlStart     // <|begin|>
	tokenEnd                  = controlStart + 1 // <|end|>
	vocabulary                = int(controlStart) + 2
)

var words = [...]string{
	" rain", " sun", " a meeting", " the train", " your day", " is", " at nine", " starts", " with", " and",
	" then", " quiet", " busy", " good", " late", " early", " coffee", " emails", " wait", " ends",
	".", ",", " 天気", " ☀️", " été", " größe", " 🎉",
}

// controls are the tokens that only the chat template can write.
var controls = map[string]engine.Token{"<|begin|>": tokenBegin, "<|end|>": tokenEnd}

// Options shape a Backend.
type Options struct {
	Parallel     int // sequences beside the shared prefix's; default 16
	ContextCells int // default 512 for each
	MaxBatch     int // default 512
	// Words is about how many words a text has before it ends; default 20.
	Words int
	// StepTime is slept in each Decode.
	StepTime time.Duration
	// FailAfter makes the Decode after so many fail; 0 never.
	FailAfter int
}

// Backend implements engine.Backend.
type Backend struct {
	opt    Options
	seqs   []sequence
	logits [][]float32 // by batch entry; nil where no output was asked for
	spare  [][]float32
	steps  int
}

// sequence is the state that a real model would keep as keys and values: the
// running hash after each position.
type sequence struct {
	hashes []uint64
	shared int // of the cells, from the first: those that are sequence 0's too
}

var _ engine.Backend = (*Backend)(nil)

// New returns a fresh model.
func New(opt Options) *Backend {
	if opt.Parallel == 0 {
		opt.Parallel = engine.DefaultParallel
	}
	if opt.ContextCells == 0 {
		opt.ContextCells = 512 * opt.Parallel
	}
	if opt.MaxBatch == 0 {
		opt.MaxBatch = 512
	}
	if opt.Words == 0 {
		opt.Words = 20
	}
	return &Backend{opt: opt, seqs: make([]sequence, opt.Parallel+1)}
}

// Info implements engine.Backend.
func (b *Backend) Info() engine.Info {
	return engine.Info{
		Model: "fake", Vocab: vocabulary, ContextCells: b.opt.ContextCells, SeqCells: b.opt.ContextCells,
		MaxSeqs: b.opt.Parallel + 1, MaxBatch: b.opt.MaxBatch,
	}
}

// Host implements engine.Backend.
func (b *Backend) Host() engine.Host {
	return engine.Host{CPU: "none", Variant: "fake", Threads: 1, CPUs: 1}
}

// ChatPieces implements engine.Backend.
func (b *Backend) ChatPieces(roles []string) ([]string, error) {
	pieces := make([]string, 0, len(roles)+1)
	for i, role := range roles {
		before := "<|begin|>" + role + "\n"
		if i > 0 {
			before = "<|end|>\n" + before
		}
		pieces = append(pieces, before)
	}
	return append(pieces, "<|end|>\n<|begin|>assistant\n"), nil
}

// AppendTokens implements engine.Backend: a token for each byte.
func (b *Backend) AppendTokens(dst []engine.Token, text string, special, _ bool) ([]engine.Token, error) {
	dst = slices.Grow(dst, len(text))
	for i := 0; i < len(text); {
		if special && strings.HasPrefix(text[i:], "<|") {
			if end := strings.Index(text[i:], "|>"); end > 0 {
				if t, ok := controls[text[i:i+end+2]]; ok {
					dst = append(dst, t)
					i += end + 2
					continue
				}
			}
		}
		dst = append(dst, engine.Token(text[i]))
		i++
	}
	return dst, nil
}

// Piece implements engine.Backend.
func (b *Backend) Piece(t engine.Token) []byte {
	switch {
	case t < 0:
		return nil
	case t < firstWord:
		return []byte{byte(t)}
	case t < controlStart:
		return []byte(words[t-firstWord])
	default:
		return nil
	}
}

// EndOfGeneration implements engine.Backend.
func (b *Backend) EndOfGeneration(t engine.Token) bool { return t == tokenEnd }

// CopySeq implements engine.Backend.
func (b *Backend) CopySeq(src, dst engine.Seq) error {
	if len(b.seqs[dst].hashes) > 0 {
		return fmt.Errorf("sequence %d is not empty", dst)
	}
	b.seqs[dst].hashes = append(b.seqs[dst].hashes, b.seqs[src].hashes...)
	b.seqs[dst].shared = b.seqs[src].shared
	if src == 0 {
		b.seqs[dst].shared = len(b.seqs[0].hashes)
	}
	return nil
}

// TruncateSeq implements engine.Backend.
func (b *Backend) TruncateSeq(seq engine.Seq, n int) error {
	if n > len(b.seqs[seq].hashes) {
		return fmt.Errorf("sequence %d has %d positions, not %d", seq, len(b.seqs[seq].hashes), n)
	}
	b.seqs[seq].hashes = b.seqs[seq].hashes[:n]
	b.seqs[seq].shared = min(b.seqs[seq].shared, n)
	if seq == 0 {
		for i := range b.seqs {
			b.seqs[i].shared = min(b.seqs[i].shared, n)
		}
	}
	return nil
}

// ErrDecode is what Decode returns when Options.FailAfter strikes.
var ErrDecode = errors.New("the fake model was told to fail")

// Decode implements engine.Backend.
func (b *Backend) Decode(batch *engine.Batch) error {
	b.steps++
	if b.opt.FailAfter > 0 && b.steps > b.opt.FailAfter {
		return ErrDecode
	}
	if batch.Len() == 0 || batch.Len() > b.opt.MaxBatch {
		return fmt.Errorf("batch of %d tokens, want 1 to %d", batch.Len(), b.opt.MaxBatch)
	}
	time.Sleep(b.opt.StepTime)
	for _, l := range b.logits {
		if l != nil {
			b.spare = append(b.spare, l)
		}
	}
	b.logits = b.logits[:0]
	for i, token := range batch.Tokens {
		s := &b.seqs[batch.Seqs[i]]
		if int(batch.Pos[i]) != len(s.hashes) {
			return fmt.Errorf("sequence %d continues at position %d, not %d", batch.Seqs[i], len(s.hashes), batch.Pos[i])
		}
		h := uint64(14695981039346656037)
		if n := len(s.hashes); n > 0 {
			h = s.hashes[n-1]
		}
		h = (h ^ uint64(token)) * 1099511628211
		h ^= h >> 29
		s.hashes = append(s.hashes, h)
		var logits []float32
		if batch.Output[i] {
			logits = b.score(h)
		}
		b.logits = append(b.logits, logits)
	}
	return b.countCells()
}

// countCells fails when more cells are held than there are. Cells that were
// copied from sequence 0, and that it still holds, count once.
func (b *Backend) countCells() error {
	cells := len(b.seqs[0].hashes)
	for _, s := range b.seqs[1:] {
		cells += len(s.hashes) - s.shared
	}
	if cells > b.opt.ContextCells {
		return fmt.Errorf("%d cells of %d are taken", cells, b.opt.ContextCells)
	}
	return nil
}

// score makes a few words likely, and the end once in about Options.Words.
func (b *Backend) score(h uint64) []float32 {
	var logits []float32
	if n := len(b.spare); n > 0 {
		logits, b.spare = b.spare[n-1], b.spare[:n-1]
		clear(logits)
	} else {
		logits = make([]float32, vocabulary)
	}
	logits[firstWord+engine.Token(h%uint64(len(words)))] = 5
	logits[firstWord+engine.Token((h>>8)%uint64(len(words)))] += 4
	logits[byte('a'+(h>>16)%26)] = 3
	if (h>>24)%uint64(b.opt.Words) == 0 {
		logits[tokenEnd] = 10
	}
	return logits
}

// Logits implements engine.Backend.
func (b *Backend) Logits(i int) ([]float32, error) {
	if i < 0 || i >= len(b.logits) || b.logits[i] == nil {
		return nil, fmt.Errorf("no logits for batch entry %d", i)
	}
	return b.logits[i], nil
}

// CellsHeld returns how many cells the sequences hold now; 0 when the engine
// has cleaned up after itself.
func (b *Backend) CellsHeld() int {
	n := 0
	for _, s := range b.seqs {
		n += len(s.hashes)
	}
	return n
}

// Steps returns how often Decode was called.
func (b *Backend) Steps() int { return b.steps }

// NewGrammar implements engine.Backend for one form of grammar: alternatives
// of quoted words, as engine.TagsGrammar writes them.
func (b *Backend) NewGrammar(gbnf string) (engine.Grammar, error) {
	rest, ok := strings.CutPrefix(gbnf, "root ::= ")
	if !ok {
		return nil, errors.New("the fake model knows only grammars of alternatives")
	}
	g := &grammar{}
	for part := range strings.SplitSeq(rest, " | ") {
		g.texts = append(g.texts, strings.Trim(part, `"`))
	}
	return g, nil
}

type grammar struct {
	texts []string
	done  string
}

// Allow implements engine.Grammar.
func (g *grammar) Allow(candidates []engine.Token, ok []bool) {
	for i, t := range candidates {
		if t == tokenEnd {
			ok[i] = g.complete()
			continue
		}
		ok[i] = false
		if t < firstWord {
			for _, text := range g.texts {
				if strings.HasPrefix(text, g.done+string([]byte{byte(t)})) {
					ok[i] = true
				}
			}
		}
	}
}

func (g *grammar) complete() bool {
	for _, text := range g.texts {
		if text == g.done {
			return true
		}
	}
	return false
}

// Accept implements engine.Grammar.
func (g *grammar) Accept(t engine.Token) {
	if t < firstWord {
		g.done += string([]byte{byte(t)})
	}
}

// Clone implements engine.Grammar.
func (g *grammar) Clone() engine.Grammar { c := *g; return &c }

// Close implements engine.Grammar.
func (g *grammar) Close() {}

// Close implements engine.Backend.
func (b *Backend) Close() error { return nil }
