package conversion

import (
	"slices"
	"unique"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/hfquant"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// item is a tensor of the output, *unquantized or *quantized. It does not change after the plan is made.
type item interface {
	common() *entry
	// headers are the packed headers of one slice's payloads in a .gqf file, of all variants.
	headers() []packing.Header
	// weights is the number of weights in all slices.
	weights() int64
	// addTo adds the tensor and its payloads to the image of a .gqf file.
	addTo(b *gqf.Builder, spec gqf.TensorSpec)
	// addUnits appends the pieces of work on the item.
	addUnits(list *unitList, p *Plan)
}

// entry holds the fields of every item.
type entry struct {
	src       *safetensors.Tensor
	line      *PlanTensor // with the item's canonical name
	role      gqf.Role
	aliases   []nameRef
	index     int // in the plan's items
	nameIndex int // of its canonical name in the image; its aliases follow
}

// nameRef is another name of an item.
type nameRef struct {
	src      safetensors.Tensor
	absent   bool // not in the checkpoint: a tied lm_head that the checkpoint leaves out
	absorbed bool // block scales that are multiplied into the item
}

func (e *entry) common() *entry { return e }

// name is the canonical name in the file.
func (e *entry) name() string { return e.line.Name }

// names are the canonical name and then all other names of the item.
func (e *entry) names() []string {
	names := []string{e.name()}
	for _, alias := range e.aliases {
		if !alias.absorbed {
			names = append(names, alias.src.Name)
		}
	}
	return names
}

// unquantized is an item with the bytes that its source has.
type unquantized struct {
	entry
	head    unique.Handle[packing.Header] // of a .gqf file
	payload int                           // index in the image
	// rows x cols are the shape of each slice as the output of a .gguf file has it. The rows of a vector are its elements.
	slices     int
	rows, cols int64
	transposed bool // the checkpoint stores a slice as cols x rows
	// as is the dtype in a checkpoint that is written, if the rows are converted. DtypeNone: they have
	// the source's bytes.
	as packing.Dtype
}

func (it *unquantized) headers() []packing.Header { return []packing.Header{it.head.Value()} }

func (it *unquantized) addTo(b *gqf.Builder, spec gqf.TensorSpec) {
	spec.Experts = 1
	b.AddPayload(gqf.PayloadSpec{Tensor: b.AddTensor(spec), Header: it.head.Value()})
}

func (it *unquantized) addUnits(list *unitList, p *Plan) { p.out.copyUnits(list, it) }

func (it *unquantized) weights() int64 {
	h := it.head.Value()
	return int64(h.Rows) * int64(h.Cols)
}

// quantized is an item of codes: a matrix, or the matrices of a fused expert tensor.
type quantized struct {
	entry
	scheme     rounding.Scheme
	variants   []variant       // of a .gqf file: the same codes in one layout or more
	kind       gguf.TensorType // of a .gguf file
	slices     int
	rows, cols int64 // of one slice; rows are outputs
	bias       *safetensors.Tensor
	// zeros is the kind of the zero points on their way into the layouts. ZeroF32 only if every layout holds float32.
	zeros      packing.ZeroKind
	smallest   float32 // magnitude of a scale that the output can hold
	transposed bool    // the checkpoint stores a slice as cols x rows
	shared     bool    // an embedding that is the lm_head too
	// layout is how a format of checkpoints stores the item, and stored with which scheme; nil for
	// other outputs and targets.
	layout *hfquant.Layout
	stored hfquant.Scheme
}

func (it *quantized) headers() (list []packing.Header) {
	for _, v := range it.variants {
		list = append(list, v.headers()...)
	}
	return list
}

// addTo adds the payloads of each variant slice by slice, each with its companions.
func (it *quantized) addTo(b *gqf.Builder, spec gqf.TensorSpec) {
	spec.Mapping, spec.Transposed, spec.Experts = it.scheme.Mapping, it.transposed, it.slices
	tensor := b.AddTensor(spec)
	for i, v := range it.variants {
		for s := range it.slices {
			b.AddPayload(gqf.PayloadSpec{Tensor: tensor, Slice: s, Variant: i, CPU: v.cpu, Header: v.header()})
			for _, c := range companions(v.header()) {
				b.AddPayload(gqf.PayloadSpec{Tensor: tensor, Slice: s, Variant: i, Kind: c.kind, CPU: v.cpu, Header: c.header})
			}
		}
	}
}

func (it *quantized) addUnits(list *unitList, p *Plan) {
	blocks := (it.rows + blockRows - 1) / blockRows
	step := max(1, unitBytes/(it.rowBytes()*blockRows))
	if p.in.strided(it) {
		step = transposedRows / blockRows
	}
	if it.layout != nil { // which takes whole steps of rows
		blocksPerStep := leastMultiple(it.layout.RowStep, blockRows) / blockRows
		step = (step + blocksPerStep - 1) / blocksPerStep * blocksPerStep
	}
	sliceBytes := it.src.Size / int64(it.slices)
	for s := range it.slices {
		list.cut(unit{item: it, slice: s}, blocks, step)
		if p.in.strided(it) { // at once, so that a remote slice is fetched once
			list.cut(unit{item: it, sum: true, slice: s, first: int64(s) * sliceBytes}, sliceBytes, unitBytes)
		}
	}
}

// leastMultiple is the least common multiple of two numbers above 0.
func leastMultiple(a, b int64) int64 {
	n := a
	for n%b != 0 {
		n += a
	}
	return n
}

// rowBytes is the size of one row of a slice in the checkpoint.
func (it *quantized) rowBytes() int64 { return it.src.Size / (int64(it.slices) * it.rows) }

func (it *quantized) weights() int64 { return int64(it.slices) * it.rows * it.cols }

// holdsZeroScales reports whether every variant can hold scales that are 0.
func holdsZeroScales(variants []variant) bool {
	return !slices.ContainsFunc(variants, func(v variant) bool { return !v.header().ScaleDtype.HoldsZero() })
}

// draft is a tensor that the planner has not decided on yet.
type draft struct {
	entry
	rule       *quantizer.Rule // that decided; nil: none
	quantize   bool            // else nothing below matters
	scheme     rounding.Scheme
	slices     int
	transposed bool
	shared     bool
	rows, cols int64
	bias       *safetensors.Tensor
	variants   []variant
	kind       gguf.TensorType
	zeros      packing.ZeroKind
	smallest   float32 // magnitude of a scale that the output can hold
	layout     *hfquant.Layout
	stored     hfquant.Scheme
	as         packing.Dtype // of an unquantized tensor
}

// leave leaves the tensor unquantized: its payload is the bytes of the checkpoint.
func (d *draft) leave(reason string) {
	*d = draft{entry: d.entry, rule: d.rule, slices: d.slices, transposed: d.transposed}
	d.line.Action, d.line.Reason = ActionUnquantized, reason
	d.line.clearScheme()
}

// requests are the layouts that a rule states; nil: the recipe's are meant.
func (d *draft) requests() []quantizer.LayoutRequest {
	if d.rule == nil {
		return nil
	}
	return d.rule.Layouts
}

// item is the planner's decision.
func (d *draft) item() item {
	if !d.quantize {
		rows, cols := d.src.Matrix()
		u := &unquantized{entry: d.entry, head: unique.Make(packing.PlainHeader(d.src.Dtype, uint64(rows), uint64(cols))), transposed: d.transposed}
		u.slices, u.rows, u.cols = sliceShape(d.src.Shape, d.transposed)
		u.as = d.as
		return u
	}
	return &quantized{
		entry: d.entry, scheme: d.scheme, variants: d.variants, slices: d.slices, rows: d.rows, cols: d.cols,
		kind: d.kind, bias: d.bias, zeros: d.zeros, smallest: d.smallest, transposed: d.transposed, shared: d.shared,
		layout: d.layout, stored: d.stored,
	}
}

// sliceShape is how many slices a tensor has, and the outputs and inputs of each. A vector has a row
// per element.
func sliceShape(shape []int64, transposed bool) (slices int, rows, cols int64) {
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
		rows, cols = cols, rows
	}
	return slices, rows, cols
}

// variant is a quantized item in one layout. Its payloads are, for each slice, the weights and then their companions.
type variant struct {
	head    unique.Handle[packing.Header] // of the weights of every slice: of many tensors few are different
	cpu     gqf.CPUFeatures               // of the CPUs that the targets name which want it
	payload int                           // index in the image of the first
}

// header is the packed header of the weights of every slice.
func (v *variant) header() packing.Header { return v.head.Value() }

// headers are the packed headers of one slice's payloads.
func (v *variant) headers() []packing.Header {
	list := []packing.Header{v.header()}
	for _, c := range companions(v.header()) {
		list = append(list, c.header)
	}
	return list
}

// companion is a plain payload beside the weights.
type companion struct {
	kind   gqf.Kind
	header packing.Header
}

// companions are the scales and zero points that a layout stores apart from the codes.
func companions(h packing.Header) []companion {
	var list []companion
	for _, kind := range []gqf.Kind{gqf.KindScales, gqf.KindZeros} {
		if c, ok := gqf.CompanionOf(&h, kind); ok {
			list = append(list, companion{kind, c})
		}
	}
	return list
}

// floatZerosOnly reports whether every layout holds float32 zero points.
func floatZerosOnly(variants []variant) bool {
	return !slices.ContainsFunc(variants, func(v variant) bool { return v.header().ZeroKind != packing.ZeroF32 })
}
