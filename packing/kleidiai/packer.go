package kleidiai

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// Packer is the packing.Packer of a payload in a layout of KleidiAI.
type Packer struct {
	packing.Geometry
	f       *frame
	scratch *sync.Pool // of *[2]*packedRow
}

var _ packing.Packer = (*Packer)(nil)

// NewPacker fails like packing.NewGeometry for the layouts that are KleidiAI's alone.
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

// PackPanel stores the low bits of a code that does not fit.
func (p *Packer) PackPanel(dst []byte, src *packing.Panel) {
	p.CheckArgs(dst, src)
	p.f.pack(dst, src)
}

func (p *Packer) UnpackPanel(dst *packing.Panel, src []byte) {
	dst.Rows = p.f.nr
	p.CheckArgs(src, dst)
	f, codes := p.f, buffer.Bytes(dst.Codes)
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

func (p *Packer) scales(scales []float32, panel []byte, i int) {
	for g := range scales {
		scales[g] = p.f.scale(panel, i, g)
	}
}

func (p *Packer) zeros(zeros []float32, panel []byte, i int) {
	for g := range zeros {
		zeros[g] = p.f.zero(panel, i, g)
	}
}

// Row gives the nearest integer to each floating-point zero point.
func (p *Packer) Row(codes []int8, scales []float32, zeros []int8, data []byte, row int) {
	panel, i := p.PanelOf(data, row)
	f := p.f
	if codes != nil {
		f.codes(buffer.Bytes(codes[:f.k]), panel, i)
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

// FloatZeros reads the G zero points of a row, or 0 if there are none: weight = q * scale + zero.
func (p *Packer) FloatZeros(dst []float32, data []byte, row int) {
	panel, i := p.PanelOf(data, row)
	p.zeros(dst[:p.f.groups], panel, i)
}

// DequantizeRow reads a row of data as K weights: float32(q * scale), or float32(float32(q * scale)
// + zero) where the layout has zero points.
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

func (p *Packer) Bias(data []byte, row int) float32 {
	panel, i := p.PanelOf(data, row)
	return p.f.bias(panel, i)
}

// pack packs p into dst and sets every byte of dst, in 0.12 to 0.16 ns per weight, and 0.24 for
// qsi8cxp with runs of 4 (AMD EPYC of Zen 5, one core, K 2048 to 14336).
func (f *frame) pack(dst []byte, p *packing.Panel) {
	codes := buffer.Bytes(p.Codes)
	for i := range f.nr {
		last := min(i, p.Rows-1) // row i, or the row that row i repeats
		if f.zeroPadding && i >= p.Rows {
			f.clearRow(dst, i)
			continue
		}
		row, scales := codes[last*f.cols:][:f.cols], p.Scales[last*f.groups:][:f.groups]
		f.encodeRow(dst, row, i)
		f.putScales(dst, scales, i)
		if f.zero0 >= 0 {
			f.putZeros(dst, p.FloatZeros[last*f.groups:][:f.groups], i)
		}
		bias := float32(0)
		if p.Bias != nil {
			bias = p.Bias[last]
		}
		if f.bias0 >= 0 {
			put32(dst, f.bias0+4*i, math.Float32bits(bias))
		}
		if f.sum0 >= 0 {
			put32(dst, f.sum0+4*i, uint32(f.sum(row)))
		}
	}
}

// clearRow writes the padding of a zeroPadding layout to row i of a panel.
func (f *frame) clearRow(panel []byte, i int) {
	const zeros = 0xaaaaaaaa // code 0 is stored as 2
	data := f.data(panel, 0)
	for o := 0; o < f.stream(); o += f.run {
		put32(data, f.offset(i, o), zeros)
	}
	for _, at := range []int{f.sum0, f.scale0, f.bias0} {
		put32(panel, at+4*i, 0)
	}
}

func (f *frame) putScales(panel []byte, scales []float32, i int) {
	at := f.scale0 + i*f.scaleDtype.Bytes()
	switch f.scaleDtype {
	case packing.ScaleF32:
		for _, s := range scales {
			put32(panel, at, math.Float32bits(float32(s*f.scaleFactor)))
			at += f.recordStep
		}
	case packing.ScaleF16:
		for _, s := range scales {
			// A normal F16 number needs no rounding and no call.
			b := math.Float32bits(s)
			h := uint16(b>>16&0x8000 | (b&0x7fffffff-112<<23)>>13)
			if e := b >> 23 & 0xff; e-113 >= 30 || b&0x1fff != 0 {
				h = floats.F16FromF32(s)
			}
			binary.LittleEndian.PutUint16(panel[at:], h)
			at += f.recordStep
		}
	}
}

func (f *frame) putZeros(panel []byte, zeros []float32, i int) {
	for g, zero := range zeros {
		put32(panel, f.zeroAt(i, g), math.Float32bits(zero))
	}
}

// frame describes a panel of a layout; the package's documentation states how codes become bytes.
// Offsets are from the panel's start.
type frame struct {
	n, k           int // rows and columns of the matrix
	cols           int // columns stored: k, rounded up to 32
	group, groups  int // stored columns of a group; groups of a row
	nr             int
	bits, distance int
	run            int // bytes of a row's stream that are adjacent

	panelBytes         int
	data0, dataStep    int // codes of group g: data0 + g*dataStep
	scale0, recordStep int // nr scales of group g: scale0 + g*recordStep
	zero0              int // likewise float32 zero points; none if < 0
	sum0               int // nr sums; none if < 0
	bias0              int // nr biases; none if < 0

	scaleDtype  packing.ScaleDtype
	scaleFactor float32 // factor of stored scales: 1 or 1/16
	sumFactor   int32   // factor of stored sums: 1 or 16
	// zeroPadding: rows past the last row of the matrix have codes, sums, scales and biases of 0.
	// Otherwise they repeat the last row.
	zeroPadding bool
}

const sixteenth = 0.0625

// newFrame computes the frame of a valid header with a layout of KleidiAI.
func newFrame(h *packing.Header) *frame {
	f := &frame{
		n: int(h.Rows), k: int(h.Cols), nr: int(h.Tile.NR), bits: int(h.Bits), groups: int(h.Groups()),
		distance: 16, run: int(h.Tile.KR) / int(h.Tile.SR), scaleDtype: h.ScaleDtype, scaleFactor: 1, sumFactor: 1,
		zero0: -1, sum0: -1, bias0: -1,
	}
	f.cols = (f.k + 31) / 32 * 32
	f.group = f.cols / f.groups
	codes := f.nr * f.stream()
	switch h.Layout {
	case packing.LayoutQSI4C32PF16: // scales, codes
		f.distance = f.group / 2
		f.data0 = 2 * f.nr
		f.dataStep = f.data0 + codes
		f.recordStep = f.dataStep
		f.panelBytes = f.groups * f.dataStep
		return f
	case packing.LayoutQAI4C32P: // codes, zero points, scales; biases
		f.scaleFactor = sixteenth
		f.zero0 = codes
		f.scale0 = f.zero0 + 4*f.nr
		f.dataStep = f.scale0 + 4*f.nr
		f.recordStep = f.dataStep
		f.bias0 = f.groups * f.dataStep
		f.panelBytes = f.bias0 + 4*f.nr
		return f
	case packing.LayoutQSI4CXP: // the layout's kernels see the codes times 16
		f.sumFactor, f.scaleFactor = 16, sixteenth
	case packing.LayoutQSU2CXP:
		f.distance, f.zeroPadding = 4, true
	}
	// A scale per row: codes, sums, scales, biases.
	f.sum0 = codes
	f.scale0 = f.sum0 + 4*f.nr
	f.bias0 = f.scale0 + 4*f.nr
	f.panelBytes = f.bias0 + 4*f.nr
	return f
}

// stream is the number of bytes that a row contributes to the codes of a group.
func (f *frame) stream() int { return f.group * f.bits / 8 }

// data returns the bytes of a panel that hold the codes of group g.
func (f *frame) data(panel []byte, g int) []byte {
	return panel[f.data0+g*f.dataStep:][:f.nr*f.stream()]
}

// scaleAt and zeroAt are the offsets of row i's scale and float32 zero point in group g of a panel.
func (f *frame) scaleAt(i, g int) int { return f.scale0 + g*f.recordStep + i*f.scaleDtype.Bytes() }
func (f *frame) zeroAt(i, g int) int  { return f.zero0 + g*f.recordStep + 4*i }

// place returns the byte o of a group's stream that holds the code of column k, and the code's
// place t in 0 .. 8/bits-1 within the byte.
func (f *frame) place(k int) (o, t int) {
	d := f.distance
	chunk, c := k/(d*8/f.bits), k%(d*8/f.bits)
	return chunk*d + c%d, c / d
}

// offset is the offset of byte o of row i's stream in the data of a group.
func (f *frame) offset(i, o int) int {
	return f.nr*f.run*(o/f.run) + f.run*i + o%f.run
}
