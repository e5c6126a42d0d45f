package accuracy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/pattern"
	"github.com/lowbit-go/gq/model/eval"
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
	// Blame lists the tensors with the largest errors, if a figure of the whole model misses its
	// limit.
	Blame []Blame `json:"blame,omitempty"`
	// Try is what may make a file that meets the gate, if figures of accuracy do not meet it; the
	// best first.
	Try []Try `json:"try,omitempty"`
}

// Condition is one limit of the gate, on a figure of the model or on all tensors that a rule
// matches.
type Condition struct {
	// Of says whose figure it is: "model", "answers", "text", "source", "kernels", "unquantized
	// tensors", or which tensors.
	Of string `json:"of"`
	// Text is the name of the text that the figure is from, if several were scored, or of the file of
	// questions.
	Text   string `json:"text,omitempty"`
	Metric string `json:"metric"`
	Unit   string `json:"unit,omitempty"`
	Kind   Kind   `json:"kind"`
	Limit  Figure `json:"limit"`
	// Checked is the number of figures; Failed counts those that miss the limit. Missing says why
	// there is no figure, which fails the condition too.
	Checked int    `json:"checked"`
	Failed  int    `json:"failed"`
	Missing string `json:"missing,omitempty"`
	// Worst is the figure nearest to the limit, or farthest beyond it, and Tensor the tensor that
	// has it. StdErr is its standard error. Two standard errors are added before the comparison.
	Worst  Figure  `json:"worst"`
	StdErr float64 `json:"std_err,omitempty"`
	Tensor string  `json:"tensor,omitempty"`
	// Note says how the condition was checked, if that needs saying.
	Note string `json:"note,omitempty"`
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

// OfModel reports whether the condition limits a figure that running the models gave: divergences or
// answers.
func (c *Condition) OfModel() bool { return c.Of == "model" || c.Of == "answers" }

// OfAccuracy reports whether the condition limits what quantization lost: a figure of the model or of
// tensors.
func (c *Condition) OfAccuracy() bool { return c.OfModel() || strings.HasPrefix(c.Of, "tensors") }

// String describes the condition in a line: "model: mean_kl at most 0.05 nats".
func (c *Condition) String() string { return c.Whose() + ": " + c.demand() }

// Whose says whose figure the condition limits: "model", or "model on code.txt".
func (c *Condition) Whose() string {
	if c.Text == "" {
		return c.Of
	}
	return c.Of + " on " + c.Text
}

func (c *Condition) demand() string {
	limit := fmt.Sprintf("%.6g%s", float64(c.Limit), spaced(c.Unit))
	switch c.Kind {
	case AtLeast:
		return c.Metric + " at least " + limit
	case AtMost:
		return c.Metric + " at most " + limit
	case NoWorse:
		return fmt.Sprintf("%s not worse than before by more than %s", c.Metric, limit)
	}
	return c.Metric
}

func spaced(unit string) string {
	if unit == "" {
		return ""
	}
	return " " + unit
}

// Failure is a figure that misses its limit.
type Failure struct {
	// Condition is an index into GateResult.Conditions.
	Condition int    `json:"condition"`
	Tensor    string `json:"tensor,omitempty"` // "" for the model as a whole
	// Text is the name of the text that the figure is from, if several were scored, or of the file of
	// questions.
	Text   string `json:"text,omitempty"`
	Metric string `json:"metric"`
	Unit   string `json:"unit,omitempty"`
	Kind   Kind   `json:"kind"`
	Value  Figure `json:"value"`
	// StdErr is the standard error of Value, if it has one.
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
	unit, with := spaced(f.Unit), ""
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

// Figure is a number of a report. It may be +Inf, for decibels without noise, which JSON spells
// null.
type Figure float64

// MarshalJSON writes a number, or null for +Inf.
func (f Figure) MarshalJSON() ([]byte, error) { return Decibels(f).MarshalJSON() }

// UnmarshalJSON reads the output of MarshalJSON.
func (f *Figure) UnmarshalJSON(b []byte) error { return (*Decibels)(f).UnmarshalJSON(b) }

// Blame names a tensor with a large error.
type Blame struct {
	Tensor string `json:"tensor"`
	Bits   int    `json:"bits"`
	// SQNR is the tensor's, of its outputs if they were measured (Of is "outputs"), else of its
	// weights ("weights").
	SQNR Decibels `json:"sqnr_db"`
	Of   string   `json:"of"`
}

// blamed is how many tensors Blame names.
const blamed = 5

// Check compares a report with the gate and stores the result in r.Gate. earlier is the report that
// "worse" refers to. It is an error if the gate needs an earlier report and there is none, or if it
// compares with figures of other texts.
func (g *Gate) Check(r, earlier *Report) (*GateResult, error) {
	if earlier == nil && g.NeedsEarlier() {
		return nil, &GateError{g.Name, "", "compares with an earlier report, and none was given"}
	}
	if r.Text != nil {
		if err := matchLabels("texts", g.Texts, r.labels()); err != nil {
			return nil, err.in(g.Name)
		}
	}
	if len(r.Choices) > 0 {
		if err := matchLabels("choices", g.Choices, r.choiceLabels()); err != nil {
			return nil, err.in(g.Name)
		}
	}
	res := &GateResult{Gate: g.Name, ModelRun: r.Model != nil || len(r.Choices) > 0, Conditions: []Condition{}, Failures: []Failure{}}
	// Every gate's own conditions come first: if one of them fails, it explains the others.
	res.source(r)
	if g.NeedsModel() {
		res.tokens(r, g.minTokens())
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

// figure is a value that a condition checks.
type figure struct {
	tensor  string
	value   float64
	stdErr  eval.StdErr
	missing string // why there is no value; "" if there is one
	before  float64
	had     bool // before is valid
}

// limit adds the conditions that a limit puts on figures. of says whose figures they are.
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

// condition adds a condition and the figures that fail it.
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
	res.Checked += c.Checked
	res.Conditions = append(res.Conditions, c)
	res.Failures = append(res.Failures, failures...)
}

// rule adds the conditions of a rule for tensors.
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
		if rule.Bits != 0 || rule.Group != 0 {
			return nil
		}
		return &GateError{g.Name, "tensors", fmt.Sprintf("no quantized tensor matches %q%s", cmp.Or(rule.Match, "*"), r.nearest(rule.Match))}
	}
	for _, m := range tensorMetrics {
		l, ok := rule.Limits[m.name]
		if !ok {
			continue
		}
		var figures []figure
		for _, s := range matched {
			f := figure{tensor: s.Label()}
			if f.value, ok = m.get(s); !ok {
				f.missing = "was not measured: " + s.NoOutput
				if s.lookedUp() {
					continue
				}
			}
			if o := old[key(s)]; o != nil {
				f.before, f.had = m.get(o)
			}
			figures = append(figures, f)
		}
		if len(figures) == 0 {
			return &GateError{g.Name, "tensors." + m.name, fmt.Sprintf("is of no tensor that matches %q: their rows are looked up, not multiplied", cmp.Or(rule.Match, "*"))}
		}
		res.limit(Condition{Of: rule.String()}, m.metric, l, figures)
	}
	return nil
}

// lookedUp reports whether the tensor has no outputs because its rows are looked up, not
// multiplied.
func (s *TensorStats) lookedUp() bool {
	return s.Role == gqf.RolePosition.String() || s.Role == gqf.RoleEmbedding.String() && len(s.SharedWith) == 0
}

// key identifies a payload within a report.
func key(s *TensorStats) string { return fmt.Sprintf("%s/%d/%d", s.Name, s.Slice, s.Variant) }

// String says which tensors a rule is for: "tensors *.mlp.* of 4 bits, group 32".
func (r TensorRule) String() string {
	s := "tensors"
	if r.Match != "" {
		s += " " + r.Match
	}
	var of []string
	if r.Bits != 0 {
		of = append(of, fmt.Sprintf("%d bits", r.Bits))
	}
	switch {
	case r.Group == PerChannel:
		of = append(of, "one scale a channel")
	case r.Group != 0:
		of = append(of, fmt.Sprintf("group %d", r.Group))
	}
	if of != nil {
		s += " of " + strings.Join(of, ", ")
	}
	return s
}

// matches reports whether the rule is for a tensor: whether one of its names matches.
func (r TensorRule) matches(s *TensorStats) bool {
	if r.Bits != 0 && r.Bits != s.Bits || r.Group > 0 && r.Group != s.Group || r.Group == PerChannel && s.Group != 0 {
		return false
	}
	return r.Match == "" || MatchName(r.Match, append([]string{s.Label()}, s.names()...)...)
}

func (s *TensorStats) names() []string { return append([]string{s.Name}, s.SharedWith...) }

// nearest ends an error about a pattern that matches no quantized tensor.
func (r *Report) nearest(match string) string {
	p, err := pattern.Parse(match)
	if err != nil {
		return ""
	}
	var names []string
	for i := range r.Tensors {
		if s := &r.Tensors[i]; !s.Unquantized {
			names = append(names, s.names()...)
		}
	}
	return p.NoMatch(names)
}

// MatchName reports whether a pattern of package pattern matches one of a tensor's names. An
// invalid pattern matches nothing.
func MatchName(match string, names ...string) bool {
	p, err := pattern.Parse(match)
	return err == nil && p.MatchAny(names...)
}

// parity adds the condition that kernels give the bits of the portable reference.
func (res *GateResult) parity(r *Report) {
	// It counts once for any number of kernels, so the result is the same on every machine.
	c := Condition{Of: "kernels", Metric: "parity", Kind: Same, Checked: 1}
	if r.Parity == nil {
		c.Missing, c.Checked, c.Failed = "was not checked", 0, 1
		res.Failures = append(res.Failures, Failure{Condition: len(res.Conditions), Metric: "parity", Kind: Same, Missing: c.Missing})
	}
	for _, p := range r.Parity {
		if !p.Equal {
			c.Failed = 1
			res.Failures = append(res.Failures, Failure{
				Condition: len(res.Conditions), Tensor: label(p.Tensor, p.Slice, max(1, p.Slice+1)), Metric: "parity", Kind: Same,
				Missing: fmt.Sprintf("kernel %s gives other bits than the reference: %s", p.Kernel, p.FirstDifference),
			})
		}
	}
	res.Checked += c.Checked
	res.Conditions = append(res.Conditions, c)
}

// unquantized adds the condition that unquantized tensors equal the checkpoint's, except norms that
// were tuned.
func (res *GateResult) unquantized(r *Report) {
	c := Condition{Of: "unquantized tensors", Metric: "equal", Kind: Same}
	for i := range r.Tensors {
		s := &r.Tensors[i]
		if !s.Unquantized {
			continue
		}
		c.Checked++
		if !s.Equal && !s.Tuned {
			c.Failed++
			res.Failures = append(res.Failures, Failure{
				Condition: len(res.Conditions), Tensor: s.Label(), Metric: "equal", Kind: Same, Missing: "is not that of the checkpoint: " + s.Difference,
			})
		}
	}
	res.Checked += c.Checked
	res.Conditions = append(res.Conditions, c)
}

// blame lists the tensors with the largest errors in their outputs, or in their weights if outputs
// were not measured.
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
