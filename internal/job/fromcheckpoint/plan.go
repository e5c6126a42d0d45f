// Package fromcheckpoint plans the quantization of a checkpoint, and makes codes of its rows.
package fromcheckpoint

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
	"github.com/lowbit-go/gq/internal/pattern"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// Plan is the plan of quantizing a checkpoint. It reads weights only to compare an lm_head with the
// embedding, and a few rows to look for lattices.
type Plan struct {
	*write.Job
	from   *Input
	folded int64 // size of the folded checkpoint's tensors
}

// WorkBytes is the size of the tensors that Write reads.
func (p *Plan) WorkBytes() int64 { return cmp.Or(p.folded, p.SourceBytes) }

// Plan lays out the job of quantizing the checkpoint. It fails with a *RequestError for a rule that
// matches nothing or a tensor that it cannot apply to and for a layout that cannot hold the scheme;
// also for a tensor of unknown dtype.
func (in *Input) Plan(out write.Output) (*Plan, error) {
	opts, ck := &in.opts, in.Ck
	base := plan.NewPlanner(out, opts.Recipe, opts.Threads)
	pl := &TensorPlanner{Planner: base, origin: opts.Origin}
	in.plan, pl.Ck, pl.Config = pl.Plan, ck, in.config
	pl.Same = func(a, b *plan.Draft) (bool, error) { return SameContent(ck, *a.Src, *b.Src) }
	var err error
	if in.config != nil {
		if pl.Cfg, err = arch.ParseConfig(in.config); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(ck.Dir(), assets.ConfigName), err)
		}
		in.scaleBlock = pl.Cfg.WeightBlockSize
		pl.ScaleBlock = in.scaleBlock
	}
	if pl.Rules, err = quantizer.NewRuleSet(opts.Recipe, opts.Rules); err != nil {
		return nil, err
	}
	if err := pl.decideAll(opts.Context); err != nil {
		return nil, err
	}
	if err := pl.Tie(); err != nil {
		return nil, err
	}
	if err := out.Begin(base, func() ([]llamacpp.Source, error) { return sourcesOf(pl.Drafts), nil }); err != nil {
		return nil, err
	}
	if err := pl.shape(); err != nil {
		return nil, err
	}
	if unused := pl.Rules.Unused(); len(unused) > 0 {
		return nil, pl.unusedError(unused)
	}
	pl.Settle()
	if err := pl.LayOut(); err != nil {
		return nil, err
	}
	pl.warnOfOneBit()
	sources := in.sources()
	if i := slices.IndexFunc(sources, func(s provenance.Source) bool { return s.Unverified }); i >= 0 {
		pl.Warn("%s comes from a place that states no SHA-256 of its files: nothing shows that the bytes are right (the provenance says unverified)", sources[i].Name)
	}
	if !opts.Trial {
		if err := in.warnOfLattices(base); err != nil {
			return nil, err
		}
	}
	j, err := write.New(pl.Plan, in, out)
	if err != nil {
		return nil, err
	}
	if opts.Recipe.HashFiles {
		j.Hash = func(ctx context.Context, t write.Part) ([]string, error) {
			return provenance.HashFiles(ctx, in.sources(), opts.Threads, t.Index, t.Of)
		}
	}
	j.Samples = ck.SampleDigest
	if ck.Remote() {
		j.Ahead = func(ctx context.Context, n int, at func(i int) write.Unit) *safetensors.ReadAhead {
			return ck.ReadAhead(ctx, n, func(i int, list []safetensors.Range) []safetensors.Range { return in.ranges(list, at(i)) })
		}
	}
	j.Need = func(u write.Unit) { ck.Need(in.ranges(nil, u)...) }
	j.Release = func(u write.Unit) {
		// Other units read the slice of a transposed tensor, too.
		if it, ok := u.Item.(*plan.Quantized); !ok || !it.Transposed {
			ck.Release(in.ranges(nil, u)...)
		}
	}
	p := &Plan{Job: j, from: in}
	if o := opts.Origin; o != nil {
		p.Fold, p.folded, p.SourceBytes = &o.Fold, p.SourceBytes, o.Checkpoint.DataBytes()
	}
	return p, nil
}

// warnOfOneBit says that calibration is all that makes 1 bit usable (docs/QUALITY.md).
func (pl *TensorPlanner) warnOfOneBit() {
	var names []string
	for it := range pl.Quantized() {
		if a := it.Scheme.Algorithm; it.Scheme.Bits == 1 && it.Scheme.Mapping != rounding.MappingTernary && a != gqf.AlgorithmGPTQ && a != gqf.AlgorithmGPTQFT {
			names = append(names, it.Src.Name)
		}
	}
	switch n := len(names); n {
	case 0:
	case 1:
		pl.Warn("%q has 1 bit, not chosen with calibration: a model of such weights is not usable; see --algorithm gptq-ft", names[0])
	default:
		pl.Warn("%q and %d more tensors have 1 bit, not chosen with calibration: a model of such weights is not usable; see --algorithm gptq-ft", names[0], n-1)
	}
}

// decideAll decides for every tensor on its own. The order is by name, numbers
// compared as numbers, so that it does not depend on how the checkpoint is
// sharded and layers lie in order.
func (pl *TensorPlanner) decideAll(ctx context.Context) error {
	all := pl.Ck.Tensors()
	pl.Drafts = make([]*plan.Draft, 0, len(all))
	pl.Tensors = make([]*plan.Tensor, 0, len(all)+1) // and an lm_head by absence
	tensors := make([]*safetensors.Tensor, len(all))
	for i := range all {
		tensors[i] = &all[i]
	}
	slices.SortFunc(tensors, func(a, b *safetensors.Tensor) int { return plan.CompareNatural(a.Name, b.Name) })
	for _, t := range tensors {
		if ctx != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		d, err := pl.decide(t)
		if err != nil {
			return err
		}
		pl.SourceBytes += t.Size
		pl.Drafts = append(pl.Drafts, d)
	}
	return nil
}

func (pl *TensorPlanner) decide(t *safetensors.Tensor) (*plan.Draft, error) {
	if t.Dtype == packing.DtypeNone {
		return nil, UnknownDtype(pl.Ck, t)
	}
	class := arch.Classify(pl.Cfg, t.Name, t.Shape)
	line := plan.NewLine(t.Name, class.Role, t.Shape, t.DtypeName)
	d := &plan.Draft{Entry: plan.Entry{Src: t, Role: class.Role, Line: line}, Form: plan.Form{Slices: class.Slices(), Transposed: class.Transposed}}
	reason := class.Reason
	quantize := class.Quantize
	rule, matched := pl.Rules.Match(t.Name)
	if cannot := cannotQuantize(t, class); cannot != "" {
		if matched && !rule.Skip && rule.Exact() {
			return nil, quantizer.Requestf("%s: tensor %q cannot be quantized: %s", rule, t.Name, cannot)
		}
		quantize = false
		reason = cmp.Or(reason, cannot)
		if matched && rule.Skip {
			pl.Rules.Use(rule)
		}
	} else if matched {
		pl.Rules.Use(rule)
		line.Rule = rule.String()
		quantize, reason = !rule.Skip, "a rule says skip"
	}
	if !quantize {
		d.Leave(reason)
		return d, nil
	}
	d.Quantize = true
	d.Scheme = pl.Recipe.Scheme(class.Role, rule)
	d.Rule = rule
	return d, nil
}

func UnknownDtype(ck *safetensors.Checkpoint, t *safetensors.Tensor) error {
	return fmt.Errorf("%s: tensor %q has the unknown dtype %q: gq cannot store it; take the tensor out of the checkpoint",
		ck.Files()[t.File].Name, t.Name, t.DtypeName)
}

// cannotQuantize says why a tensor can't be held as low-bit codes whatever the rules say; "" if it
// can.
func cannotQuantize(t *safetensors.Tensor, class arch.Class) string {
	switch {
	case !t.Dtype.IsFloat() || t.Dtype.Bits() == 4 && !t.MXFP4():
		return "dtype " + t.DtypeName + " is not a floating-point one"
	case len(t.Shape) == 2, len(t.Shape) == 3 && class.Experts > 0:
	case len(t.Shape) == 3 && class.Reason != "":
		return class.Reason
	default:
		return fmt.Sprintf("a %d-D tensor is not a matrix", len(t.Shape))
	}
	if slices.Contains(t.Shape, 0) {
		return "it has no elements"
	}
	return ""
}

// unusedError is the error for rules that match nothing, with the names nearest to the first.
func (pl *TensorPlanner) unusedError(unused []quantizer.Rule) error {
	var s []string
	for _, r := range unused[:min(len(unused), plan.MostListed)] {
		s = append(s, r.String())
	}
	if n := len(unused) - len(s); n > 0 {
		s = append(s, fmt.Sprintf("%d more rules", n))
	}
	var names []string
	for _, d := range pl.Drafts {
		names = append(names, d.Name())
		for _, n := range d.Aliases {
			names = append(names, n.Src.Name)
		}
	}
	return quantizer.Requestf("%s matches no tensor that can be quantized%s; gq inspect SRC lists the names", strings.Join(s, ", "), pattern.NoMatch(unused[0].Match, names))
}

// CheckQuantized fails if the plan quantizes no tensor, no rule asked for that, and its recipe does
// not allow it. It counts the tensors of each reason.
func (p *Plan) CheckQuantized() error {
	counts := map[string]int{}
	for _, l := range p.Tensors {
		if l.Action == plan.ActionQuantize || l.Rule != "" || p.Recipe.AllowUnquantized {
			return nil
		}
		counts[cmp.Or(l.Reason, string(l.Action))]++
	}
	var list []string
	order := func(a, b string) int { return cmp.Or(counts[b]-counts[a], strings.Compare(a, b)) }
	for _, reason := range slices.SortedFunc(maps.Keys(counts), order) {
		list = append(list, fmt.Sprintf("%d: %s", counts[reason], reason))
	}
	if n := len(list) - plan.MostListed; n > 0 {
		list = append(list[:plan.MostListed], fmt.Sprintf("%d more reasons", n))
	}
	return fmt.Errorf("none of %d tensors can be quantized (%s); --allow-unquantized writes a file of unquantized tensors", len(p.Tensors), strings.Join(list, "; "))
}

// shape fills in the consequences of schemes and ties: payload shapes, how the output stores them,
// block scales.
func (pl *TensorPlanner) shape() error {
	for _, d := range pl.Drafts {
		if err := pl.shapeDraft(d); err != nil {
			return err
		}
	}
	pl.Drafts = slices.DeleteFunc(pl.Drafts, func(d *plan.Draft) bool {
		if !pl.Absorbed[d.Src.Name] {
			return false
		}
		d.Line.Action, d.Line.Reason = plan.ActionAbsorb, "block scales, multiplied into the weight"
		pl.Tensors = append(pl.Tensors, d.Line)
		return true
	})
	return nil
}

func (pl *TensorPlanner) shapeDraft(d *plan.Draft) error {
	if !d.Quantize {
		return pl.Out.Store(pl.Planner, d)
	}
	_, d.Rows, d.Cols = plan.SliceShape(d.Src.Shape, d.Transposed)
	var err error
	if d.Scheme, err = pl.Recipe.AdaptToTargets(d.Scheme, d.Cols, d.Rule); err != nil {
		return err
	}
	if err := pl.Recipe.ValidateScheme(d.Scheme); err != nil {
		return quantizer.Requestf("tensor %q: %w", d.Src.Name, err)
	}
	if pl.Recipe.ForGGUF() {
		if err := pl.FitBlocks(d, "rows", d.Cols); err != nil || !d.Quantize {
			return err
		}
	}
	if f := pl.Recipe.CheckpointFormat(); f != "" {
		if err := pl.FitCheckpoint(f, d); err != nil || !d.Quantize {
			return err
		}
	}
	d.Smallest = max(d.Smallest, d.Scheme.ScaleDtype.Smallest())
	if err := pl.Out.Store(pl.Planner, d); err != nil || !d.Quantize {
		return err
	}
	if err := pl.FindBlockScale(d); err != nil {
		return err
	}
	d.Line.SetScheme(d.Scheme, d.Scheme.Algorithm)
	if d.Slices > 1 {
		d.Line.Slices = d.Slices
	}
	return nil
}

// ReadMatrix reads the weights of a matrix of the plan, [Rows][Cols]. It fails with *TensorError if
// one is not finite.
func (p *Plan) ReadMatrix(dst []float32, m plan.Matrix) error {
	return p.ReadRows(dst, m, 0, m.Rows)
}

// releaseFrom is a number of values that take longer to read than pages take to be released.
const releaseFrom = 1 << 14

// ReadRows is ReadMatrix for n rows from row first on. Several goroutines may call it.
func (p *Plan) ReadRows(dst []float32, m plan.Matrix, first, n int) error {
	src := m.Item.Src
	w, err := p.from.Weights(src, m.Item.Transposed)
	if err != nil {
		return err
	}
	dst = dst[:n*m.Cols]
	if err := w.Read(dst, m.Slice*m.Rows+first, n); err != nil {
		return err
	}
	if len(dst) >= releaseFrom && !m.Item.Transposed {
		p.from.Ck.Release(w.Ranges(nil, m.Slice*m.Rows+first, n)...)
	}
	p.Factors[src.Name].Multiply(dst, first, m.Cols)
	for i, v := range dst {
		if !floats.Finite(v) {
			e := &quantizer.TensorError{File: p.from.Ck.Files()[src.File].Name, Tensor: src.Name, Slice: -1, Row: int64(first + i/m.Cols), Err: &rounding.NonFiniteError{Column: i % m.Cols, Value: v}}
			if m.Slices > 1 {
				e.Slice = m.Slice
			}
			return e
		}
	}
	return nil
}

// SourceDir is the directory of the checkpoint.
func (p *Plan) SourceDir() string { return p.from.Ck.Dir() }

// SourceStamps tells the checkpoint and its config.json apart from others: see
// safetensors.Checkpoint.Stamps.
func (p *Plan) SourceStamps() []string {
	return append(p.from.Ck.Stamps(), fmt.Sprintf("config.json %x", sha256.Sum256(p.Config)))
}
