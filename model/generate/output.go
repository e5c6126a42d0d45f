package generate

import (
	"strings"
	"time"
)

// output passes an answer to the callbacks and to its Result, in the caller's goroutine.
type output struct {
	g     *Generator
	o     Options
	r     *Result
	start time.Time
	first time.Time // when the first token was chosen
}

func (g *Generator) newOutput(a *answer, start time.Time) *output {
	activations, executed := g.model.Executed()
	return &output{g: g, o: a.o, start: start, r: &Result{
		File: g.path, Architecture: g.model.Config().Architecture, Activations: activations.String(), Executed: executed, Threads: g.options.Threads,
		Sampling: a.o.Sampling, Context: a.o.Context, Warning: g.ContextWarning(a.o.Context), PromptIDs: a.ids, IDs: []int32{}, OpenSeconds: g.opening.Seconds(),
	}}
}

func (x *output) prompt() error {
	for _, id := range x.r.PromptIDs {
		if err := x.token(id, true); err != nil {
			return err
		}
	}
	return nil
}

func (x *output) steps(list []timedStep) error {
	for _, s := range list {
		if !s.Prompt {
			if x.first.IsZero() {
				x.first = s.at
				x.r.FirstTokenSeconds = s.at.Sub(x.start).Seconds()
			}
			x.r.DecodeSeconds = s.at.Sub(x.first).Seconds()
		}
		if err := x.step(s.Step); err != nil {
			return err
		}
	}
	return nil
}

func (x *output) step(s Step) error {
	if !s.Prompt {
		x.r.IDs = append(x.r.IDs, s.ID)
		if err := x.token(s.ID, false); err != nil {
			return err
		}
	}
	if x.o.Step != nil {
		if err := x.called(x.o.Step(s)); err != nil {
			return err
		}
	}
	if s.Prompt {
		return nil
	}
	return x.text(s.Text)
}

func (x *output) token(id int32, prompt bool) error {
	if x.o.Token == nil {
		return nil
	}
	return x.called(x.o.Token(id, x.g.tokenizer.Token(id), prompt))
}

func (x *output) text(text string) error {
	x.r.Text += text
	if text == "" || x.o.Text == nil {
		return nil
	}
	return x.called(x.o.Text(text))
}

// called records the error of a callback.
func (x *output) called(err error) error {
	if err != nil {
		x.r.Stopped = OutputFailed
	}
	return err
}

// finish returns what Run returns. held is the text that was held back, if Run was interrupted.
func (x *output) finish(err error, interrupted bool, held string) (*Result, error) {
	if interrupted && x.r.Stopped != OutputFailed {
		if failed := x.text(held); failed != nil {
			err = failed
		} else {
			x.r.Stopped = Interrupted
		}
	}
	if err != nil && x.r.Stopped != Interrupted && x.r.Stopped != OutputFailed {
		return nil, err
	}
	x.g.measure(x.r, time.Since(x.start), x.o.PricePerHour)
	return x.r, err
}

// stopper finds stop strings in a text that arrives in pieces.
type stopper struct {
	stops []string
	held  string // end of the text that may begin a stop string
}

// add takes a piece. It returns the text that certainly precedes any stop string, and the stop
// string, if found.
func (s *stopper) add(piece string) (text, stop string) {
	all := s.held + piece
	at := -1
	for _, p := range s.stops {
		if i := strings.Index(all, p); i >= 0 && (at < 0 || i < at) {
			at, stop = i, p
		}
	}
	if at >= 0 {
		s.held = ""
		return all[:at], stop
	}
	keep := 0
	for _, p := range s.stops {
		for n := min(len(p)-1, len(all)); n > keep; n-- {
			if strings.HasSuffix(all, p[:n]) {
				keep = n
			}
		}
	}
	s.held = all[len(all)-keep:]
	return all[:len(all)-keep], ""
}

func (s *stopper) rest() string {
	text := s.held
	s.held = ""
	return text
}
