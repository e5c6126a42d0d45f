package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/lowbit-go/gq/internal/lm/chat"
	"github.com/lowbit-go/gq/model/generate"
)

// response is the answer to a request, or an event of a streamed answer.
type response struct {
	ID          string          `json:"id"`
	Object      string          `json:"object"`
	Created     int64           `json:"created"`
	Model       string          `json:"model"`
	Fingerprint string          `json:"system_fingerprint"`
	Choices     []any           `json:"choices"`
	Usage       json.RawMessage `json:"usage,omitempty"`
	Timings     *timings        `json:"timings,omitempty"`
}

func (j *job) response(chunk bool, choices ...any) *response {
	return &response{
		ID: j.id, Object: j.format.object(chunk), Created: j.created, Model: j.model.ID, Fingerprint: j.model.Fingerprint,
		Choices: append([]any{}, choices...),
	}
}

// An event comes from a choice that is computed: a token, or the end.
type event struct {
	choice *choice
	step   generate.Step
	result *generate.Result // set at the end, unless err is
	err    error
}

// A mailbox takes events without waiting: a client that reads slowly holds up nobody.
type mailbox struct {
	most  int // Limits.Held
	mu    sync.Mutex
	list  []event
	held  int           // tokens and alternatives in list
	ready chan struct{} // has an element if list may have some
}

// put adds an event. An error says that there are too many; the event is there all the same.
func (b *mailbox) put(e event) error {
	b.mu.Lock()
	b.list = append(b.list, e)
	b.held += held(&e.step)
	full := b.held > b.most
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
	if full {
		return errSlow
	}
	return nil
}

// errSlow ends an answer if too many of its events wait for the client.
var errSlow = &apiError{status: http.StatusRequestTimeout, code: codeTimeout, message: "the client takes the answer more slowly than it is computed, and too much of it waits"}

func (b *mailbox) take() []event {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.list
	b.list, b.held = nil, 0
	return list
}

// Causes of cancelled answers.
var (
	errTime    = errors.New("time is up")
	errStopped = errors.New("the server stops")
)

func (s *Server) answer(x *exchange, r *http.Request, j *job) error {
	if err := s.check(j); err != nil {
		return err
	}
	j.begun = time.Now()
	ctx, cancel := context.WithTimeoutCause(r.Context(), s.limits.Request, errTime)
	defer cancel()
	m := j.model
	x.log("model", m.ID)
	places := min(len(j.prompts)*j.n, m.gate.parallel)
	leave, taken, retry := m.gate.enter(places)
	if leave == nil {
		m.metrics.busy.Inc()
		return &apiError{status: http.StatusTooManyRequests, code: codeBusy, retryAfter: retry,
			message: fmt.Sprintf("%s has room for %d sequences, %d of them in the queue; %d are taken and this request takes %d: try again in %d s", m.ID, m.gate.parallel+m.gate.queue, m.gate.queue, taken, places, retry)}
	}
	done := 0
	defer func() { leave(done) }()

	if err := j.encode(ctx); err != nil {
		if ctx.Err() != nil {
			return s.cancelled(ctx)
		}
		return j.failure(err)
	}
	if s.logPrompts {
		var list []string
		for _, p := range j.prompts {
			if p.ids != nil {
				p.text = j.model.Generator.Tokenizer().Decode(p.ids, false)
			}
			list = append(list, p.text)
		}
		x.log("prompts", list)
	}
	choices, box, wait := j.start(ctx, places)
	defer func() { // sequences are freed before the places are
		cancel()
		wait()
	}()

	var out writer = &wholeWriter{x: x, j: j}
	if j.stream {
		out = newEventWriter(x, j)
	}
	keepAlive := time.NewTicker(keepAliveEvery)
	defer keepAlive.Stop()
	for done < len(choices) {
		select {
		case <-ctx.Done():
			return s.cancelled(ctx)
		case <-keepAlive.C:
			if err := out.wait(); err != nil {
				return errGone
			}
		case <-box.ready:
			n, err := j.deliver(box.take(), out)
			if done += n; err != nil && ctx.Err() != nil {
				return s.cancelled(ctx)
			} else if err != nil {
				return err
			}
		}
	}
	u, t := j.measure(choices, time.Since(j.begun))
	m.metrics.count(&u, &t)
	x.log("prompt_tokens", u.Prompt, "completion_tokens", u.Completion, "seed", t.Seed, "seconds", t.Total)
	if s.logPrompts {
		var answers []string
		for _, c := range choices {
			answers = append(answers, c.result.Text)
		}
		x.log("answers", answers)
	}
	return out.end(choices, &u, &t)
}

// deliver passes events on and returns how many answers are complete.
func (j *job) deliver(events []event, out writer) (done int, err error) {
	for _, e := range events {
		switch {
		case e.err != nil:
			return done, j.failure(fmt.Errorf("answer %d: %w", e.choice.index, e.err))
		case e.result != nil:
			e.choice.result = e.result
			done++
			err = out.last(e.choice)
		default:
			err = out.step(e.choice, e.step)
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// cancelled says why an answer was cancelled.
func (s *Server) cancelled(ctx context.Context) error {
	switch context.Cause(ctx) {
	case errTime:
		return &apiError{status: http.StatusGatewayTimeout, code: codeTimeout, message: fmt.Sprintf("the answer took more than %v, the limit of this server", s.limits.Request)}
	case errStopped:
		return errDraining
	}
	return errGone
}

// failure turns an error of the template or the engine into an answer, if the client can repair the
// request.
func (j *job) failure(err error) error {
	field := "prompt"
	if j.prompts[0].messages != nil {
		field = "messages"
	}
	if e, ok := errors.AsType[*generate.ContextError](err); ok {
		return &apiError{status: http.StatusBadRequest, code: codeContext,
			message: fmt.Sprintf("the prompt has %d tokens, the context has room for %d: shorten the conversation, or start the server with a larger --context", e.Prompt, e.Context)}
	}
	if e, ok := errors.AsType[*chat.RefusedError](err); ok {
		return invalid(field, "%v", e)
	}
	switch {
	case errors.Is(err, generate.ErrNoTokens):
		return invalid(field, "%v", generate.ErrNoTokens)
	case errors.Is(err, generate.ErrClosed):
		return errDraining
	}
	return err
}

// start computes the job's choices, as many at a time as the job has places. wait returns when all
// choices have ended; cancelling ctx ends all.
func (j *job) start(ctx context.Context, places int) (choices []*choice, box *mailbox, wait func()) {
	box = &mailbox{most: j.most, ready: make(chan struct{}, 1)}
	for i := range len(j.prompts) * j.n {
		choices = append(choices, &choice{index: i, prompt: j.model.Generator.Tokenizer().NewStream(true)})
	}
	next := make(chan *choice, len(choices))
	for _, c := range choices {
		next <- c
	}
	close(next)
	var workers sync.WaitGroup
	for range places {
		workers.Go(func() {
			for c := range next {
				if ctx.Err() != nil {
					return
				}
				j.compute(ctx, c, box)
			}
		})
	}
	return choices, box, workers.Wait
}

func (j *job) compute(ctx context.Context, c *choice, box *mailbox) {
	p := &j.prompts[c.index/j.n]
	o := j.options
	o.Prompt, o.PromptIDs = p.text, p.ids
	o.Sampling.Seed += uint64(c.index % j.n)
	o.Step = func(s generate.Step) error { return box.put(event{choice: c, step: s}) }
	c.waited = time.Since(j.begun)
	result, err := j.model.Engine.Run(ctx, o)
	j.model.failed.Store(err != nil && ctx.Err() == nil)
	if err != nil {
		result = nil
	}
	_ = box.put(event{choice: c, result: result, err: err}) // the last event does not pile up
}

// echoed is the text of the prompt of a choice, if the answer must repeat that.
func (j *job) echoed(c *choice) string {
	if !j.echo {
		return ""
	}
	p := &j.prompts[c.index/j.n]
	if p.ids == nil {
		return p.text
	}
	return j.model.Generator.Tokenizer().Decode(p.ids, true)
}
