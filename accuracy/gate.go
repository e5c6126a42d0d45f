package accuracy

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/pattern"
	"github.com/lowbit-go/gq/internal/yamldoc"
)

// Gate is a set of conditions that a Report must meet. As YAML:
//
//	version: 1
//	model:
//	  mean_kl: {max: 0.05, worse: 0.002}     # worse: increase allowed over the earlier report
//	  same_top1: {min: 0.9}
//	texts:                                 # by name: instead of the limit in model, on these texts
//	  code.txt:
//	    mean_kl: {max: 0.08}
//	choices:                               # by name: answers to multiple-choice questions
//	  hellaswag.jsonl:
//	    acc_norm_drop: {max: 0.02}
//	tensors:
//	  - match: "*.mlp.*"                     # a name, a module, a glob or re:... Default: all
//	    bits: 4                              # only tensors of this width. Default: any
//	    group: 32                            # only tensors of this group size, or channel. Default: any
//	    sqnr_db: {min: 16}
//	parity: true                             # every kernel gives the bits of the reference
//	unquantized: true                        # unquantized tensors equal the checkpoint's
//
// Limits of the model hold on every text. A limit on a figure that the report lacks is not met. A
// rule that matches no tensor is an error, unless it asks for bits or a group: one gate may serve
// files of several widths. A name of a text that matches no text is an error too.
//
// Two conditions always apply: the checkpoint must be the one that the file was made from, and the
// model's figures must come from at least MinTokens scored tokens.
type Gate struct {
	Name        string // of the file, or "default"
	Version     int
	Model       map[string]Limit
	Texts       []LabelRule // in the order of Match
	Choices     []LabelRule // of files of questions, in the order of Match
	Tensors     []TensorRule
	Parity      bool
	Unquantized bool
	// MinTokens is the least number of scored tokens, if any figure of the model is limited.
	// Default (0): DefaultMinTokens. As YAML: min_tokens.
	MinTokens int
	// MinQuestions is the least number of questions of a file whose answers are limited. Default (0):
	// DefaultMinQuestions. As YAML: min_questions.
	MinQuestions int
}

// DefaultMinTokens is MinTokens of a gate that states none.
const DefaultMinTokens = 1000

func (g *Gate) minTokens() int { return cmp.Or(g.MinTokens, DefaultMinTokens) }

// Limit bounds a figure. At least one field is set: Min only where more is better, Max only where
// less is better. A figure with a standard error must be above Min, or below Max, by two standard
// errors.
type Limit struct {
	Min, Max *float64
	// Worse is how much worse than in the earlier report the figure may be, in its unit, 0 or more.
	Worse *float64
}

type TensorRule struct {
	Match  string // name, glob or re: and a regular expression, as in quantizer.Rule; "" is all
	Bits   int    // 0 is any
	Group  int    // 0 is any, PerChannel one scale a row
	Limits map[string]Limit
}

// PerChannel is the Group of a TensorRule for tensors with one scale a row, spelled "channel".
const PerChannel = -1

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

// ReadGate reads a gate file.
func ReadGate(file string) (*Gate, error) {
	b, err := files.Read(file, files.MaxYAML)
	if err != nil {
		return nil, err
	}
	return ParseGate(file, b)
}

// ParseGate parses YAML. name stands for the file in errors, which are of type *GateError.
func ParseGate(name string, b []byte) (*Gate, error) {
	var raw struct {
		Version int                                  `yaml:"version"`
		Model   map[string]map[string]any            `yaml:"model"`
		Texts   map[string]map[string]map[string]any `yaml:"texts"`
		Choices map[string]map[string]map[string]any `yaml:"choices"`
		Asked   *int                                 `yaml:"min_questions"`
		Tensors []map[string]any                     `yaml:"tensors"`
		Parity  bool                                 `yaml:"parity"`
		Equal   bool                                 `yaml:"unquantized"`
		Kept    bool                                 `yaml:"kept"` // the former name of unquantized
		Tokens  *int                                 `yaml:"min_tokens"`
	}
	if err := yamldoc.Decode(b, &raw); err != nil {
		return nil, &GateError{name, "", err.Error()}
	}
	g := &Gate{Name: name, Version: raw.Version, Parity: raw.Parity, Unquantized: raw.Equal || raw.Kept}
	if raw.Version != 1 {
		return nil, &GateError{name, "version", fmt.Sprintf("is %d, want 1", raw.Version)}
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
	if g.Model, bad = parseLimits("model", raw.Model, modelMetricOf); bad != nil {
		return nil, bad.in(name)
	}
	if g.Texts, bad = parseLabelRules("texts", raw.Texts, textMetricOf); bad != nil {
		return nil, bad.in(name)
	}
	if g.Choices, bad = parseLabelRules("choices", raw.Choices, choiceMetricOf); bad != nil {
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

// in returns the error as one of a file.
func (e *GateError) in(file string) *GateError {
	e.File = file
	return e
}

// parseLimits parses limits by the names of figures.
func parseLimits(section string, raw map[string]map[string]any, metricOf func(name string) (metric, error)) (map[string]Limit, *GateError) {
	limits := map[string]Limit{}
	for _, key := range sortedKeys(raw) {
		m, err := metricOf(key)
		if err != nil {
			return nil, &GateError{Key: section + "." + key, Msg: err.Error()}
		}
		l, err := parseLimit(m, raw[key])
		if err != nil {
			return nil, &GateError{Key: section + "." + key, Msg: err.Error()}
		}
		limits[key] = l
	}
	return limits, nil
}

func sortedKeys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// modelMetricOf finds a metric of the section "model".
func modelMetricOf(name string) (metric, error) {
	return metricNamed(modelMetrics, name, func(m *modelMetric) metric { return m.metric })
}

// textMetricOf finds a metric of the section "texts".
func textMetricOf(name string) (metric, error) {
	list := slices.DeleteFunc(slices.Clone(modelMetrics), func(m modelMetric) bool { return !m.needsText })
	return metricNamed(list, name, func(m *modelMetric) metric { return m.metric })
}

func metricNamed[T any](list []T, name string, of func(*T) metric) (metric, error) {
	for i := range list {
		if m := of(&list[i]); m.name == name {
			return m, nil
		}
	}
	return metric{}, fmt.Errorf("no such figure; there are %s", names(list, func(m T) string { return of(&m).name }))
}

func parseTensorRule(fields map[string]any) (TensorRule, *GateError) {
	r := TensorRule{Limits: map[string]Limit{}}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		v := fields[key]
		switch key {
		case "match":
			s, ok := v.(string)
			if _, err := pattern.Parse(s); !ok || err != nil {
				return r, &GateError{Key: key, Msg: "is not a pattern: a name, a glob (*.q_proj) or re: and a regular expression"}
			}
			r.Match = s
		case "bits":
			n, ok := number(v)
			if !ok || n != math.Trunc(n) || n < 1 || n > 8 {
				return r, &GateError{Key: key, Msg: "is not a width of 1 to 8"}
			}
			r.Bits = int(n)
		case "group":
			n, ok := number(v)
			switch {
			case v == "channel":
				n = PerChannel
			case !ok || n != math.Trunc(n) || n < 1 || n > math.MaxInt32:
				return r, &GateError{Key: key, Msg: "is neither a group size nor channel"}
			}
			r.Group = int(n)
		default:
			of, err := metricNamed(tensorMetrics, key, func(m *tensorMetric) metric { return m.metric })
			if err != nil {
				return r, &GateError{Key: key, Msg: err.Error()}
			}
			m, ok := v.(map[string]any)
			if !ok {
				return r, &GateError{Key: key, Msg: "is not a limit such as {min: 16}"}
			}
			l, err := parseLimit(of, m)
			if err != nil {
				return r, &GateError{Key: key, Msg: err.Error()}
			}
			r.Limits[key] = l
		}
	}
	if len(r.Limits) == 0 {
		return r, &GateError{Msg: "limits no figure"}
	}
	return r, nil
}

func parseLimit(of metric, fields map[string]any) (l Limit, err error) {
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		v := fields[key]
		x, ok := number(v)
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

func names[T any](list []T, name func(T) string) string {
	var s []string
	for _, x := range list {
		s = append(s, name(x))
	}
	return strings.Join(s, ", ")
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
	for _, l := range limits {
		if l.Worse != nil {
			return true
		}
	}
	return false
}
