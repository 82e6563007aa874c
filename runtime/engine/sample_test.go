package engine

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestArgmax(t *testing.T) {
	t.Parallel()
	inf, nan := float32(math.Inf(-1)), float32(math.NaN())
	tests := []struct {
		name string
		v    []float32
		want Token
	}{
		{"one", []float32{3}, 0},
		{"tie takes the lower id", []float32{1, 5, 5, 2, 5}, 1},
		{"last", []float32{1, 2, 3, 4, 5}, 4},
		{"NaN never wins", []float32{nan, 1, nan, 2, nan}, 3},
		{"masked", []float32{inf, inf, -7, inf, inf}, 2},
	}
	for _, tt := range tests {
		if got := Argmax(tt.v); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestDraw compares drawn frequencies with the probabilities that the
// definition of each filter gives.
func TestDraw(t *testing.T) {
	t.Parallel()
	logits := []float32{2, 1, 0, -1, -30}
	softmax := func(temp float64, keep int) []float64 {
		p, sum := make([]float64, len(logits)), 0.0
		for i := range keep {
			p[i] = math.Exp(float64(logits[i]) / temp)
			sum += p[i]
		}
		for i := range p {
			p[i] /= sum
		}
		return p
	}
	tests := []struct {
		name string
		s    Sampling
		want []float64
	}{
		{"temperature 1", Sampling{Temperature: 1}, softmax(1, 4)},
		{"temperature 0.5", Sampling{Temperature: 0.5}, softmax(0.5, 4)},
		{"top-p 0.8 keeps two: 0.64 and 0.24", Sampling{Temperature: 1, TopP: 0.8}, softmax(1, 2)},
		{"min-p 0.1 keeps three: 1, 0.37, 0.14", Sampling{Temperature: 1, MinP: 0.1}, softmax(1, 3)},
		{"top-p 1 keeps all", Sampling{Temperature: 1, TopP: 1}, softmax(1, 4)},
	}
	const n = 20000
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			counts := make([]float64, len(logits))
			tt.s.Seed = 7
			s := newSampler(tt.s, nil, &sampleBuffers{})
			for range n {
				token, ok := s.next(logits)
				if !ok {
					t.Fatal("no token")
				}
				counts[token]++
			}
			for i, want := range tt.want {
				if got := counts[i] / n; math.Abs(got-want) > 0.015 {
					t.Errorf("token %d was drawn with frequency %.3f, want %.3f", i, got, want)
				}
			}
		})
	}
}

// onlyTokens is a grammar that allows some tokens.
type onlyTokens []Token

func (g onlyTokens) Allow(c []Token, ok []bool) {
	for i, t := range c {
		ok[i] = ok[i] && slices.Contains(g, t)
	}
}
func (g onlyTokens) Accept(Token)   {}
func (g onlyTokens) Clone() Grammar { return g }
func (g onlyTokens) Close()         {}

func TestGrammarPicksTheBestAllowed(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	logits := make([]float32, 5000)
	for i := range logits {
		logits[i] = float32(rng.NormFloat64())
	}
	order := make([]Token, len(logits))
	for i := range order {
		order[i] = Token(i)
	}
	slices.SortFunc(order, func(a, b Token) int {
		return byLogit(candidate{id: a, logit: logits[a]}, candidate{id: b, logit: logits[b]})
	})
	for _, rank := range []int{0, 1, 63, 64, 65, 4999} {
		allowed := onlyTokens(order[rank:])
		for _, temperature := range []float32{0, 0.001} {
			s := newSampler(Sampling{Temperature: temperature}, allowed, &sampleBuffers{})
			got, ok := s.next(logits)
			if !ok || got != order[rank] {
				t.Errorf("rank %d, temperature %v: token %d, want %d", rank, temperature, got, order[rank])
			}
		}
	}
	if _, ok := newSampler(Sampling{}, onlyTokens{}, &sampleBuffers{}).next(logits); ok {
		t.Error("a grammar that allows nothing gave a token")
	}
}

func BenchmarkArgmax128k(b *testing.B) {
	logits := make([]float32, 128256)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range logits {
		logits[i] = float32(rng.NormFloat64())
	}
	for b.Loop() {
		Argmax(logits)
	}
}
