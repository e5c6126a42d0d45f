package alloc

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// Option is what a decision can be.
type Option struct {
	Bits  int
	Group int
	// Bytes of payload, KL as predicted.
	Bytes int64
	KL    float64
}

// Decision is one or more tensors that get the same bits and group.
type Decision struct {
	// Name is the tensor's, with * in the place of experts' numbers.
	Name    string
	Tensors []string
	Table   bool // looked up by token
	Weights int64
	// ProbeKL is what was measured with these tensors alone at each of Job.Widths, group 64.
	ProbeKL []float64
	Options []Option // in order of bytes

	heads  []string        // other names that a table goes by
	match  string          // of the rule for all of them; "": one each
	rule   *quantizer.Rule // a person's rule that leaves bits open; nil: none
	scheme rounding.Scheme
	hull   []int // indices of the options on the lower convex hull, in order of bytes
}

// expert finds the number of an expert in a name.
var expert = regexp.MustCompile(`^(.*\.experts\.)\d+(\..*)$`)

// decisions lists what is to be decided, and the tensors that are not.
func (j *Job) decisions(plan *conversion.Plan) ([]*Decision, error) {
	rules, err := quantizer.NewRuleSet(j.Options.Recipe, j.Options.Rules)
	if err != nil {
		return nil, err
	}
	heads := map[string][]string{}
	for _, t := range plan.Tensors {
		if t.Action == conversion.ActionShare {
			heads[t.SharedWith] = append(heads[t.SharedWith], t.Name)
		}
	}
	linears := map[string]bool{}
	for _, name := range j.Model.Linears() {
		base, _, _ := strings.Cut(name, "[")
		linears[base] = true
	}
	var list []*Decision
	groups := map[string]*Decision{}
	fixed := map[string]bool{} // groups of which a member is not open
	for _, t := range plan.Tensors {
		if t.Action != conversion.ActionQuantize {
			continue
		}
		table := t.Role == gqf.RoleEmbedding
		rule, _ := rules.Match(t.Name)
		for _, h := range heads[t.Name] {
			if rule == nil {
				rule, _ = rules.Match(h)
			}
		}
		key := t.Name
		parts := expert.FindStringSubmatch(t.Name)
		if parts != nil {
			key = parts[1] + "*" + parts[2]
		}
		if !linears[t.Name] && !table || rule != nil && rule.Bits != 0 || table && j.TableFixed {
			fixed[key] = true
			continue
		}
		if rule != nil {
			key += "\x00" + rule.String()
		}
		d := groups[key]
		if d == nil {
			d = &Decision{Name: t.Name, Table: table, rule: rule, heads: heads[t.Name], scheme: withoutData(j.Options.Recipe.Scheme(t.Role, rule))}
			if parts != nil {
				d.Name = parts[1] + "*" + parts[2]
				d.match = "re:" + regexp.QuoteMeta(parts[1]) + `\d+` + regexp.QuoteMeta(parts[2])
			}
			groups[key] = d
			list = append(list, d)
		}
		d.Tensors = append(d.Tensors, t.Name)
		n := int64(1)
		for _, v := range t.Shape {
			n *= v
		}
		d.Weights += n
	}
	for key, d := range groups {
		if name, _, ruled := strings.Cut(key, "\x00"); fixed[name] || ruled {
			d.match = "" // a pattern would take in others
		}
	}
	for _, d := range list { // a rule for part of a group's experts parts it from the others
		if d.match != "" && slices.ContainsFunc(list, func(o *Decision) bool { return o != d && o.Name == d.Name }) {
			d.match = ""
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("rules decide for every tensor: there is nothing to choose")
	}
	return list, nil
}

// withoutData gives a scheme by which rows alone can be quantized: with the search where calibration would choose codes.
// What the bits of tensors are worth compared with each other is about the same for both.
func withoutData(s rounding.Scheme) rounding.Scheme {
	if s.Algorithm.Calibrated() {
		s.Algorithm = gqf.AlgorithmSearch
	}
	return s
}

// rules are those that give the decision an option.
func (d *Decision) rules(bits, group int) []quantizer.Rule {
	r := quantizer.Rule{}
	if d.rule != nil {
		r = *d.rule
	}
	r.Bits, r.Origin = bits, "bits per tensor"
	if r.Group == 0 {
		r.Group = group
	}
	if d.match != "" {
		r.Match = d.match
		return []quantizer.Rule{r}
	}
	list := make([]quantizer.Rule, len(d.Tensors))
	for i, name := range d.Tensors {
		r.Match = strings.TrimSuffix(name, ".weight")
		list[i] = r
	}
	return list
}

// options finds out what each decision can be and takes, by plans with the same option everywhere.
func (j *Job) options(list []*Decision) error {
	reasons := map[*Decision][]string{}
	var first error
	for bits := j.MinBits; bits <= j.MaxBits; bits++ {
		for _, group := range j.Groups {
			plan, err := j.uniform(list, bits, group, func(d *Decision) bool { return true })
			if err != nil { // layouts have other schemes for tables
				first = err
				if plan, err = j.uniform(list, bits, group, func(d *Decision) bool { return d.Table }); err != nil {
					continue
				}
			}
			lines := map[string]*conversion.PlanTensor{}
			for _, l := range plan.Tensors {
				lines[l.Name] = l
			}
			for _, d := range list {
				o, why := Option{Bits: bits, Group: group}, ""
				for _, name := range d.Tensors {
					l := lines[name]
					if l.Bits != bits {
						o.Bytes = -1
						break
					}
					o.Bytes += l.Bytes
					o.Group, why = l.Group, l.Reason
				}
				if o.Bytes > 0 && !slices.ContainsFunc(d.Options, func(p Option) bool { return p.Bits == o.Bits && p.Group == o.Group }) {
					d.Options, reasons[d] = append(d.Options, o), append(reasons[d], why)
				}
			}
		}
	}
	for _, d := range list {
		d.preferred(reasons[d])
		if len(d.Options) == 0 {
			return fmt.Errorf("tensor %q: nothing to choose from: %w", d.Name, first)
		}
		slices.SortStableFunc(d.Options, func(a, b Option) int { return int(min(max(a.Bytes-b.Bytes, -1), 1)) })
	}
	return nil
}

// preferred drops options for which the layout asked for does not exist, if there are others.
func (d *Decision) preferred(reasons []string) {
	if !slices.Contains(reasons, "") {
		return
	}
	var kept []Option
	for i, o := range d.Options {
		if reasons[i] == "" {
			kept = append(kept, o)
		}
	}
	d.Options = kept
}

// uniform is the plan in which all chosen decisions have one option.
func (j *Job) uniform(list []*Decision, bits, group int, chosen func(*Decision) bool) (*conversion.Plan, error) {
	opts := j.Options
	opts.Rules = nil
	for _, d := range list {
		if chosen(d) {
			opts.Rules = append(opts.Rules, d.rules(bits, group)...)
		}
	}
	opts.Rules = append(opts.Rules, j.Options.Rules...)
	return conversion.NewPlan(j.Checkpoint, j.Config, opts)
}
