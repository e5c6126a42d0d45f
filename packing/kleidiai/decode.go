package kleidiai

import (
	"encoding/binary"
	"math"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// codes reads the first len(dst) codes of row i of a panel as signed bytes.
func (f *frame) codes(dst, panel []byte, i int) {
	for g := 0; len(dst) > 0; g++ {
		data := f.data(panel, g)
		k := 0
		for ; k < f.group && len(dst) >= 32; k += 32 {
			f.decode32((*[32]byte)(dst), data, i, k)
			dst = dst[32:]
		}
		if k < f.group && len(dst) > 0 { // the matrix ends within a block of 32 columns
			var last [32]byte
			f.decode32(&last, data, i, k)
			copy(dst, last[:])
			return
		}
	}
}

func (f *frame) scale(panel []byte, i, g int) float32 {
	at := panel[f.scaleAt(i, g):]
	if f.scaleDtype == packing.ScaleF16 {
		return floats.F16ToF32(binary.LittleEndian.Uint16(at))
	}
	scale := math.Float32frombits(binary.LittleEndian.Uint32(at))
	if f.scaleFactor == sixteenth {
		scale = float32(scale * 16)
	}
	return scale
}

// zero reads the float32 zero point of row i in group g, or returns 0 if the layout has none.
func (f *frame) zero(panel []byte, i, g int) float32 {
	if f.zero0 < 0 {
		return 0
	}
	return math.Float32frombits(get32(panel, f.zeroAt(i, g)))
}

func (f *frame) bias(panel []byte, i int) float32 {
	if f.bias0 < 0 {
		return 0
	}
	return math.Float32frombits(get32(panel, f.bias0+4*i))
}

// decode32 reads the codes of row i at columns k..k+31 of a group (k a multiple of 32) as signed
// bytes. data holds the codes of the group.
func (f *frame) decode32(dst *[32]byte, data []byte, i, k int) {
	switch f.bits {
	case 4:
		if d := f.distance; d != 16 {
			f.decodeFar(dst, data, i, k)
			return
		}
		a, b := f.gather16(data, i, k/2)
		put64(dst[:], 0, signedNibbles(a))
		put64(dst[:], 8, signedNibbles(b))
		put64(dst[:], 16, signedNibbles(a>>4))
		put64(dst[:], 24, signedNibbles(b>>4))
	case 8:
		for at := 0; at < 32; at += 16 {
			a, b := f.gather16(data, i, k+at)
			put64(dst[:], at, a)
			put64(dst[:], at+8, b)
		}
	case 2:
		for at := 0; at < 32; at += 16 {
			u := uint64(get32(data, f.nr*(k+at)/4+4*i))
			put64(dst[:], at, unquarter(u))
			put64(dst[:], at+8, unquarter(u>>4))
		}
	}
}

// decodeFar is decode32 where the two nibbles of a byte are more than 16 columns apart.
func (f *frame) decodeFar(dst *[32]byte, data []byte, i, k int) {
	for at := 0; at < 32; at += 16 {
		o, t := f.place(k + at)
		a, b := f.gather16(data, i, o)
		put64(dst[:], at, signedNibbles(a>>(4*t)))
		put64(dst[:], at+8, signedNibbles(b>>(4*t)))
	}
}

// gather16 reads bytes o..o+15 of row i's stream, where run is 4 or 8.
func (f *frame) gather16(data []byte, i, o int) (a, b uint64) {
	if f.run == 8 {
		data = data[f.nr*o+8*i:]
		return get64(data, 0), get64(data, 8*f.nr)
	}
	data = data[f.nr*o+4*i:]
	return uint64(get32(data, 0)) | uint64(get32(data, 4*f.nr))<<32, uint64(get32(data, 8*f.nr)) | uint64(get32(data, 12*f.nr))<<32
}

// signedNibbles sign-extends the low nibble of each byte to the byte: (u ^ 8) - 8. The 0x80 keeps a
// byte from borrowing from its neighbour and is flipped back afterwards.
func signedNibbles(u uint64) uint64 {
	return (u&(15*ones) ^ 8*ones | 0x80*ones) - 8*ones ^ 0x80*ones
}

// unquarter is the inverse of quarters for the codes of x.
func unquarter(u uint64) uint64 {
	const low = 0x03030303
	return (u&low | u>>2&low<<32 | 0x80*ones) - 2*ones ^ 0x80*ones
}
