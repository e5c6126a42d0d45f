package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// slowWindows times Stall is the time in which a body must make progress: a byte each minute is no
// stall, but would not end either.
const slowWindows = 5

// watchedTransport cancels a request with a stalling body. Then the request, or reading the answer,
// fails with a stalledError although the caller's context lives.
type watchedTransport struct{ c *Client }

func (t *watchedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	r = r.WithContext(ctx)
	sent := t.c.watch(ctx, cancel)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &sentBody{ReadCloser: r.Body, w: sent}
		if get := r.GetBody; get != nil { // for another attempt on a new connection
			r.GetBody = func() (io.ReadCloser, error) {
				body, err := get()
				return &sentBody{ReadCloser: body, w: sent}, err
			}
		}
	}
	a, err := t.c.transport.RoundTrip(r)
	// The transport may go on reading the body of a request that is answered early.
	sent.over.Store(true)
	sent.timer.Stop()
	if err != nil {
		err = sent.explain(err)
		cancel(nil)
		return nil, err
	}
	a.Body = &receivedBody{a.Body, t.c.watch(ctx, cancel)}
	return a, nil
}

// stalledError is a timeout, so that callers see a network error that may pass.
type stalledError struct{ message string }

func (e *stalledError) Error() string   { return e.message }
func (e *stalledError) Timeout() bool   { return true }
func (e *stalledError) Temporary() bool { return true }

// watch cancels a request without a byte for limit, or progress for slowWindows times limit.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	limit  time.Duration
	timer  *time.Timer // runs while the peer is waited for
	over   atomic.Bool // the timer has no effect now

	got    int           // bytes of this window
	waited time.Duration // of this window
}

// watch returns a watch with a stopped timer.
func (c *Client) watch(ctx context.Context, cancel context.CancelCauseFunc) *watch {
	w := &watch{ctx: ctx, cancel: cancel, limit: c.Stall}
	w.timer = time.AfterFunc(c.Stall, func() {
		if !w.over.Load() {
			cancel(&stalledError{fmt.Sprintf("the connection stalled: no byte for %v", w.limit)})
		}
	})
	w.timer.Stop()
	return w
}

// count adds the bytes and the time of a wait, and cancels the request if too slow.
func (w *watch) count(n int, wait time.Duration) {
	w.got += n
	if w.waited += wait; w.waited < slowWindows*w.limit {
		return
	}
	if w.got < progress {
		w.cancel(&stalledError{fmt.Sprintf("the connection is too slow: %d bytes in %v", w.got, w.waited.Round(time.Second))})
	}
	w.got, w.waited = 0, 0
}

func (w *watch) explain(err error) error {
	if e, ok := errors.AsType[*stalledError](context.Cause(w.ctx)); ok {
		return e
	}
	return err
}

// receivedBody is the body of an answer. The time that its reader spends elsewhere does not count.
type receivedBody struct {
	io.ReadCloser
	w *watch
}

func (b *receivedBody) Read(p []byte) (int, error) {
	b.w.timer.Reset(b.w.limit)
	start := time.Now()
	n, err := b.ReadCloser.Read(p)
	b.w.timer.Stop()
	if err == io.EOF {
		return n, err
	}
	b.w.count(n, time.Since(start))
	if err != nil {
		err = b.w.explain(err)
	}
	return n, err
}

func (b *receivedBody) Close() error {
	b.w.timer.Stop()
	err := b.ReadCloser.Close()
	b.w.cancel(nil)
	return err
}

// sentBody is a request's body. The transport reads on when the receiver has taken earlier bytes.
type sentBody struct {
	io.ReadCloser
	w    *watch
	last time.Time // of the last Read; zero: none yet
}

func (b *sentBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	now := time.Now()
	limit := b.w.limit
	if err == io.EOF {
		limit *= 2 // the transport sends its buffer, and then has a limit of its own for the answer
	} else if !b.last.IsZero() {
		b.w.count(n, now.Sub(b.last))
	}
	b.last = now
	b.w.timer.Reset(limit)
	return n, err
}
