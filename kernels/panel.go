package kernels

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/kernels/internal/tile"
	"github.com/lowbit-go/gq/packing"
)

// panel is a panel as package tile reads it, NR rows: one, two or four packed panels side by side. Rows that the payload
// has no packed panel for hold anything; their outputs are dropped.
type panel struct {
	codes  []byte    // [chunk][NR][8]
	scales []float32 // [groups][NR]
	zeros  []int32   // [groups][NR] with zero points, else [NR]
	points []float32 // [groups][NR], finishQAI4
	sums   []int32   // [groups][NR], finishRow and finishTorchAO: of the codes
	float  []float32 // [NR], finishGroup: sums of the weights
	bias   []float32 // [NR]
	// exact is false where a scale of the half-step grid cannot be halved; scales then are whole ones.
	exact bool
	half  []byte // 2-byte scales, gathered
}

// reader unpacks panels of one operator.
type reader struct {
	*form
	outs   int // NR
	unpack func(dst, src *byte, units int, lanes *tile.Lanes)
	zip    func(dst *byte, n int)
	zero   int32      // how much larger than it counts a code is, without zero points
	lanes  tile.Lanes // of packed panel 0
	chunks int
	// plainScales says that records are 4 or 8 scales of 2 bytes and nothing else, as most are.
	plainScales bool
}

// newReader prepares unpacking for the kernels of set. On the half-step grid these are kernels for one bit more: they
// multiply with 2q+1.
func newReader(f *form, set tile.Set) reader {
	stored, _ := tile.Sets(set.Feature, f.bits)
	r := reader{form: f, outs: set.NR, unpack: stored.Unpack, zip: set.Zip, zero: int32(set.Offset), chunks: f.stored / 8}
	offset := set.Offset
	if f.half { // the codes are doubled after unpacking
		r.zero, offset = r.zero-1, offset/2
	}
	r.lanes = f.lanes(set.NR, offset)
	r.plainScales = f.scaleDtype.Bytes() == 2 && f.header.ZeroKind == packing.ZeroNone
	return r
}

// canonical is the number of panels of NR rows.
func (r *reader) canonical() int { return (r.rows + r.outs - 1) / r.outs }

// grow makes room for a panel.
func (p *panel) grow(r *reader) {
	nr, all := r.outs, r.outs*r.groups
	p.codes = aligned(p.codes, r.chunks*8*nr)
	p.scales = grow(p.scales, all)
	p.zeros = grow(p.zeros, all)
	p.bias = grow(p.bias, nr)
	p.float = grow(p.float, nr)
	if r.finish == finishQAI4 {
		p.points = grow(p.points, all)
	}
	if r.finish == finishRow || r.finish == finishTorchAO {
		p.sums = grow(p.sums, all)
	}
	if r.scaleDtype.Bytes() == 2 {
		p.half = grow(p.half, 2*all)
	}
}

// read unpacks panel number i out of a payload's data.
func (r *reader) read(p *panel, data []byte, i int) {
	perPanel := r.outs / r.nr
	first := i * perPanel
	n := min(perPanel, r.panels-first)
	p.exact = true
	for j := range n {
		src := data[r.prefix+(first+j)*r.panelBytes:][:r.panelBytes]
		r.readCodes(p, src, j*r.nr)
		r.readRecords(p, src, j*r.nr)
	}
	if r.width == 4 {
		r.zip(&p.codes[0], r.chunks*r.outs/4)
	}
	if r.half {
		double(p.codes[:r.chunks*8*r.outs])
	}
	if r.scaleDtype.Bytes() == 2 {
		r.widenScales(p)
	}
	if r.half {
		r.halveScales(p)
	}
	if r.header.ZeroKind != packing.ZeroInt8 {
		for j := range p.zeros[:r.outs] {
			p.zeros[j] = r.zero
		}
	}
}

// readCodes unpacks the codes of a packed panel to the rows from row on. At group 32 a run is 128 or 256 codes, so there
// are no checks in the loop: form's runs are within a panel.
func (r *reader) readCodes(p *panel, src []byte, row int) {
	_, _ = p.codes[r.chunks*8*r.outs-1], src[r.panelBytes-1]
	dst, from := unsafe.Pointer(&p.codes[8*row]), unsafe.Pointer(&src[0])
	unpack, outs, lanes := r.unpack, r.outs, &r.lanes
	for i := range r.runs {
		run := &r.runs[i]
		unpack((*byte)(unsafe.Add(dst, run.col*outs)), (*byte)(unsafe.Add(from, run.at)), run.units, lanes)
	}
}

// double doubles bytes.
func double(codes []byte) {
	const low = 0x0101010101010101
	for ; len(codes) >= 8; codes = codes[8:] {
		x := binary.LittleEndian.Uint64(codes)
		binary.LittleEndian.PutUint64(codes, x<<1&^low)
	}
}

// readRecords reads what a packed panel says beside its codes. Scales of 2 bytes are gathered only.
func (r *reader) readRecords(p *panel, src []byte, row int) {
	nr := r.nr
	if r.plainScales {
		r.gatherScales(p, src, row)
	} else {
		for g, at := range r.scaleAt {
			r.readRecord(p, src, at, g, g*r.outs+row)
		}
	}
	switch r.finish {
	case finishGroup:
		getFloats(p.float[row:][:nr], src[r.sumAt:])
	case finishRow:
		getInts(p.sums[row:][:nr], src[r.sumAt:])
	}
	if r.biasAt >= 0 {
		getFloats(p.bias[row:][:nr], src[r.biasAt:])
	} else {
		clear(p.bias[row:][:nr])
	}
}

// gatherScales copies the scales of records that are nothing else; like readCodes, without checks.
func (r *reader) gatherScales(p *panel, src []byte, row int) {
	_, _ = p.half[2*r.groups*r.outs-1], src[r.panelBytes-1]
	to, from, step := unsafe.Pointer(&p.half[2*row]), unsafe.Pointer(&src[0]), 2*r.outs
	if r.nr == 8 {
		for g, at := range r.scaleAt {
			*(*[16]byte)(unsafe.Add(to, g*step)) = *(*[16]byte)(unsafe.Add(from, at))
		}
		return
	}
	for g, at := range r.scaleAt {
		*(*[8]byte)(unsafe.Add(to, g*step)) = *(*[8]byte)(unsafe.Add(from, at))
	}
}

// readRecord reads the record of group g, whose scales begin at src[at], to the rows from number to on.
func (r *reader) readRecord(p *panel, src []byte, at, g, to int) {
	nr := r.nr
	if r.scaleDtype.Bytes() == 2 {
		copy(p.half[2*to:], src[at:][:2*nr])
	} else {
		getFloats(p.scales[to:][:nr], src[at:])
	}
	switch r.finish {
	case finishQAI4:
		getFloats(p.points[to:][:nr], src[at+r.zeroAt:])
	case finishTorchAO:
		sums := p.sums[to:][:nr]
		getInts(sums, src[at+r.sumAt:])
		if r.header.ZeroKind == packing.ZeroInt8 {
			columns := int32(min(r.group, r.cols-g*r.group))
			for i := range sums {
				z := int32(int8(src[at+r.zeroAt+4*i])) // an int32 of 8 bits
				sums[i] -= columns * z                 // of q - z: its part is the zero point of the activations
				p.zeros[to+i] = r.zero + z
			}
		}
	case finishGroup:
		if r.header.ZeroKind == packing.ZeroInt8 {
			zeros := p.zeros[to:][:nr]
			for i, z := range src[at+r.zeroAt:][:nr] {
				zeros[i] = r.zero + int32(int8(z))
			}
		}
	}
}

// widenScales widens the gathered scales of all groups at once.
func (r *reader) widenScales(p *panel) {
	n := r.groups * r.outs
	if r.scaleDtype == packing.ScaleBF16 {
		vec.WidenBF16(p.scales[:n], p.half[:2*n])
	} else {
		vec.WidenF16(p.scales[:n], p.half[:2*n])
	}
}

// halveScales halves the scales for the doubled codes, unless one of them loses a bit.
func (r *reader) halveScales(p *panel) {
	scales := p.scales[:r.groups*r.outs]
	for _, s := range scales {
		if h := float32(s * 0.5); float32(h*2) != s && s == s {
			p.exact = false
			return
		}
	}
	for i := range scales {
		scales[i] *= 0.5
	}
}

// getInts reads len(dst) little-endian int32.
func getInts(dst []int32, src []byte) {
	src = src[:4*len(dst)]
	for i := range dst {
		dst[i] = int32(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// getFloats reads len(dst) little-endian float32.
func getFloats(dst []float32, src []byte) {
	src = src[:4*len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// foldHalf is tile.Step.Group's arithmetic for scales that cannot be halved: with the doubled t of the half-step grid,
// the term of a group is fma(float32(t)/2, scale, f). That half is exact.
func foldHalf(out []float32, t []int32, scales, rowSums, bias []float32, negZero, rec float32) {
	nr := len(out)
	for r := range out {
		f := float32(0)
		for i := r; i < len(t); i += nr {
			f = floats.FMA32(float32(float32(t[i])*0.5), scales[i], f)
		}
		f = floats.FMA32(rowSums[r], negZero, f)
		out[r] = float32(f*rec) + bias[r]
	}
}
