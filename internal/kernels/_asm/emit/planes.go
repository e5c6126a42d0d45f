package emit

import (
	"slices"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// free is the plane, or the shift, of a lane that does not care.
const free = -100

// step extracts a field of all lanes of a vector. A lane without the field has mask 0.
type step struct {
	planes, shifts []int
	masks          []uint8
}

// Planes unpacks units of 128 codes of one width to bytes.
type Planes struct {
	isa  ISA
	bits int
	flip uint8
	// consts are the masks and shifts, in registers as far as there are enough.
	consts    map[operand.Mem]operand.Op
	registers int
	place     operand.Op // see Place
	vecs      [][]int    // the lanes of each vector
	steps     [][]step
	// Lane 7 of 7-bit codes has a bit of each plane: one step for each vector, whose lanes are then
	// combined.
	gather []step
}

// NewPlanes prepares unpacking and emits its setup code here. flip is xored to the bytes of planes
// that hold whole codes: 4 and 8 bits. With inPlace, codes of 1 or 2 bits are not shifted to the
// low end of their bytes. reserved is the number of AVX2 registers that the caller needs more than
// others do: so many constants more stay in memory.
func NewPlanes(isa ISA, bits int, flip uint8, inPlace bool, reserved int) *Planes {
	p := &Planes{isa: isa, bits: bits, flip: flip, consts: map[operand.Mem]operand.Op{}, registers: 32}
	if isa != AVX512 {
		p.registers = 5
		if bits == 7 {
			p.registers = 1 // the other registers hold the planes for lane 7
		}
		p.registers = max(p.registers-reserved, 0)
	}
	n := isa.Lanes()
	for odd := range 2 {
		for lane := odd; lane < 8; lane += 2 * n {
			var lanes []int
			for i := range n {
				lanes = append(lanes, lane+2*i)
			}
			p.vecs = append(p.vecs, lanes)
		}
	}
	for _, lanes := range p.vecs {
		p.steps = append(p.steps, p.plan(lanes))
	}
	if inPlace {
		place, _ := p.shiftOf(p.steps[0][0])
		p.place = isa.Load(place)
		for v := range p.steps {
			s := &p.steps[v][0]
			for i, shift := range s.shifts {
				s.masks[i] <<= shift
				s.shifts[i] = 0
			}
		}
	}
	for v := range p.steps {
		for _, s := range p.steps[v] {
			p.prepare(s)
		}
		if bits == 7 {
			p.prepare(p.gatherStep(v))
		}
	}
	if bits == 7 {
		p.gather = append(p.gather, p.last(0x7f))
		p.prepare(p.gather[0])
	}
	if flip != 0 {
		p.constant(isa.All(flip))
	}
	return p
}

// Lanes are the lanes of each vector that Unpack returns: the even lanes first.
func (p *Planes) Lanes() [][]int { return p.vecs }

// Place is the left shift of the codes of the even lanes, in all dwords of their lanes, or nil if
// there is none. The codes of the odd lanes are lower by the width of a code.
func (p *Planes) Place() operand.Op { return p.place }

// plan lists the steps for a vector of these lanes.
func (p *Planes) plan(lanes []int) []step {
	var steps []step
	for i, lane := range lanes {
		fs := fields(p.bits, lane)
		if len(fs) > 3 {
			fs = []field{{free, free, 0}}
		}
		for k, f := range fs {
			if k == len(steps) {
				s := step{}
				for range lanes {
					s.planes, s.shifts, s.masks = append(s.planes, free), append(s.shifts, free), append(s.masks, 0)
				}
				steps = append(steps, s)
			}
			steps[k].planes[i], steps[k].shifts[i], steps[k].masks[i] = f.plane, f.shift, f.mask
		}
	}
	return steps
}

// gatherStep extracts the bits of lane 7 of 7-bit codes from the planes of vector v.
func (p *Planes) gatherStep(v int) step {
	s := p.steps[v][0]
	g := step{planes: s.planes}
	for _, plane := range s.planes {
		shift, mask := free, uint8(0)
		if plane != free {
			shift, mask = 7-plane, 1<<plane
		}
		g.shifts, g.masks = append(g.shifts, shift), append(g.masks, mask)
	}
	return g
}

// last masks the last lane only.
func (p *Planes) last(mask uint8) step {
	s := step{}
	for range p.isa.Lanes() {
		s.shifts, s.masks = append(s.shifts, 0), append(s.masks, 0)
	}
	s.masks[len(s.masks)-1] = mask
	return s
}

// prepare makes the constants of a step.
func (p *Planes) prepare(s step) {
	if m, ok := p.maskOf(s); ok {
		p.constant(m)
	}
	if m, ok := p.shiftOf(s); ok {
		p.constant(m)
	}
}

func (p *Planes) constant(m operand.Mem) {
	if _, ok := p.consts[m]; ok {
		return
	}
	p.consts[m] = m
	if p.registers > 0 {
		p.consts[m] = p.isa.Load(m)
		p.registers--
	}
}

// maskOf is the constant for the mask, if not all bits stay.
func (p *Planes) maskOf(s step) (operand.Mem, bool) {
	if !slices.ContainsFunc(s.masks, func(m uint8) bool { return m != 0xff }) {
		return operand.Mem{}, false
	}
	var v []uint32
	for _, m := range s.masks {
		v = append(v, uint32(m)*0x01010101)
	}
	return lanes32(v...), true
}

// shiftOf is the constant for the shifts, if the lanes have different shifts.
func (p *Planes) shiftOf(s step) (operand.Mem, bool) {
	lo, hi := shiftRange(s)
	if lo == hi {
		return operand.Mem{}, false
	}
	var v []uint32
	for _, n := range s.shifts {
		switch {
		case n == free:
			n = hi
		case hi <= 0: // to the left
			n = -n
		}
		v = append(v, uint32(n)&31) // lanes are rotated if both directions occur
	}
	return lanes32(v...), true
}

func shiftRange(s step) (lo, hi int) {
	lo, hi = 100, -100
	for _, n := range s.shifts {
		if n != free {
			lo, hi = min(lo, n), max(hi, n)
		}
	}
	return lo, hi
}

// shift shifts bytes; a mask later removes bits from other bytes. The result may be x itself.
func (p *Planes) shift(x reg.VecVirtual, s step) reg.VecVirtual {
	lo, hi := shiftRange(s)
	if lo == 0 && hi == 0 {
		return x
	}
	y := p.isa.Vector()
	m, vary := p.shiftOf(s)
	switch {
	case !vary && hi > 0:
		VPSRLW(operand.U8(hi), x, y)
	case !vary:
		VPSLLW(operand.U8(-hi), x, y)
	case lo >= 0:
		VPSRLVD(p.consts[m], x, y)
	case hi <= 0:
		VPSLLVD(p.consts[m], x, y)
	case p.isa == AVX512:
		VPRORVD(p.consts[m], x, y)
	default:
		panic("AVX2 cannot shift to both sides")
	}
	return y
}

// merge is sum | x & mask, in a new register if sum is nil.
func (p *Planes) merge(sum, x reg.VecVirtual, s step) reg.VecVirtual {
	m, need := p.maskOf(s)
	switch {
	case sum == nil && !need:
		return x
	case sum == nil:
		sum = p.isa.Vector()
		p.isa.And(p.consts[m], x, sum)
	case p.isa == AVX512:
		VPTERNLOGD(operand.U8(0xf8), p.consts[m], x, sum)
	default:
		y := p.isa.Vector()
		VPAND(p.consts[m], x, y)
		VPOR(y, sum, sum)
	}
	return sum
}
