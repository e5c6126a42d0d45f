package accuracy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/pattern"
	"github.com/lowbit-go/gq/internal/yamldoc"
)

// Gate is a set of conditions that a Report must meet. As YAML:
//
//		version: 1
//		window: 512                            # how to measure: window, convention, activations
//		model:
//		  mean_kl: {max: 0.05, worse: 0.002}     # worse: increase allowed over the earlier report
//		  same_top1: {min: 0.9}
//		texts:                                 # by name: instead of the limit in model, on these texts
//		  code.txt:
//		    mean_kl: {max: 0.08}
//		choices:                               # by name: answers to multiple-choice questions
//		  hellaswag.jsonl:
//		    acc_norm_drop: {max: 0.02}
//		tensors:
//	  - match: "*.mlp.*" # a name, a module, a glob or re:... Default: all
//		    bits: 4                            # only tensors of this width. Default: any
//		    group: 32                          # only this group size, or channel. Default: any
//		    sqnr_db: {min: 16}
//		parity: true                           # every kernel gives the bits of the reference
//		unquantized: true                      # unquantized tensors equal the checkpoint's
//
// Limits of the model hold on every text. A limit on a figure that the report lacks is not met. A
// rule that matches no tensor is an error, except for rules with bits or a group, because the same
// gate may serve files of several widths. A name of a text that matches no text is an error too.
//
// Two conditions always apply: the file must have been made from the checkpoint, and the model's
// figures must come from at least MinTokens scored tokens.
type Gate struct {
	Name        string // of the file, or "default"
	Version     int
	Model       map[string]Limit
	Texts       []LabelRule // in the order of Match
	Choices     []LabelRule // of files of questions, in the order of Match
	Tensors     []TensorRule
	Parity      bool
	Unquantized bool
	// Window, Convention and Activations say how figures of the model are measured. Default (0, ""):
	// as the measurement's options say. Check fails for other figures.
	Window      int
	Convention  text.Convention
	Activations string
	// MinTokens is the least number of scored tokens, if any figure of the model is limited. Default
	// (0): 1,000. As YAML: min_tokens.
	MinTokens int
	// MinQuestions is the least number of questions of a file with limits on its answers. Default (0):
	// 100. As YAML: min_questions.
	MinQuestions int
}

const defaultMinTokens = 1000

// Limit bounds a figure with at least a single field: Min only where more is better, Max only where
// less is better. A figure with a standard error must meet Min or Max by two standard errors.
type Limit struct {
	Min, Max *float64
	// Worse is how much worse than in the earlier report the figure may be, in its unit, 0 or more.
	Worse *float64
}

type TensorRule struct {
	Match  string // name, glob or re: and a regular expression, as in quantizer.Rule; "" is all
	Bits   int    // 0 is any
	Group  *int   // 0 is one scale a row, nil any
	Limits map[string]Limit

	fitted bool // only calibrated or tuned tensors, executed on activations of a text
}

// GateError reports a mistake in a gate file.
type GateError struct {
	File, Key, Msg string
}

func (e *GateError) Error() string {
	if e.Key == "" {
		return e.File + ": " + e.Msg
	}
	return fmt.Sprintf("%s: %s: %s", e.File, e.Key, e.Msg)
}

func ReadGate(file string) (*Gate, error) {
	b, err := files.Read(file, files.MaxYAML)
	if err != nil {
		return nil, err
	}
	return ParseGate(file, b)
}

// ParseGate parses YAML. name stands for the file in errors of type *GateError.
func ParseGate(name string, b []byte) (*Gate, error) {
	var raw struct {
		Version int                                  `yaml:"version"`
		Window  *int                                 `yaml:"window"`
		Cut     text.Convention                      `yaml:"convention"`
		Runs    string                               `yaml:"activations"`
		Model   map[string]map[string]any            `yaml:"model"`
		Texts   map[string]map[string]map[string]any `yaml:"texts"`
		Choices map[string]map[string]map[string]any `yaml:"choices"`
		Asked   *int                                 `yaml:"min_questions"`
		Tensors []map[string]any                     `yaml:"tensors"`
		Parity  bool                                 `yaml:"parity"`
		Equal   bool                                 `yaml:"unquantized"`
		Tokens  *int                                 `yaml:"min_tokens"`
	}
	if err := yamldoc.Decode(b, &raw); err != nil {
		return nil, &GateError{name, "", err.Error()}
	}
	g := &Gate{Name: name, Version: raw.Version, Parity: raw.Parity, Unquantized: raw.Equal}
	if raw.Version != 1 {
		return nil, &GateError{name, "version", fmt.Sprintf("is %d, want 1", raw.Version)}
	}
	g.Convention, g.Activations = raw.Cut, raw.Runs
	if raw.Window != nil {
		g.Window = cmp.Or(*raw.Window, -1)
	}
	if err := (text.Options{Convention: g.Convention, Window: g.Window}).Check(); err != nil {
		return nil, &GateError{name, "window, convention", err.Error()}
	}
	if _, ok := forward.ParseActivations(g.Activations); !ok && g.Activations != "" {
		return nil, &GateError{name, "activations", fmt.Sprintf("is %q, want int8, float32 or onnx", g.Activations)}
	}
	if raw.Tokens != nil {
		if g.MinTokens = *raw.Tokens; g.MinTokens < 1 {
			return nil, &GateError{name, "min_tokens", fmt.Sprintf("is %d, want 1 or more", g.MinTokens)}
		}
	}
	if raw.Asked != nil {
		if g.MinQuestions = *raw.Asked; g.MinQuestions < 1 {
			return nil, &GateError{name, "min_questions", fmt.Sprintf("is %d, want 1 or more", g.MinQuestions)}
		}
	}
	var bad *GateError
	textMetrics := slices.DeleteFunc(slices.Clone(modelMetrics), func(m modelMetric) bool { return !m.needsText })
	if g.Model, bad = parseLimits("model", raw.Model, metricsOf(modelMetrics)); bad != nil {
		return nil, bad.in(name)
	}
	if g.Texts, bad = parseLabelRules("texts", raw.Texts, metricsOf(textMetrics)); bad != nil {
		return nil, bad.in(name)
	}
	if g.Choices, bad = parseLabelRules("choices", raw.Choices, metricsOf(choiceMetrics)); bad != nil {
		return nil, bad.in(name)
	}
	for i, fields := range raw.Tensors {
		r, err := parseTensorRule(fields)
		if err != nil {
			err.File, err.Key = name, strings.TrimSuffix(fmt.Sprintf("tensors[%d].%s", i, err.Key), ".")
			return nil, err
		}
		g.Tensors = append(g.Tensors, r)
	}
	if len(g.Model) == 0 && len(g.Texts) == 0 && len(g.Choices) == 0 && len(g.Tensors) == 0 && !g.Parity && !g.Unquantized {
		return nil, &GateError{name, "", "has no condition: a gate that is always open"}
	}
	return g, nil
}

func (e *GateError) in(file string) *GateError {
	e.File = file
	return e
}

func parseLimits(section string, raw map[string]map[string]any, metrics []metric) (map[string]Limit, *GateError) {
	limits := map[string]Limit{}
	for _, key := range sortedKeys(raw) {
		l, err := parseLimit(key, raw[key], metrics)
		if err != nil {
			return nil, &GateError{Key: section + "." + key, Msg: err.Error()}
		}
		limits[key] = l
	}
	return limits, nil
}

func sortedKeys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

func parseTensorRule(fields map[string]any) (TensorRule, *GateError) {
	r := TensorRule{Limits: map[string]Limit{}}
	for _, key := range sortedKeys(fields) {
		if err := r.set(key, fields[key]); err != nil {
			return r, &GateError{Key: key, Msg: err.Error()}
		}
	}
	if len(r.Limits) == 0 {
		return r, &GateError{Msg: "limits no figure"}
	}
	return r, nil
}

func (r *TensorRule) set(key string, v any) (err error) {
	n, ok := number(v)
	ok = ok && n == math.Trunc(n)
	switch key {
	case "match":
		r.Match, ok = v.(string)
		if _, err := pattern.Parse(r.Match); !ok || err != nil {
			return errors.New("is not a pattern: a name, a glob (*.q_proj) or re: and a regular expression")
		}
	case "bits":
		if !ok || n < 1 || n > 8 {
			return errors.New("is not a width of 1 to 8")
		}
		r.Bits = int(n)
	case "group":
		switch {
		case v == "channel":
			n = 0
		case !ok || n < 1 || n > math.MaxInt32:
			return errors.New("is neither a group size nor channel")
		}
		r.Group = new(int(n))
	default:
		r.Limits[key], err = parseLimit(key, v, metricsOf(tensorMetrics))
	}
	return err
}

func parseLimit(name string, limit any, metrics []metric) (l Limit, err error) {
	of, err := metricNamed(metrics, name)
	if err != nil {
		return l, err
	}
	fields, ok := limit.(map[string]any)
	if !ok {
		return l, errors.New("is not a limit such as {min: 16}")
	}
	for _, key := range sortedKeys(fields) {
		x, ok := number(fields[key])
		if !ok || math.IsNaN(x) || math.IsInf(x, 0) {
			return l, fmt.Errorf("%s is not a number", key)
		}
		switch key {
		case "min":
			l.Min = &x
		case "max":
			l.Max = &x
		case "worse":
			if x < 0 {
				return l, fmt.Errorf("worse is %v, want 0 or more: how much worse than in the earlier report the figure may be", x)
			}
			l.Worse = &x
		default:
			return l, fmt.Errorf("unknown key %q: use min, max or worse", key)
		}
	}
	switch {
	case l == (Limit{}):
		return l, fmt.Errorf("has no limit: set min, max or worse")
	case l.Min != nil && !of.more:
		return l, fmt.Errorf("min does not limit this figure, less is better: use max")
	case l.Max != nil && of.more:
		return l, fmt.Errorf("max does not limit this figure, more is better: use min")
	}
	return l, nil
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case uint64:
		return float64(v), true
	case int64:
		return float64(v), true
	case int:
		return float64(v), true
	}
	return 0, false
}

// NeedsModel reports whether the gate needs the models to be run on a text.
func (g *Gate) NeedsModel() bool {
	return len(g.Texts) > 0 || slices.ContainsFunc(modelMetrics, func(m modelMetric) bool {
		_, ok := g.Model[m.name]
		return ok && m.needsText
	})
}

// NeedsOutputs reports whether the gate limits the outputs of layers.
func (g *Gate) NeedsOutputs() bool {
	return slices.ContainsFunc(g.Tensors, func(r TensorRule) bool {
		return slices.ContainsFunc(tensorMetrics, func(m tensorMetric) bool {
			_, ok := r.Limits[m.name]
			return ok && m.needsOutput
		})
	})
}

// NeedsEarlier reports whether the gate compares with an earlier report.
func (g *Gate) NeedsEarlier() bool {
	byLabel := func(r LabelRule) bool { return worse(r.Limits) }
	return worse(g.Model) || slices.ContainsFunc(g.Texts, byLabel) || slices.ContainsFunc(g.Choices, byLabel) || slices.ContainsFunc(g.Tensors, func(r TensorRule) bool { return worse(r.Limits) })
}

func worse(limits map[string]Limit) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(limits)), func(l Limit) bool { return l.Worse != nil })
}
