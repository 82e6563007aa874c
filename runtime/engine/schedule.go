package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"time"
	"unsafe"
)

// prefixSeq is the sequence that keeps the shared prefix.
const prefixSeq Seq = 0

// lookAhead bounds how many requests are tokenized before the first is
// admitted, to find the prefix they share.
const lookAhead = 64

// maxMemo bounds the finished greedy prompts whose text is kept for identical
// ones.
const maxMemo = 4096

// work is a request on its way.
type work struct {
	req      Request
	prompt   []Token
	key      promptKey // identity of a greedy prompt, zero where it may not be shared
	admitted time.Time
	// followers wait for the same text.
	followers []Request
}

// late reports whether the deadline of w has passed.
func (w *work) late(now time.Time) bool {
	return !w.req.Deadline.IsZero() && now.After(w.req.Deadline)
}

// slot is a sequence that a work runs in.
type slot struct {
	seq     Seq
	work    *work // nil where the slot is free
	cached  int   // prompt tokens copied from the prefix
	past    int   // tokens of this sequence in the KV cache
	next    Token // to be fed, once the prompt is in
	at      int   // this step's batch entry with logits, or -1
	out     int   // tokens generated
	text    *textStream
	sampler *sampler
	first   time.Duration
}

func (s *slot) decoding() bool { return s.past >= len(s.work.prompt) }

// cells returns how many KV cells of its own the slot may come to take.
func (s *slot) cells() int { return len(s.work.prompt) - s.cached + s.work.req.MaxTokens }

// run is the state of one Generate.
type run struct {
	*Engine
	pull    func() (Request, bool)
	emit    func(Result) error
	waiting []*work
	leaders map[promptKey]*work  // greedy prompts in the works, by key
	memo    map[promptKey]Result // greedy prompts done, by key
	drained bool                 // the source has no more
	outside time.Duration        // spent in pull and emit
}

// Generate runs the requests and calls emit once for each, in the order in
// which they finish, from the calling goroutine. It pulls requests as room
// becomes free, so the source may be long, and it finishes what it has begun
// when the source ends.
//
// A request that cannot run comes back as a Result with Err; Generate itself
// fails only when the model does, when emit returns an error, or when ctx ends:
// then what was in flight is dropped without a Result.
func (e *Engine) Generate(ctx context.Context, requests iter.Seq[Request], emit func(Result) error) error {
	next, stop := iter.Pull(requests)
	defer stop()
	r := &run{Engine: e, pull: next, emit: emit, leaders: map[promptKey]*work{}, memo: map[promptKey]Result{}}
	start := e.clock()
	err := r.loop(ctx)
	e.stats.Wall += e.clock().Sub(start) - r.outside
	if err != nil {
		return errors.Join(err, e.reset())
	}
	return nil
}

// reset frees all slots, so that the engine can be used again.
func (e *Engine) reset() error {
	for _, s := range e.slots {
		if s.work == nil {
			continue
		}
		if err := e.free(s); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) loop(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.draining.Load() {
			r.drained, r.waiting = true, nil
		}
		if err := r.fill(); err != nil {
			return err
		}
		if err := r.admit(); err != nil {
			return err
		}
		r.plan()
		if r.batch.Len() > 0 {
			if err := r.step(); err != nil {
				return err
			}
		} else if r.drained && len(r.waiting) == 0 {
			return nil
		}
	}
}

// fill tokenizes requests until enough wait.
func (r *run) fill() error {
	want := min(max(len(r.slots), 2), lookAhead)
	if len(r.waiting) > want/2 {
		return nil
	}
	for !r.drained && len(r.waiting) < want {
		start := r.clock()
		req, ok := r.pull()
		r.outside += r.clock().Sub(start)
		if !ok {
			r.drained = true
			break
		}
		if err := r.accept(req); err != nil {
			return err
		}
	}
	return nil
}

// accept checks a request, tokenizes it and puts it where it belongs.
func (r *run) accept(req Request) error {
	r.stats.Requests++
	if err := req.validate(); err != nil {
		return r.send(Result{Ref: req.Ref, Err: err})
	}
	prompt := req.Tokens
	if len(prompt) == 0 {
		var err error
		if prompt, err = r.tokenizer.appendPrompt(nil, req.Messages); err != nil {
			return r.send(Result{Ref: req.Ref, Err: err})
		}
	}
	if limit := min(r.info.SeqCells, r.info.ContextCells); len(prompt)+req.MaxTokens > limit {
		return r.send(Result{Ref: req.Ref, PromptTokens: len(prompt), Err: &PromptTooLongError{PromptTokens: len(prompt), MaxTokens: req.MaxTokens, Limit: limit}})
	}
	w := &work{req: req, prompt: prompt}
	if !r.opt.NoPrefix && req.shareable() {
		w.key = req.key(prompt)
		if done, ok := r.memo[w.key]; ok {
			return r.send(done.sharedWith(req))
		}
		if leader, ok := r.leaders[w.key]; ok {
			leader.followers = append(leader.followers, req)
			return nil
		}
		r.leaders[w.key] = w
	}
	r.waiting = append(r.waiting, w)
	return nil
}

// admit moves waiting work into free slots as long as its cells are sure.
func (r *run) admit() error {
	var free []*slot
	taken := 0
	for _, s := range r.slots {
		if s.work == nil {
			free = append(free, s)
		} else {
			taken += s.cells()
		}
	}
	if len(free) == 0 || len(r.waiting) == 0 {
		return nil
	}
	if err := r.setPrefix(len(free) == len(r.slots)); err != nil {
		return err
	}
	now := r.clock()
	for _, s := range free {
		for len(r.waiting) > 0 && r.waiting[0].late(now) {
			w := r.waiting[0]
			r.waiting = r.waiting[1:]
			if err := r.settle(w, Result{Ref: w.req.Ref, PromptTokens: len(w.prompt), FinishReason: FinishDeadline}); err != nil {
				return err
			}
		}
		if len(r.waiting) == 0 {
			return nil
		}
		w := r.waiting[0]
		cached := r.cachedPart(w.prompt)
		need := len(w.prompt) - cached + w.req.MaxTokens
		if len(r.prefix)+taken+need > r.info.ContextCells {
			if taken > 0 {
				return nil // wait for a slot to finish
			}
			// Alone and still too much: the prefix is in the way.
			if err := r.dropPrefix(0); err != nil {
				return err
			}
			cached, need = 0, len(w.prompt)+w.req.MaxTokens
		}
		if err := r.start(s, w, cached); err != nil {
			return err
		}
		r.waiting = r.waiting[1:]
		taken += need
	}
	return nil
}

// start puts w into s.
func (r *run) start(s *slot, w *work, cached int) error {
	grammar, err := r.grammar(w.req.Grammar)
	if err != nil {
		return r.finishUnstarted(w, err)
	}
	w.admitted = r.clock()
	*s = slot{seq: s.seq, work: w, cached: cached, past: cached, at: -1,
		text: newTextStream(w.req.Stop, w.req.OnText), sampler: newSampler(w.req.Sampling, grammar, &r.sampleBuf)}
	if cached > 0 {
		if err := r.backend.CopySeq(prefixSeq, s.seq); err != nil {
			return fmt.Errorf("copy shared prefix: %w", err)
		}
		if cached < len(r.prefix) {
			if err := r.backend.TruncateSeq(s.seq, cached); err != nil {
				return fmt.Errorf("cut shared prefix: %w", err)
			}
		}
	}
	r.stats.CachedTokens += int64(cached)
	return nil
}

// grammar returns a fresh state of the grammar. Compiling it costs a walk over
// the vocabulary, so the compiled one is kept and copied.
func (e *Engine) grammar(gbnf string) (Grammar, error) {
	if gbnf == "" {
		return nil, nil
	}
	if e.compiled == nil || e.compiledFrom != gbnf {
		g, err := e.backend.NewGrammar(gbnf)
		if err != nil {
			return nil, err
		}
		if e.compiled != nil {
			e.compiled.Close()
		}
		e.compiled, e.compiledFrom = g, gbnf
	}
	return e.compiled.Clone(), nil
}

// plan fills the batch of the next step: one token of each running sequence,
// then pieces of prompts.
func (r *run) plan() {
	r.batch.Reset()
	for _, s := range r.slots {
		if s.work == nil || !s.decoding() {
			continue
		}
		s.at = r.batch.Len()
		r.batch.Add(s.next, s.past, s.seq, true)
		s.past++
	}
	budget := r.info.MaxBatch
	if running := r.batch.Len(); running > 0 {
		budget = min(budget, running+r.opt.PrefillChunk)
	}
	began := false
	for _, s := range r.slots {
		if s.work == nil || s.decoding() {
			continue
		}
		left, room := len(s.work.prompt)-s.past, budget-r.batch.Len()
		if room <= 0 || began && left > room {
			// A prompt that would only begin in this step comes whole in the next:
			// llama.cpp takes sequences of one length together and cuts the step
			// where lengths differ.
			continue
		}
		began = true
		for range min(left, room) {
			last := s.past == len(s.work.prompt)-1
			if last {
				s.at = r.batch.Len()
			}
			r.batch.Add(s.work.prompt[s.past], s.past, s.seq, last)
			s.past++
			r.stats.PrefillTokens++
		}
	}
}

// step decodes the batch and takes the next token of each sequence that has
// one.
func (r *run) step() error {
	running := 0
	for _, s := range r.slots {
		if s.work != nil && s.out > 0 {
			running++
		}
	}
	if err := r.decode(running); err != nil {
		return err
	}
	now := r.clock()
	for _, s := range r.slots {
		if s.work == nil {
			continue
		}
		if s.at < 0 {
			if s.work.late(now) {
				if err := r.finish(s, FinishDeadline, now); err != nil {
					return err
				}
			}
			continue
		}
		if err := r.advance(s, now); err != nil {
			return err
		}
	}
	return nil
}

// decode runs the batch, in which running sequences have one token each, and
// accounts for its time.
func (r *run) decode(running int) error {
	start := r.clock()
	err := r.backend.Decode(&r.batch)
	took := r.clock().Sub(start)
	r.stats.Steps++
	r.stats.Decode += took
	switch running {
	case 0:
		r.stats.PurePrefill.add(r.batch.Len(), took)
	case r.batch.Len():
		r.stats.PureDecode.add(running, took)
	}
	if err != nil {
		return fmt.Errorf("decode %d tokens: %w", r.batch.Len(), err)
	}
	return nil
}

// advance samples the next token of s and finishes it where that is its last.
func (r *run) advance(s *slot, now time.Time) error {
	logits, err := r.backend.Logits(s.at)
	if err != nil {
		return fmt.Errorf("read logits: %w", err)
	}
	s.at = -1
	req := &s.work.req
	token, ok := s.sampler.next(logits)
	if !ok {
		// The grammar is complete: nothing may follow.
		return r.finish(s, FinishStop, now)
	}
	if s.out == 0 {
		s.first = now.Sub(s.work.admitted)
	}
	s.out++
	s.next = token
	r.stats.CompletionTokens++
	switch end := r.backend.EndOfGeneration(token); {
	case end && !req.IgnoreEnd:
		return r.finish(s, FinishStop, now)
	case !end && s.text.write(r.backend.Piece(token)):
		return r.finish(s, FinishStop, now)
	case s.out >= req.MaxTokens:
		return r.finish(s, FinishLength, now)
	case s.work.late(now):
		return r.finish(s, FinishDeadline, now)
	}
	return nil
}

// finish frees s and sends its result, and that of everyone who waited for the
// same text.
func (r *run) finish(s *slot, reason string, now time.Time) error {
	w := s.work
	res := Result{
		Ref: w.req.Ref, Text: s.text.finish(), FinishReason: reason,
		PromptTokens: len(w.prompt), CachedTokens: s.cached, CompletionTokens: s.out,
		FirstToken: s.first, Total: now.Sub(w.admitted),
	}
	if err := r.free(s); err != nil {
		return err
	}
	return r.settle(w, res)
}

// finishUnstarted ends work that never reached a slot.
func (r *run) finishUnstarted(w *work, err error) error {
	return r.settle(w, Result{Ref: w.req.Ref, PromptTokens: len(w.prompt), Err: err})
}

// settle sends res to w and its followers and remembers it for later ones.
func (r *run) settle(w *work, res Result) error {
	if w.key != (promptKey{}) {
		delete(r.leaders, w.key)
		if len(r.memo) < maxMemo && res.FinishReason != FinishDeadline && res.Err == nil {
			r.memo[w.key] = res
		}
	}
	if err := r.send(res); err != nil {
		return err
	}
	for _, req := range w.followers {
		if err := r.send(res.sharedWith(req)); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) send(res Result) error {
	start := r.clock()
	err := r.emit(res)
	r.outside += r.clock().Sub(start)
	return err
}

// free empties a slot.
func (e *Engine) free(s *slot) error {
	if g := s.sampler.grammar; g != nil {
		g.Close()
	}
	*s = slot{seq: s.seq, at: -1}
	if err := e.backend.TruncateSeq(s.seq, 0); err != nil {
		return fmt.Errorf("free sequence: %w", err)
	}
	return nil
}

// cachedPart returns how many tokens of prompt the prefix serves. The last
// token is always computed: its logits choose the first word.
func (e *Engine) cachedPart(prompt []Token) int {
	return min(commonPrefix(e.prefix, prompt), len(prompt)-1)
}

// setPrefix makes the shared prefix that of the waiting prompts, unless the one
// in the cache serves them as well. idle says that no sequence runs.
func (r *run) setPrefix(idle bool) error {
	if r.opt.NoPrefix || !idle && len(r.prefix) > 0 {
		// The running sequences hold the prefix's cells: changing it now would
		// not free them. The next idle moment can.
		return nil
	}
	first := r.waiting[0].prompt
	shared := len(first) - 1
	for _, w := range r.waiting[1:] {
		shared = min(shared, commonPrefix(first, w.prompt))
	}
	have := commonPrefix(r.prefix, first[:shared])
	if have == shared {
		return nil
	}
	if len(r.waiting) == 1 {
		// A lone prompt shares with the next one only what comes before its last
		// message.
		shared = min(shared, commonPrefix(r.tokenizer.head, first))
		if have >= shared {
			return nil
		}
	}
	return r.growPrefix(first, have, shared)
}

// growPrefix computes first[have:shared] in the prefix sequence.
func (r *run) growPrefix(first []Token, have, shared int) error {
	running := 0
	for _, s := range r.slots {
		if s.work != nil {
			running += s.cells()
		}
	}
	longest := 0
	for _, w := range r.waiting {
		longest = max(longest, len(w.prompt)+w.req.MaxTokens-shared)
	}
	if shared+running+longest > r.info.ContextCells {
		return nil // no room for a copy beside the sequences
	}
	if err := r.dropPrefix(have); err != nil {
		return err
	}
	for at := have; at < shared; {
		r.batch.Reset()
		for ; at < shared && r.batch.Len() < r.info.MaxBatch; at++ {
			r.batch.Add(first[at], at, prefixSeq, false)
		}
		if err := r.decode(0); err != nil {
			return errors.Join(err, r.dropPrefix(0))
		}
		r.prefix = append(r.prefix, first[len(r.prefix):at]...)
		r.stats.PrefillTokens += int64(r.batch.Len())
	}
	return nil
}

// dropPrefix keeps the first n tokens of the prefix.
func (e *Engine) dropPrefix(n int) error {
	if n >= len(e.prefix) {
		return nil
	}
	e.prefix = e.prefix[:n]
	if err := e.backend.TruncateSeq(prefixSeq, n); err != nil {
		return fmt.Errorf("cut shared prefix: %w", err)
	}
	return nil
}

// validate reports the first field out of range.
func (q *Request) validate() error {
	s := q.Sampling
	switch {
	case q.MaxTokens < 1:
		return &OptionError{Field: "max tokens", Value: q.MaxTokens, Want: "at least 1"}
	case !(s.Temperature >= 0 && s.Temperature <= 5):
		return &OptionError{Field: "temperature", Value: s.Temperature, Want: "0 to 5"}
	case !(s.TopP >= 0 && s.TopP <= 1):
		return &OptionError{Field: "top-p", Value: s.TopP, Want: "0 to 1"}
	case !(s.MinP >= 0 && s.MinP <= 1):
		return &OptionError{Field: "min-p", Value: s.MinP, Want: "0 to 1"}
	}
	return nil
}

// shareable reports whether two equal requests must have equal texts, and
// nobody listens to the one in particular.
func (q *Request) shareable() bool {
	return q.Sampling.Temperature == 0 && q.OnText == nil && q.Deadline.IsZero() && !q.IgnoreEnd
}

// promptKey identifies a greedy request by everything that decides its text. It
// is a hash of 256 bits: two requests never meet by chance.
type promptKey [sha256.Size]byte

func (q *Request) key(prompt []Token) promptKey {
	h := sha256.New()
	if len(prompt) > 0 {
		// The tokens' own bytes: the key lives in this process only.
		h.Write(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(prompt))), len(prompt)*int(unsafe.Sizeof(prompt[0]))))
	}
	fmt.Fprintf(h, "|%d%q%q", q.MaxTokens, q.Stop, q.Grammar)
	return promptKey(h.Sum(nil))
}

// sharedWith returns r as the answer to another, equal request.
func (r Result) sharedWith(q Request) Result {
	r.Ref, r.Shared, r.CachedTokens = q.Ref, true, r.PromptTokens
	r.CompletionTokens, r.FirstToken, r.Total = 0, 0, 0
	return r
}
