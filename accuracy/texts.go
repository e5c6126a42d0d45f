package accuracy

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/lm/choice"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/pattern"
)

// ChoiceReport has the figures of a file of multiple-choice questions.
type ChoiceReport struct {
	// Name is the name given to the file, or else its path.
	Name   string      `json:"name"`
	SHA256 string      `json:"sha256"`
	Form   choice.Form `json:"form"` // prompt, hellaswag, arc or mmlu
	// Cut counts questions with a prompt that lost its beginning, because prompt and ending together
	// are longer than the model's context.
	Cut int `json:"cut"`
	// Different counts questions without repetitions.
	Different int                    `json:"different,omitempty"`
	Model     *eval.ChoiceComparison `json:"model,omitempty"`
	// Baseline is another .gqf on the same questions.
	Baseline *eval.ChoiceComparison `json:"baseline,omitempty"`
}

// Label is the file's name in gates: the last element of Name.
func (c *ChoiceReport) Label() string { return labelOf(c.Name) }

// Warning warns readers of the figures, or is "".
func (c *ChoiceReport) Warning() string {
	if c.Cut == 0 {
		return ""
	}
	return fmt.Sprintf("%d questions are longer than the model's context: the beginning of their prompts is left out", c.Cut)
}

type choiceMetric struct {
	metric
	get    func(c *eval.ChoiceComparison) float64
	stdErr func(c *eval.ChoiceComparison) eval.StdErr
}

var choiceMetrics = []choiceMetric{
	{metric{"acc", "", true}, func(c *eval.ChoiceComparison) float64 { return c.Quantized.Acc }, func(c *eval.ChoiceComparison) eval.StdErr { return c.Quantized.AccStdErr }},
	{metric{"acc_norm", "", true}, func(c *eval.ChoiceComparison) float64 { return c.Quantized.AccNorm }, func(c *eval.ChoiceComparison) eval.StdErr { return c.Quantized.AccNormStdErr }},
	{metric{"acc_drop", "", false}, func(c *eval.ChoiceComparison) float64 { return c.AccDrop }, func(c *eval.ChoiceComparison) eval.StdErr { return c.AccDropStdErr }},
	{metric{"acc_norm_drop", "", false}, func(c *eval.ChoiceComparison) float64 { return c.AccNormDrop }, func(c *eval.ChoiceComparison) eval.StdErr { return c.AccNormDropStdErr }},
	{metric{"changed", "", false}, func(c *eval.ChoiceComparison) float64 { return c.Changed }, func(c *eval.ChoiceComparison) eval.StdErr { return c.ChangedStdErr }},
	{metric{"mean_kl", "nats", false}, func(c *eval.ChoiceComparison) float64 { return c.KL.Mean }, func(c *eval.ChoiceComparison) eval.StdErr { return c.KL.StdErr }},
}

const defaultMinQuestions = 100

// enoughQuestions is the condition that figures of answers come from enough questions.
func (g *Gate) enoughQuestions() Condition {
	return Condition{Of: "questions", Metric: "different questions", Kind: AtLeast, Limit: Figure(cmp.Or(g.MinQuestions, defaultMinQuestions))}
}

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
	return cmp.Or(c.Different, c.Model.Questions) // earlier reports lack Different
}

// figure is a figure of the answers, with the earlier report's figure if the limit compares. Before
// the models have answered, an earlier report with other questions is an error.
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

// earlier finds the answers in the earlier report, if the limit compares.
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

// labelOf is the name in gates of a text or a file of questions.
func labelOf(name string) string { return filepath.Base(name) }

// LabelRule limits figures of the texts, or of the files of questions, with matching labels.
type LabelRule struct {
	Match  string // a label, or a pattern as in TensorRule
	Limits map[string]Limit
}

func limitsLabel(rules []LabelRule, label, metric string) (list []Limit) {
	for _, r := range rules {
		if l, ok := r.Limits[metric]; ok && pattern.MatchAny(r.Match, label) {
			list = append(list, l)
		}
	}
	return list
}

// matchLabels returns an error for a rule of a section that matches no label.
func matchLabels(section string, rules []LabelRule, labels []string) *GateError {
	for _, r := range rules {
		if slices.ContainsFunc(labels, func(l string) bool { return pattern.MatchAny(r.Match, l) }) {
			continue
		}
		have := "none was measured"
		if len(labels) > 0 {
			have = "there are " + strings.Join(labels, ", ")
		}
		return &GateError{Key: section + "." + r.Match, Msg: "no name matches: " + have}
	}
	return nil
}

func parseLabelRules(section string, raw map[string]map[string]map[string]any, metrics []metric) (rules []LabelRule, _ *GateError) {
	for _, match := range sortedKeys(raw) {
		key := section + "." + match
		if _, err := pattern.Parse(match); err != nil || match == "" {
			return nil, &GateError{Key: key, Msg: "is not a pattern: a name, a glob (wiki*) or re: and a regular expression"}
		}
		limits, err := parseLimits(key, raw[match], metrics)
		if err != nil {
			return nil, err
		}
		if len(limits) == 0 {
			return nil, &GateError{Key: key, Msg: "limits no figure"}
		}
		rules = append(rules, LabelRule{match, limits})
	}
	return rules, nil
}
