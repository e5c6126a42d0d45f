package measure

import (
	"context"
	"errors"
	"fmt"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/lm/choice"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
)

// ChoiceSource is a file of multiple-choice questions, see choice.Read.
type ChoiceSource struct {
	Name      string // in the report; gates call the file by the last element of Name
	Data      []byte
	Questions []choice.Question
	Form      choice.Form
}

func (j *Job) encode(ctx context.Context, s *scored, r *accuracy.Report) error {
	if len(j.Choices) == 0 {
		return nil
	}
	if err := s.tokenizer.Fits(s.float.VocabSize()); err != nil {
		return err
	}
	e, err := choice.NewEncoder(s.tokenizer, text.LMEvalWindowOf(s.float.Config()))
	if err != nil {
		return err
	}
	for _, source := range j.Choices {
		items := make([]*choice.Item, len(source.Questions))
		for i := range items {
			if items[i], err = e.Encode(ctx, &source.Questions[i]); err != nil {
				return fmt.Errorf("%s: %w", source.Name, err)
			}
		}
		c := accuracy.ChoiceReport{Name: source.Name, SHA256: hash(source.Data), Form: source.Form}
		different := map[string]bool{}
		for i, item := range items {
			q := source.Questions[i]
			q.Line = 0
			different[fmt.Sprintf("%v", q)] = true
			if item.Cut() {
				c.Cut++
			}
		}
		if c.Different = len(different); float64(c.Different) < text.LeastDistinct*float64(len(items)) && !j.gated() {
			r.Notes = append(r.Notes, fmt.Sprintf("only %d of the %d questions of %s are different: their figures say little", c.Different, len(items), c.Name))
		}
		s.questions, r.Choices = append(s.questions, items), append(r.Choices, c)
	}
	return nil
}

func (j *Job) answer(ctx context.Context, s *scored, r *accuracy.Report) error {
	if len(s.questions) == 0 {
		return nil
	}
	total := 0
	for _, items := range s.questions {
		total += len(items)
	}
	add, end := j.stage(r, "choices", "answering", "questions", int64(total))
	defer end()
	for i, items := range s.questions {
		c := &r.Choices[i]
		list, err := eval.CompareChoices(ctx, s.float, s.candidates(), items, eval.ChoiceOptions{
			Sessions: min(cpu.Threads(j.Threads), maxSessions), Progress: func() { add(1) },
		})
		if nf, ok := errors.AsType[*eval.NonFiniteError](err); ok {
			err = fmt.Errorf("%s: the question in line %d: %w", c.Name, j.Choices[i].Questions[nf.Window].Line, err)
		}
		if err != nil {
			return j.named(err, r)
		}
		c.Model = &list[0]
		if s.baseline != nil {
			c.Baseline = &list[1]
		}
	}
	return nil
}

// candidates lists the models to compare with the float model.
func (s *scored) candidates() []*forward.Model {
	list := []*forward.Model{s.quantized}
	if s.baseline != nil {
		list = append(list, s.baseline)
	}
	return list
}
