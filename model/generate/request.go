package generate

import (
	"context"
	"sync"
	"time"
)

// request is a call of Engine.Run between its goroutine and the loop.
type request struct {
	*answer // belongs to the loop until ended
	ctx     context.Context
	news    chan struct{} // there are steps, or the request has ended

	mu    sync.Mutex
	steps []timedStep
	ended bool

	// These belong to the loop.
	slot    int       // sequence of the batch
	begun   time.Time // when the sequence was free
	started bool      // the sequence has begun
	at      int       // tokens of the prompt that are computed
	cached  int       // tokens of the prompt that the Engine had computed before
	prefill time.Duration
	next    [1]int32 // the last chosen token
	err     error    // of computing or choosing
}

type timedStep struct {
	Step
	at time.Time
}

func newRequest(ctx context.Context, a *answer) *request {
	return &request{answer: a, ctx: ctx, news: make(chan struct{}, 1)}
}

// deliver passes the steps to the output until the request ends. failed is the error of a callback.
func (q *request) deliver(out *output, cancel func()) (failed error) {
	for {
		steps, ended := q.take()
		if failed == nil {
			if failed = out.steps(steps); failed != nil {
				cancel()
			}
		}
		if ended {
			return failed
		}
		<-q.news
	}
}

func (q *request) take() (steps []timedStep, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	steps, q.steps = q.steps, nil
	return steps, q.ended
}

// result returns what Run returns for a request that has ended. failed is the error of a callback.
func (q *request) result(out *output, failed error) (*Result, error) {
	out.r.PrefillSeconds, out.r.CachedTokens = q.prefill.Seconds(), q.cached
	if failed != nil {
		return out.finish(failed, false, "")
	}
	if q.err == nil {
		out.r.Stopped, out.r.StopString = q.stopped, q.stopString
		return out.finish(nil, false, "")
	}
	return out.finish(q.err, q.err == q.ctx.Err(), q.flush())
}

func (q *request) report(s Step) {
	q.mu.Lock()
	q.steps = append(q.steps, timedStep{s, time.Now()})
	q.mu.Unlock()
	q.notify()
}

// ends reports whether the request is complete, has failed, or must end with an error.
func (q *request) ends(closed bool) bool {
	switch {
	case q.err != nil:
	case q.stopped != "" && q.decodes():
	case closed:
		q.err = ErrClosed
	case q.ctx.Err() != nil:
		q.err = q.ctx.Err()
	default:
		return false
	}
	return true
}

// finish tells deliver that the request has ended.
func (q *request) finish() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	q.notify()
}

func (q *request) notify() {
	select {
	case q.news <- struct{}{}:
	default:
	}
}

// decodes reports whether the prompt is computed.
func (q *request) decodes() bool { return q.at == len(q.ids) }

func (q *request) left() int { return len(q.ids) - q.at }

// wants returns how many of the request's next n tokens need logits.
func (q *request) wants(n int) int {
	switch {
	case q.decodes():
		return 1
	case q.echo():
		return n
	case q.at+n == len(q.ids) && q.stopped == "":
		return 1
	}
	return 0
}

// computed takes the logits after n more tokens.
func (q *request) computed(n int, logits []float32, vocab int) {
	if !q.decodes() {
		q.prompted(n, logits, vocab)
		if !q.decodes() || q.stopped != "" || q.err != nil {
			return
		}
	}
	var s Step
	if s, q.err = q.choose(logits[len(logits)-vocab:]); q.err == nil {
		q.next[0] = s.ID
		q.report(s)
	}
}

// prompted takes n tokens of the prompt.
func (q *request) prompted(n int, logits []float32, vocab int) {
	if q.echo() {
		if q.at == 0 {
			q.echoed(0, nil)
		}
		for i := range n {
			if at := q.at + i + 1; at < len(q.ids) && q.err == nil {
				q.echoed(at, logits[i*vocab:][:vocab])
			}
		}
	}
	if q.at += n; q.decodes() {
		q.prefill = time.Since(q.begun)
	}
}

func (q *request) echoed(at int, logits []float32) {
	var s Step
	if s, q.err = q.promptStep(at, logits); q.err == nil {
		q.report(s)
	}
}
