package tile

import (
	"cmp"
	"encoding/binary"
	"unsafe"

	"github.com/lowbit-go/gq/internal/bitplane"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/floats"
)

// genericNR is the number of rows of the portable kernels' panels.
const genericNR = 8

// genericSet is portable Go on signed codes: every other Set's reference.
func genericSet(bits int) Set {
	return Set{
		Feature: cpu.Generic, NR: genericNR, Zip: zip,
		EpilogueFMA: epilogueFMA, EpilogueQAI4: epilogueQAI4, EpilogueTorchAO: epilogueTorchAO,
		EpilogueRow: epilogueRow, AddSums: addSums, EpilogueMin: epilogueMin, EpilogueSubs: epilogueSubs,
		Unpack: func(dst, src *byte, units int, lanes *Lanes) {
			unpackGeneric(bits, dst, src, units, lanes)
		},
		Steps: []Step{stepGeneric(4), stepGeneric(1)},
	}
}

func stepGeneric(mr int) Step {
	return Step{
		MR:      mr,
		Dots:    func(a *Args) { dotsGeneric(a, mr) },
		Group:   func(a *GroupArgs) { groupGeneric(a, mr, 0) },
		Shifted: func(a *ShiftedArgs) { groupGeneric(&a.GroupArgs, mr, a.Shift[0]) },
	}
}

func unpackGeneric(bits int, dst, src *byte, units int, lanes *Lanes) {
	const ones = 0x0101010101010101
	unit, run := 16*bits, int(lanes.Run)
	run = cmp.Or(run, units)
	packed := unsafe.Slice(src, units*unit+(units/run-1)*int(lanes.Gap))
	flip, sub := uint64(lanes.Flip)*ones, uint64(lanes.Sub)*ones
	at := 0 // an offset: after the last unit, a pointer may be outside dst
	for u := range units {
		if u > 0 && u%run == 0 {
			packed = packed[lanes.Gap:]
		}
		var x [8]uint64
		for half := range 2 {
			bitplane.Column(bits, &x, packed[:unit], half)
			for j := range x {
				w := subBytes(x[j]^flip, sub)
				lane := (*[8]byte)(unsafe.Add(unsafe.Pointer(dst), at+int(lanes.Lane[j])+8*half))
				binary.LittleEndian.PutUint64(lane[:], w)
			}
		}
		packed = packed[unit:]
		at += int(lanes.Step[u%2])
	}
}

// subBytes subtracts the bytes of y from the bytes of x, each modulo 256. The high bits are set so
// that no byte borrows; their differences, x ^ y ^ borrow, are added afterwards.
func subBytes(x, y uint64) uint64 {
	const high = 0x8080808080808080
	return (x | high - y&^high) ^ (x^^y)&high
}

// sums1 adds the products of some chunks of a row of activations and of codes to t, [panel's row].
func sums1(t *[4 * genericNR]int32, acts, codes []byte) {
	for len(codes) >= 8*genericNR && len(acts) >= 8 {
		a := (*[8]byte)(acts)
		a0, a1, a2, a3 := int32(int8(a[0])), int32(int8(a[1])), int32(int8(a[2])), int32(int8(a[3]))
		a4, a5, a6, a7 := int32(int8(a[4])), int32(int8(a[5])), int32(int8(a[6])), int32(int8(a[7]))
		chunk := (*[8 * genericNR]byte)(codes)
		for r := range genericNR {
			w := (*[8]byte)(chunk[8*r:])
			t[r] += a0*int32(int8(w[0])) + a1*int32(int8(w[1])) + a2*int32(int8(w[2])) + a3*int32(int8(w[3])) +
				a4*int32(int8(w[4])) + a5*int32(int8(w[5])) + a6*int32(int8(w[6])) + a7*int32(int8(w[7]))
		}
		acts, codes = acts[8:], codes[8*genericNR:]
	}
}

// sums4 sets t to the sums of 4 rows of activations, [row of activations][row of the panel]. sums4
// multiplies two rows at once, as a + b<<32 times a code: the two sums do not overlap, because the
// sum of a is below 2^31 in groups of up to 65,536 columns.
func sums4(t *[4 * genericNR]int32, acts, codes []byte) {
	for pair := range 2 {
		var sums [genericNR]int64
		a, w := acts[16*pair:], codes
		for {
			x := (*[16]byte)(a)
			x0, x1, x2, x3 := both(x[0], x[8]), both(x[1], x[9]), both(x[2], x[10]), both(x[3], x[11])
			x4, x5, x6, x7 := both(x[4], x[12]), both(x[5], x[13]), both(x[6], x[14]), both(x[7], x[15])
			chunk := (*[8 * genericNR]byte)(w)
			for r := range genericNR {
				w := (*[8]byte)(chunk[8*r:])
				sums[r] += x0*int64(int8(w[0])) + x1*int64(int8(w[1])) + x2*int64(int8(w[2])) + x3*int64(int8(w[3])) +
					x4*int64(int8(w[4])) + x5*int64(int8(w[5])) + x6*int64(int8(w[6])) + x7*int64(int8(w[7]))
			}
			if w = w[8*genericNR:]; len(w) < 8*genericNR {
				break
			}
			a = a[4*8:]
		}
		for r, s := range sums {
			low := int32(s)
			t[2*pair*genericNR+r] = low
			t[(2*pair+1)*genericNR+r] = int32((s - int64(low)) >> 32)
		}
	}
}

// both combines two activations in a word.
func both(a, b byte) int64 { return int64(int8(a)) + int64(int8(b))<<32 }

// groups computes t for group after group.
type groups struct {
	a     *Args
	mr    int
	g     int // index of the next group
	chunk int // first chunk of the next group
	shift uint32
	t     [4 * genericNR]int32
}

func (s *groups) next() {
	a, mr, g := s.a, s.mr, s.g
	chunks := 2 * int(unsafe.Slice(a.Steps, a.Groups)[g])
	acts := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(a.Acts), s.chunk*mr*8)), chunks*mr*8)
	codes := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(a.Codes), s.chunk*genericNR*8)), chunks*genericNR*8)
	clear(s.t[:])
	if mr == 4 {
		sums4(&s.t, acts, codes)
	} else {
		sums1(&s.t, acts, codes)
	}
	zeros := (*[genericNR]int32)(unsafe.Add(unsafe.Pointer(a.Zeros), g*a.ZeroStep))
	for m, sum := range unsafe.Slice(a.Sums, a.Groups*mr)[g*mr:][:mr] {
		for r, z := range zeros {
			t := &s.t[m*genericNR+r]
			*t = *t<<s.shift - z*sum
		}
	}
	s.g, s.chunk = g+1, s.chunk+chunks
}

func dotsGeneric(a *Args, mr int) {
	s := groups{a: a, mr: mr}
	for g := range a.Groups {
		s.next()
		for m := range mr {
			out := (*[genericNR]int32)(unsafe.Add(a.Out, m*a.OutStride+4*genericNR*g))
			copy(out[:], s.t[m*genericNR:])
		}
	}
}

// groupGeneric is Step.Group, and Step.Shifted with a shift.
func groupGeneric(a *GroupArgs, mr int, shift uint32) {
	s := groups{a: &a.Args, mr: mr, shift: shift}
	scales := unsafe.Slice(a.Scales, a.Groups*genericNR)
	var f [4 * genericNR]float32
	for g := range a.Groups {
		s.next()
		scale := (*[genericNR]float32)(scales[g*genericNR:])
		for i, t := range s.t[:genericNR*mr] {
			f[i] = floats.FMA32(float32(t), scale[i%genericNR], f[i])
		}
	}
	rowSums, bias := unsafe.Slice(a.RowSums, genericNR), unsafe.Slice(a.Bias, genericNR)
	negZero, rec := unsafe.Slice(a.NegZero, mr), unsafe.Slice(a.Rec, mr)
	for m := range mr {
		out := (*[genericNR]float32)(unsafe.Add(a.Out, m*a.OutStride))
		for r := range genericNR {
			x := floats.FMA32(rowSums[r], negZero[m], f[m*genericNR+r])
			x = float32(x*rec[m]) + bias[r]
			if x != x {
				x = floats.NaN
			}
			out[r] = x
		}
	}
}
