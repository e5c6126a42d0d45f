package togqf

import (
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/part"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
)

// layoutPacking packs the blocks of a worker's units in one variant's layout.
type layoutPacking struct {
	v      *plan.Variant
	image  *gqf.Image
	pk     packing.Packer
	nr     int
	panel  packing.Panel
	own    []int8    // codes in rows of the layout's stride, where that is not the block's
	floats []float32 // zero points as the layout holds them, where the block's are integers
	out    []byte
	beside []plan.Companion
	parts  [][]byte // their rows
	// sum reads a row's stored sum in a panel; nil where the layout stores none as float32.
	sum func(panel []byte, row int) float32
}

func newLayoutPacking(it *plan.Quantized, v *plan.Variant, image *gqf.Image) (*layoutPacking, error) {
	pk, err := layouts.New(v.Header())
	if err != nil {
		return nil, err
	}
	p := &layoutPacking{v: v, image: image, pk: pk, nr: int(max(1, v.Header().Tile.NR))}
	if s, ok := pk.(packing.FloatSums); ok {
		p.sum = s.PanelSum
	}
	if stride := int((it.Cols + 31) / 32 * 32); pk.PackedCols() != stride {
		p.own = make([]int8, p.nr*pk.PackedCols())
	}
	p.beside = plan.Companions(v.Header())
	p.parts = make([][]byte, len(p.beside))
	return p, nil
}

// Begin makes room for a unit.
func (p *layoutPacking) Begin(rows int64) {
	panels := (int(rows) + p.nr - 1) / p.nr
	buffer.Grow(&p.out, panels*p.pk.PanelBytes())
	for i := range p.parts {
		p.parts[i] = p.parts[i][:0]
	}
}

// Pack packs the block of n rows, which begins at row first of the unit. It
// fails with *SumError for the row of the block that it names.
func (p *layoutPacking) Pack(w *write.Block, first, n int) (row int, err error) {
	size, g := p.pk.PanelBytes(), w.Groups
	for r := 0; r < n; r += p.nr {
		p.panel.Rows = min(p.nr, n-r)
		p.panel.Codes = p.codes(w, r)
		p.panel.Scales = w.Scales[r*g : (r+p.nr)*g]
		p.panel.Zeros, p.panel.FloatZeros, p.panel.Bias = nil, nil, nil
		switch p.v.Header().ZeroKind {
		case packing.ZeroInt8, packing.ZeroFraction:
			p.panel.Zeros = w.Zeros[r*g : (r+p.nr)*g]
		case packing.ZeroF32:
			p.panel.FloatZeros = p.floatZeros(w, r)
		}
		if p.v.Header().Flags&packing.FlagBias != 0 {
			p.panel.Bias = w.Bias[first+r : first+r+p.nr]
		}
		at := (first + r) / p.nr * size
		panel := p.out[at : at+size]
		p.pk.PackPanel(panel, &p.panel)
		for i := 0; p.sum != nil && i < p.panel.Rows; i++ {
			if sum := p.sum(panel, i); !floats.Finite(sum) {
				return r + i, &rounding.SumError{Sum: sum}
			}
		}
	}
	for i, c := range p.beside {
		if c.Kind != gqf.KindZeros {
			p.parts[i] = write.AppendFloats(p.parts[i], w.Scales[:n*g], p.v.Header().ScaleDtype)
			continue
		}
		for _, z := range w.Zeros[:n*g] {
			p.parts[i] = append(p.parts[i], byte(z))
		}
	}
	return 0, nil
}

// codes gives the panel's codes, from row r of the block on, in the layout's stride.
func (p *layoutPacking) codes(w *write.Block, r int) []int8 {
	if p.own == nil {
		return w.Codes[r*w.Stride : (r+p.nr)*w.Stride]
	}
	cols := p.pk.PackedCols()
	for i := range p.panel.Rows {
		copy(p.own[i*cols:(i+1)*cols], w.Codes[(r+i)*w.Stride:])
	}
	return p.own
}

// floatZeros gives the panel's float32 zero points, from row r of the block on.
func (p *layoutPacking) floatZeros(w *write.Block, r int) []float32 {
	first, n := r*w.Groups, p.nr*w.Groups
	if w.Item.Zeros == packing.ZeroF32 {
		return w.FloatZeros[first : first+n]
	}
	floats, unit := buffer.Grow(&p.floats, n), w.Item.Scheme.ZeroUnit()
	for i, z := range w.Zeros[first : first+n] {
		floats[i] = packing.FloatZero(float32(float32(z)*unit), w.Scales[first+i])
	}
	return floats
}

// Write puts the unit's panels and companions at their places, and sums them for the file's
// checksums.
func (p *layoutPacking) Write(w *write.Worker, u write.Unit) error {
	spans, err := p.spans(w.Block.Item, u)
	if err != nil {
		return err
	}
	for _, s := range spans {
		b, off := p.out, p.offset(u, s)
		switch {
		case s.part > 0:
			b = p.parts[s.part-1]
		case s.off == 0 && len(p.pk.Prefix()) > 0:
			b = slices.Concat(p.pk.Prefix(), p.out)
		}
		p.image.AddData(off, b)
		if err := w.Write(0, b, off); err != nil {
			return err
		}
	}
	return nil
}

// span is a range of a payload's data that holds a part of a unit: the weights, or a companion.
type span struct {
	kind   gqf.Kind
	part   int // of the slice's payloads: 0 is the weights, the companions follow
	off, n int64
}

// spans lists the ranges that write fills, for a unit or for several that follow one another.
func (p *layoutPacking) spans(it *plan.Quantized, u write.Unit) ([]span, error) {
	panels, size := (u.Rows(it)+int64(p.nr)-1)/int64(p.nr), int64(p.pk.PanelBytes())
	prefix := int64(len(p.pk.Prefix()))
	weights := span{kind: gqf.KindWeights, off: prefix + u.First*write.BlockRows/int64(p.nr)*size, n: panels * size}
	if u.First == 0 {
		weights.off, weights.n = 0, weights.n+prefix
	}
	list := []span{weights}
	for i, c := range p.beside {
		n, err := c.Header.DataSize()
		if err != nil {
			return nil, err
		}
		rowBytes := n / it.Rows
		list = append(list, span{c.Kind, 1 + i, u.First * write.BlockRows * rowBytes, u.Rows(it) * rowBytes})
	}
	return list, nil
}

// extents appends the places that write writes to, in a unit or in several that follow one another.
func (p *layoutPacking) extents(list []part.Extent, it *plan.Quantized, u write.Unit) ([]part.Extent, error) {
	spans, err := p.spans(it, u)
	for _, s := range spans {
		list = append(list, part.Extent{Off: p.offset(u, s), Len: s.n})
	}
	return list, err
}

// offset is where a span begins in the file.
func (p *layoutPacking) offset(u write.Unit, s span) int64 {
	return p.image.PayloadOffset(p.v.Payload+u.Slice*(1+len(p.beside))+s.part) + packing.HeaderSize + s.off
}
