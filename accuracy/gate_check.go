package accuracy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/pattern"
)

// GateResult says whether a Report meets a Gate.
type GateResult struct {
	Gate   string `json:"gate"`
	Passed bool   `json:"passed"`
	// ModelRun reports whether the models were run on a text. If not, only tensors were checked.
	ModelRun bool `json:"model_run"`
	// Checked counts the figures that were compared with a limit, over all Conditions.
	Checked    int         `json:"checked"`
	Conditions []Condition `json:"conditions"`
	// Failures are the figures that miss their limit, in the order of Conditions, the worst first.
	Failures []Failure `json:"failures"`
	// Blame lists the tensors with the largest errors, if a figure of the whole model fails.
	Blame []Blame `json:"blame,omitempty"`
	// Try lists changes that may make a file meet the gate's figures of accuracy, the best first.
	Try []Try `json:"try,omitempty"`
}

// Condition is a limit of the gate, on a figure of the model or on all tensors that a rule matches.
type Condition struct {
	// Of names the owner of the figure: "model", "answers", "text", "source", "kernels", "unquantized
	// tensors", or which tensors.
	Of string `json:"of"`
	// Text is the name of the figure's text, if several were scored, or of the file of questions.
	Text   string `json:"text,omitempty"`
	Metric string `json:"metric"`
	Unit   string `json:"unit,omitempty"`
	Kind   Kind   `json:"kind"`
	Limit  Figure `json:"limit"`
	// Checked is the number of figures; Failed counts those that miss the limit. Missing says why
	// there is no figure. A condition without a figure fails, too.
	Checked int    `json:"checked"`
	Failed  int    `json:"failed"`
	Missing string `json:"missing,omitempty"`
	// Worst is the figure nearest to the limit, or farthest beyond, and Tensor its tensor. StdErr is
	// the standard error of Worst. Two standard errors are added before the comparison.
	Worst  Figure  `json:"worst"`
	StdErr float64 `json:"std_err,omitempty"`
	Tensor string  `json:"tensor,omitempty"`
	// Note says how the condition was checked, if that needs saying.
	Note string `json:"note,omitempty"`
	// LeftOut names the calibrated or tuned tensors that a limit on errors of weights leaves out.
	// Limits on outputs and predictions judge these tensors.
	LeftOut []string `json:"left_out,omitempty"`
}

// Kind says how a condition compares a figure with its limit.
type Kind string

// The kinds of conditions.
const (
	AtLeast Kind = "min"
	AtMost  Kind = "max"
	// NoWorse compares with the earlier report: not worse by more than the limit.
	NoWorse Kind = "worse"
	// Same requires exact equality.
	Same Kind = "same"
)

// Passed reports whether the condition is met.
func (c *Condition) Passed() bool { return c.Failed == 0 && c.Missing == "" }

// OfModel reports whether the condition limits divergences or answers, for which models are run.
func (c *Condition) OfModel() bool { return c.Of == "model" || c.Of == "answers" }

// OfAccuracy reports whether the condition limits a figure of the model or of tensors.
func (c *Condition) OfAccuracy() bool { return c.OfModel() || strings.HasPrefix(c.Of, "tensors") }

// Whose names the owner of the figure: "model", or "model on code.txt".
func (c *Condition) Whose() string {
	if c.Text == "" {
		return c.Of
	}
	return c.Of + " on " + c.Text
}

// String describes the condition in a line: "model: mean_kl at most 0.05 nats".
func (c *Condition) String() string {
	demand := map[Kind]string{AtLeast: " at least ", AtMost: " at most ", NoWorse: " not worse than before by more than "}[c.Kind]
	if demand != "" {
		demand += strings.TrimSpace(fmt.Sprintf("%.6g %s", float64(c.Limit), c.Unit))
	}
	return c.Whose() + ": " + c.Metric + demand
}

// Failure is a figure that misses its limit.
type Failure struct {
	// Condition is an index into GateResult.Conditions.
	Condition int    `json:"condition"`
	Tensor    string `json:"tensor,omitempty"` // "" for the model as a whole
	// Text is the name of the figure's text, if several were scored, or of the file of questions.
	Text   string `json:"text,omitempty"`
	Metric string `json:"metric"`
	Unit   string `json:"unit,omitempty"`
	Kind   Kind   `json:"kind"`
	Value  Figure `json:"value"`
	// StdErr is the standard error of Value, or 0.
	StdErr float64 `json:"std_err,omitempty"`
	Limit  Figure  `json:"limit"`
	// By is how far the value is beyond the limit, two standard errors included.
	By Figure `json:"by"`
	// Earlier is the figure of the earlier report, for NoWorse.
	Earlier Figure `json:"earlier"`
	// Missing says why there is no value.
	Missing string `json:"missing,omitempty"`
}

// String describes the failure in a line: "mean_kl 0.0612 nats is 0.0112 above the limit 0.05".
func (f Failure) String() string {
	name := f.Metric
	if f.Tensor != "" {
		name = f.Tensor + ": " + name
	}
	if f.Text != "" {
		name = f.Text + ": " + name
	}
	unit, with := strings.TrimRight(" "+f.Unit, " "), ""
	if f.StdErr > 0 {
		with = fmt.Sprintf(" (with 2 standard errors of %.2g)", f.StdErr)
	}
	switch {
	case f.Missing != "":
		return name + ": " + f.Missing
	case f.Kind == NoWorse:
		return fmt.Sprintf("%s %.6g%s is %.4g worse than the %.6g of the earlier report, %.4g is allowed", name, f.Value, unit, math.Abs(float64(f.Value-f.Earlier)), f.Earlier, f.Limit)
	case f.Kind == AtLeast:
		return fmt.Sprintf("%s %.6g%s%s is %.4g below the limit %.6g", name, f.Value, unit, with, f.By, f.Limit)
	}
	return fmt.Sprintf("%s %.6g%s%s is %.4g above the limit %.6g", name, f.Value, unit, with, f.By, f.Limit)
}

// Figure is a number of a report: +Inf, in JSON null, for decibels without noise.
type Figure float64

func (f Figure) MarshalJSON() ([]byte, error) { return Decibels(f).MarshalJSON() }

func (f *Figure) UnmarshalJSON(b []byte) error { return (*Decibels)(f).UnmarshalJSON(b) }

// Blame names a tensor with a large error.
type Blame struct {
	Tensor string `json:"tensor"`
	Bits   int    `json:"bits"`
	// SQNR is the SQNR of the outputs where they were measured (Of is "outputs"), else of the weights.
	SQNR Decibels `json:"sqnr_db"`
	Of   string   `json:"of"`
}

// blamed is how many tensors Blame names.
const blamed = 5

// Check compares a report with the gate and stores the result in r.Gate. earlier is the report for
// "worse". If the gate needs that report, none or figures of other texts are an error.
func (g *Gate) Check(r, earlier *Report) (*GateResult, error) {
	if earlier == nil && g.NeedsEarlier() {
		return nil, &GateError{g.Name, "", "compares with an earlier report, and none was given"}
	}
	var texts, choices []string
	for _, t := range r.Scored() {
		texts = append(texts, t.Text.Label())
	}
	for i := range r.Choices {
		choices = append(choices, r.Choices[i].Label())
	}
	if err := matchLabels("texts", g.Texts, texts); err != nil && texts != nil {
		return nil, err.in(g.Name)
	}
	if err := matchLabels("choices", g.Choices, choices); err != nil && choices != nil {
		return nil, err.in(g.Name)
	}
	res := &GateResult{Gate: g.Name, ModelRun: r.Model != nil || len(r.Choices) > 0, Conditions: []Condition{}, Failures: []Failure{}}
	// Every gate's own conditions come first: the failure of such a condition explains the others.
	res.source(r)
	if g.NeedsModel() {
		for _, t := range r.Scored() {
			c := Condition{Of: "text", Metric: "scored tokens", Kind: AtLeast, Limit: Figure(cmp.Or(g.MinTokens, defaultMinTokens))}
			if len(r.Texts) > 0 {
				c.Text = t.Text.Label()
			}
			res.condition(c, true, []figure{{value: float64(t.Text.Tokens), missing: t.NoContent()}})
		}
	}
	given, failed := len(res.Conditions), len(res.Failures)
	if err := res.model(g, r, earlier); err != nil {
		return nil, err
	}
	if err := res.choices(g, r, earlier); err != nil {
		return nil, err
	}
	modelFailed := len(res.Failures) > failed
	for _, rule := range g.Tensors {
		if err := res.rule(g, rule, r, earlier); err != nil {
			return nil, err
		}
	}
	if g.Parity {
		res.parity(r)
	}
	if g.Unquantized {
		res.unquantized(r)
	}
	if len(res.Conditions) == given {
		return nil, &GateError{g.Name, "", "no condition is for a tensor of this file"}
	}
	if modelFailed {
		res.Blame = blame(r.Tensors)
	}
	res.Passed = len(res.Failures) == 0
	res.Try = res.tries(r)
	r.Gate = res
	return res, nil
}

type figure struct {
	tensor  string
	value   float64
	stdErr  eval.StdErr
	missing string // why there is no value, or ""
	before  float64
	had     bool // before is valid
}

// limit adds the conditions that a limit puts on figures. of names the owner of the figures.
func (res *GateResult) limit(of Condition, m metric, l Limit, figures []figure) {
	for _, c := range []struct {
		kind  Kind
		limit *float64
	}{{AtMost, l.Max}, {AtLeast, l.Min}, {NoWorse, l.Worse}} {
		if c.limit != nil {
			of.Metric, of.Unit, of.Kind, of.Limit = m.name, m.unit, c.kind, Figure(*c.limit)
			res.condition(of, m.more, figures)
		}
	}
}

func (res *GateResult) condition(c Condition, more bool, figures []figure) {
	var failures []Failure
	worst := math.Inf(-1)
	for _, v := range figures {
		f := Failure{Condition: len(res.Conditions), Tensor: v.tensor, Text: c.Text, Metric: c.Metric, Unit: c.Unit, Kind: c.Kind, Value: Figure(v.value), Limit: c.Limit, Missing: v.missing}
		switch {
		case f.Missing != "":
		case c.Kind == NoWorse && !v.had:
			f.Missing = "is not in the earlier report"
		case c.Kind != NoWorse && !v.stdErr.Known():
			f.Missing = "has no standard error: the text gives one window only, use a longer text or a smaller window"
		}
		if f.Missing != "" {
			f.Value, c.Missing = 0, f.Missing
			failures = append(failures, f)
			continue
		}
		c.Checked++
		by := 0.0
		switch c.Kind {
		case AtMost:
			f.StdErr = float64(v.stdErr)
			by = v.value + float64(2*f.StdErr) - float64(c.Limit)
		case AtLeast:
			f.StdErr = float64(v.stdErr)
			by = float64(c.Limit) - (v.value - float64(2*f.StdErr))
		case NoWorse:
			by = v.value - v.before
			if more {
				by = -by
			}
			if v.value == v.before { // of two exact tensors the difference is NaN
				by = 0
			}
			f.Earlier = Figure(v.before)
			by -= float64(c.Limit)
		}
		f.By = Figure(by)
		if c.Checked == 1 || by > worst {
			worst, c.Worst, c.StdErr, c.Tensor = by, f.Value, f.StdErr, v.tensor
		}
		if by > 0 {
			failures = append(failures, f)
		}
	}
	slices.SortStableFunc(failures, func(a, b Failure) int { return cmp.Compare(b.By, a.By) })
	c.Failed = len(failures)
	res.add(c)
	res.Failures = append(res.Failures, failures...)
}

func (res *GateResult) rule(g *Gate, rule TensorRule, r, earlier *Report) error {
	old := map[string]*TensorStats{}
	if earlier != nil && worse(rule.Limits) {
		for i := range earlier.Tensors {
			old[key(&earlier.Tensors[i])] = &earlier.Tensors[i]
		}
	}
	var matched []*TensorStats
	for i := range r.Tensors {
		if s := &r.Tensors[i]; !s.Unquantized && rule.matches(s) {
			matched = append(matched, s)
		}
	}
	if len(matched) == 0 {
		if rule.Bits != 0 || rule.Group != nil {
			return nil
		}
		return &GateError{g.Name, "tensors", fmt.Sprintf("no quantized tensor matches %q", cmp.Or(rule.Match, "*"))}
	}
	for _, m := range tensorMetrics {
		l, ok := rule.Limits[m.name]
		if !ok {
			continue
		}
		var figures []figure
		c := Condition{Of: rule.String()}
		for _, s := range matched {
			if m.ofErrors && s.fitted() {
				c.LeftOut = append(c.LeftOut, s.Label())
				continue
			}
			f := figure{tensor: s.Label()}
			if f.value, ok = m.get(s); !ok {
				f.missing = "was not measured: " + s.NoOutput
				if s.Role == gqf.RolePosition.String() || s.Role == gqf.RoleEmbedding.String() && len(s.SharedWith) == 0 {
					continue // no outputs: its rows are only looked up
				}
			}
			if o := old[key(s)]; o != nil {
				f.before, f.had = m.get(o)
			}
			figures = append(figures, f)
		}
		if n := len(c.LeftOut); n > 0 {
			c.Note = fmt.Sprintf("%d calibrated or tuned tensors are left out: outputs and predictions judge them", n)
			if len(figures) == 0 && (g.Name != DefaultGateName || r.Model == nil) {
				figures = []figure{{missing: fmt.Sprintf("is no measure of %d calibrated or tuned tensors: limit outputs and predictions, on a text", n)}}
			}
		} else if len(figures) == 0 {
			return &GateError{g.Name, "tensors." + m.name, fmt.Sprintf("is of no tensor that matches %q: their rows are looked up, not multiplied", cmp.Or(rule.Match, "*"))}
		}
		res.limit(c, m.metric, l, figures)
	}
	return nil
}

// key identifies a payload within a report.
func key(s *TensorStats) string { return fmt.Sprintf("%s/%d/%d", s.Name, s.Slice, s.Variant) }

// String says which tensors a rule is for: "tensors *.mlp.* of 4 bits, group 32".
func (r TensorRule) String() string {
	s := "tensors"
	if r.fitted {
		s += " that were calibrated or tuned"
	}
	if r.Match != "" {
		s += " " + r.Match
	}
	var of []string
	if r.Bits != 0 {
		of = append(of, fmt.Sprintf("%d bits", r.Bits))
	}
	switch {
	case r.Group == nil:
	case *r.Group == 0:
		of = append(of, "one scale a channel")
	default:
		of = append(of, fmt.Sprintf("group %d", *r.Group))
	}
	if of != nil {
		s += " of " + strings.Join(of, ", ")
	}
	return s
}

// matches reports whether the rule is for a tensor, by any of its names.
func (r TensorRule) matches(s *TensorStats) bool {
	if r.fitted && !(s.fitted() && s.Output != nil && s.Output.Source == "calibration") || r.Bits != 0 && r.Bits != s.Bits || r.Group != nil && *r.Group != s.Group {
		return false
	}
	return r.Match == "" || pattern.MatchAny(r.Match, append([]string{s.Label(), s.Name}, s.SharedWith...)...)
}

// parity adds the condition that kernels give the bits of the portable reference.
func (res *GateResult) parity(r *Report) {
	// A single figure for any number of kernels, so that the result is the same on every machine.
	c := Condition{Of: "kernels", Metric: "parity", Kind: Same, Checked: 1}
	if r.Parity == nil {
		c.Missing, c.Checked = "was not checked", 0
		res.differs(&c, "parity", "", c.Missing)
	}
	for _, p := range r.Parity {
		if !p.Equal {
			why := fmt.Sprintf("kernel %s gives other bits than the reference: %s", p.Kernel, p.FirstDifference)
			res.differs(&c, "parity", label(p.Tensor, p.Slice, max(1, p.Slice+1)), why)
		}
	}
	c.Failed = min(c.Failed, 1)
	res.add(c)
}

// differs adds a failure of c, a condition of exact equality that is not added yet.
func (res *GateResult) differs(c *Condition, metric, tensor, why string) {
	c.Failed++
	res.Failures = append(res.Failures, Failure{Condition: len(res.Conditions), Tensor: tensor, Metric: metric, Kind: Same, Missing: why})
}

func (res *GateResult) add(c Condition) {
	res.Checked += c.Checked
	res.Conditions = append(res.Conditions, c)
}

// unquantized adds the condition that unquantized tensors but tuned norms equal the checkpoint's.
func (res *GateResult) unquantized(r *Report) {
	c := Condition{Of: "unquantized tensors", Metric: "equal", Kind: Same}
	for i := range r.Tensors {
		s := &r.Tensors[i]
		if !s.Unquantized {
			continue
		}
		c.Checked++
		if !s.Equal && !s.Tuned {
			res.differs(&c, "equal", s.Label(), "is not that of the checkpoint: "+s.Difference)
		}
	}
	res.add(c)
}

// blame lists the tensors with the largest errors in their outputs, or else in their weights.
func blame(tensors []TensorStats) []Blame {
	var all []Blame
	for i := range tensors {
		s := &tensors[i]
		switch {
		case s.Unquantized || s.Variant > 0:
		case s.Output != nil:
			all = append(all, Blame{s.Label(), s.Bits, s.Output.SQNR, "outputs"})
		default:
			all = append(all, Blame{s.Label(), s.Bits, s.SQNR, "weights"})
		}
	}
	slices.SortStableFunc(all, func(a, b Blame) int { return cmp.Compare(a.SQNR, b.SQNR) })
	return all[:min(blamed, len(all))]
}
