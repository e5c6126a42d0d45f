package gemv

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
)

// product is a row of activations and packed weights that it is multiplied with, any bytes.
type product struct {
	kernel *Kernel
	packer packing.Packer
	data   []byte
	acts   []int8 // the columns, rounded up to 32, 0 past the last one
	zero   int32
	rec    float32
	scales []float32 // [groups] of the activations, for layouts with such
	asums  []float32
}

// scalesAt is the offset in a panel of the scales of group g.
func (p *product) scalesAt(g int) int {
	nr, bits := int(p.kernel.Tile.NR), int(p.kernel.Bits)
	codes := min((g+1)*p.group(), len(p.acts)) * bits * nr / 8 // of the groups up to g
	switch p.kernel.Layout {
	case packing.LayoutLowbit:
		record := p.kernel.Scales.Bytes() * nr
		if p.kernel.Zeros != packing.ZeroNone {
			record += nr
		}
		return codes + g*record
	case packing.LayoutQSI4C32PF16: // before the codes
		return g * nr * (2 + p.group()*bits/8)
	case packing.LayoutQAI4C32P:
		return codes + g*8*nr + 4*nr
	case packing.LayoutTorchAOLinear:
		record := 8 * nr
		if p.kernel.Zeros != packing.ZeroNone {
			record += 4 * nr
		}
		return codes + g*record
	}
	return p.packer.PanelBytes() - 8*nr
}

// grouped reports whether a layout has scales for groups.
func grouped(l packing.Layout) bool {
	return l == packing.LayoutLowbit || l == packing.LayoutTorchAOLinear || l == packing.LayoutQSI4C32PF16 || l == packing.LayoutQAI4C32P
}

// newProduct makes a product of zeros for weights of the kernel's kind.
func newProduct(tb testing.TB, k *Kernel, rows, cols, group int) *product {
	tb.Helper()
	h := packing.Header{
		Layout: k.Layout, Bits: k.Bits, Grid: k.Grid, ZeroKind: k.Zeros, Tile: k.Tile, ScaleDtype: k.Scales,
		Rows: uint64(rows), Cols: uint64(cols), Group: uint64(group),
	}
	if h.Canonical().Validate() != nil { // whole groups only
		h.Cols = uint64((cols + max(32, group) - 1) / max(32, group) * max(32, group))
	}
	if k.Layout == packing.LayoutTorchAOLinear && rows%2 == 0 {
		h.Flags = packing.FlagBias
	}
	packer, err := layouts.New(h.Canonical())
	if err != nil {
		tb.Fatal(err)
	}
	return &product{
		kernel: k, packer: packer, data: make([]byte, packer.Panels()*packer.PanelBytes()),
		acts: make([]int8, packer.PackedCols()), rec: 1, scales: make([]float32, packer.Groups()), asums: make([]float32, packer.Groups()),
	}
}

// group is the columns of a group.
func (p *product) group() int {
	if p.packer.Groups() == 1 {
		return len(p.acts)
	}
	return int(p.packer.Header().Group)
}

// groupSum adds up the activations of group g.
func (p *product) groupSum(g int) (sum int32) {
	for _, a := range p.acts[g*p.group() : min((g+1)*p.group(), len(p.acts))] {
		sum += int32(a)
	}
	return sum
}

// ordered returns the activations in the kernel's order.
func (p *product) ordered() []int8 {
	acts := p.acts
	if half := p.group() / 2; p.kernel.Halves {
		acts = nil
		for g := range p.packer.Groups() {
			group := p.acts[g*p.group():][:p.group()]
			for i := 0; i < half; i += 16 {
				acts = append(append(acts, group[i:i+16]...), group[half+i:half+i+16]...)
			}
		}
	}
	if p.kernel.Order == Row {
		return acts
	}
	var twice []int8
	for k := 0; k < len(acts); k += 8 {
		twice = append(append(twice, acts[k:k+8]...), acts[k:k+8]...)
	}
	return twice
}

// sums returns the sums of groups as the kernel wants them.
func (p *product) sums() []int32 {
	sums := make([]int32, p.packer.Groups())
	for g := range sums {
		sums[g] = p.groupSum(g)
		if p.kernel.CenterSums {
			sums[g] -= int32(p.group()) * p.zero
		}
		sums[g] *= p.kernel.SumFactor
	}
	return sums
}

// args are the arguments for the kernel, but for Dst; the slices are data, ordered() and sums(),
// perhaps elsewhere.
func (p *product) args(data []byte, acts []int8, sums []int32) (c Call) {
	a := p.kernel.Args(&c)
	*a = Args{Data: &data[0], PanelBytes: p.packer.PanelBytes(), Panels: p.packer.Panels(), Acts: &acts[0]}
	p.kernel.SetRow(&c, -p.zero, p.rec, &p.scales[0], &p.asums[0])
	c.SetBiased(p.packer.Header().Flags&packing.FlagBias != 0)
	if p.kernel.SumFactor != 0 {
		a.Sums = &sums[0]
	}
	p.kernel.SetGroups(a, p.packer.Groups(), p.group(), int(p.packer.Header().Cols))
	return c
}

// run runs the kernel's function for the product's groups.
func (p *product) run(c *Call) { p.kernel.For(p.packer.Groups(), p.group())(c) }

// model computes the outputs of all rows of all panels, rows of padding included, as Kernel says.
func (p *product) model() (out []float32) {
	panel := p.packer.NewPanel()
	for i := range p.packer.Panels() {
		bytes := p.data[i*p.packer.PanelBytes():][:p.packer.PanelBytes()]
		p.packer.UnpackPanel(panel, bytes)
		for r := range panel.Rows {
			var y float32
			switch p.kernel.Layout {
			case packing.LayoutLowbit:
				y = p.lowbitRow(panel, bytes, r)
			case packing.LayoutQSI4C32PF16, packing.LayoutQAI4C32P:
				y = p.blocksRow(panel, bytes, r)
			case packing.LayoutTorchAOLinear:
				y = p.torchAORow(panel, bytes, r)
			default:
				y = p.channelRow(panel, bytes, r)
			}
			if y != y {
				y = math.Float32frombits(0x7fc00000)
			}
			out = append(out, y)
		}
	}
	return out
}

// word is the i-th of the 4-byte numbers of row r at the end of a panel, which has fields of them.
func (p *product) word(panel []byte, r, fields, i int) uint32 {
	nr := int(p.kernel.Tile.NR)
	return binary.LittleEndian.Uint32(panel[len(panel)-4*nr*fields+4*(nr*i+r):])
}

func (p *product) lowbitRow(panel *packing.Panel, bytes []byte, r int) float32 {
	groups, f := p.packer.Groups(), float32(0)
	for g := range groups {
		dot := p.dot(panel, r, g)
		var t float32
		switch {
		case p.kernel.Zeros == packing.ZeroFraction:
			t = float32(float32(dot<<(8-p.kernel.Bits)-int32(panel.Zeros[r*groups+g])*p.groupSum(g)) * p.packer.Header().ZeroUnit())
		case p.kernel.Zeros != packing.ZeroNone:
			t = float32(dot - int32(panel.Zeros[r*groups+g])*p.groupSum(g))
		case p.kernel.Grid == packing.GridHalfStep:
			t = float32(float32(2*dot+p.groupSum(g)) * 0.5)
		default:
			t = float32(dot)
		}
		f = floats.FMA32(t, panel.Scales[r*groups+g], f)
	}
	sum, bias := math.Float32frombits(p.word(bytes, r, 2, 0)), math.Float32frombits(p.word(bytes, r, 2, 1))
	f = floats.FMA32(sum, float32(-p.zero), f)
	return float32(f*p.rec) + bias
}

// channelRow is KleidiAI's arithmetic; of qsi4cxp it is 16 times the products, and the stored scale
// is divided by 16.
func (p *product) channelRow(panel *packing.Panel, bytes []byte, r int) float32 {
	acc := p.dot(panel, r, 0)
	if p.kernel.Layout == packing.LayoutQSI4CXP {
		acc *= 16
	}
	sum, scale := int32(p.word(bytes, r, 3, 0)), math.Float32frombits(p.word(bytes, r, 3, 1))
	bias := math.Float32frombits(p.word(bytes, r, 3, 2))
	acc += sum * -p.zero
	return float32(float32(acc)*float32(scale*p.rec)) + bias
}

// blocksRow is KleidiAI's arithmetic for activations that have a scale a group.
func (p *product) blocksRow(panel *packing.Panel, bytes []byte, r int) float32 {
	groups, f := p.packer.Groups(), float32(0)
	for g := range groups {
		scale, t := panel.Scales[r*groups+g], p.dot(panel, r, g)
		if panel.FloatZeros != nil {
			f, t = floats.FMA32(panel.FloatZeros[r*groups+g], p.asums[g], f), 16*t
			// Divided by 16.
			scale = math.Float32frombits(binary.LittleEndian.Uint32(bytes[p.scalesAt(g)+4*r:]))
		}
		f = floats.FMA32(float32(t), float32(scale*p.scales[g]), f)
	}
	if panel.FloatZeros != nil {
		f += math.Float32frombits(p.word(bytes, r, 1, 0))
	}
	return f
}

// torchAORow is TorchAO's arithmetic, with the sums of codes as they are stored.
func (p *product) torchAORow(panel *packing.Panel, bytes []byte, r int) float32 {
	groups, f := p.packer.Groups(), float32(0)
	for g := range groups {
		stored := int32(binary.LittleEndian.Uint32(bytes[p.scalesAt(g)+32+4*r:]))
		t := p.dot(panel, r, g) - p.zero*stored
		if panel.Zeros != nil {
			t -= int32(panel.Zeros[r*groups+g]) * (p.groupSum(g) - int32(p.group())*p.zero)
		}
		f += float32(float32(panel.Scales[r*groups+g]*p.rec) * float32(t))
	}
	if panel.Bias != nil {
		f += panel.Bias[r]
	}
	return f
}

// dot multiplies the activations of group g with row r.
func (p *product) dot(panel *packing.Panel, r, g int) (dot int32) {
	start, end := g*p.group(), min((g+1)*p.group(), len(p.acts))
	codes := panel.Codes[r*p.packer.PackedCols():][start:end]
	for i, a := range p.acts[start:end] {
		dot += int32(a) * int32(codes[i])
	}
	return dot
}
