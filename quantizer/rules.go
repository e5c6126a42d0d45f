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
	// Group is a multiple of 16, or PerChannel. Default (nil): the recipe's for the tensor's role.
	Group *int
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
	} else if _, err := strconv.Atoi(words[0]); err != nil {
		return fail(fmt.Errorf("%q is neither a number of bits, 1 to 8, nor skip", words[0]))
	} else if r.Bits, err = parseBits(words[0]); err != nil {
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

func (r *Rule) recipe() *Recipe {
	return &Recipe{Bits: r.Bits, Group: r.Group, Mapping: r.Mapping, ScaleDtype: r.ScaleDtype, Algorithm: r.Algorithm, PositiveScales: r.PositiveScales, Layouts: r.Layouts}
}

// state is the inverse of recipe.
func (r *Rule) state(s *Recipe) {
	r.Bits, r.Group, r.Mapping, r.ScaleDtype, r.Algorithm, r.PositiveScales, r.Layouts = s.Bits, s.Group, s.Mapping, s.ScaleDtype, s.Algorithm, s.PositiveScales, s.Layouts
}

// setWord sets the field of a word after the bits.
func (r *Rule) setWord(w string) error {
	name, _, _ := strings.Cut(w, ":")
	var neither, known []string
	for _, s := range settings[1:] { // the first are the bits
		if s.in&inRule == 0 {
			continue
		}
		stated, value := r.recipe(), w
		switch {
		// several: the tensor is stored in each
		case s.Name == "layout" && slices.Contains(s.Values, name) && r.Layouts != nil:
			return r.set(s, strings.Join(namesOf(r.Layouts...), ",")+","+w)
		case s.Name == "layout" && slices.Contains(s.Values, name):
		case s.Name == "group" && w != "" && strings.Trim(w, "+-0123456789") == "":
		case s.Value == "" && w == s.Name:
			value = "true"
		case !slices.Contains(s.Values, w):
			if known = append(known, s.Values...); s.Name == "group" {
				neither = append(neither, "a group (a multiple of 16, or channel)")
			} else {
				neither = append(neither, strings.TrimSuffix(s.Name+" ("+strings.Join(s.Values, ", ")+")", " ()"))
			}
			continue
		}
		if s.stated(stated) {
			return fmt.Errorf("%q repeats what an earlier word states", w)
		}
		return r.set(s, value)
	}
	return fmt.Errorf("%q is neither %s%s", w, strings.Join(neither, ", nor "), suggest.DidYouMean(w, known))
}

func (r *Rule) set(s Setting, value string) error {
	stated := r.recipe()
	err := s.Set(stated, value)
	r.state(stated)
	return err
}

func (r Rule) check() error {
	if _, err := pattern.Parse(r.Match); err != nil {
		return err
	}
	stated, all := r.recipe(), []string{}
	says := false
	for _, s := range settings {
		if s.in&inRule != 0 {
			says, all = says || s.stated(stated), append(all, s.Name)
		}
	}
	switch {
	case r.Skip && says:
		return errors.New("skip leaves the tensor unquantized: state nothing else")
	case !r.Skip && !says:
		return fmt.Errorf("it states nothing: give skip, or one of %s", strings.Join(all, ", "))
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
	if r.Skip {
		words = []string{"skip"}
	}
	stated := r.recipe()
	for _, s := range settings {
		switch v := s.field.value(stated); {
		case s.in&inRule == 0 || !s.stated(stated):
		case s.Name == "group" && r.Bits == 0:
			words = append(words, "group "+groupName(*r.Group))
		case s.Value == "" && *r.PositiveScales:
			words = append(words, s.Name)
		case s.Value == "":
			words = append(words, "no "+s.Name)
		default:
			words = append(words, fmt.Sprint(v))
		}
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
	used  map[*Rule]bool
}

type ruleUse struct {
	rule   Rule
	match  pattern.Pattern
	lostTo map[*Rule]bool // matching rules that preceded this one
}

// NewRuleSet takes the rules of a recipe and the rules that precede them, from the command line. It
// checks the recipe and every rule.
func NewRuleSet(recipe Recipe, first []Rule) (*RuleSet, error) {
	if err := recipe.Validate(); err != nil {
		return nil, err
	}
	rs := &RuleSet{exact: map[string][]int{}, used: map[*Rule]bool{}}
	for i, r := range slices.Concat(first, recipe.Rules) {
		err := r.check()
		if err == nil {
			// What the rule does not state depends on the role; the plan checks each tensor.
			if err = recipe.validScheme(gqf.RoleProjection, &r); recipe.validScheme(gqf.RoleEmbedding, &r) == nil {
				err = nil
			}
			if r.Layouts != nil && recipe.Alone() {
				err = fmt.Errorf("it states a layout, but target %s chooses it: leave the layout out", TargetNames(recipe.Targets))
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r, err)
		}
		match, _ := pattern.Parse(r.Match) // checked above
		rs.rules = append(rs.rules, &ruleUse{rule: r, match: match})
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
	winner := &rs.rules[found[0]].rule
	for _, i := range found[1:] {
		u := rs.rules[i]
		if u.lostTo == nil {
			u.lostTo = map[*Rule]bool{}
		}
		u.lostTo[winner] = true
	}
	return winner, true
}

// Use records that a rule of Match was applied.
func (rs *RuleSet) Use(rule *Rule) { rs.used[rule] = true }

// Unused lists, in order, the rules that were never applied. It omits rules that match but always
// came after an applied rule, because a command line may override every rule of a recipe.
func (rs *RuleSet) Unused() []Rule {
	var unused []Rule
	for _, u := range rs.rules {
		stoodBack := false
		for winner := range u.lostTo {
			stoodBack = stoodBack || rs.used[winner]
		}
		if !rs.used[&u.rule] && !stoodBack {
			unused = append(unused, u.rule)
		}
	}
	return unused
}

// TensorError names the row and the tensor of a checkpoint that could not be quantized.
type TensorError struct {
	File   string // of the checkpoint
	Tensor string
	Slice  int   // expert of a fused tensor; -1 if the tensor is one matrix
	Row    int64 // output, within the slice
	Err    error // *NonFiniteError, *ScaleError or *SumError
}

func (e *TensorError) Error() string {
	slice := ""
	if e.Slice >= 0 {
		slice = fmt.Sprintf(" expert %d,", e.Slice)
	}
	return fmt.Sprintf("%s: tensor %q,%s row %d: %v", e.File, e.Tensor, slice, e.Row, e.Err)
}

// Unwrap returns e.Err.
func (e *TensorError) Unwrap() error { return e.Err }

// RequestError says that a job is impossible for any weights: a rule matches nothing, or an output
// is an input. It is a usage error of the command line.
type RequestError struct{ err error }

func (e *RequestError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *RequestError) Unwrap() error { return e.err }

// Requestf makes a *RequestError.
func Requestf(format string, args ...any) error {
	return &RequestError{fmt.Errorf(format, args...)}
}
