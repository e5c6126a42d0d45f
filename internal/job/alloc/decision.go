package alloc

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/quantizer"
)

// Option is a scheme that a decision can take: bits, a group and a mapping, or, for target gguf, a
// type. A rule states a type by bits and mapping.
type Option struct {
	Bits    int
	Group   int
	Mapping gqf.Mapping // MappingNone: the recipe's, or the default of the bits
	// Type is the type of GGUF files, for target gguf; else F32.
	Type gguf.TensorType
	// Bytes is the size of the payload, KL the predicted divergence.
	Bytes int64
	KL    float64

	// stated is the number of bits in the rule, less than Bits if Type replaces an unfit type.
	stated int
	// scheme is the plan's scheme, but without calibration.
	scheme rounding.Scheme
	// floatZeros says that the layout stores floating-point zero points.
	floatZeros bool
}

// Decision is a list of tensors that get the same bits and group.
type Decision struct {
	// Name is the tensor's name, with * for the numbers of experts, or the name of the merged layer
	// that users of the checkpoint see: "model.layers.0.mlp.gate_up_proj.weight".
	Name      string
	Tensors   []string
	Embedding bool // the tensor is the embedding
	Weights   int64
	// ProbeKL is the divergence with only these tensors rounded as in probes.
	ProbeKL float64
	Options []Option // in order of bytes

	heads  []string        // other names of an embedding
	match  string          // pattern of a rule for all tensors; "": a rule for each tensor
	rule   *quantizer.Rule // the user's rule that leaves bits open; nil: none
	scheme rounding.Scheme
	// solved says that calibration of whole layers will choose the codes of a GGUF file.
	solved bool
	hull   []int // indices of the options on the lower convex hull, in order of bytes
}

var expert = regexp.MustCompile(`^(.*\.experts\.)\d+(\..*)$`)

func (j *Job) decisions(base *fromcheckpoint.Plan) ([]*Decision, error) {
	rules, err := quantizer.NewRuleSet(j.Options.Recipe, j.Options.Rules)
	if err != nil {
		return nil, err
	}
	heads := map[string][]string{}
	for _, t := range base.Tensors {
		if t.Action == plan.ActionShare {
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
	fixed := map[string]bool{} // groups with a fixed member
	for _, t := range base.Tensors {
		if t.Action != plan.ActionQuantize {
			continue
		}
		embedding := t.Role == gqf.RoleEmbedding && j.Model.IsEmbedding(t.Name)
		rule, _ := rules.Match(t.Name)
		for _, h := range heads[t.Name] {
			if rule == nil {
				rule, _ = rules.Match(h)
			}
		}
		key := j.Options.Recipe.CheckpointFormat().MergedName(t.Name)
		parts := expert.FindStringSubmatch(t.Name)
		if parts != nil {
			key = parts[1] + "*" + parts[2]
		}
		name := key
		if !linears[t.Name] && !embedding || rule != nil && rule.Bits != 0 || embedding && j.EmbeddingFixed {
			fixed[key] = true
			continue
		}
		if rule != nil {
			key += "\x00" + rule.String()
		}
		d := groups[key]
		if d == nil {
			s := j.Options.Recipe.Scheme(t.Role, rule)
			d = &Decision{Name: name, Embedding: embedding, rule: rule, heads: heads[t.Name], scheme: rowByRow(s)}
			if embedding && d.heads != nil { // tied: calibrated as the linear layers are
				s = j.Options.Recipe.Scheme(gqf.RoleProjection, rule)
			}
			d.solved = s.Algorithm.ByLayers() && j.Options.Recipe.ForGGUF()
			if parts != nil {
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
			d.match = "" // a pattern would match other tensors too
		}
	}
	for _, d := range list { // a rule for some experts of a layer separates these experts
		if d.match != "" && slices.ContainsFunc(list, func(o *Decision) bool { return o != d && o.Name == d.Name }) {
			d.match = ""
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("rules decide for every tensor: there is nothing to choose")
	}
	return list, nil
}

// rowByRow returns the scheme of probes and predictions. In place of a calibrated algorithm, rows
// are rounded one by one as imatrix rounds them, with weights of columns.
func rowByRow(s rounding.Scheme) rounding.Scheme {
	if s.Algorithm.Calibrated() {
		s.Algorithm = gqf.AlgorithmImatrix
	}
	return s
}

// rules give the decision an option. For target gguf, the type decides the group.
func (d *Decision) rules(o Option) []quantizer.Rule {
	r := quantizer.Rule{}
	if d.rule != nil {
		r = *d.rule
	}
	r.Bits, r.Origin = o.stated, "bits per tensor"
	if r.Mapping == gqf.MappingNone {
		r.Mapping = o.Mapping
	}
	if d.solved && d.Embedding && r.Algorithm == gqf.AlgorithmNone {
		r.Algorithm = gqf.AlgorithmGPTQ
	}
	if r.Group == nil && o.Type == 0 {
		r.Group = &o.Group
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

// options finds each decision's options and bytes from plans with the same option everywhere.
func (j *Job) options(list []*Decision) error {
	reasons := map[*Decision][]string{}
	var first error
	for _, candidate := range j.candidates() {
		takes := func(d *Decision) bool { return j.takes(d, candidate) }
		if !slices.ContainsFunc(list, takes) {
			continue
		}
		p, err := j.uniform(list, candidate, takes)
		if err != nil { // layouts have other schemes for embeddings
			first = err
			if p, err = j.uniform(list, candidate, func(d *Decision) bool { return d.Embedding && takes(d) }); err != nil {
				continue
			}
		}
		lines := map[string]*plan.Tensor{}
		for _, l := range p.Tensors {
			lines[l.Name] = l
		}
		schemes := map[string]rounding.Scheme{}
		for _, m := range p.Matrices() {
			schemes[m.Tensor] = m.Scheme
		}
		for _, d := range list {
			if !takes(d) {
				continue
			}
			if o, why, ok := d.planned(candidate, lines, schemes); ok && o.Bits <= j.MaxBits {
				same := func(p Option) bool { return o.scheme == p.scheme && o.Type == p.Type }
				if i := slices.IndexFunc(d.Options, same); i < 0 {
					d.Options, reasons[d] = append(d.Options, o), append(reasons[d], why)
				} else if o.stated > d.Options[i].stated { // a rule states a type's own bits, if possible
					d.Options[i] = o
				}
			}
		}
	}
	for _, d := range list {
		d.preferred(reasons[d])
		if len(d.Options) == 0 {
			if first == nil {
				first = fmt.Errorf("no type of GGUF files of %d to %d bits has the mapping that is stated and fits the rows", j.MinBits, j.MaxBits)
			}
			return fmt.Errorf("tensor %q: nothing to choose from: %w", d.Name, first)
		}
		slices.SortStableFunc(d.Options, func(a, b Option) int { return int(min(max(a.Bytes-b.Bytes, -1), 1)) })
	}
	return nil
}

// planned is a candidate in a plan. If a type of GGUF files does not fit the tensors' rows, the
// option has the type that the plan has instead. reason says why the requested layout cannot store
// the option. ok is false if the tensors get different options.
func (d *Decision) planned(o Option, lines map[string]*plan.Tensor, schemes map[string]rounding.Scheme) (_ Option, reason string, ok bool) {
	first := lines[d.Tensors[0]]
	o.scheme = rowByRow(schemes[d.Tensors[0]])
	o.floatZeros = first.ZeroPoints == rounding.FloatZeros
	if o.Type == 0 && o.Mapping == gqf.MappingAsymmetric && !o.scheme.Fractions {
		return o, "", false
	}
	if o.Type != 0 {
		if o.Type, ok = gguf.ParseType(first.Type); !ok {
			return o, "", false
		}
		o.Bits = first.Bits
	}
	for _, name := range d.Tensors {
		l := lines[name]
		if l.Action != plan.ActionQuantize || l.Bits != o.Bits || l.Type != first.Type {
			return o, "", false
		}
		o.Bytes += l.Bytes
		if o.Group = l.Group; o.Type == 0 {
			reason = l.Reason
		}
	}
	return o, reason, true
}

// preferred drops the options that the requested layout cannot store, if other options remain.
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

// ggufMappings are the mappings of the types to choose from. MXFP4 is not among them: IQ4_XS has
// its size and half of its errors.
var ggufMappings = []gqf.Mapping{
	gqf.MappingNone, gqf.MappingFullRange, gqf.MappingAsymmetric, gqf.MappingKQuant,
	rounding.MappingNonlinear, rounding.MappingNonlinearK, rounding.MappingTernary,
	rounding.MappingLattice, rounding.MappingLatticeXS, rounding.MappingLatticeXXS,
}

// candidates lists the options before their bytes are known.
func (j *Job) candidates() (list []Option) {
	r := j.Options.Recipe
	for bits := j.MinBits; bits <= j.MaxBits; bits++ {
		if !r.ForGGUF() {
			for _, group := range j.groups(bits) {
				list = append(list, Option{Bits: bits, Group: group, stated: bits})
			}
			for _, group := range j.groups(bits) {
				if bits == 2 && r.CheckpointFormat() == "" {
					list = append(list, Option{Bits: bits, Group: group, Mapping: gqf.MappingHalfStep, stated: bits})
				}
			}
			for _, group := range j.fractions() {
				list = append(list, Option{Bits: bits, Group: group, Mapping: gqf.MappingAsymmetric, stated: bits})
			}
			continue
		}
		var types []gguf.TensorType
		for _, m := range ggufMappings {
			s := r.Scheme(gqf.RoleProjection, &quantizer.Rule{Bits: bits, Mapping: m})
			t, err := rounding.GGUFType(s)
			if err != nil || slices.Contains(types, t) { // no such type, or the recipe gives the same
				continue
			}
			types = append(types, t)
			list = append(list, Option{Bits: bits, Mapping: m, Type: t, stated: bits})
		}
	}
	return list
}

// groups are the group sizes to choose from at a width with the stated or default mapping. For
// checkpoints these are the groups with kernels in other programs: channels, if there is no other.
// For ONNX Runtime there are none at widths that it does not hold.
func (j *Job) groups(bits int) []int {
	list := j.Groups
	if list == nil {
		list = defaultGroups
	}
	f := j.Options.Recipe.CheckpointFormat()
	if f == "" && j.Options.Recipe.ForONNX() && bits != 2 && bits != 4 && bits != 8 {
		return nil
	}
	if f == "" {
		return list
	}
	served := slices.DeleteFunc(slices.Clone(list), func(g int) bool { return !f.Served(bits, int64(g)) })
	if len(served) == 0 && f.Served(bits, 0) {
		return []int{0}
	}
	return served
}

func (j *Job) fractions() []int {
	switch {
	case j.Options.Recipe.IntegerZeros():
		return nil
	case j.Groups != nil:
		return j.Groups
	}
	return fractionGroups
}

// takes reports whether the mapping that a decision's rule or the recipe states leaves a candidate
// its mapping or type. Otherwise the candidate is not for this decision, but may be for others.
func (j *Job) takes(d *Decision, o Option) bool {
	ruled := d.rule != nil && d.rule.Mapping != gqf.MappingNone
	stated := j.Options.Recipe.Mapping
	if ruled {
		stated = d.rule.Mapping
	}
	if o.Mapping == gqf.MappingHalfStep && o.Type == 0 && d.rule != nil && d.rule.Layouts != nil {
		return false // the rule's layouts may lack the grid, and a plan of all tensors would fail
	}
	if o.Type == 0 {
		return o.Mapping == gqf.MappingNone || stated == gqf.MappingNone || stated == o.Mapping
	}
	if !ruled && o.Mapping != gqf.MappingNone && stated != gqf.MappingNone {
		return false
	}
	role := gqf.RoleProjection
	if d.Embedding {
		role = gqf.RoleEmbedding
	}
	t, err := rounding.GGUFType(j.Options.Recipe.Scheme(role, &d.rules(o)[0]))
	return err == nil && t == o.Type
}

func (j *Job) uniform(list []*Decision, o Option, chosen func(*Decision) bool) (*fromcheckpoint.Plan, error) {
	opts := j.Options
	opts.Rules, opts.Trial = nil, true
	for _, d := range list {
		if chosen(d) {
			opts.Rules = append(opts.Rules, d.rules(o)...)
		}
	}
	opts.Rules = append(opts.Rules, j.Options.Rules...)
	return conversion.NewPlan(j.Checkpoint, j.Config, opts)
}
