package kernels

import (
	"encoding/binary"
	"unsafe"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/kernels/tile"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// panel is an unpacked panel of NR rows in package tile's order: one, two or four packed panels
// side by side. Rows beyond the payload's packed panels have undefined values, and their outputs
// are dropped.
type panel struct {
	codes  []byte    // [chunk][NR][8]
	scales []float32 // [groups][NR]
	zeros  []int32   // [groups][NR] with zero points, else [NR]
	points []float32 // [groups][NR], epilogueQAI4; minima of epilogueMin and epilogueSubs
	// [groups][NR], epilogueRow and epilogueTorchAO: sums of the codes; epilogueSubs: sub-scales
	sums    []int32
	subMins []int32   // [groups][NR], epilogueSubs
	float   []float32 // [NR], epilogueGroup: sums of the weights
	bias    []float32 // [NR]
	// exact is false if a scale times the reader's unit is rounded. The scales are then unscaled.
	exact bool
	half  []byte  // gathered 2-byte scales
	words []int16 // codes of steps with Words
}

type reader struct {
	*panelLayout
	outs   int // NR
	unpack func(dst, src *byte, units int, lanes *tile.Lanes)
	zip    func(dst *byte, n int) // tile.Set.Zip or Unzip, or nil
	widen  func(dst *int16, codes *byte, groups, chunks int, factors *int32)
	zero   int32 // excess of a stored code over its value, without zero points
	// unit is the unit of the integers that the kernels compute: 1/2 on the half-step grid, 2^-shift
	// with fractional zero points, else 1. Scales are multiplied by unit.
	unit   float32
	calls  []unpacking
	chunks int
	// narrowScales: scales have 2 bytes.
	narrowScales bool
	// plainScales: records consist of 4 or 8 scales of 2 bytes, as in most payloads.
	plainScales bool
}

// newReader prepares unpacking for the kernels of set. On the half-step grid kernels multiply with
// 2q+1, so set is for codes of a bit more.
func newReader(f *panelLayout, set tile.Set) reader {
	if f.ggml != nil {
		return newBlockReader(f, set)
	}
	stored := tile.Sets.For([]string{set.Feature}).Code.Set(f.bits)
	r := reader{
		panelLayout: f, outs: set.NR, unpack: stored.Unpack,
		zero: int32(set.Offset << f.shift), unit: f.header.ZeroUnit(), chunks: f.stored / 8,
	}
	offset := set.Offset
	if f.half { // the codes are doubled after unpacking
		r.zero, r.unit, offset = r.zero-1, 0.5, offset/2
	}
	switch {
	case f.width == 4 && set.Unzip == nil:
		r.zip = set.Zip
	case f.width != 4:
		r.zip = set.Unzip
	}
	r.calls = f.unpackings(set.NR, offset)
	r.narrowScales = f.scaleDtype.Bytes() == 2
	r.plainScales = r.narrowScales && f.header.ZeroKind == packing.ZeroNone
	return r
}

// canonical is the number of panels of NR rows.
func (r *reader) canonical() int { return (r.rows + r.outs - 1) / r.outs }

func (p *panel) grow(r *reader) {
	nr, all := r.outs, r.outs*r.groups
	p.codes = aligned(p.codes, r.chunks*8*nr)
	if r.widen != nil {
		buffer.Grow(&p.words, r.chunks*8*nr)
	}
	buffer.Grow(&p.scales, all)
	buffer.Grow(&p.zeros, all)
	buffer.Grow(&p.bias, nr)
	buffer.Grow(&p.float, nr)
	switch r.epilogue {
	case epilogueQAI4, epilogueMin:
		buffer.Grow(&p.points, all)
	case epilogueRow, epilogueTorchAO:
		buffer.Grow(&p.sums, all)
	case epilogueSubs:
		buffer.Grow(&p.sums, all)
		buffer.Grow(&p.subMins, all)
		buffer.Grow(&p.points, all)
	}
	if r.narrowScales {
		buffer.Grow(&p.half, 2*all)
	}
}

func (r *reader) read(p *panel, data []byte, i int) {
	if r.ggml != nil {
		r.readBlocks(p, data, i)
		return
	}
	perPanel := r.outs / r.nr
	first := i * perPanel
	n := min(perPanel, r.panels-first)
	p.exact = true
	for j := range n {
		src := data[r.prefix+(first+j)*r.panelBytes:][:r.panelBytes]
		r.readCodes(p, src, j*r.nr)
		r.readRecords(p, src, j*r.nr)
	}
	if r.zip != nil {
		r.zip(&p.codes[0], r.chunks*r.outs/4)
	}
	if r.half {
		double(p.codes[:r.chunks*8*r.outs])
	}
	if r.narrowScales {
		r.widenScales(p)
	}
	if r.unit != 1 {
		r.scaleScales(p)
	}
	if !r.header.ZeroKind.IsInt8() {
		for j := range p.zeros[:r.outs] {
			p.zeros[j] = r.zero
		}
	}
}

// readWords makes the words of a panel that was read.
func (r *reader) readWords(p *panel) {
	if r.ggml != nil && r.ggml.Subs {
		r.widen(first(p.words), first(p.codes), r.groups, r.group/8, first(p.sums))
		return
	}
	r.widen(first(p.words), first(p.codes), 1, r.chunks, nil)
}

// packed is where the packed bytes of panel i begin, and the bytes for each step of 16 columns.
func (r *reader) packed(data []byte, i int) (first *byte, step int) {
	if r.ggml != nil { // rows do not lie in panels
		return &data[0], 0
	}
	size := r.outs / r.nr * r.panelBytes
	return &data[r.prefix+i*size], (size + r.stored/16 - 1) / (r.stored / 16)
}

// readCodes unpacks the codes of a packed panel into the rows from row on.
func (r *reader) readCodes(p *panel, src []byte, row int) {
	dst := p.codes[8*row:]
	for i := range r.calls {
		c := &r.calls[i]
		r.unpack(&dst[c.to], &src[c.at], c.units, &c.lanes)
	}
}

func double(codes []byte) {
	const low = 0x0101010101010101
	for ; len(codes) >= 8; codes = codes[8:] {
		x := binary.LittleEndian.Uint64(codes)
		binary.LittleEndian.PutUint64(codes, x<<1&^low)
	}
}

// readRecords reads everything but a packed panel's codes. Scales of 2 bytes are only gathered.
func (r *reader) readRecords(p *panel, src []byte, row int) {
	nr := r.nr
	switch {
	case r.plainScales:
		r.gatherScales(p, src, row)
	case r.epilogue == epilogueTorchAO:
		r.readTorchAO(p, src, row)
	case r.epilogue == epilogueQAI4:
		r.gatherFloats(p.scales, src, row, 0)
		r.gatherFloats(p.points, src, row, r.zeroAt)
	default:
		r.readScales(p, src, row)
	}
	switch r.epilogue {
	case epilogueGroup:
		vec.WidenF32(p.float[row:][:nr], src[r.sumAt:][:4*nr])
	case epilogueRow:
		getInts(p.sums[row:][:nr], src[r.sumAt:])
	}
	if r.biasAt >= 0 {
		vec.WidenF32(p.bias[row:][:nr], src[r.biasAt:][:4*nr])
	} else {
		clear(p.bias[row:][:nr])
	}
}

// gatherScales copies the scales of records without zero points, without checking bounds.
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

// gatherFloats reads the 4 float32 at offset in each record of a panel of 4 rows. Like readCodes,
// gatherFloats does not check bounds.
func (r *reader) gatherFloats(dst []float32, src []byte, row, offset int) {
	_, _ = dst[r.groups*r.outs-1], src[r.panelBytes-1]
	to, from, step := unsafe.Pointer(&dst[row]), unsafe.Pointer(&src[0]), 4*r.outs
	for g, at := range r.scaleAt {
		d, s := (*[4]uint32)(unsafe.Add(to, g*step)), (*[16]byte)(unsafe.Add(from, at+offset))
		le := binary.LittleEndian
		d[0], d[1], d[2], d[3] = le.Uint32(s[0:]), le.Uint32(s[4:]), le.Uint32(s[8:]), le.Uint32(s[12:])
	}
}

func (r *reader) readScales(p *panel, src []byte, row int) {
	nr, zeros := r.nr, r.header.ZeroKind.IsInt8()
	for g, at := range r.scaleAt {
		to := g*r.outs + row
		if r.narrowScales {
			copy(p.half[2*to:], src[at:][:2*nr])
		} else {
			vec.WidenF32(p.scales[to:][:nr], src[at:][:4*nr])
		}
		if zeros {
			points := src[at+r.zeroAt:][:nr]
			for i := range p.zeros[to:][:len(points)] {
				p.zeros[to+i] = r.zero + int32(int8(points[i]))
			}
		}
	}
}

func (r *reader) readTorchAO(p *panel, src []byte, row int) {
	le := binary.LittleEndian
	for g, at := range r.scaleAt {
		to := g*r.outs + row
		vec.WidenF32(p.scales[to:][:8], src[at:][:4*8])
		sums := (*[8]int32)(p.sums[to:])
		getInts(sums[:], src[at+r.sumAt:])
		if r.header.ZeroKind != packing.ZeroInt8 {
			continue
		}
		zeros, stored := (*[8]int32)(p.zeros[to:]), (*[32]byte)(src[at+r.zeroAt:])
		for i := range zeros {
			z := int32(int8(le.Uint32(stored[4*i:]))) // an int32 that fits 8 bits
			zeros[i] = r.zero + z
			sums[i] -= int32(r.group) * z // sum of q - z, to be multiplied by the activations' zero point
		}
	}
}

func (r *reader) widenScales(p *panel) {
	n := r.groups * r.outs
	if r.scaleDtype == packing.ScaleBF16 {
		vec.WidenBF16(p.scales[:n], p.half[:2*n])
	} else {
		vec.WidenF16(p.scales[:n], p.half[:2*n])
	}
}

// scaleScales multiplies the scales by the kernels' unit, unless a scale loses a bit.
func (r *reader) scaleScales(p *panel) {
	scales, unit, inverse := p.scales[:r.groups*r.outs], r.unit, 1/r.unit
	for _, s := range scales {
		if u := float32(s * unit); float32(u*inverse) != s && s == s {
			p.exact = false
			return
		}
	}
	for i := range scales {
		scales[i] *= unit
	}
}

// getInts reads len(dst) little-endian int32, a multiple of 4.
func getInts(dst []int32, src []byte) {
	le := binary.LittleEndian
	for len(dst) >= 4 {
		d, s := (*[4]int32)(dst), (*[16]byte)(src)
		d[0], d[1], d[2], d[3] = int32(le.Uint32(s[0:])), int32(le.Uint32(s[4:])), int32(le.Uint32(s[8:])), int32(le.Uint32(s[12:]))
		dst, src = dst[4:], src[16:]
	}
}
