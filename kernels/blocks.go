package kernels

import (
	"fmt"
	"math"
	"strings"
	"unsafe"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/kernels/act"
	"github.com/lowbit-go/gq/internal/kernels/ggml"
	"github.com/lowbit-go/gq/internal/kernels/reference"
	"github.com/lowbit-go/gq/internal/kernels/tile"
	"github.com/lowbit-go/gq/packing"
)

// newBlocks is NewLinear for LayoutBlocks. Activations are quantized to the type that llama.cpp
// uses with the type of the weights.
func newBlocks(h packing.Header, data []byte, o Options) (*Linear, error) {
	f, err := formatOf(h)
	if err != nil {
		return nil, err
	}
	t, rows, cols := f.Type, int(h.Rows), int(h.Cols)
	if size := int64(rows) * int64(cols/f.Block) * int64(f.Bytes); int64(len(data)) != size {
		return nil, fmt.Errorf("kernels: %d bytes of data for %d x %d weights of %s, want %d", len(data), rows, cols, t, size)
	}
	features, err := o.features()
	if err != nil {
		return nil, err
	}
	layout := newBlockLayout(f, h, features)
	l := &Linear{
		panelLayout: layout, selection: newSelection(layout, features), header: layout.header, data: data, log: o.log(),
		readRow: func(dst []float32, row int) {
			size := layout.rowBytes
			if err := t.Decode(dst[:cols], data[row*size:][:size]); err != nil {
				panic(err) // the type and the sizes were checked
			}
		},
	}
	l.use()
	return l, nil
}

// formatOf is the arithmetic of a matrix of blocks.
func formatOf(h packing.Header) (*ggml.Format, error) {
	t := gguf.TensorType(h.Dtype)
	f := ggml.For(t)
	switch {
	case f == nil:
		return nil, &UnsupportedError{h, fmt.Sprintf("type %s has no matrix product", t)}
	case h.Rows < 1 || h.Rows > math.MaxInt32 || h.Cols < 1 || h.Cols > math.MaxInt32 || h.Cols%uint64(f.Block) != 0:
		return nil, &UnsupportedError{h, fmt.Sprintf("want rows of whole blocks of %d weights", f.Block)}
	}
	return f, nil
}

// blockInfos lists the kernels of ggml's blocks.
func blockInfos() (list []Info) {
	add := func(name, feature, kind string, f *ggml.Format, cost float64, rows ...int) {
		bits := int(f.Type.Header(1, uint64(f.Block)).Bits)
		list = append(list, Info{
			Name: name, Feature: feature, Kind: kind, Layouts: []packing.Layout{packing.LayoutBlocks}, Type: f.Type, Bits: bits, Rows: rows, Cost: cost,
		})
	}
	for _, k := range ggml.Kernels {
		add(k.Name, k.Feature, "gemv", ggml.For(k.Type), rowsCost(k), 1)
	}
	for _, f := range ggml.Formats {
		for _, i := range tile.Sets.All() {
			set := blockSet(i.Code, f)
			var rows []int
			for _, s := range set.Steps {
				rows = append(rows, s.MR)
			}
			add(blockGemmName(f, i.Feature), i.Feature, "gemm", f, stepCost(i.Feature, f.Bits, &set.Steps[0])/float64(rows[0]), rows...)
		}
	}
	return list
}

func blockGemmName(f *ggml.Format, feature string) string {
	return fmt.Sprintf("gemm_%s_%s", strings.ToLower(f.Type.String()), feature)
}

// blockSet has the products for a type of blocks.
func blockSet(w tile.Widths, f *ggml.Format) tile.Set {
	set := w.Set(f.Bits)
	if set.Symmetric != nil {
		set.Steps = set.Symmetric
	}
	return set
}

// blockReference is NewReference for blocks.
type blockReference struct {
	format     *ggml.Format
	rows, cols int
	data       []byte
}

func (b *blockReference) Rows() int { return b.rows }
func (b *blockReference) Cols() int { return b.cols }

func (b *blockReference) Multiply(dst, x []float32, m int) {
	reference.MultiplyBlocks(dst, x, m, b.format, b.data, b.rows, b.cols)
}

// newBlockLayout describes rows of blocks. A panel is the rows that a step of a gemv kernel takes.
func newBlockLayout(t *ggml.Format, h packing.Header, features []string) *panelLayout {
	rows, cols := int(h.Rows), int(h.Cols)
	f := &panelLayout{
		header: h, ggml: t, bits: t.Bits, rows: rows, cols: cols, stored: cols,
		group: t.Group, groups: cols / t.Group, block: t.Activations.Block(), blocks: cols / t.Activations.Block(),
		width: 8, biasAt: -1, nr: 1, rowBytes: cols / t.Block * t.Bytes, unpackRow: t.UnpackFor(features),
	}
	if k := ggml.KernelFor(t.Type, features); k != nil && rows >= k.Rows {
		f.nr = k.Rows
	}
	f.panels, f.panelBytes = (rows+f.nr-1)/f.nr, f.nr*f.rowBytes
	switch t.Activations {
	case ggml.Q8_0:
		f.quantize = blocksF16
	case ggml.Q8_1:
		f.quantize = blocksSums
	default:
		f.quantize = blocksF32
	}
	switch {
	case t.Subs:
		f.epilogue = epilogueSubs
	case t.Minima:
		f.epilogue = epilogueMin
	default:
		f.epilogue = epilogueF16
	}
	return f
}

// newBlockReader is newReader for blocks.
func newBlockReader(f *panelLayout, set tile.Set) reader {
	r := reader{panelLayout: f, outs: set.NR, unit: 1, chunks: f.stored / 8, zip: set.Unzip}
	if !f.ggml.Unsigned {
		r.zero = int32(set.Offset)
	}
	return r
}

// unpackedColumns is the number of columns that are unpacked for all rows of a panel before the
// next columns. Their codes stay in the first-level cache until the last row: whole rows of 8,192
// columns take twice as long (128 instead of 61 ps for a weight of Q6_K, EPYC, Zen 5).
const unpackedColumns = 512

// readBlocks unpacks rows. Rows past the last repeat the last row.
func (r *reader) readBlocks(p *panel, data []byte, i int) {
	args := ggml.UnpackArgs{Stride: 8 * r.outs, Offset: uint8(r.zero), Step: 4 * r.outs}
	block := r.ggml.Block
	for from := 0; from < r.cols; from += unpackedColumns {
		args.Blocks = min(unpackedColumns, r.cols-from) / block
		if args.Ahead = args.Blocks * r.ggml.Bytes; from+unpackedColumns >= r.cols { // the next panel
			args.Ahead = r.outs*r.rowBytes - from/block*r.ggml.Bytes
		}
		number := from / r.group * r.outs // the first group's
		scale := number
		if r.ggml.Subs {
			scale = from / block * r.outs
		}
		for j := range r.outs {
			row := min(i*r.outs+j, r.rows-1)
			args.Data = &data[row*r.rowBytes:][:r.rowBytes][from/block*r.ggml.Bytes]
			args.Codes, args.Scales = &p.codes[from*r.outs+8*j], &p.scales[scale+j]
			if r.ggml.Minima {
				args.Mins = &p.points[scale+j]
			}
			if r.ggml.Subs {
				args.Subs = &p.sums[number+j]
				if r.ggml.Minima {
					args.SubMins = &p.subMins[number+j]
				}
			}
			r.unpackRow(&args)
		}
	}
	if r.zip != nil {
		r.zip(&p.codes[0], r.chunks*r.outs/4)
	}
	zero := r.zero
	if r.epilogue == epilogueSubs { // see scaleSums
		zero = -min(zero, 1)
	}
	for j := range p.zeros[:r.outs] {
		p.zeros[j] = zero
	}
}

// scaleSums multiplies sums of activations by the excess of codes, where the products subtract
// nothing else: see tile.Step.Subs.
func (r *reader) scaleSums(sums []int32) {
	if r.epilogue == epilogueSubs && r.zero != 0 {
		for g := range sums {
			sums[g] *= -r.zero
		}
	}
}

// spread repeats scales of blocks of activations for the groups of a block, in place.
func (f *panelLayout) spread(scales []float32) {
	if f.epilogue != epilogueF16 || f.groups == f.blocks {
		return
	}
	each := f.groups / f.blocks
	for g := f.groups - 1; g >= 0; g-- {
		scales[g] = scales[g/each]
	}
}

// setBlockRow quantizes a row of activations for the gemv kernels of blocks.
func (a *activations) setBlockRow(f *panelLayout, i int, x []float32) {
	q := int8s(a.codes[i*f.stored:][:f.stored])
	a.set(f, i, q, a.scales[i*f.groups:][:f.blocks], a.asums[i*f.groups:][:f.blocks], x)
	act.GroupSums(a.sums[i*f.groups:][:f.groups], q, f.group)
}

// multiplyRows multiplies the rows with the panels [from, to), by the gemv kernel of blocks.
func (w *Workspace) multiplyRows(own *worker, from, to int) {
	j, a := &w.job, &w.acts
	l, k := j.l, &own.blocks
	f, run := l.panelLayout, j.c.rows.Run
	k.RowBytes, k.Blocks = f.rowBytes, f.cols/f.ggml.Block
	whole := min(to, f.rows/f.nr)
	for i := range j.m {
		k.Acts = (*int8)(unsafe.Pointer(&a.codes[i*f.stored]))
		k.Sums, k.Scales, k.ActSums = &a.sums[i*f.groups], &a.scales[i*f.groups], &a.asums[i*f.groups]
		out := j.dst[i*f.rows:][:f.rows]
		if whole > from {
			k.Dst, k.Data, k.Rows = &out[from*f.nr], &l.data[from*f.panelBytes], (whole-from)*f.nr
			run(k)
		}
		if whole < to { // the last step repeats rows before it
			first := f.rows - f.nr
			buffer.Grow(&own.out, f.nr)
			k.Dst, k.Data, k.Rows = &own.out[0], &l.data[first*f.rowBytes], f.nr
			run(k)
			copy(out[whole*f.nr:], own.out[whole*f.nr-first:f.nr])
		}
		w.finishRows(i, i, 1, from*f.nr, min(to*f.nr, f.rows))
	}
}

// finishBlocks is multiplyStep for epilogues of blocks alone.
func (l *Linear) finishBlocks(own *worker, a *activations, t *rowTile, p *panel) {
	step, dots, scales := &l.set.Steps[t.step], first(own.dots), first(p.scales)
	if l.epilogue == epilogueMin {
		k := &own.tile.blocksMin
		k.T, k.Scales, k.ActScales = dots, scales, first(t.numbers(a.scales, l.groups))
		k.Mins, k.ActSums = first(p.points), first(t.numbers(a.asums, l.groups))
		step.BlocksMin(k)
		return
	}
	k := &own.tile.subs
	k.T, k.Scales, k.ActScales = dots, scales, first(t.numbers(a.scales, l.groups))
	k.Each, k.Factors, k.SubMins, k.Mins = l.ggml.Terms(), first(p.sums), nil, nil
	if l.ggml.Minima {
		k.SubMins, k.Mins = first(p.subMins), first(p.points)
		if k.SumPairs = nil; step.Unit > 0 {
			k.SumPairs = &a.words[t.at*l.words]
		}
	}
	step.Subs(k)
}
