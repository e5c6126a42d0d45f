package togqf

import (
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// Store settles the layouts of a quantized tensor, its bias and the kind of its zero points.
func (o *Output) Store(pl *plan.Planner, d *plan.Draft) error {
	if !d.Quantize {
		return nil
	}
	if t := d.Scheme.Type; t != 0 {
		return quantizer.Requestf("tensor %q: %s: a .gqf file holds neither minima nor sub-scales of GGUF's types: write the .gguf file (-o NAME.gguf), or use 1, 2, 4, 5 or 8 bits without a mapping", d.Src.Name, t)
	}
	if err := pl.ChooseLayouts(d, false); err != nil {
		return err
	}
	if d.Bias == nil {
		d.Bias = pl.FindBias(d)
	}
	if d.Bias != nil {
		d.HoldBias()
	}
	switch {
	case d.Scheme.Mapping != gqf.MappingAsymmetric:
	case d.Scheme.FloatZeroPoints() && plan.FloatZerosOnly(d.Variants):
		d.Zeros, d.Line.ZeroPoints = packing.ZeroF32, rounding.FloatZeros
	case pl.Recipe.CheckpointFormat() == "" && d.Scheme.FractionalZeroPoints() && d.HoldFractions():
		d.Zeros, d.Line.ZeroPoints = packing.ZeroFraction, rounding.FractionalZeros
	default:
		d.Zeros, d.Line.ZeroPoints = packing.ZeroInt8, rounding.IntegerZeros
	}
	return nil
}

// Take settles the layouts, which hold the codes that the file has.
func (o *Output) Take(pl *plan.Planner, d *plan.Draft, from plan.FileTensor) error {
	if err := pl.ChooseLayouts(d, true); err != nil {
		return err
	}
	// A layout that has no place for the bias left it to a tensor of its own.
	if from.Header.Flags&packing.FlagBias != 0 || plan.BiasIn(from.File, from.Tensor) != nil {
		d.HoldBias()
	}
	return chooseZeros(d, from)
}

// keepFractions takes fractional zero points over. Layouts with integer zero points cannot hold
// them.
func keepFractions(it *plan.Draft, from plan.FileTensor) error {
	for i := range it.Variants {
		if h := it.Variants[i].Header(); h.ZeroKind == packing.ZeroInt8 {
			return quantizer.Requestf("%s: tensor %q has fractional zero points, which layout %s cannot hold: repack with --layout lowbit, codes or, with f32 scales, kleidiai, or quantize the checkpoint again", from.Path, from.Name, plan.LayoutName(h))
		}
	}
	it.Line.ZeroPoints, it.Zeros = rounding.FractionalZeros, packing.ZeroFraction
	return nil
}

// chooseZeros settles how the zero points of a tensor with packed header h go into other layouts.
// Floating-point zero points that are no integers go only into layouts with float32 zero points.
func chooseZeros(it *plan.Draft, from plan.FileTensor) error {
	switch from.Header.ZeroKind {
	case packing.ZeroNone:
		return nil
	case packing.ZeroFraction:
		return keepFractions(it, from)
	}
	it.Line.ZeroPoints, it.Zeros = rounding.IntegerZeros, packing.ZeroInt8
	if from.Header.ZeroKind != packing.ZeroF32 {
		return nil
	}
	if plan.FloatZerosOnly(it.Variants) {
		it.Zeros = packing.ZeroF32
	}
	for s := range from.Experts {
		rows, err := from.Rows(0, s)
		if err != nil {
			return err
		}
		nonInteger := false
		if err := from.File.Guard(func() error { nonInteger = rows.HasNonIntegerZeros(); return nil }); err != nil {
			return err
		}
		if !nonInteger {
			continue
		}
		if it.Line.ZeroPoints = rounding.FloatZeros; it.Zeros == packing.ZeroF32 {
			return nil
		}
		if it.Line.Reason != "" {
			return quantizer.Requestf("%s: tensor %q has floating-point zero points, which layout %s cannot hold (%s): repack to the tiles of qai4c32p with --layout kleidiai, or quantize the checkpoint again", from.Path, from.Name, it.Line.Layouts[0], it.Line.Reason)
		}
		return quantizer.Requestf("%s: tensor %q has floating-point zero points, which no layout but qai4c32p can hold: repack with --layout kleidiai alone, or quantize the checkpoint again", from.Path, from.Name)
	}
	return nil
}
