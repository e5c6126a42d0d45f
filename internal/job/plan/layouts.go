package plan

import (
	"fmt"
	"slices"
	"strings"
	"unique"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// ChooseLayouts settles the layouts of a quantized tensor. A layout that was asked
// for and cannot hold the scheme is an error; one that only this tensor's shape
// does not fit, that a target has no kernel for, or that a repack meets, gives way
// to lowbit, which the plan says. given tells that the codes are there already, as in a repack.
func (pl *Planner) ChooseLayouts(it *Draft, given bool) error {
	lookedUp := it.Role == gqf.RoleEmbedding && !it.Shared // only: no product needs it
	add := func(h packing.Header, cpu gqf.CPUFeatures) {
		if i := slices.IndexFunc(it.Variants, func(v Variant) bool { return v.Header() == h }); i >= 0 {
			it.Variants[i].cpu &= cpu // for the CPUs of either target
			return
		}
		it.Variants = append(it.Variants, Variant{head: unique.Make(h), cpu: cpu})
	}
	choices, reasons, strict := pl.choices(it, given)
	for _, c := range choices {
		h, err := c.request.Header(c.scheme, it.Rows, it.Cols, lookedUp)
		if wide := c.scheme; err != nil && given && c.request.Family != quantizer.FamilyLowbit {
			wide.ScaleDtype = packing.ScaleF32 // scales that are there may be stored wider
			if w, e := c.request.Header(wide, it.Rows, it.Cols, lookedUp); e == nil {
				h, err = w, nil
			}
		}
		switch {
		case err == nil:
			add(h, c.cpu)
		case strict && c.request.FitsSomeShape(c.scheme, lookedUp) != nil:
			return quantizer.Requestf("tensor %q, layout %s: %w", it.Src.Name, c.request, err)
		default:
			reasons = append(reasons, fmt.Sprintf("not %s: %v", c.request, err))
		}
	}
	if len(it.Variants) == 0 {
		h, err := quantizer.LayoutRequest{}.Header(it.Scheme, it.Rows, it.Cols, lookedUp)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", it.Src.Name, err)
		}
		add(h, 0)
	}
	for _, v := range it.Variants {
		it.Smallest = max(it.Smallest, v.Header().SmallestScale())
	}
	it.Line.Layouts = pl.layoutNames(it.Variants)
	if len(reasons) > 0 {
		it.Line.Reason = strings.Join(reasons, "; ")
	}
	return nil
}

// layoutNames lists the layouts of variants. Equal lists are one in memory.
func (pl *Planner) layoutNames(variants []Variant) []string {
	var names []string
	for _, v := range variants {
		names = append(names, LayoutName(v.Header()))
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
func (pl *Planner) choices(it *Draft, given bool) (list []choice, missing []string, strict bool) {
	r := pl.Recipe.WithDefaults()
	for _, t := range r.Targets {
		if it.Requests() != nil {
			break
		}
		s := it.Scheme
		if given {
			s = Widened(s, it.Cols, t)
		}
		f, err := t.Layout(s, it.Cols)
		if err != nil {
			missing = append(missing, "stays lowbit: "+err.Error())
			continue
		}
		list = append(list, choice{f, s, t.CPU})
	}
	if len(r.Targets) > 0 && it.Requests() == nil {
		return list, missing, false
	}
	layouts := r.Layouts
	if it.Requests() != nil {
		layouts = it.Requests()
	}
	for _, f := range layouts {
		list = append(list, choice{f, it.Scheme, 0})
	}
	// An embedding has bits and a group of its own, which a layout chosen for the
	// projections need not hold.
	return list, nil, !given && (it.Requests() != nil || it.Role != gqf.RoleEmbedding)
}

// Widened is the scheme of codes that are there, in rows of k weights, with scales as the target
// has them: scales may be stored wider.
func Widened(s rounding.Scheme, k int64, t quantizer.Target) rounding.Scheme {
	if int64(s.Group) >= k {
		s.Group = 0
	}
	if t.ScaleDtype(s) == packing.ScaleF32 {
		s.ScaleDtype = packing.ScaleF32
	}
	return s
}

// LayoutName is a variant's layout as a plan shows it: "qsi4cxp 8x16x2". Lowbit
// bytes that are KleidiAI's are called by that name.
func LayoutName(h packing.Header) string {
	name := h.Layout.String()
	if h.Flags&packing.FlagQSI4C32P != 0 {
		name = "lowbit=qsi4c32p"
	}
	if h.Tile == (packing.Tile{}) {
		return name
	}
	return name + " " + h.Tile.String()
}

// HoldFractions makes the zero points fractions if every layout holds them, and reports whether it
// did.
func (it *Draft) HoldFractions() bool {
	heads := make([]unique.Handle[packing.Header], len(it.Variants))
	for i := range heads {
		h := it.Variants[i].Header()
		if h.ZeroKind = packing.ZeroFraction; h.Validate() != nil {
			return false
		}
		heads[i] = unique.Make(h)
	}
	it.Scheme.Fractions = true
	for i, h := range heads {
		it.Variants[i].head = h
	}
	return true
}

// FloatZerosOnly reports whether every layout holds float32 zero points.
func FloatZerosOnly(variants []Variant) bool {
	return !slices.ContainsFunc(variants, func(v Variant) bool { return v.Header().ZeroKind != packing.ZeroF32 })
}

// HoldsZeroScales reports whether every variant can hold scales that are 0.
func HoldsZeroScales(variants []Variant) bool {
	return !slices.ContainsFunc(variants, func(v Variant) bool { return !v.Header().HoldsZeroScales() })
}

// FitBlocks gives a tensor a type of GGUF files with blocks that divide cols, the width in columns
// of its rows, or of parts of rows that stay together. If its own type does not fit, it gets
// another with at least as many bits. If no type fits, the tensor stays unquantized.
func (pl *Planner) FitBlocks(d *Draft, what string, cols int64) error {
	kind, _ := rounding.GGUFType(d.Scheme) // which the scheme was checked for
	fit, ok := rounding.FitGGUF(d.Scheme, cols)
	if !ok {
		d.Leave("")
		pl.MarkUnfit(&d.Entry, what, cols)
		return pl.Out.Store(pl, d)
	}
	if fit != d.Scheme {
		other, _ := rounding.GGUFType(fit)
		d.Line.Reason = fmt.Sprintf("%s, because %s of %d weights are no whole number of %s's blocks of %d", other, what, cols, kind, kind.BlockWeights())
		d.Scheme, kind = fit, other
	}
	d.Smallest, d.Line.Type = rounding.SmallestGGUFScale(kind), kind.String()
	return nil
}

// MarkUnfit marks an unquantized tensor with rows that no type of GGUF files divides.
func (pl *Planner) MarkUnfit(e *Entry, what string, cols int64) {
	e.Unfit, e.Line.Reason = true, fmt.Sprintf("%s of %d weights are no whole number of blocks of 32, the smallest of GGUF", what, cols)
	pl.Unfit = append(pl.Unfit, e.Line)
}

// FitCheckpoint lays out a tensor in a format of checkpoints. A tensor that the format cannot hold
// stays unquantized.
func (pl *Planner) FitCheckpoint(f hfquant.Format, d *Draft) (err error) {
	exact := d.Rule != nil && d.Rule.Exact()
	reason, unfit := d.NoPlace(f), true
	switch {
	case reason != "" && d.Role == gqf.RoleEmbedding:
		if exact {
			return quantizer.Requestf("%s: %s, and %q is one: leave the rule out", d.Rule, reason, d.Src.Name)
		}
		unfit = false
	case reason != "":
	case d.Role == gqf.RoleHead && !f.QuantizesHead() && !exact:
		reason, unfit = fmt.Sprintf("programs that load %s expect an unquantized lm_head; a rule for it alone quantizes it", f), false
	default:
		if !pl.Recipe.ScaleStated(d.Rule) {
			d.Scheme.ScaleDtype = hfquant.ScalesFor(d.Src.Dtype)
		}
		if d.Layout, d.Stored, err = quantizer.CheckpointLayout(f, d.Src.Name, d.Src.Shape, d.Scheme); err == nil {
			d.Smallest = f.SmallestScale(d.Scheme.ScaleDtype)
			return nil
		}
		reason = err.Error()
	}
	d.Leave(reason)
	if unfit {
		pl.Unfit = append(pl.Unfit, d.Line)
	}
	return pl.Out.Store(pl, d)
}

// NoPlace says why checkpoints of a format have no place for a quantized tensor, whatever its
// scheme; "" if they may have one.
func (d *Draft) NoPlace(f hfquant.Format) string {
	switch {
	case d.Role == gqf.RoleEmbedding && !f.QuantizesEmbedding():
		return fmt.Sprintf("programs that load %s know no quantized embeddings", f)
	case len(d.Src.Shape) != 2:
		return fmt.Sprintf("%s holds matrices, not fused experts", f)
	case d.Transposed:
		return fmt.Sprintf("the model stores this weight as inputs x outputs, %s only outputs x inputs", f)
	}
	return ""
}

// TakeIntegerZeros takes over the zero points of a file's tensor, if there are any, for a format
// that holds only integers.
func (d *Draft) TakeIntegerZeros(from FileTensor, format string) error {
	switch from.Header.ZeroKind {
	case packing.ZeroNone:
		return nil
	case packing.ZeroFraction:
		return fmt.Errorf("it has fractional zero points, %s has none", format)
	}
	d.Scheme.Mapping, d.Zeros, d.Line.ZeroPoints = gqf.MappingAsymmetric, packing.ZeroInt8, rounding.IntegerZeros
	nonInteger, err := from.HasNonIntegerZeros(0)
	if err != nil {
		return err
	}
	if nonInteger {
		return fmt.Errorf("it has floating-point zero points, %s has none", format)
	}
	return nil
}
