package plan

import (
	"fmt"
	"slices"
	"unique"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// Output decides how the tensors of a plan are stored.
type Output interface {
	// Begin reads the model's facts, before any draft is stored. sources are the model's tensors.
	Begin(pl *Planner, sources func() ([]llamacpp.Source, error)) error
	// Store decides how a draft of a checkpoint's tensor is stored. It may leave a tensor unquantized.
	Store(pl *Planner, d *Draft) error
	// Take decides how the codes of a .gqf file's tensor are stored.
	Take(pl *Planner, d *Draft, from FileTensor) error
	// LayOut is called when all items are settled.
	LayOut(pl *Planner) error
	// DataBytes is the size of an item's data in the output, packed headers included.
	DataBytes(it Item) (int64, error)
}

// Planner makes a plan.
type Planner struct {
	*Plan
	Out        Output
	Ck         *safetensors.Checkpoint // with the weights; nil: codes are taken over
	ScaleBlock [2]int                  // of FP8 weights; see safetensors.WeightsOptions
	Cfg        *arch.Config
	Drafts     []*Draft            // of the tensors, until settle makes them items
	Absorbed   map[string]bool     // names of block scales multiplied into their weight
	LeftOut    map[string]bool     // tensors that the plan leaves out
	layouts    map[string][]string // see layoutNames
	forms      map[Form]*Form      // of items
	schemes    map[Scheme]*Scheme
	Unfit      []*Tensor // tensors that the format of the target cannot hold
	twice      []twice
}

// twice is a tensor that is stored although another has its content, and a warning with its name
// and its cost in bytes.
type twice struct {
	line    *Tensor
	warning string
}

// NewPlanner begins a plan of an output.
func NewPlanner(out Output, recipe quantizer.Recipe, threads int) *Planner {
	return &Planner{Plan: &Plan{Warnings: []string{}, Recipe: recipe, Threads: threads}, Out: out, Absorbed: map[string]bool{}}
}

func (pl *Planner) Warn(format string, args ...any) {
	pl.Warnings = append(pl.Warnings, fmt.Sprintf(format, args...))
}

// WarnTwice warns that a tensor is stored although another has its content. The warning has the
// name and the cost in bytes.
func (pl *Planner) WarnTwice(line *Tensor, warning string) {
	pl.twice = append(pl.twice, twice{line, warning})
}

// Share makes the embedding the lm_head, too, under another name.
func (pl *Planner) Share(embedding *Entry, name NameRef, reason string) {
	embedding.Aliases = append(embedding.Aliases, name)
	l := NewLine(name.Src.Name, gqf.RoleHead, embedding.Src.Shape, embedding.Src.DtypeName)
	l.Action, l.SharedWith, l.Reason = ActionShare, embedding.Name(), reason
	pl.Tensors = append(pl.Tensors, l)
}

// Settle turns the drafts into the plan's items.
func (pl *Planner) Settle() {
	pl.Items = make([]Item, len(pl.Drafts))
	for i, d := range pl.Drafts {
		pl.Items[i], pl.Drafts[i] = pl.Item(d), nil
	}
	pl.Drafts = nil
}

// LayOut completes the plan's lines.
func (pl *Planner) LayOut() error {
	for i, it := range pl.Items {
		it.Common().Index = i
	}
	if err := pl.Out.LayOut(pl); err != nil {
		return err
	}
	for _, it := range pl.Items {
		line := it.Common().Line
		var err error
		if line.Bytes, err = pl.Out.DataBytes(it); err != nil {
			return fmt.Errorf("tensor %q: %w", line.Name, err)
		}
		line.BitsPerWeight = packing.BitsPerWeight(line.Bytes, it.Weights())
		pl.Tensors = append(pl.Tensors, line)
		for _, t := range pl.twice {
			if t.line == line {
				pl.Warn(t.warning, line.Name, line.Bytes)
			}
		}
	}
	pl.warnFallbacks()
	slices.SortStableFunc(pl.Tensors, func(a, b *Tensor) int { return CompareNatural(a.Name, b.Name) })
	return nil
}

// warnFallbacks says which tensors are not in the layout asked for, a line for each reason.
func (pl *Planner) warnFallbacks() {
	var reasons []string
	names := map[string][]string{}
	lines := pl.Unfit
	for it := range pl.Quantized() {
		lines = append(lines, it.Line)
	}
	for _, l := range lines {
		if r := l.Reason; r != "" {
			if names[r] == nil {
				reasons = append(reasons, r)
			}
			names[r] = append(names[r], l.Name)
		}
	}
	for _, r := range reasons {
		list := names[r]
		pl.Warn("%q%s: %s", list[0], AndMore(len(list)-1), r)
	}
}

// Draft is a tensor that the planner has not decided on yet.
type Draft struct {
	Entry
	Rule     *quantizer.Rule // that decided; nil: none
	Quantize bool            // else slices, transposed and as alone matter
	Form
	Bias     *safetensors.Tensor
	Variants []Variant
	Layout   *hfquant.Layout
	As       packing.Dtype // of an unquantized tensor
}

// Leave leaves the tensor unquantized: its payload is the bytes of the checkpoint.
func (d *Draft) Leave(reason string) {
	*d = Draft{Entry: d.Entry, Rule: d.Rule, Form: Form{Slices: d.Slices, Transposed: d.Transposed}}
	d.Line.Action, d.Line.Reason = ActionUnquantized, reason
	d.Line.ClearScheme()
}

// Requests are the layouts that a rule states; nil: the recipe's are meant.
func (d *Draft) Requests() []quantizer.LayoutRequest {
	if d.Rule == nil {
		return nil
	}
	return d.Rule.Layouts
}

// Item is the planner's decision on a draft.
func (pl *Planner) Item(d *Draft) Item {
	if pl.forms == nil {
		pl.forms, pl.schemes = map[Form]*Form{}, map[Scheme]*Scheme{}
	}
	if pl.schemes[*d.Line.Scheme] == nil {
		pl.schemes[*d.Line.Scheme] = d.Line.Scheme
	}
	d.Line.Scheme = pl.schemes[*d.Line.Scheme]
	if !d.Quantize {
		rows, cols := d.Src.Matrix()
		u := &Unquantized{Entry: d.Entry, Head: unique.Make(packing.PlainHeader(d.Src.Dtype, uint64(rows), uint64(cols))), Transposed: d.Transposed}
		u.Slices, u.Rows, u.Cols = SliceShape(d.Src.Shape, d.Transposed)
		u.As = d.As
		return u
	}
	if pl.forms[d.Form] == nil {
		pl.forms[d.Form] = new(d.Form)
	}
	return &Quantized{Entry: d.Entry, Form: pl.forms[d.Form], Variants: d.Variants, Bias: d.Bias, Layout: d.Layout}
}

// SliceShape is how many slices a tensor has, and the outputs and inputs of each. A vector has a
// row per element.
func SliceShape(shape []int64, transposed bool) (slices int, rows, cols int64) {
	n := len(shape)
	switch n {
	case 0:
		return 1, 1, 1
	case 1:
		return 1, shape[0], 1
	}
	slices = 1
	for _, d := range shape[:n-2] {
		slices *= int(d)
	}
	rows, cols = shape[n-2], shape[n-1]
	if transposed {
		return slices, cols, rows
	}
	if rows == 1 && n > 2 { // a convolution of each channel for itself: channels are rows
		return 1, int64(slices), cols
	}
	return slices, rows, cols
}

// LogicalShape is the shape of a tensor with outputs before inputs.
func LogicalShape(shape []int64, transposed bool) []int64 {
	n := len(shape)
	if !transposed || n < 2 {
		return shape
	}
	return append(shape[:n-2:n-2], shape[n-1], shape[n-2])
}

// TakeOver gives a draft the scheme of its source's codes, which stay as they are.
func (d *Draft) TakeOver(scheme rounding.Scheme) {
	d.Quantize, d.Scheme = true, scheme
	_, d.Rows, d.Cols = SliceShape(d.Src.Shape, d.Transposed)
	d.Smallest = scheme.ScaleDtype.Smallest()
	d.Line.SetScheme(scheme, gqf.AlgorithmOther)
}

// Dequantized is the reason that a plan gives for a tensor that an import stores in float32. why
// may be "".
func Dequantized(kind, why string) string {
	if why == "" {
		return "dequantized from " + kind
	}
	return "dequantized from " + kind + ": " + why
}

// SetDtype settles the dtype of a draft of an import, and its size in it.
func (d *Draft) SetDtype(dtype packing.Dtype) {
	d.Src.Dtype, d.Src.DtypeName, d.Line.Dtype = dtype, dtype.String(), dtype.String()
	d.Src.Size = d.Src.Numel() * int64(dtype.Bits()/8)
}

// HoldBias flags the variants whose layout has a place for the bias.
func (it *Draft) HoldBias() {
	for i := range it.Variants {
		h := it.Variants[i].Header()
		if h.Flags |= packing.FlagBias; h.Validate() == nil {
			it.Variants[i].head = unique.Make(h)
		}
	}
}

// FindBias looks for the layer's bias, which packed panels hold too: X.bias of
// X.weight, X_bias of a fused expert tensor X.
func (pl *Planner) FindBias(it *Draft) *safetensors.Tensor {
	b, ok := pl.Ck.Lookup(arch.BiasName(it.Src.Name))
	if !ok || pl.LeftOut[b.Name] || !b.Dtype.IsFloat() || b.Numel() != int64(it.Slices)*it.Rows {
		return nil
	}
	return &b
}

func (pl *Planner) FindBlockScale(it *Draft) error {
	mx := it.Src.MXFP4()
	if it.Src.Dtype != packing.F8E4M3 && it.Src.Dtype != packing.F8E5M2 && !mx {
		return nil
	}
	bs, scales, err := pl.Ck.FindBlockScales(it.Src.Name, pl.ScaleBlock)
	if err != nil || bs == nil {
		return err
	}
	if it.Transposed && !mx {
		return fmt.Errorf("tensor %q: FP8 block scales of a tensor stored in x out are not supported; leave it unquantized with --rule '%s=skip'", it.Src.Name, it.Src.Name)
	}
	pl.Absorbed[bs.Name] = true
	it.Aliases = append(it.Aliases, NameRef{Src: scales, Absorbed: true})
	return nil
}

// BiasIn finds the unquantized tensor with the biases of t in a file, under the names that
// findBias knows; nil if there is none.
func BiasIn(f *gqf.File, t gqf.Tensor) *gqf.Tensor {
	rows, _ := t.Payload(0, 0, gqf.KindWeights)
	for _, name := range t.Names() {
		b, ok := f.Lookup(arch.BiasName(name))
		if ok && b.Dtype.IsFloat() && b.Elements() == int64(t.Experts)*int64(rows.Header.Rows) {
			return &b
		}
	}
	return nil
}
