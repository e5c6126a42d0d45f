package kleidiai

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// packedRow is an unpacked row of a panel, for CheckPanel.
type packedRow struct {
	codes  []byte // cols
	scales []float32
}

// newRow allocates at most as much memory as the packed panel, so checking a hostile file needs no
// more memory than its size.
func (p *Packer) newRow() *packedRow {
	return &packedRow{codes: make([]byte, p.f.cols), scales: make([]float32, p.f.groups)}
}

// CheckPanel reports the first defect of panel i of the payload, with bytes src, as
// *packing.PanelError. Defects are:
//   - a scale beyond its dtype's range, as stored or multiplied by the layout's factor, or a scale
//     that is not positive despite FlagPositiveScales
//   - a zero point or bias that is not finite, or a bias other than 0 without FlagBias
//   - codes other than 0 past the last column
//   - a stored sum that differs from the sum of the codes
//   - a padding row that does not hold the layout's padding
//
// Unpacking and packing an accepted panel gives the same bytes.
func (p *Packer) CheckPanel(i int, src []byte) error {
	f := p.f
	p.CheckIndex(i, src)
	scratch := p.scratch.Get().(*[2]*packedRow)
	defer p.scratch.Put(scratch)
	row, rows := scratch[0], p.PanelRows(i)
	for r := range rows {
		f.codes(row.codes, src, r)
		p.scales(row.scales, src, r)
		if err := p.checkRow(i, src, r, row); err != nil {
			return err
		}
	}
	for r := rows; r < f.nr; r++ {
		if err := p.checkPadding(i, src, r, row, scratch[1]); err != nil {
			return err
		}
	}
	return nil
}

// checkRow checks row r of panel i, with the unpacked row in row.
func (p *Packer) checkRow(i int, panel []byte, r int, row *packedRow) error {
	f, dtype := p.f, p.f.scaleDtype
	for g, s := range row.scales {
		if stored := float32(s * f.scaleFactor); !dtype.IsScale(s) || !dtype.IsScale(stored) {
			return p.PanelErrorf(i, f.scaleAt(r, g), "the scale of row %d group %d is %v, stored as %v: want magnitudes of %v to %v (%s)", r, g, s, stored, dtype.Smallest(), dtype.Max(), dtype)
		}
		if s < 0 && p.Header().Flags&packing.FlagPositiveScales != 0 {
			return p.PanelErrorf(i, f.scaleAt(r, g), "the scale of row %d group %d is %v in a payload of positive scales", r, g, s)
		}
		if f.zero0 >= 0 {
			if zero := f.zero(panel, r, g); math.IsNaN(float64(zero)) || math.IsInf(float64(zero), 0) {
				return p.PanelErrorf(i, f.zeroAt(r, g), "the zero point of row %d group %d is %v", r, g, zero)
			}
		}
	}
	for k, q := range row.codes[f.k:] {
		if q != 0 {
			return p.PanelErrorf(i, f.codeAt(r, f.k+k), "row %d has code %d past its %d columns, at column %d", r, int8(q), f.k, f.k+k)
		}
	}
	if f.sum0 >= 0 {
		at := f.sum0 + 4*r
		if stored, sum := int32(get32(panel, at)), f.sum(row.codes); stored != sum {
			return p.PanelErrorf(i, at, "the sum of row %d is %d, its codes make %d", r, stored, sum)
		}
	}
	if f.bias0 >= 0 {
		bias, at := f.bias(panel, r), f.bias0+4*r
		if math.IsNaN(float64(bias)) || math.IsInf(float64(bias), 0) {
			return p.PanelErrorf(i, at, "the bias of row %d is %v", r, bias)
		}
		if p.Header().Flags&packing.FlagBias == 0 && math.Float32bits(bias) != 0 {
			return p.PanelErrorf(i, at, "the bias of row %d is %v in a payload without one", r, bias)
		}
	}
	return nil
}

// codeAt is the offset in a panel of the byte that holds the code of row r at column k.
func (f *frame) codeAt(r, k int) int {
	o, _ := f.place(k % f.group)
	return f.data0 + k/f.group*f.dataStep + f.offset(r, o)
}

// checkPadding checks that row r of panel i, past the matrix's last row, holds the layout's
// padding. The matrix's last row is unpacked in last. checkPadding overwrites row, and overwrites
// last if the layout pads with zeros.
func (p *Packer) checkPadding(i int, panel []byte, r int, last, row *packedRow) error {
	f := p.f
	what := "of the matrix's last row, which it repeats"
	if f.zeroPadding {
		what = "0, which rows past the last one have in this layout"
	}
	fail := func(offset int, field string) error {
		return p.PanelErrorf(i, offset, "row %d has another %s than that %s", r, field, what)
	}
	end := p.PanelRows(i) - 1
	wantSum, wantBias := uint32(0), f.bias(panel, end)
	if f.sum0 >= 0 {
		wantSum = get32(panel, f.sum0+4*end)
	}
	if f.zeroPadding {
		clear(last.codes)
		clear(last.scales)
		wantSum, wantBias = 0, 0
	}
	f.codes(row.codes, panel, r)
	for k, q := range row.codes {
		if q != last.codes[k] {
			return fail(f.codeAt(r, k), fmt.Sprintf("code at column %d", k))
		}
	}
	p.scales(row.scales, panel, r)
	for g := range row.scales {
		if math.Float32bits(row.scales[g]) != math.Float32bits(last.scales[g]) {
			return fail(f.scaleAt(r, g), fmt.Sprintf("scale in group %d", g))
		}
		if math.Float32bits(f.zero(panel, r, g)) != math.Float32bits(f.zero(panel, end, g)) {
			return fail(f.zeroAt(r, g), fmt.Sprintf("zero point in group %d", g))
		}
	}
	if f.sum0 >= 0 && get32(panel, f.sum0+4*r) != wantSum {
		return fail(f.sum0+4*r, "sum")
	}
	if math.Float32bits(f.bias(panel, r)) != math.Float32bits(wantBias) {
		return fail(f.bias0+4*r, "bias")
	}
	return nil
}

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
