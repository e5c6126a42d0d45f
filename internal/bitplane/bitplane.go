// Package bitplane packs and unpacks TorchAO's bit planes, for the layouts of lowbit and TorchAO.
//
// Bit planes store 8 lanes of b-bit codes in b planes of bytes: position i of the planes holds the
// codes at position i of the lanes. The arithmetic is the same at every position, so a uint64 does
// 8 positions at once, a byte each. docs/FORMAT.md gives the planes of a unit of 128 codes.
// TorchAO's units of 64 and 32 codes only place lanes and planes elsewhere, see planeGeometry.
//
// A stored code is unsigned and below 2^b. TorchAO stores q + 2^(b-1), and the two's complement
// byte at 8 bits.
package bitplane

import (
	"encoding/binary"
	"fmt"

	"github.com/lowbit-go/gq/internal/buffer"
)

const ones = 0x0101010101010101

// Stored turns 8 signed codes into TorchAO's stored codes and drops the bits above the low b.
func Stored(bits int, q uint64) uint64 {
	if bits == 8 {
		return q
	}
	mask, half := uint64(ones)<<bits-ones, uint64(ones)<<(bits-1)
	return q&mask ^ half
}

// Signed is the inverse of Stored.
func Signed(bits int, u uint64) uint64 {
	if bits == 8 {
		return u
	}
	// u - half in each byte: the 0x80 keeps bytes from borrowing and is flipped back afterwards.
	half := uint64(ones) << (bits - 1)
	return (u | 0x80*ones) - half ^ 0x80*ones
}

// Pack packs the stored codes at 8 positions of 8 lanes into 8 positions of b planes, p[0:b].
func Pack(bits int, p *[8]uint64, x *[8]uint64) {
	switch bits {
	case 1:
		p[0] = x[0]<<7 | x[1]<<6 | x[2]<<5 | x[3]<<4 | x[4]<<3 | x[5]<<2 | x[6]<<1 | x[7]
	case 2:
		p[0] = x[0]<<6 | x[1]<<4 | x[2]<<2 | x[3]
		p[1] = x[4]<<6 | x[5]<<4 | x[6]<<2 | x[7]
	case 3:
		p[0] = (x[6]&(3*ones))<<6 | x[0]<<3 | x[1]
		p[1] = (x[7]&(3*ones))<<6 | x[2]<<3 | x[3]
		p[2] = (x[6]&(4*ones))<<5 | (x[7]&(4*ones))<<4 | x[4]<<3 | x[5]
	case 4:
		p[0] = x[0] | x[1]<<4
		p[1] = x[2] | x[3]<<4
		p[2] = x[4] | x[5]<<4
		p[3] = x[6] | x[7]<<4
	case 5:
		p[0] = x[0] | (x[1]&(7*ones))<<5
		p[1] = x[2] | (x[3]&(7*ones))<<5
		p[2] = x[4] | (x[5]&(7*ones))<<5
		p[3] = x[6] | (x[7]&(7*ones))<<5
		const high = 0x18 * ones
		p[4] = (x[1]&high)>>3 | (x[3]&high)>>1 | (x[5]&high)<<1 | (x[7]&high)<<3
	case 6:
		p[0] = x[0] | (x[3]&(3*ones))<<6
		p[1] = x[1] | (x[3]&(12*ones))<<4
		p[2] = x[2] | (x[3]&(48*ones))<<2
		p[3] = x[4] | (x[7]&(3*ones))<<6
		p[4] = x[5] | (x[7]&(12*ones))<<4
		p[5] = x[6] | (x[7]&(48*ones))<<2
	case 7:
		for q := range 7 {
			p[q] = x[q] | (x[7]>>q&ones)<<7
		}
	case 8:
		*p = *x
	}
}

// Pair inverts Pack for lanes 2m and 2m+1 only, at the first 8 or 4 positions, and
// reads only planes with bits of the two lanes. Plane p starts at src[stride*p] and has a byte per
// position.
func Pair(bits, m int, src []byte, stride, positions int) (x0, x1 uint64) {
	plane := func(p int) uint64 {
		if positions == 4 {
			return uint64(binary.LittleEndian.Uint32(src[stride*p:]))
		}
		return binary.LittleEndian.Uint64(src[stride*p:])
	}
	switch bits {
	case 1:
		p := plane(0) >> (6 - 2*m)
		return p >> 1 & ones, p & ones
	case 2:
		p := plane(m/2) >> (4 - 4*(m%2))
		return p >> 2 & (3 * ones), p & (3 * ones)
	case 3:
		if m < 3 {
			p := plane(m)
			return p >> 3 & (7 * ones), p & (7 * ones)
		}
		low0, low1, high := plane(0), plane(1), plane(2)
		return low0>>6&(3*ones) | high>>5&(4*ones), low1>>6&(3*ones) | high>>4&(4*ones)
	case 4:
		p := plane(m)
		return p & (15 * ones), p >> 4 & (15 * ones)
	case 5:
		p, high := plane(m), plane(4)>>(2*m)&(3*ones)
		return p & (31 * ones), p>>5&(7*ones) | high<<3
	case 6:
		p0, p1 := plane(m/2*3), plane(m/2*3+1)
		if m%2 == 0 {
			return p0 & (63 * ones), p1 & (63 * ones)
		}
		p2 := plane(m/2*3 + 2)
		return p2 & (63 * ones), p0>>6&(3*ones) | p1>>6&(3*ones)<<2 | p2>>6&(3*ones)<<4
	case 7:
		if m < 3 {
			return plane(2*m) & (127 * ones), plane(2*m+1) & (127 * ones)
		}
		for q := range 7 {
			x1 |= plane(q) >> 7 & ones << q
		}
		return plane(6) & (127 * ones), x1
	}
	return plane(2 * m), plane(2*m + 1)
}

// Column reads the stored codes at positions 8*half to 8*half+7 of the 8 lanes of a unit of 128
// codes, 16*bits bytes long: position i in byte i of each word.
func Column(bits int, x *[8]uint64, unit []byte, half int) {
	unit = unit[8*half : 16*bits]
	for m := range 4 {
		x[2*m], x[2*m+1] = Pair(bits, m, unit, 16, 8)
	}
}

// PutColumn is the inverse of Column.
func PutColumn(bits int, unit []byte, half int, x *[8]uint64) {
	var planes [8]uint64
	Pack(bits, &planes, x)
	unit = unit[8*half : 16*bits]
	for i, w := range planes[:bits] {
		binary.LittleEndian.PutUint64(unit[16*i:], w)
	}
}

// planeGeometry places the lanes and planes of a unit of 64 or 32 codes. Position i of lane j is
// code lane[j] + laneStep*i; position i of plane p is byte plane[p] + planeStep*i.
type planeGeometry struct {
	lane, plane         [8]int
	laneStep, planeStep int
}

func geometry(bits, unit int) planeGeometry {
	g := planeGeometry{laneStep: 1, planeStep: 1}
	w := unit / 8 // codes in a lane, bytes in a plane
	for i := range 8 {
		g.lane[i], g.plane[i] = w*i, w*i
	}
	if bits == 8 {
		return g
	}
	switch bits {
	case 1, 3, 5, 7:
		switch {
		case unit == 32: // bytes of 8 neighbouring codes each
			for i := range 8 {
				g.lane[i], g.plane[i] = i, i
			}
			g.laneStep, g.planeStep = 8, bits
		case bits == 1: // the two nibbles are two runs of 4 lanes of 16
			g.lane = [8]int{8, 24, 40, 56, 0, 16, 32, 48}
		case bits == 5: // pairs of lanes of 16, each lane in two halves
			g.lane = [8]int{0, 16, 8, 24, 32, 48, 40, 56}
		}
	case 2, 6: // 4 lanes of twice the width, each in two halves
		for i := range 4 {
			g.lane[i], g.lane[i+4] = 2*w*i, 2*w*i+w
		}
		if bits == 6 {
			for i := range 3 {
				g.plane[i], g.plane[i+3] = 2*w*i, 2*w*i+w
			}
		}
	case 4: // pairs of lanes of 16 in halves or quarters
		for i := range 4 {
			start := 32*(i*w/16) + i*w%16
			g.lane[2*i], g.lane[2*i+1] = start, start+16
		}
	}
	return g
}

func checkUnit(bits, unit int, packed, codes int) {
	if bits < 1 || bits > 8 || unit != 128 && unit != 64 && unit != 32 {
		panic(fmt.Sprintf("bitplane: no unit of %d codes of %d bits", unit, bits))
	}
	if codes != unit || packed != unit*bits/8 {
		panic(fmt.Sprintf("bitplane: %d codes and %d bytes for a unit of %d codes of %d bits", codes, packed, unit, bits))
	}
}

// PackUnit packs a unit of 128, 64 or 32 signed codes, each in -2^(bits-1) .. 2^(bits-1)-1, into
// unit*bits/8 bytes of TorchAO's bit planes. The stored code is q + 2^(bits-1), and q itself (two's
// complement) at 8 bits. Higher bits of a code are dropped; TorchAO lets such bits leak into
// neighbours. PackUnit panics if a length is wrong.
func PackUnit(bits, unit int, dst []byte, src []int8) {
	checkUnit(bits, unit, len(dst), len(src))
	if unit == 128 {
		codes := (*[128]byte)(buffer.Bytes(src))
		for half := range 2 {
			var x [8]uint64
			for j := range x {
				x[j] = Stored(bits, binary.LittleEndian.Uint64(codes[16*j+8*half:]))
			}
			PutColumn(bits, dst, half, &x)
		}
		return
	}
	g := geometry(bits, unit)
	var x, p [8]uint64
	for j := range x {
		for i := range unit / 8 {
			x[j] |= uint64(uint8(src[g.lane[j]+g.laneStep*i])) << (8 * i)
		}
		x[j] = Stored(bits, x[j])
	}
	Pack(bits, &p, &x)
	for j := range bits {
		for i := range unit / 8 {
			dst[g.plane[j]+g.planeStep*i] = byte(p[j] >> (8 * i))
		}
	}
}

// UnpackUnit is the inverse of PackUnit.
func UnpackUnit(bits, unit int, dst []int8, src []byte) {
	checkUnit(bits, unit, len(src), len(dst))
	if unit == 128 {
		codes := (*[128]byte)(buffer.Bytes(dst))
		for half := range 2 {
			var x [8]uint64
			Column(bits, &x, src, half)
			for j, w := range x {
				binary.LittleEndian.PutUint64(codes[16*j+8*half:], Signed(bits, w))
			}
		}
		return
	}
	g := geometry(bits, unit)
	var planes [64]byte
	for j := range bits {
		for i := range unit / 8 {
			planes[8*j+i] = src[g.plane[j]+g.planeStep*i]
		}
	}
	for m := range 4 {
		x0, x1 := Pair(bits, m, planes[:], 8, 8)
		x0, x1 = Signed(bits, x0), Signed(bits, x1)
		for i := range unit / 8 {
			dst[g.lane[2*m]+g.laneStep*i] = int8(x0 >> (8 * i))
			dst[g.lane[2*m+1]+g.laneStep*i] = int8(x1 >> (8 * i))
		}
	}
}

// PackNibbles stores a row of 4-bit codes, a multiple of 32, two to a byte. The codes of a byte are
// d columns apart, the first in the low bits; d is 16 or half a group. Runs of run bytes, 4 or 8,
// lie step bytes apart, with gap more bytes after each group.
func PackNibbles(dst, codes []byte, run, d, group, step, gap int) {
	const mask = 15 * ones
	le, at := binary.LittleEndian, 0
	put := func(at int, w uint64) {
		if run == 8 {
			le.PutUint64(dst[at:], w)
			return
		}
		le.PutUint32(dst[at:], uint32(w))
		le.PutUint32(dst[at+step:], uint32(w>>32))
	}
	words := 8 / run * step // from 8 bytes to the next
	if d == 16 {
		for k := 0; k < len(codes); at += gap {
			for end := min(k+group, len(codes)); k < end; k, at = k+32, at+2*words {
				x := (*[32]byte)(codes[k:])
				put(at, le.Uint64(x[:])&mask|le.Uint64(x[16:])&mask<<4)
				put(at+words, le.Uint64(x[8:])&mask|le.Uint64(x[24:])&mask<<4)
			}
		}
		return
	}
	for ; len(codes) >= 2*d; codes, at = codes[2*d:], at+gap {
		for k := 0; k < d; k, at = k+8, at+words {
			put(at, le.Uint64(codes[k:])&mask|le.Uint64(codes[k+d:])&mask<<4)
		}
	}
}
