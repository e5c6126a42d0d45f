package accuracy

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/choice"
	"github.com/lowbit-go/gq/model/eval"
	"github.com/lowbit-go/gq/model/text"
)

// ChoiceSource is a file of multiple-choice questions, see choice.Read.
type ChoiceSource struct {
	Name      string // in the report; gates call the file by the last element of Name
	Data      []byte
	Questions []choice.Question
	Form      choice.Form
}

// ChoiceReport has the figures of a file of multiple-choice questions.
type ChoiceReport struct {
	// Name is the name that the file was given, or else its path.
	Name   string      `json:"name"`
	SHA256 string      `json:"sha256"`
	Form   choice.Form `json:"form"` // prompt, hellaswag, arc or mmlu
	// Cut counts questions whose prompt lost its beginning, because prompt and ending together are
	// longer than the model's context.
	Cut   int                    `json:"cut"`
	Model *eval.ChoiceComparison `json:"model,omitempty"`
	// Baseline is another .gqf on the same questions.
	Baseline *eval.ChoiceComparison `json:"baseline,omitempty"`
}

// Label is the name by which a gate calls the file: the last element of Name.
func (c *ChoiceReport) Label() string { return labelOf(c.Name) }

// Warning warns readers of the figures; "" if there is nothing to say.
func (c *ChoiceReport) Warning() string {
	if c.Cut == 0 {
		return ""
	}
	return fmt.Sprintf("%d questions are longer than the model's context: the beginning of their prompts is left out", c.Cut)
}

// encode encodes the questions of all files.
func (s *scored) encode(ctx context.Context, sources []*ChoiceSource, r *Report) error {
	if len(sources) == 0 {
		return nil
	}
	e, err := choice.NewEncoder(s.tokenizer, text.LMEvalWindowOf(s.float.Config()))
	if err != nil {
		return err
	}
	for _, source := range sources {
		items, err := e.EncodeAll(ctx, source.Questions)
		if err != nil {
			return fmt.Errorf("%s: %w", source.Name, err)
		}
		c := ChoiceReport{Name: source.Name, SHA256: hash(source.Data), Form: source.Form}
		for _, item := range items {
			if item.Cut() {
				c.Cut++
			}
		}
		s.questions, r.Choices = append(s.questions, items), append(r.Choices, c)
	}
	return nil
}

// answer lets the models answer all questions.
func (j *Job) answer(ctx context.Context, s *scored, r *Report) error {
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
func (s *scored) candidates() []*model.Model {
	list := []*model.Model{s.quantized}
	if s.baseline != nil {
		list = append(list, s.baseline)
	}
	return list
}

// choiceMetric is a figure of the answers to a file of questions.
type choiceMetric struct {
	metric
	get    func(c *eval.ChoiceComparison) float64
	stdErr func(c *eval.ChoiceComparison) eval.StdErr
}

// choiceMetrics are the metrics of a gate's section "choices".
var choiceMetrics = []choiceMetric{
	{metric{"acc", "", true}, func(c *eval.ChoiceComparison) float64 { return c.Quantized.Acc }, func(c *eval.ChoiceComparison) eval.StdErr { return c.Quantized.AccStdErr }},
	{metric{"acc_norm", "", true}, func(c *eval.ChoiceComparison) float64 { return c.Quantized.AccNorm }, func(c *eval.ChoiceComparison) eval.StdErr { return c.Quantized.AccNormStdErr }},
	{metric{"acc_drop", "", false}, func(c *eval.ChoiceComparison) float64 { return c.AccDrop }, func(c *eval.ChoiceComparison) eval.StdErr { return c.AccDropStdErr }},
	{metric{"acc_norm_drop", "", false}, func(c *eval.ChoiceComparison) float64 { return c.AccNormDrop }, func(c *eval.ChoiceComparison) eval.StdErr { return c.AccNormDropStdErr }},
	{metric{"changed", "", false}, func(c *eval.ChoiceComparison) float64 { return c.Changed }, func(c *eval.ChoiceComparison) eval.StdErr { return c.ChangedStdErr }},
	{metric{"mean_kl", "nats", false}, func(c *eval.ChoiceComparison) float64 { return c.KL.Mean }, func(c *eval.ChoiceComparison) eval.StdErr { return c.KL.StdErr }},
}

// choiceMetricOf finds a metric of the section "choices".
func choiceMetricOf(name string) (metric, error) {
	return metricNamed(choiceMetrics, name, func(m *choiceMetric) metric { return m.metric })
}

// DefaultMinQuestions is MinQuestions of a gate that states none.
const DefaultMinQuestions = 100

// enoughQuestions is the condition that figures of answers come from enough questions.
func (g *Gate) enoughQuestions() Condition {
	return Condition{Of: "questions", Metric: "answered questions", Kind: AtLeast, Limit: Figure(cmp.Or(g.MinQuestions, DefaultMinQuestions))}
}

// choices adds the conditions on answers.
func (res *GateResult) choices(g *Gate, r, earlier *Report) error {
	if len(g.Choices) > 0 && len(r.Choices) == 0 {
		res.condition(g.enoughQuestions(), true, []figure{{missing: "none were answered: " + cmp.Or(r.NoModel, "name a file of questions")}})
	}
	for i := range r.Choices {
		c := &r.Choices[i]
		of := Condition{Of: "answers", Text: c.Label()}
		counted := false
		for _, m := range choiceMetrics {
			for _, l := range limitsLabel(g.Choices, c.Label(), m.name) {
				if !counted {
					enough := g.enoughQuestions()
					enough.Text = c.Label()
					res.condition(enough, true, []figure{{value: float64(c.questions())}})
					counted = true
				}
				f, err := c.figure(m, l, r, earlier)
				if err != nil {
					return &GateError{g.Name, "choices." + c.Label() + "." + m.name, err.Error()}
				}
				res.limit(of, m.metric, l, []figure{f})
			}
		}
	}
	return nil
}

func (c *ChoiceReport) questions() int {
	if c.Model == nil {
		return 0
	}
	return c.Model.Questions
}

// figure is a figure of the answers, with the figure of the same questions in the earlier report if
// the limit compares with it. Before the models have answered, it fails if the earlier report has
// other questions.
func (c *ChoiceReport) figure(m choiceMetric, l Limit, r, earlier *Report) (figure, error) {
	before, err := c.earlier(r, earlier, l)
	if err != nil {
		return figure{}, err
	}
	if c.Model == nil {
		return figure{missing: "was not measured"}, nil
	}
	f := figure{value: m.get(c.Model), stdErr: m.stdErr(c.Model)}
	if before != nil {
		f.before, f.had = m.get(before), true
	}
	return f, nil
}

// earlier finds the answers to the questions in the earlier report, if the limit compares with them.
func (c *ChoiceReport) earlier(r, earlier *Report, l Limit) (*eval.ChoiceComparison, error) {
	if earlier == nil || l.Worse == nil {
		return nil, nil
	}
	for i := range earlier.Choices {
		b := &earlier.Choices[i]
		switch {
		case b.SHA256 != c.SHA256 || b.Model == nil:
			continue
		case c.Model != nil && b.Model.Questions != c.Model.Questions:
			return nil, fmt.Errorf("the earlier report has %d of the questions, this one %d: ask the same questions", b.Model.Questions, c.Model.Questions)
		case r.Activations != earlier.Activations:
			return nil, fmt.Errorf("the earlier report has %s activations: use the same", earlier.Activations)
		}
		return b.Model, nil
	}
	return nil, fmt.Errorf("the earlier report does not have these questions (SHA-256 %.12s): ask the same questions", c.SHA256)
}
