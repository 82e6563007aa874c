package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/briefing-swarm/briefing-swarm/runtime/engine"
)

// oneAtATime is the loop that a program without an engine runs: one user after
// the other, prompt in as large pieces as the library takes, then token by
// token, the likeliest each. The first kept tokens of the prompts are computed
// once and stay in the cache; with 0 it is cleared for every user. It returns
// the seconds per user, those for the kept tokens not counted.
func oneAtATime(ctx context.Context, b engine.Backend, prompts [][]engine.Token, kept, output int) (float64, error) {
	l := loop{Backend: b, maxBatch: b.Info().MaxBatch}
	if kept > 0 {
		if err := l.feed(ctx, prompts[0][:kept], 0); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	for _, prompt := range prompts {
		if err := b.TruncateSeq(0, kept); err != nil {
			return 0, err
		}
		if err := l.user(ctx, prompt, kept, output); err != nil {
			return 0, err
		}
	}
	sec := time.Since(start).Seconds() / float64(len(prompts))
	return sec, b.TruncateSeq(0, 0)
}

type loop struct {
	engine.Backend
	maxBatch int
	batch    engine.Batch
}

func (l *loop) user(ctx context.Context, prompt []engine.Token, from, output int) error {
	if err := l.feed(ctx, prompt[from:], from); err != nil {
		return err
	}
	last := l.batch.Len() - 1
	for n := 0; ; {
		logits, err := l.Logits(last)
		if err != nil {
			return err
		}
		next := engine.Argmax(logits)
		_ = l.Piece(next)
		if n++; n == output {
			return nil
		}
		if err := l.feed(ctx, []engine.Token{next}, len(prompt)+n-1); err != nil {
			return err
		}
		last = 0
	}
}

// feed decodes tokens at the positions from at on, with logits for the last.
func (l *loop) feed(ctx context.Context, tokens []engine.Token, at int) error {
	for i := 0; i < len(tokens); {
		if err := ctx.Err(); err != nil {
			return err
		}
		l.batch.Reset()
		for ; i < len(tokens) && l.batch.Len() < l.maxBatch; i++ {
			l.batch.Add(tokens[i], at+i, 0, i == len(tokens)-1)
		}
		if err := l.Decode(&l.batch); err != nil {
			return fmt.Errorf("decode: %w", err)
		}
	}
	return nil
}
