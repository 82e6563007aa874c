package engine

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Sampling says how the next token is chosen.
type Sampling struct {
	// Temperature 0 is greedy: the most likely token, the lower id on a tie.
	Temperature float32
	// TopP keeps the smallest set of tokens that together reach this
	// probability; 0 and 1 keep all.
	TopP float32
	// MinP drops tokens less likely than this share of the most likely one; 0
	// keeps all.
	MinP float32
	// Seed makes the choice repeatable. The same prompt with the same seed gives
	// the same text.
	Seed uint64
}

// negligible is how far below the best logit, in units of the temperature, a
// token is left out: e^-20 is 2e-9, and 128,000 such tokens together have less
// than 0.03% of the best one's probability.
const negligible = 20

// sampler chooses tokens for one sequence. Its buffers are shared by all
// sequences of an engine.
type sampler struct {
	Sampling
	rng     *rand.Rand
	grammar Grammar
	buf     *sampleBuffers
}

type sampleBuffers struct {
	cand []candidate
	ids  []Token
	ok   []bool
}

type candidate struct {
	id    Token
	logit float32
	p     float64
}

func newSampler(s Sampling, g Grammar, buf *sampleBuffers) *sampler {
	sp := &sampler{Sampling: s, grammar: g, buf: buf}
	if s.Temperature > 0 {
		sp.rng = rand.New(rand.NewPCG(s.Seed, 0x5ee0_d00d_b41e_f125))
	}
	return sp
}

// next chooses the token that follows, given the scores of all tokens. It
// returns false when the grammar allows none.
func (s *sampler) next(logits []float32) (Token, bool) {
	var t Token
	switch {
	case s.Temperature <= 0 && s.grammar == nil:
		t = Argmax(logits)
	case s.Temperature <= 0:
		var ok bool
		if t, ok = s.bestAllowed(logits); !ok {
			return 0, false
		}
	default:
		var ok bool
		if t, ok = s.draw(logits); !ok {
			return 0, false
		}
	}
	if s.grammar != nil {
		s.grammar.Accept(t)
	}
	return t, true
}

// Argmax returns the index of the greatest value, the lowest on a tie. NaN
// never wins.
func Argmax(v []float32) Token {
	best, at := float32(math.Inf(-1)), 0
	// Four at a time: the branch is almost never taken, so the loop runs at the
	// speed of the comparisons.
	i := 0
	for ; i+4 <= len(v); i += 4 {
		w := v[i : i+4 : i+4]
		if w[0] > best || w[1] > best || w[2] > best || w[3] > best {
			for j, x := range w {
				if x > best {
					best, at = x, i+j
				}
			}
		}
	}
	for ; i < len(v); i++ {
		if v[i] > best {
			best, at = v[i], i
		}
	}
	return Token(at)
}

// grammarWindow is how many of the best tokens are offered to the grammar at
// first. Compiling the answer for the whole vocabulary costs milliseconds.
const grammarWindow = 64

// bestAllowed returns the most likely token that the grammar allows.
func (s *sampler) bestAllowed(logits []float32) (Token, bool) {
	if t := Argmax(logits); s.allowed(t) {
		return t, true
	}
	for window := grammarWindow; ; window = len(logits) {
		s.top(logits, window)
		s.ask()
		for i, c := range s.buf.cand {
			if s.buf.ok[i] {
				return c.id, true
			}
		}
		if window >= len(logits) {
			return 0, false
		}
	}
}

func (s *sampler) allowed(t Token) bool {
	s.buf.ids = append(s.buf.ids[:0], t)
	s.buf.ok = append(s.buf.ok[:0], true)
	s.grammar.Allow(s.buf.ids, s.buf.ok)
	return s.buf.ok[0]
}

// ask puts the candidates to the grammar; the answer is in buf.ok.
func (s *sampler) ask() {
	s.buf.ids, s.buf.ok = s.buf.ids[:0], s.buf.ok[:0]
	for _, c := range s.buf.cand {
		s.buf.ids = append(s.buf.ids, c.id)
		s.buf.ok = append(s.buf.ok, true)
	}
	s.grammar.Allow(s.buf.ids, s.buf.ok)
}

// top fills buf.cand with the n best tokens, best first.
func (s *sampler) top(logits []float32, n int) {
	cand := s.buf.cand[:0]
	if n >= len(logits) {
		for i, l := range logits {
			cand = append(cand, candidate{id: Token(i), logit: l})
		}
		slices.SortFunc(cand, byLogit)
		s.buf.cand = cand
		return
	}
	// A sorted window with insertion: after the first few hundred tokens almost
	// every one fails the first comparison.
	for i, l := range logits {
		if len(cand) == n && !(l > cand[n-1].logit) {
			continue
		}
		if len(cand) < n {
			cand = append(cand, candidate{})
		}
		j := len(cand) - 1
		for ; j > 0 && l > cand[j-1].logit; j-- {
			cand[j] = cand[j-1]
		}
		cand[j] = candidate{id: Token(i), logit: l}
	}
	s.buf.cand = cand
}

func byLogit(a, b candidate) int {
	switch {
	case a.logit > b.logit:
		return -1
	case a.logit < b.logit:
		return 1
	default:
		return int(a.id) - int(b.id)
	}
}

// draw samples by temperature, min-p and top-p, in this order.
func (s *sampler) draw(logits []float32) (Token, bool) {
	best := logits[Argmax(logits)]
	floor := best - negligible*s.Temperature
	if s.MinP > 0 {
		floor = max(floor, best+s.Temperature*float32(math.Log(float64(s.MinP))))
	}
	cand := s.buf.cand[:0]
	for i, l := range logits {
		if l >= floor {
			cand = append(cand, candidate{id: Token(i), logit: l})
		}
	}
	s.buf.cand = cand
	if s.grammar != nil {
		s.ask()
		kept := cand[:0]
		for i, c := range cand {
			if s.buf.ok[i] {
				kept = append(kept, c)
			}
		}
		if len(kept) == 0 {
			// Nothing likely is allowed: take the best that is.
			return s.bestAllowed(logits)
		}
		cand, s.buf.cand = kept, kept
		best = slices.MinFunc(cand, byLogit).logit
	}
	slices.SortFunc(cand, byLogit)
	var sum float64
	for i := range cand {
		cand[i].p = math.Exp(float64((cand[i].logit - best) / s.Temperature))
		sum += cand[i].p
	}
	if s.TopP > 0 && s.TopP < 1 {
		var cum float64
		for i := range cand {
			cum += cand[i].p
			if cum >= float64(s.TopP)*sum {
				cand, sum = cand[:i+1], cum
				break
			}
		}
	}
	r := s.rng.Float64() * sum
	for _, c := range cand {
		if r -= c.p; r < 0 {
			return c.id, true
		}
	}
	return cand[len(cand)-1].id, true
}
