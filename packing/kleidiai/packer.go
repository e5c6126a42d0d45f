package kleidiai

import (
	"fmt"
	"math"
	"sync"

	"github.com/lowbit-go/gq/packing"
)

// Packer is the packing.Packer of a payload in one of KleidiAI's layouts.
type Packer struct {
	packing.Geometry
	f       *frame
	scratch *sync.Pool // of *[2]*packedRow
}

var _ packing.Packer = (*Packer)(nil)

// NewPacker prepares packing and reading of a payload with header h. It fails like
// packing.NewGeometry for the layouts that are KleidiAI's alone.
func NewPacker(h packing.Header) (*Packer, error) {
	g, err := packing.NewGeometry(h, packing.LayoutQSI4CXP, packing.LayoutQSI4C32PF16, packing.LayoutQSI8CXP, packing.LayoutQAI4C32P, packing.LayoutQSU2CXP)
	if err != nil {
		return nil, err
	}
	const offCols = 24            // in the header, see docs/FORMAT.md
	if h.Cols > math.MaxInt32/2 { // sums of codes are int32
		return nil, &packing.UnsupportedError{Field: "cols", Offset: offCols, Msg: fmt.Sprintf("%d x %d weights are more than this machine can address", h.Rows, h.Cols)}
	}
	p := &Packer{Geometry: g, f: newFrame(&h)}
	p.scratch = &sync.Pool{New: func() any { return &[2]*packedRow{p.newRow(), p.newRow()} }}
	return p, nil
}

// PackPanel packs p into dst. It does not check scales, zero points and codes, and stores the low
// bits of a code that does not fit.
func (p *Packer) PackPanel(dst []byte, src *packing.Panel) {
	p.CheckArgs(dst, src)
	p.f.pack(dst, src)
}

// UnpackPanel unpacks all nr rows of a panel into dst and sets dst.Rows to nr.
func (p *Packer) UnpackPanel(dst *packing.Panel, src []byte) {
	dst.Rows = p.f.nr
	p.CheckArgs(src, dst)
	f, codes := p.f, codeBytes(dst.Codes)
	for i := range f.nr {
		f.codes(codes[i*f.cols:][:f.cols], src, i)
		p.scales(dst.Scales[i*f.groups:][:f.groups], src, i)
		if dst.FloatZeros != nil {
			p.zeros(dst.FloatZeros[i*f.groups:][:f.groups], src, i)
		}
		if dst.Bias != nil {
			dst.Bias[i] = f.bias(src, i)
		}
	}
}

// scales reads the scales of row i of a panel, one a group.
func (p *Packer) scales(scales []float32, panel []byte, i int) {
	for g := range scales {
		scales[g] = p.f.scale(panel, i, g)
	}
}

// zeros reads the float32 zero points of row i of a panel, one a group.
func (p *Packer) zeros(zeros []float32, panel []byte, i int) {
	for g := range zeros {
		zeros[g] = p.f.zero(panel, i, g)
	}
}

// Row reads one row of data without unpacking its panel: K codes, G scales and, if the layout has
// zero points, the nearest integer to each of its G zero points. Any of the three may be nil.
func (p *Packer) Row(codes []int8, scales []float32, zeros []int8, data []byte, row int) {
	panel, i := p.PanelOf(data, row)
	f := p.f
	if codes != nil {
		f.codes(codeBytes(codes[:f.k]), panel, i)
	}
	if scales != nil {
		p.scales(scales[:f.groups], panel, i)
	}
	if zeros != nil && f.zero0 >= 0 {
		for g := range zeros[:f.groups] {
			zeros[g], _ = packing.IntegerZero(f.zero(panel, i, g), f.scale(panel, i, g))
		}
	}
}

// FloatZeros reads the G stored zero points of one row of data: a weight is q * scale + zero. They
// are 0 if the layout has none.
func (p *Packer) FloatZeros(dst []float32, data []byte, row int) {
	panel, i := p.PanelOf(data, row)
	p.zeros(dst[:p.f.groups], panel, i)
}

// DequantizeRow reads one row of data as K weights: float32(q * scale), or
// float32(float32(q * scale) + zero) where the layout has zero points.
func (p *Packer) DequantizeRow(dst []float32, data []byte, row int) {
	panel, i := p.PanelOf(data, row)
	f := p.f
	dst = dst[:f.k]
	var codes [32]byte
	for g := range f.groups {
		scale, zero, group := f.scale(panel, i, g), f.zero(panel, i, g), f.data(panel, g)
		for k := 0; k < f.group && len(dst) > 0; k += 32 {
			f.decode32(&codes, group, i, k)
			run := dst[:min(32, len(dst))]
			dst = dst[len(run):]
			if f.zero0 >= 0 {
				for c := range run {
					run[c] = float32(float32(int8(codes[c]))*scale) + zero
				}
			} else {
				for c := range run {
					run[c] = float32(float32(int8(codes[c])) * scale)
				}
			}
		}
	}
}

// Bias reads the bias of one row: 0 without FlagBias.
func (p *Packer) Bias(data []byte, row int) float32 {
	panel, i := p.PanelOf(data, row)
	return p.f.bias(panel, i)
}
