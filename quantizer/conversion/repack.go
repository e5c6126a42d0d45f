package conversion

import (
	"fmt"
	"unique"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// RepackOptions of a job: either Layouts or Targets.
type RepackOptions struct {
	// Layouts are the layouts that quantized tensors get, each in all of them. A
	// tensor that one cannot hold stays lowbit. Default: lowbit.
	Layouts []quantizer.LayoutRequest
	// Targets choose layouts and tiles for consumers. Default: none.
	Targets []quantizer.Target
	// Tile of layouts that state none. Default (zero): each layout's own.
	Tile packing.Tile
	// Threads is how many workers run. Default: GOMAXPROCS.
	Threads int
	// Progress is called, from any worker, with bytes that were done since the last call. Default: none.
	Progress func(n int64)
}

// recipe is a recipe of layouts alone.
func (o *RepackOptions) recipe() (quantizer.Recipe, error) {
	r := quantizer.Recipe{Layouts: o.Layouts, Targets: o.Targets, Tile: o.Tile}
	if err := r.Validate(); err != nil {
		return r, quantizer.Requestf("%w", err)
	}
	if r.ForGGUF() {
		return r, quantizer.Requestf("target gguf chooses schemes, which a repack takes over: write a .gguf file with gq export")
	}
	if f := r.CheckpointFormat(); f != "" {
		return r, quantizer.Requestf("target %s chooses schemes, which a repack takes over: write a checkpoint with gq export --format %s", quantizer.TargetNames(r.Targets), f)
	}
	return r, nil
}

// NewRepack lays out the job of putting the tensors of f into other layouts,
// without the checkpoint and without changing a code, scale, zero point or bias.
// Scales may be stored wider (BF16 as F32, exactly), never narrower. The checksums of
// all data that are read are checked: a damaged file ends the job with a *gqf.FormatError.
func NewRepack(f *gqf.File, path string, opts RepackOptions) (*Plan, error) {
	recipe, err := opts.recipe()
	if err != nil {
		return nil, err
	}
	f.CheckSums()
	in := &fileInput{gqf: f, path: path, recipe: recipe}
	p := &Plan{in: in, opts: Options{Recipe: recipe, Threads: opts.Threads, Progress: opts.Progress}, Warnings: []string{}}
	p.out = &gqfOutput{Plan: p}
	pl := &planner{Plan: p}
	if err := pl.takeAll(in); err != nil {
		return nil, err
	}
	return p, pl.layOut()
}

// takeAll makes the items of a file's tensors.
func (pl *planner) takeAll(in *fileInput) error {
	n := in.gqf.Len()
	pl.items, pl.Tensors = make([]item, 0, n), make([]*PlanTensor, 0, n)
	for i := range n {
		it, err := pl.fromFile(in, in.gqf.Tensor(i))
		if err != nil {
			return err
		}
		pl.items = append(pl.items, it)
	}
	return nil
}

// fromFile makes the item of a file's tensor.
func (pl *planner) fromFile(in *fileInput, t gqf.Tensor) (item, error) {
	v, ok := t.Payload(0, 0, gqf.KindWeights)
	if !ok {
		return nil, t.Usable()
	}
	h := v.Header
	// In one piece, because the allocator rounds each piece up.
	parts := &struct {
		src  safetensors.Tensor
		line PlanTensor
	}{}
	parts.src = safetensors.Tensor{Name: t.Name, Dtype: t.Dtype, DtypeName: t.Dtype.String(), Shape: t.Shape, Size: v.Length - packing.HeaderSize}
	parts.line = PlanTensor{Name: t.Name, Role: t.Role, Shape: t.Shape, Dtype: parts.src.DtypeName, Action: ActionUnquantized}
	e := entry{src: &parts.src, line: &parts.line, role: t.Role}
	pl.SourceBytes += int64(t.Experts) * e.src.Size
	names := t.Names()
	for _, name := range names[1:] {
		pl.Tensors = append(pl.Tensors, &PlanTensor{Name: name, Role: gqf.RoleHead, Action: ActionShare, Shape: t.Shape, Dtype: e.src.DtypeName, SharedWith: t.Name})
	}
	if h.Layout == packing.LayoutPlain {
		if t.Experts > 1 {
			return nil, fmt.Errorf("%s: tensor %q: plain slices cannot be repacked", in.path, t.Name)
		}
		u := &unquantized{entry: e, head: unique.Make(h)}
		u.slices, u.rows, u.cols = sliceShape(t.Shape, false)
		return u, nil
	}
	it := &draft{
		entry: e, quantize: true, slices: t.Experts, transposed: t.Transposed, shared: len(names) > 1,
		rows: int64(h.Rows), cols: int64(h.Cols),
	}
	it.src.Size = int64(t.Experts) * it.rows * it.cols // as the codes that are read
	it.scheme = rounding.Scheme{
		Bits: int(h.Bits), Group: int(h.Group), Mapping: t.Mapping, ScaleDtype: h.ScaleDtype,
		PositiveScales: h.Flags&packing.FlagPositiveScales != 0, Fractions: h.ZeroKind == packing.ZeroFraction,
	}
	// A tensor's mapping only informs; the grid is a fact.
	if h.Grid == packing.GridHalfStep {
		it.scheme.Mapping = gqf.MappingHalfStep
	} else if t.Mapping == gqf.MappingHalfStep {
		it.scheme.Mapping = gqf.MappingNone
	}
	it.scheme.NegativeScales = it.scheme.Mapping == gqf.MappingAsymmetric && !it.scheme.PositiveScales
	it.smallest = it.scheme.ScaleDtype.Smallest()
	l := it.line
	l.Action, l.Bits, l.Group, l.Mapping, l.ScaleDtype, l.Algorithm = ActionQuantize, it.scheme.Bits, it.scheme.Group, it.scheme.Mapping, it.scheme.ScaleDtype, t.Algorithm
	if err := pl.out.take(pl, in, it, t, h); err != nil {
		return nil, err
	}
	return it.item(), nil
}

// take settles the layouts, which hold the codes that the file has.
func (o *gqfOutput) take(pl *planner, in *fileInput, d *draft, t gqf.Tensor, h packing.Header) error {
	if err := pl.chooseLayouts(d, true); err != nil {
		return err
	}
	// A layout that has no place for the bias left it to a tensor of its own.
	if h.Flags&packing.FlagBias != 0 || biasIn(in.gqf, t) != nil {
		d.holdBias()
	}
	return pl.chooseZeros(in, d, t, h)
}

// keepFractions takes fractional zero points over. Layouts with integer zero points cannot hold them.
func (pl *planner) keepFractions(in *fileInput, it *draft, t gqf.Tensor) error {
	for i := range it.variants {
		if h := it.variants[i].header(); h.ZeroKind == packing.ZeroInt8 {
			return quantizer.Requestf("%s: tensor %q has fractional zero points, which layout %s cannot hold: repack with --layout lowbit, codes or, with f32 scales, kleidiai, or quantize the checkpoint again", in.path, t.Name, layoutName(h))
		}
	}
	it.line.ZeroPoints, it.zeros = rounding.FractionalZeros, packing.ZeroFraction
	return nil
}

// chooseZeros settles how the zero points of a tensor with packed header h go into other layouts. Floating-point zero
// points that are no integers go only into layouts with float32 zero points.
func (pl *planner) chooseZeros(in *fileInput, it *draft, t gqf.Tensor, h packing.Header) error {
	switch h.ZeroKind {
	case packing.ZeroNone:
		return nil
	case packing.ZeroFraction:
		return pl.keepFractions(in, it, t)
	}
	it.line.ZeroPoints, it.zeros = rounding.IntegerZeros, packing.ZeroInt8
	if h.ZeroKind != packing.ZeroF32 {
		return nil
	}
	if floatZerosOnly(it.variants) {
		it.zeros = packing.ZeroF32
	}
	for s := range t.Experts {
		rows, err := t.Rows(0, s)
		if err != nil {
			return err
		}
		nonInteger := false
		if err := in.gqf.Guard(func() error { nonInteger = rows.HasNonIntegerZeros(); return nil }); err != nil {
			return err
		}
		if !nonInteger {
			continue
		}
		if it.line.ZeroPoints = rounding.FloatZeros; it.zeros == packing.ZeroF32 {
			return nil
		}
		if it.line.Reason != "" {
			return quantizer.Requestf("%s: tensor %q has floating-point zero points, which layout %s cannot hold (%s): repack to the tiles of qai4c32p with --layout kleidiai, or quantize the checkpoint again", in.path, t.Name, it.line.Layouts[0], it.line.Reason)
		}
		return quantizer.Requestf("%s: tensor %q has floating-point zero points, which no layout but qai4c32p can hold: repack with --layout kleidiai alone, or quantize the checkpoint again", in.path, t.Name)
	}
	return nil
}
