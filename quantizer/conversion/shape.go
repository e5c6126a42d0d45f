package conversion

import (
	"fmt"
	"slices"
	"strings"
	"unique"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/hfquant"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// shape fills in the consequences of schemes and ties: payload shapes, how the output stores them,
// block scales.
func (pl *planner) shape() error {
	for _, d := range pl.drafts {
		if err := pl.shapeDraft(d); err != nil {
			return err
		}
	}
	pl.drafts = slices.DeleteFunc(pl.drafts, func(d *draft) bool {
		if !pl.absorbed[d.src.Name] {
			return false
		}
		d.line.Action, d.line.Reason = ActionAbsorb, "block scales, multiplied into the weight"
		pl.Tensors = append(pl.Tensors, d.line)
		return true
	})
	return nil
}

func (pl *planner) shapeDraft(d *draft) error {
	if !d.quantize {
		return pl.out.store(pl, d)
	}
	_, d.rows, d.cols = sliceShape(d.src.Shape, d.transposed)
	var err error
	if d.scheme, err = quantizer.AdaptToTargets(d.scheme, d.cols, pl.opts.Recipe.Targets, pl.opts.Recipe.ScaleStated(d.rule)); err != nil {
		return err
	}
	if err := pl.opts.Recipe.ValidateScheme(d.scheme); err != nil {
		return quantizer.Requestf("tensor %q: %w", d.src.Name, err)
	}
	if pl.opts.Recipe.ForGGUF() {
		if err := pl.fitBlocks(d); err != nil || !d.quantize {
			return err
		}
	}
	if f := pl.opts.Recipe.CheckpointFormat(); f != "" {
		if err := pl.fitCheckpoint(f, d); err != nil || !d.quantize {
			return err
		}
	}
	d.smallest = max(d.smallest, d.scheme.ScaleDtype.Smallest())
	if err := pl.out.store(pl, d); err != nil || !d.quantize {
		return err
	}
	if err := pl.findBlockScale(d); err != nil {
		return err
	}
	l := d.line
	l.Action = ActionQuantize
	l.Bits, l.Group = d.scheme.Bits, d.scheme.Group
	l.Mapping, l.ScaleDtype, l.Algorithm = d.scheme.Mapping, d.scheme.ScaleDtype, d.scheme.Algorithm
	if d.slices > 1 {
		l.Slices = d.slices
	}
	return nil
}

// fitBlocks gives a tensor a type of GGUF files, of no fewer bits if its type's blocks do not divide a
// row. If no type's do, the tensor stays unquantized.
func (pl *planner) fitBlocks(d *draft) error {
	kind, _ := quantizer.GGUFType(d.scheme) // which the scheme was checked for
	fit, ok := quantizer.FitGGUF(d.scheme, d.cols)
	if !ok {
		d.leave(fmt.Sprintf("rows of %d weights are no whole number of blocks of 32, the smallest of GGUF", d.cols))
		pl.unfit = append(pl.unfit, d.line)
		return pl.out.store(pl, d)
	}
	if fit != d.scheme {
		other, _ := quantizer.GGUFType(fit)
		d.line.Reason = fmt.Sprintf("%s, because rows of %d weights are no whole number of %s's blocks of %d", other, d.cols, kind, kind.BlockWeights())
		d.scheme, kind = fit, other
	}
	d.smallest, d.line.Type = quantizer.SmallestGGUFScale(kind), kind.String()
	return nil
}

// fitCheckpoint lays out a tensor in a format of checkpoints. A tensor that the format cannot hold stays
// unquantized.
func (pl *planner) fitCheckpoint(f hfquant.Format, d *draft) (err error) {
	exact := d.rule != nil && d.rule.Exact()
	reason, unfit := d.noPlace(f), true
	switch {
	case reason != "" && d.role == gqf.RoleEmbedding:
		if exact {
			return quantizer.Requestf("%s: %s, and %q is one: leave the rule out", d.rule, reason, d.src.Name)
		}
		unfit = false
	case reason != "":
	case d.role == gqf.RoleHead && !quantizer.QuantizesHead(f) && !exact:
		reason, unfit = fmt.Sprintf("programs that load %s expect an unquantized lm_head; a rule for it alone quantizes it", f), false
	default:
		if !pl.opts.Recipe.ScaleStated(d.rule) {
			d.scheme.ScaleDtype = quantizer.CheckpointScales(d.src.Dtype)
		}
		if d.layout, d.stored, err = quantizer.CheckpointLayout(f, d.src.Name, d.src.Shape, d.scheme); err == nil {
			d.smallest = quantizer.SmallestCheckpointScale(f, d.scheme.ScaleDtype)
			return nil
		}
		reason = err.Error()
	}
	d.leave(reason)
	if unfit {
		pl.unfit = append(pl.unfit, d.line)
	}
	return pl.out.store(pl, d)
}

// noPlace says why checkpoints of a format have no place for a quantized tensor, whatever its scheme;
// "" if they may have one.
func (d *draft) noPlace(f hfquant.Format) string {
	switch {
	case d.role == gqf.RoleEmbedding && !quantizer.QuantizesEmbedding(f):
		return fmt.Sprintf("programs that load %s know no quantized embeddings", f)
	case len(d.src.Shape) != 2:
		return fmt.Sprintf("%s holds matrices, not fused experts", f)
	case d.transposed:
		return fmt.Sprintf("the model stores this weight as inputs x outputs, %s only outputs x inputs", f)
	}
	return ""
}

// store settles the layouts of a quantized tensor, its bias and the kind of its zero points.
func (o *gqfOutput) store(pl *planner, d *draft) error {
	if !d.quantize {
		return nil
	}
	if t := d.scheme.Type; t != 0 {
		return quantizer.Requestf("tensor %q: %s: a .gqf file holds neither minima nor sub-scales of GGUF's types: write the .gguf file (-o NAME.gguf), or use 1, 2, 4, 5 or 8 bits without a mapping", d.src.Name, t)
	}
	if err := pl.chooseLayouts(d, false); err != nil {
		return err
	}
	if d.bias == nil {
		d.bias = pl.findBias(d)
	}
	if d.bias != nil {
		d.holdBias()
	}
	switch {
	case d.scheme.Mapping != gqf.MappingAsymmetric:
	case d.scheme.FloatZeroPoints() && floatZerosOnly(d.variants):
		d.zeros, d.line.ZeroPoints = packing.ZeroF32, rounding.FloatZeros
	case pl.opts.Recipe.CheckpointFormat() == "" && d.scheme.FractionalZeroPoints() && d.holdFractions():
		d.zeros, d.line.ZeroPoints = packing.ZeroFraction, rounding.FractionalZeros
	default:
		d.zeros, d.line.ZeroPoints = packing.ZeroInt8, rounding.IntegerZeros
	}
	return nil
}

// holdFractions makes the zero points fractions if every layout holds them, and reports whether it
// did.
func (it *draft) holdFractions() bool {
	heads := make([]unique.Handle[packing.Header], len(it.variants))
	for i := range heads {
		h := it.variants[i].header()
		if h.ZeroKind = packing.ZeroFraction; h.Validate() != nil {
			return false
		}
		heads[i] = unique.Make(h)
	}
	it.scheme.Fractions = true
	for i, h := range heads {
		it.variants[i].head = h
	}
	return true
}

// chooseLayouts settles the layouts of a quantized tensor. A layout that was asked
// for and cannot hold the scheme is an error; one that only this tensor's shape
// does not fit, that a target has no kernel for, or that a repack meets, gives way
// to lowbit, which the plan says. given tells that the codes are there already, as in a repack.
func (pl *planner) chooseLayouts(it *draft, given bool) error {
	lookedUp := it.role == gqf.RoleEmbedding && !it.shared // only: no product needs it
	add := func(h packing.Header, cpu gqf.CPUFeatures) {
		if i := slices.IndexFunc(it.variants, func(v variant) bool { return v.header() == h }); i >= 0 {
			it.variants[i].cpu &= cpu // for the CPUs of either target
			return
		}
		it.variants = append(it.variants, variant{head: unique.Make(h), cpu: cpu})
	}
	choices, reasons, strict := pl.choices(it, given)
	for _, c := range choices {
		h, err := c.request.Header(c.scheme, it.rows, it.cols, lookedUp)
		if wide := c.scheme; err != nil && given && c.request.Family != quantizer.FamilyLowbit {
			wide.ScaleDtype = packing.ScaleF32 // scales that are there may be stored wider
			if w, e := c.request.Header(wide, it.rows, it.cols, lookedUp); e == nil {
				h, err = w, nil
			}
		}
		switch {
		case err == nil:
			add(h, c.cpu)
		case strict && c.request.FitsSomeShape(c.scheme, lookedUp) != nil:
			return quantizer.Requestf("tensor %q, layout %s: %w", it.src.Name, c.request, err)
		default:
			reasons = append(reasons, fmt.Sprintf("not %s: %v", c.request, err))
		}
	}
	if len(it.variants) == 0 {
		h, err := quantizer.LayoutRequest{}.Header(it.scheme, it.rows, it.cols, lookedUp)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", it.src.Name, err)
		}
		add(h, 0)
	}
	for _, v := range it.variants {
		it.smallest = max(it.smallest, v.header().SmallestScale())
	}
	it.line.Layouts = pl.layoutNames(it.variants)
	if len(reasons) > 0 {
		it.line.Reason = strings.Join(reasons, "; ")
	}
	return nil
}

// layoutNames lists the layouts of variants. Equal lists are one in memory.
func (pl *planner) layoutNames(variants []variant) []string {
	var names []string
	for _, v := range variants {
		names = append(names, layoutName(v.header()))
	}
	key := strings.Join(names, ",")
	if pl.layouts[key] == nil {
		if pl.layouts == nil {
			pl.layouts = map[string][]string{}
		}
		pl.layouts[key] = names
	}
	return pl.layouts[key]
}

// choice is a layout that a tensor is to have, with the types of its codes and scales there.
type choice struct {
	request quantizer.LayoutRequest
	scheme  rounding.Scheme
	cpu     gqf.CPUFeatures
}

// choices lists the layouts that a tensor is to have, why targets have none for it
// (lowbit stands in for these), and whether one that cannot hold the scheme is an error.
func (pl *planner) choices(it *draft, given bool) (list []choice, missing []string, strict bool) {
	r := pl.opts.Recipe.WithDefaults()
	for _, t := range r.Targets {
		if it.requests() != nil {
			break
		}
		s := it.scheme
		if given {
			s = widened(s, it.cols, t)
		}
		f, err := t.Layout(s, it.cols)
		if err != nil {
			missing = append(missing, "stays lowbit: "+err.Error())
			continue
		}
		list = append(list, choice{f, s, t.CPU})
	}
	if len(r.Targets) > 0 && it.requests() == nil {
		return list, missing, false
	}
	layouts := r.Layouts
	if it.requests() != nil {
		layouts = it.requests()
	}
	for _, f := range layouts {
		list = append(list, choice{f, it.scheme, 0})
	}
	// An embedding has bits and a group of its own, which a layout chosen for the
	// projections need not hold.
	return list, nil, !given && (it.requests() != nil || it.role != gqf.RoleEmbedding)
}

// widened is the scheme of codes that are there, in rows of k weights, with scales as the target has
// them: scales may be stored wider.
func widened(s rounding.Scheme, k int64, t quantizer.Target) rounding.Scheme {
	if int64(s.Group) >= k {
		s.Group = 0
	}
	if t.ScaleDtype(s) == packing.ScaleF32 {
		s.ScaleDtype = packing.ScaleF32
	}
	return s
}

// layoutName is a variant's layout as a plan shows it: "qsi4cxp 8x16x2". Lowbit
// bytes that are KleidiAI's are called by that name.
func layoutName(h packing.Header) string {
	name := h.Layout.String()
	if h.Flags&packing.FlagQSI4C32P != 0 {
		name = "lowbit=qsi4c32p"
	}
	return strings.TrimSpace(name + " " + tileName(h.Tile))
}

func tileName(t packing.Tile) string {
	if t == (packing.Tile{}) {
		return ""
	}
	return t.String()
}

// holdBias flags the variants whose layout has a place for the bias.
func (it *draft) holdBias() {
	for i := range it.variants {
		h := it.variants[i].header()
		if h.Flags |= packing.FlagBias; h.Validate() == nil {
			it.variants[i].head = unique.Make(h)
		}
	}
}

// biasName is the name of the bias that belongs to a tensor of weights.
func biasName(weights string) string {
	if module, ok := strings.CutSuffix(weights, ".weight"); ok {
		return module + ".bias"
	}
	return weights + "_bias"
}

// findBias looks for the layer's bias, which packed panels hold too: X.bias of
// X.weight, X_bias of a fused expert tensor X.
func (pl *planner) findBias(it *draft) *safetensors.Tensor {
	b, ok := pl.ck.Lookup(biasName(it.src.Name))
	if !ok || pl.leftOut[b.Name] || !b.Dtype.IsFloat() || b.Numel() != int64(it.slices)*it.rows {
		return nil
	}
	return &b
}

func (pl *planner) findBlockScale(it *draft) error {
	if it.src.Dtype != packing.F8E4M3 && it.src.Dtype != packing.F8E5M2 {
		return nil
	}
	bs, scales, err := pl.ck.FindBlockScales(it.src.Name, pl.scaleBlock)
	if err != nil || bs == nil {
		return err
	}
	if it.transposed {
		return fmt.Errorf("tensor %q: FP8 block scales of a tensor stored in x out are not supported; leave it unquantized with --rule '%s=skip'", it.src.Name, it.src.Name)
	}
	pl.absorbed[bs.Name] = true
	it.aliases = append(it.aliases, nameRef{src: scales, absorbed: true})
	return nil
}
