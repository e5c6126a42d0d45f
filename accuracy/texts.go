package accuracy

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/pattern"
)

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

// parseLabelRules parses the sections "texts" and "choices" of a gate.
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
