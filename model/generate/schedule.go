package generate

import (
	"slices"
	"time"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/lm/forward"
)

// Tokens of prompts in a pass. A pass with sequences that decode must be short.
const (
	prefillAlone = 256
	prefillMixed = 64
)

// worthSharing is the length of a common prefix from which on a request waits for another request
// to compute the prefix.
const worthSharing = 16

// loop computes passes until the Engine is closed.
func (e *Engine) loop() {
	defer close(e.ended)
	for e.admit() {
		e.plan()
		if len(e.chunks) == 0 {
			<-e.wake
			continue
		}
		e.pass()
	}
}

// admit ends requests that are complete, failed or cancelled, and gives free sequences to waiting
// requests. It returns false if the Engine is closed; all requests have then ended.
func (e *Engine) admit() bool {
	e.mu.Lock()
	waiting := e.waiting
	e.waiting = nil
	closed := e.closed
	e.mu.Unlock()
	var ended []*request
	e.running = slices.DeleteFunc(e.running, func(q *request) bool {
		if !q.ends(closed) {
			return false
		}
		e.batch.End(q.slot)
		e.slots = append(e.slots, q.slot)
		ended = append(ended, q)
		return true
	})
	rest := waiting[:0]
	for _, q := range waiting {
		switch {
		case q.ends(closed):
			ended = append(ended, q)
		case len(e.slots) > 0:
			q.slot = e.slots[len(e.slots)-1]
			e.slots = e.slots[:len(e.slots)-1]
			q.begun = time.Now()
			e.running = append(e.running, q)
		default:
			rest = append(rest, q)
		}
	}
	left := len(waiting) - len(rest)
	e.publish(func(*EngineStats) {
		e.waiting = append(rest, e.waiting...)
		e.queued -= left
	})
	for _, q := range ended {
		q.finish()
	}
	return !closed
}

func (e *Engine) publish(change func(*EngineStats)) {
	pages := e.batch.Pages()
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.stats
	s.Running = len(e.running)
	s.PagesUsed, s.PagesCached, s.Pages = pages.Used, pages.Cached, pages.Total
	change(s)
}

// plan chooses the chunks of the next pass and their requests. Each sequence that decodes brings a
// token. Prompts share the rest of the pass evenly, so that a short prompt does not wait for a long
// prompt.
//
// Prompts that fit into a pass get the pass for themselves, so that their first tokens come nearly
// as soon as alone. The next pass is for all again.
func (e *Engine) plan() {
	e.chunks, e.planned = e.chunks[:0], e.planned[:0]
	var decoding, prompts, short []*request
	for _, q := range e.running {
		switch {
		case q.decodes():
			decoding = append(decoding, q)
		case e.ready(q):
			if prompts = append(prompts, q); q.left() <= prefillMixed {
				short = append(short, q)
			}
		}
	}
	if e.short = !e.short && len(short) > 0; e.short {
		decoding, prompts = nil, short
	}
	budget := prefillAlone
	if len(decoding) > 0 || e.short {
		budget = prefillMixed
	}
	for _, q := range decoding {
		e.bring(q, q.next[:])
	}
	e.prefill(prompts, budget)
}

// prefill divides a number of tokens of a pass among prompts, and at most echoStep tokens among the
// prompts that need logits.
func (e *Engine) prefill(prompts []*request, budget int) {
	echo, echoing := echoStep, 0
	for _, q := range prompts {
		if q.echo() {
			echoing++
		}
	}
	slices.SortStableFunc(prompts, func(a, b *request) int { return a.left() - b.left() })
	for i, q := range prompts {
		n := min(q.left(), share(budget, len(prompts)-i))
		if q.echo() {
			n = min(n, share(echo, echoing))
			echo, echoing = echo-n, echoing-1
		}
		if n > 0 {
			e.bring(q, q.ids[q.at:q.at+n])
			budget -= n
		}
	}
}

// share returns the share of each of n prompts in a number of tokens, at least 1 unless tokens is
// 0.
func share(tokens, n int) int { return min(tokens, max(1, tokens/n)) }

func (e *Engine) bring(q *request, tokens []int32) {
	e.planned = append(e.planned, q)
	e.chunks = append(e.chunks, forward.Chunk{Sequence: q.slot, Tokens: tokens, Logits: q.wants(len(tokens))})
}

// ready begins the sequence of a request, unless an earlier request is computing a prefix of its
// prompt.
func (e *Engine) ready(q *request) bool {
	if q.started {
		return true
	}
	prompt := q.ids
	if q.echo() {
		prompt = nil // the logits of the whole prompt are wanted
	}
	known := e.batch.Known(q.o.Context, prompt, q.o.Scope)
	for _, other := range e.running {
		if other == q {
			break
		}
		// Behind the common prefix, the other request may already have reused the shared pages.
		common := e.batch.Shared(min(forward.CommonPrefix(other.ids, prompt), len(prompt)-1))
		if other.o.Scope == q.o.Scope && other.at < common && common-known >= worthSharing {
			return false
		}
	}
	q.started = true
	q.at = e.batch.Begin(q.slot, q.o.Context, prompt, q.o.Scope)
	q.cached = q.at
	return true
}

func (e *Engine) pass() {
	vocab := e.g.model.VocabSize()
	rows, wanted, prompts := 0, 0, 0
	for i, c := range e.chunks {
		rows, wanted = rows+len(c.Tokens), wanted+c.Logits
		if !e.planned[i].decodes() {
			prompts += len(c.Tokens)
		}
	}
	logits := buffer.Grow(&e.logits, wanted*vocab)
	if err := e.batch.Forward(e.chunks, logits); err != nil {
		e.separately(err, logits, vocab)
	}
	parts, at := make([][]float32, len(e.chunks)), 0
	for i, c := range e.chunks {
		parts[i] = logits[at*vocab:][:c.Logits*vocab]
		at += c.Logits
	}
	e.g.model.Pool().Run(len(e.chunks), func(_, i int) {
		if q := e.planned[i]; q.err == nil {
			q.computed(len(e.chunks[i].Tokens), parts[i], vocab)
		}
	})
	e.publish(func(s *EngineStats) {
		s.Passes++
		s.Rows += int64(rows)
		s.PrefillTokens += int64(prompts)
	})
}

// separately computes the chunks of a failed pass one by one, so that the failure ends only the
// requests that caused it.
func (e *Engine) separately(err error, logits []float32, vocab int) {
	for i, c := range e.chunks {
		own := logits[:c.Logits*vocab]
		logits = logits[len(own):]
		if len(e.chunks) > 1 {
			err = e.batch.Forward(e.chunks[i:i+1], own)
		}
		e.planned[i].err = err
	}
}
