package accuracy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/pattern"
	"github.com/lowbit-go/gq/model/text"
)

// TextSource is a text, or its tokens.
type TextSource struct {
	Name    string // in the report; gates call the text by the last element of Name
	Data    []byte
	Tokens  bool // Data holds ids, see text.ParseIDs
	Options text.Options
	// Saved has the float model's predictions of the text, so that the float model does not run on it.
	// They must be of this text. Default: none.
	Saved *Saved
}

// labelOf is the name by which a gate calls a text or a file of questions.
func labelOf(name string) string { return filepath.Base(name) }

func labelsOf(names []string) (labels []string) {
	for _, name := range names {
		labels = append(labels, labelOf(name))
	}
	return labels
}

// checkLabels refuses two texts, or two files of questions, that a gate would call the same.
func checkLabels(what string, names []string) error {
	seen := map[string]string{}
	for _, name := range names {
		label := labelOf(name)
		switch other, ok := seen[label]; {
		case ok && other == name:
			return fmt.Errorf("two %s are called %q: give them different names, as in a=FILE and b=FILE", what, label)
		case ok:
			return fmt.Errorf("two %s are called %q, %s and %s: name them, as in a=%s and b=%s", what, label, other, name, other, name)
		}
		seen[label] = name
	}
	return nil
}

// LabelRule limits figures of the texts, or of the files of questions, whose label matches a
// pattern.
type LabelRule struct {
	Match  string // a label, or a pattern as in TensorRule
	Limits map[string]Limit
}

func limitsLabel(rules []LabelRule, label, metric string) (list []Limit) {
	for _, r := range rules {
		if l, ok := r.Limits[metric]; ok && MatchName(r.Match, label) {
			list = append(list, l)
		}
	}
	return list
}

// matchLabels returns an error for a rule of a section that matches no label.
func matchLabels(section string, rules []LabelRule, labels []string) *GateError {
	for _, r := range rules {
		if slices.ContainsFunc(labels, func(l string) bool { return MatchName(r.Match, l) }) {
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

// parseLabelRules parses the sections "texts" and "choices" of a gate.
func parseLabelRules(section string, raw map[string]map[string]map[string]any, metricOf func(name string) (metric, error)) (rules []LabelRule, _ *GateError) {
	for _, match := range sortedKeys(raw) {
		key := section + "." + match
		if _, err := pattern.Parse(match); err != nil || match == "" {
			return nil, &GateError{Key: key, Msg: "is not a pattern: a name, a glob (wiki*) or re: and a regular expression"}
		}
		limits, err := parseLimits(key, raw[match], metricOf)
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
