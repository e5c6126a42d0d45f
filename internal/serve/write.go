package serve

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/lowbit-go/gq/model/generate"
)

// A writer writes the answer of a job: whole at the end, or event by event.
type writer interface {
	step(c *choice, s generate.Step) error
	last(c *choice) error // of this choice
	wait() error          // keeps a connection alive on which nothing happens
	end(choices []*choice, u *usage, t *timings) error
}

type wholeWriter struct {
	x *exchange
	j *job
}

func (w *wholeWriter) step(c *choice, s generate.Step) error {
	if !c.begun {
		c.begun = true
		c.text.WriteString(w.j.echoed(c))
	}
	if !s.Prompt {
		c.text.WriteString(s.Text)
	}
	if !w.j.options.Logprobs {
		return nil
	}
	return w.j.hold(c, s)
}

func (w *wholeWriter) last(*choice) error { return nil }
func (w *wholeWriter) wait() error        { return nil }

func (w *wholeWriter) end(choices []*choice, u *usage, t *timings) error {
	r := w.j.response(false)
	for _, c := range choices {
		if !c.begun {
			c.text.WriteString(w.j.echoed(c))
		}
		r.Choices = append(r.Choices, w.j.format.whole(c))
	}
	r.Usage, r.Timings = mustJSON(u), t
	writeJSON(w.x, http.StatusOK, r)
	return nil
}

// mustJSON encodes a type of this package.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// keepAliveEvery is how long a stream may be silent: proxies close silent connections after a
// minute.
const keepAliveEvery = 15 * time.Second

// eventWriter sends server-sent events. The status is sent with the first event, so that an earlier
// error has a status of its own.
type eventWriter struct {
	x       *exchange
	j       *job
	control *http.ResponseController
	left    int // choices that have not ended
	usage   json.RawMessage
	final   *response // the last event of the last choice, waiting for the timings
}

func newEventWriter(x *exchange, j *job) *eventWriter {
	w := &eventWriter{x: x, j: j, control: http.NewResponseController(x), left: len(j.prompts) * j.n}
	if j.includeUsage {
		w.usage = json.RawMessage("null")
	}
	return w
}

func (w *eventWriter) step(c *choice, s generate.Step) error {
	text := ""
	if !s.Prompt {
		text = s.Text
	}
	if !c.begun {
		if first := w.j.format.first(c); first != nil {
			if err := w.choice(first); err != nil {
				return err
			}
		}
		c.begun = true
		text = w.j.echoed(c) + text
	}
	if w.j.options.Logprobs {
		if err := w.j.hold(c, s); err != nil {
			return err
		}
	}
	if text == "" {
		return nil
	}
	return w.choice(w.j.format.part(c, text, w.j.release(c)))
}

func (w *eventWriter) last(c *choice) error {
	if !c.begun { // no token was asked for
		if err := w.step(c, generate.Step{Prompt: true}); err != nil {
			return err
		}
	}
	r := w.j.response(true, w.j.format.last(c, w.j.release(c)))
	if w.left--; w.left == 0 && !w.j.includeUsage {
		w.final = r
		return nil
	}
	return w.event(r)
}

func (w *eventWriter) end(_ []*choice, u *usage, t *timings) error {
	r := w.final
	if w.j.includeUsage {
		r = w.j.response(true)
		w.usage = mustJSON(u)
	}
	r.Timings = t
	if err := w.event(r); err != nil {
		return err
	}
	return w.send("data: [DONE]\n\n")
}

func (w *eventWriter) choice(c any) error { return w.event(w.j.response(true, c)) }

func (w *eventWriter) event(r *response) error {
	r.Usage = w.usage
	return w.send("data: " + string(mustJSON(r)) + "\n\n")
}

// wait sends a comment. Clients ignore comments.
func (w *eventWriter) wait() error { return w.send(": waiting\n\n") }

func (w *eventWriter) send(text string) error {
	w.x.startEvents()
	if _, err := w.x.Write([]byte(text)); err != nil {
		return errGone
	}
	if err := w.control.Flush(); err != nil {
		return errGone
	}
	return nil
}
