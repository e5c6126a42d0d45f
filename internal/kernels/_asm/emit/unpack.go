package emit

import (
	"fmt"
	"slices"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// unit is a unit that is being unpacked: its place, and the vectors of planes read so far.
type unit struct {
	*Planes
	at  operand.Mem
	raw []rawVector
}

type rawVector struct {
	planes []int
	reg    reg.VecVirtual
}

// Unpack unpacks the unit at a place, vector by vector: use gets the number of each vector in Lanes
// and its register. It reads no byte outside the unit.
func (p *Planes) Unpack(at operand.Mem, use func(v int, codes reg.VecVirtual)) {
	u := &unit{Planes: p, at: at}
	for v, steps := range p.steps {
		var sum reg.VecVirtual
		for _, s := range steps {
			sum = p.merge(sum, p.shift(u.planes(s.planes), s), s)
		}
		if p.bits == 7 && v == len(p.steps)-1 {
			sum = p.merge(sum, u.seventh(), p.gather[0])
		}
		use(v, sum)
	}
}

// seventh is lane 7 of 7-bit codes, in all lanes.
func (u *unit) seventh() reg.VecVirtual {
	var sum reg.VecVirtual
	for v := range u.steps {
		s := u.gatherStep(v)
		sum = u.merge(sum, u.shift(u.planes(s.planes), s), s)
	}
	t := u.isa.Vector()
	if u.isa == AVX512 {
		VSHUFI64X2(operand.U8(0b01_00_11_10), sum, sum, t)
		VPORD(t, sum, sum)
		t = u.isa.Vector()
		VSHUFI64X2(operand.U8(0b10_11_00_01), sum, sum, t)
		VPORD(t, sum, sum)
		return sum
	}
	VPERMQ(operand.U8(0b01_00_11_10), sum, t)
	VPOR(t, sum, sum)
	return sum
}

// planes returns a register with the planes in its lanes. The caller must not write to it.
func (u *unit) planes(want []int) reg.VecVirtual {
	for _, r := range u.raw {
		if fits(r.planes, want) {
			return r.reg
		}
	}
	// If any plane will do, take the plane nearest to the neighbour's.
	have := slices.Clone(want)
	for i := range have {
		if have[i] == free {
			have[i] = want[i^1]
		}
	}
	some := slices.Max(have)
	for i := range have {
		if have[i] == free {
			have[i] = some
		}
	}
	if u.isa == AVX512 {
		return u.planes4(have)
	}
	return u.planes2(have)
}

// keep remembers a register.
func (u *unit) keep(r reg.VecVirtual, planes ...int) reg.VecVirtual {
	u.raw = append(u.raw, rawVector{planes, r})
	return r
}

func fits(have, want []int) bool {
	for i, plane := range want {
		if plane != free && have[i] != plane {
			return false
		}
	}
	return true
}

func (u *unit) plane(i int) operand.Mem { return u.at.Offset(16 * i) }

// planes2 reads two planes.
func (u *unit) planes2(p []int) reg.VecVirtual {
	y := YMM()
	switch {
	case p[0] == p[1]:
		VBROADCASTI128(u.plane(p[0]), y)
	case p[1] == p[0]+1:
		VMOVDQU(u.plane(p[0]), y)
	default:
		VBROADCASTI128(u.plane(p[0]), y)
		VINSERTI128(operand.U8(1), u.plane(p[1]), y, y)
	}
	if u.flip != 0 {
		VPXOR(u.consts[u.isa.All(u.flip)], y, y)
	}
	return u.keep(y, p...)
}

// planes4 reads four planes, or combines two lanes of the unit's first four planes with two lanes
// of its last four.
func (u *unit) planes4(p []int) reg.VecVirtual {
	if p[0] == p[1] && p[0] == p[2] && p[0] == p[3] {
		z := ZMM()
		VBROADCASTI32X4(u.plane(p[0]), z)
		return u.keep(z, p...)
	}
	first, low := u.four(0)
	last, high := first, low
	if u.bits > 5 {
		last, high = u.four(u.bits - 4)
	}
	if fits(low, p) {
		return first
	}
	var imm uint8
	for i, plane := range p {
		from := low
		if i >= 2 {
			from = high
		}
		at := slices.Index(from, plane)
		if at < 0 {
			panic(fmt.Sprintf("planes %v of %d bits need more than a shuffle", p, u.bits))
		}
		imm |= uint8(at) << (2 * i)
	}
	z := ZMM()
	VSHUFI64X2(operand.U8(imm), last, first, z)
	return u.keep(z, p...)
}

// four reads the four planes from the given one on. If a unit has fewer, it returns the planes that
// it read instead.
func (u *unit) four(start int) (reg.VecVirtual, []int) {
	planes := []int{start, start + 1, start + 2, start + 3}
	switch u.bits {
	case 2:
		planes = []int{0, 1, 0, 1}
	case 3:
		planes = []int{0, 1, 2, free}
	}
	for _, r := range u.raw {
		if slices.Equal(r.planes, planes) {
			return r.reg, planes
		}
	}
	z := ZMM()
	switch {
	case u.bits == 2:
		VBROADCASTI64X4(u.plane(0), z)
	case u.bits == 3:
		VBROADCASTI64X4(u.plane(0), z)
		VINSERTI32X4(operand.U8(2), u.plane(2), z, z)
	case u.flip != 0:
		VPXORD(u.plane(start), u.consts[u.isa.All(u.flip)], z)
	default:
		VMOVDQU64(u.plane(start), z)
	}
	return u.keep(z, planes...), planes
}
