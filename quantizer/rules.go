package quantizer

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/pattern"
	"github.com/lowbit-go/gq/internal/suggest"
	"github.com/lowbit-go/gq/packing"
)

// PerChannel is the group size of a Recipe or Rule for one scale per row, spelled "channel".
const PerChannel = -1

// Rule overrides the defaults for the tensors that it matches. A rule also quantizes tensors that
// are unquantized by default, if they can be quantized.
type Rule struct {
	// Match is the name of a tensor ("lm_head.weight") or of the module that it is the weight of
	// ("lm_head"), a glob ("*.q_proj"), or "re:" and a regular expression in Go's RE2 syntax that
	// matches all of one of the two names.
	Match string
	// Skip leaves the tensor unquantized; nothing else may be set. Default: false.
	Skip bool
	// Bits of a code, 1 to 8. Default (0): the recipe's for the tensor's role.
	Bits int
	// Group is a multiple of 16, or PerChannel. Default (0): the recipe's for the tensor's role.
	Group int
	// Mapping. Default (MappingNone): the recipe's.
	Mapping gqf.Mapping
	// ScaleDtype. Default (ScaleNone): the recipe's.
	ScaleDtype packing.ScaleDtype
	// Algorithm. Default (AlgorithmNone): the recipe's; see Recipe.Algorithm.
	Algorithm gqf.Algorithm
	// PositiveScales. Default (nil): the recipe's.
	PositiveScales *bool
	// Layouts are the layouts, as in a Recipe. Default (nil): the recipe's.
	Layouts []LayoutRequest
	// Origin says where the rule was stated, for messages: "--rule", "recipe.yaml:12". Default:
	// unknown.
	Origin string
}

// ParseRule reads a rule of the command line: NAME=skip, or NAME=bits[,group][,mapping][,scale
// dtype][,algorithm][,positive-scales][,layout[:tile]], where the order after the bits is free.
// NAME may contain "=".
func ParseRule(s string) (Rule, error) {
	fail := func(err error) (Rule, error) { return Rule{}, fmt.Errorf("--rule %q: %w", s, err) }
	i := strings.LastIndexByte(s, '=')
	if i < 0 {
		return fail(errors.New("no '=' in it: write NAME=bits[,group][,mapping]... or NAME=skip"))
	}
	r := Rule{Match: s[:i], Origin: "--rule"}
	words := strings.Split(s[i+1:], ",")
	if words[0] == "skip" {
		if len(words) > 1 {
			return fail(errors.New("skip leaves the tensor unquantized: nothing may follow it"))
		}
		r.Skip = true
	} else if err := r.setBits(words[0]); err != nil {
		return fail(err)
	}
	for _, w := range words[1:] {
		if err := r.setWord(w); err != nil {
			return fail(err)
		}
	}
	if err := r.check(); err != nil {
		return fail(err)
	}
	return r, nil
}

func (r *Rule) setBits(s string) (err error) {
	if _, err := strconv.Atoi(s); err != nil {
		return fmt.Errorf("%q is neither a number of bits, 1 to 8, nor skip", s)
	}
	r.Bits, err = ParseBits(s)
	return err
}

// setWord sets the field of a word after the bits.
func (r *Rule) setWord(w string) error {
	mapping, isMapping := parseMapping(w)
	dtype, isDtype := packing.ParseScaleDtype(w)
	algorithm, isAlgorithm := parseAlgorithm(w)
	twice := false
	switch {
	case isMapping:
		twice = r.Mapping != gqf.MappingNone
		r.Mapping = mapping
	case isDtype:
		twice = r.ScaleDtype != packing.ScaleNone
		r.ScaleDtype = dtype
	case isAlgorithm:
		twice = r.Algorithm != gqf.AlgorithmNone
		r.Algorithm = algorithm
	case w == "positive-scales":
		twice = r.PositiveScales != nil
		yes := true
		r.PositiveScales = &yes
	case w == "channel" || w != "" && strings.Trim(w, "+-0123456789") == "":
		twice = r.Group != 0
		var err error
		if r.Group, err = ParseGroup(w); err != nil {
			return err
		}
	case isLayout(w):
		f, err := ParseLayouts(w)
		if err != nil {
			return err
		}
		twice = slices.Contains(r.Layouts, f[0])
		r.Layouts = append(r.Layouts, f...) // several: the tensor is stored in each
	default:
		return fmt.Errorf("%q is neither a group (a multiple of 16, or channel), nor a mapping (%s), nor a scale dtype (%s), nor an algorithm (%s), nor positive-scales, nor a layout (%s)%s", w,
			strings.Join(mappingNames, ", "), strings.Join(dtypeNames, ", "), strings.Join(algorithmNames, ", "), strings.Join(familyNames, ", "),
			suggest.DidYouMean(w, slices.Concat(mappingNames, dtypeNames, algorithmNames, familyNames)))
	}
	if twice {
		return fmt.Errorf("%q repeats what an earlier word states", w)
	}
	return nil
}

// check reports a rule that is invalid on its own.
func (r Rule) check() error {
	if _, err := pattern.Parse(r.Match); err != nil {
		return err
	}
	says := r.Bits != 0 || r.Group != 0 || r.Mapping != gqf.MappingNone || r.ScaleDtype != packing.ScaleNone || r.Algorithm != gqf.AlgorithmNone || r.PositiveScales != nil || r.Layouts != nil
	switch {
	case r.Skip && says:
		return errors.New("skip leaves the tensor unquantized: state nothing else")
	case !r.Skip && !says:
		return errors.New("it states nothing: give bits, group, mapping, scale-dtype, algorithm, positive-scales or layout, or skip")
	}
	return nil
}

// Exact reports whether the rule names a tensor or a module instead of a pattern.
func (r Rule) Exact() bool {
	p, err := pattern.Parse(r.Match)
	return err == nil && p.Exact()
}

// String spells the rule as ParseRule reads it, if it states bits, and adds its origin: "--rule
// 'lm_head=6,64'", "rule 're:.*down_proj=skip' (recipe.yaml:12)".
func (r Rule) String() string {
	var words []string
	add := func(ok bool, w string) {
		if ok {
			words = append(words, w)
		}
	}
	add(r.Skip, "skip")
	add(r.Bits != 0, strconv.Itoa(r.Bits))
	add(r.Group != 0, groupName(r.Group))
	add(r.Mapping != gqf.MappingNone, r.Mapping.String())
	add(r.ScaleDtype != packing.ScaleNone, r.ScaleDtype.String())
	add(r.Algorithm != gqf.AlgorithmNone, r.Algorithm.String())
	if p := r.PositiveScales; p != nil {
		add(*p, "positive-scales")
		add(!*p, "no positive-scales")
	}
	for _, f := range r.Layouts {
		add(true, f.String())
	}
	if r.Bits == 0 && r.Group != 0 {
		words[0] = "group " + words[0]
	}
	s := fmt.Sprintf("'%s=%s'", r.Match, strings.Join(words, ","))
	switch r.Origin {
	case "":
		return "rule " + s
	case "--rule":
		return "--rule " + s
	}
	return fmt.Sprintf("rule %s (%s)", s, r.Origin)
}

// RuleSet finds the rule for each tensor of a checkpoint. It is not safe for concurrent use.
type RuleSet struct {
	rules []*ruleUse
	exact map[string][]int // by Match; indices ascend
}

type ruleUse struct {
	rule   Rule
	match  pattern.Pattern
	used   bool
	lostTo map[*ruleUse]bool // matching rules that preceded this one
}

// NewRuleSet takes the rules of a recipe and the rules that precede them, from the command line. It
// checks the recipe and every rule.
func NewRuleSet(recipe Recipe, first []Rule) (*RuleSet, error) {
	if err := recipe.Validate(); err != nil {
		return nil, err
	}
	rs := &RuleSet{exact: map[string][]int{}}
	for i, r := range slices.Concat(first, recipe.Rules) {
		err := r.check()
		if err == nil {
			// What the rule does not state depends on the role; the plan checks each tensor.
			if err = recipe.validScheme(gqf.RoleProjection, &r); recipe.validScheme(gqf.RoleEmbedding, &r) == nil {
				err = nil
			}
			if r.Layouts != nil && (recipe.ForGGUF() || recipe.CheckpointFormat() != "") {
				err = fmt.Errorf("it states a layout, but target %s chooses it: leave the layout out", TargetNames(recipe.Targets))
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r, err)
		}
		match, _ := pattern.Parse(r.Match) // checked above
		rs.rules = append(rs.rules, &ruleUse{rule: r, match: match, lostTo: map[*ruleUse]bool{}})
		if match.Exact() {
			rs.exact[r.Match] = append(rs.exact[r.Match], i)
		}
	}
	return rs, nil
}

// Match finds the rule for a tensor: the first with the exact name of the tensor or its module,
// else the first whose glob or regular expression matches one of the two. The rule is nil if none
// matches.
func (rs *RuleSet) Match(tensor string) (*Rule, bool) {
	found := slices.Clone(rs.exact[tensor])
	if module := pattern.Module(tensor); module != tensor {
		found = append(found, rs.exact[module]...)
		slices.Sort(found)
	}
	for i, u := range rs.rules {
		if !u.match.Exact() && u.match.Match(tensor) {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		return nil, false
	}
	winner := rs.rules[found[0]]
	for _, i := range found[1:] {
		rs.rules[i].lostTo[winner] = true
	}
	return &winner.rule, true
}

// Use records that a rule of Match was applied.
func (rs *RuleSet) Use(rule *Rule) {
	for _, u := range rs.rules {
		if &u.rule == rule {
			u.used = true
		}
	}
}

// Unused lists, in order, the rules that were never applied. It omits rules that match but always
// came after an applied rule, because a command line may override every rule of a recipe.
func (rs *RuleSet) Unused() []Rule {
	var unused []Rule
	for _, u := range rs.rules {
		stoodBack := false
		for winner := range u.lostTo {
			stoodBack = stoodBack || winner.used
		}
		if !u.used && !stoodBack {
			unused = append(unused, u.rule)
		}
	}
	return unused
}

// isLayout reports whether a word of a rule names a layout, with or without a tile.
func isLayout(w string) bool {
	name, _, _ := strings.Cut(w, ":")
	return slices.Contains(familyNames, name)
}
