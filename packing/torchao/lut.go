package torchao

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/lowbit-go/gq/packing"
)

// LUTShape is what must be known of a buffer of type 4, which Header leaves out
// but for bits and bias: the weight of index i is table[i] * scale, with a
// float32 scale for each group of columns of a row and one table of int8 for
// each Rows/Tables consecutive rows.
type LUTShape struct {
	Bits   int  // of an index, 1 to 4
	Rows   int  // outputs
	Cols   int  // inputs, a multiple of Group
	Group  int  // columns that share a scale, a multiple of 16
	Tables int  // divides Rows; where it is not 1, a multiple of 8 rows share one
	Bias   bool // the buffer has one bias per row
}

// LUTWeights are the weights of a buffer of type 4, row-major.
type LUTWeights struct {
	Indices []uint8   // Rows x Cols, each below 2^Bits
	Tables  []int8    // Tables x 2^Bits
	Scales  []float32 // Rows x Cols/Group, normal numbers
	Bias    []float32 // Rows, finite; nil without bias
}

// tableBytes is the size of the table at the start of a panel of type 4: 16
// int8, 0 past the last entry.
const tableBytes = 16

// Validate reports as *InputError what type 4 cannot hold.
func (s LUTShape) Validate() error {
	if err := checkShape(s.Bits, s.Rows, s.Cols); err != nil {
		return err
	}
	switch {
	case s.Group <= 0 || s.Group%16 != 0 || s.Cols%s.Group != 0:
		return inputError("group", -1, "%d, want a multiple of 16 that divides the %d columns", s.Group, s.Cols)
	case s.Group > math.MaxInt32>>7:
		return inputError("group", -1, "the sum of %d entries of an int8 table does not fit an int32", s.Group)
	case s.Tables < 1 || s.Rows%s.Tables != 0 || s.Tables > 1 && s.Rows/s.Tables%nr != 0:
		return inputError("tables", -1, "%d for %d rows, want 1 or one for each multiple of %d rows", s.Tables, s.Rows, nr)
	}
	return nil
}

// checkShape checks what types 4 and 5 have in common.
func checkShape(bits, rows, cols int) error {
	switch {
	case bits < 1 || bits > 4:
		return inputError("bits", -1, "%d, want 1 to 4", bits)
	case rows < 1 || cols < 1 || rows > maxWeights/cols:
		return inputError("rows", -1, "%d x %d weights, want 1 to 2^31-1", rows, cols)
	}
	return nil
}

// Header returns TorchAO's header for the shape.
func (s LUTShape) Header() Header {
	return Header{Type: TypeLUT, Bits: s.Bits, Bias: s.Bias, Tile: linearTile}
}

// Size is the size of the buffer with its header, of a valid shape.
func (s LUTShape) Size() int64 { return HeaderSize + int64(s.panels())*int64(s.panelBytes()) }

func (s LUTShape) panels() int { return (s.Rows + nr - 1) / nr }

func (s LUTShape) panelBytes() int {
	size := tableBytes + s.Cols/s.Group*s.groupBytes()
	if s.Bias {
		size += 4 * nr
	}
	return size
}

// groupBytes is the size of a group of a panel: indices, scales and sums.
func (s LUTShape) groupBytes() int { return s.Group*s.Bits + 2*4*nr }

// table returns the table of the rows of a panel.
func (s LUTShape) table(tables []int8, panel int) []int8 {
	entries := 1 << s.Bits
	return tables[nr*panel/(s.Rows/s.Tables)*entries:][:entries]
}

// place says which index is code i of the unit of panel p that begins at column
// c: 8 of a half of a row follow each other, as in type 1. It is negative past
// the last row.
func (s LUTShape) place(p, c, i int) int {
	half, row := i/64, nr*p+i/8%8
	if row >= s.Rows {
		return -1
	}
	return row*s.Cols + c + 8*half + i%8
}

// PackLUT packs w into a header and a buffer of type 4. It fails with
// *InputError for what the type cannot hold.
func PackLUT(s LUTShape, w *LUTWeights) ([]byte, error) {
	if err := s.check(w); err != nil {
		return nil, err
	}
	data := make([]byte, s.Size())
	s.Header().Append(data[:0])
	groups := s.Cols / s.Group
	for p := range s.panels() {
		panel, first := s.panel(data, p), nr*p
		rows, table := min(nr, s.Rows-first), s.table(w.Tables, p)
		copy(panel, codeBytes(table))
		for g := range groups {
			out := s.group(panel, g)
			for c := 0; c < s.Group; c += chunkCols {
				packIndices(s.Bits, out[s.Bits*c:], w.Indices, func(i int) int { return s.place(p, g*s.Group+c, i) })
			}
			record := out[s.Group*s.Bits:]
			for r := range rows {
				at := (first+r)*groups + g
				sum := 0
				for _, x := range w.Indices[at*s.Group:][:s.Group] {
					sum += int(table[x])
				}
				putFloat(record, r, w.Scales[at])
				binary.LittleEndian.PutUint32(record[4*(nr+r):], uint32(sum))
			}
		}
		if s.Bias {
			for r, b := range w.Bias[first:][:rows] {
				putFloat(panel[len(panel)-4*nr:], r, b)
			}
		}
	}
	return data, nil
}

// UnpackLUT is the inverse of PackLUT. It fails with *FormatError or
// *UnsupportedError for bytes that PackLUT does not make for the shape, and with
// *InputError for a shape that is none.
func UnpackLUT(s LUTShape, data []byte) (*LUTWeights, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if err := checkFrame(s.Header().Append(nil), data, s.Size()-HeaderSize); err != nil {
		return nil, err
	}
	groups, entries := s.Cols/s.Group, 1<<s.Bits
	w := &LUTWeights{
		Indices: make([]uint8, s.Rows*s.Cols), Tables: make([]int8, s.Tables*entries), Scales: make([]float32, s.Rows*groups),
	}
	for p := range s.panels() {
		panel := s.panel(data, p)
		copy(codeBytes(s.table(w.Tables, p)), panel)
		for g := range groups {
			src := s.group(panel, g)
			for c := 0; c < s.Group; c += chunkCols {
				unpackIndices(s.Bits, w.Indices, src[s.Bits*c:], func(i int) int { return s.place(p, g*s.Group+c, i) })
			}
			for r := range min(nr, s.Rows-nr*p) {
				w.Scales[(nr*p+r)*groups+g] = getFloat(src[s.Group*s.Bits:], r)
			}
		}
		if s.Bias {
			for r := range min(nr, s.Rows-nr*p) {
				w.Bias = append(w.Bias, getFloat(panel[len(panel)-4*nr:], r))
			}
		}
	}
	again, err := PackLUT(s, w)
	if err := checkAgain(data, again, err); err != nil {
		return nil, err
	}
	return w, nil
}

// panel returns panel p of a buffer.
func (s LUTShape) panel(data []byte, p int) []byte {
	return data[HeaderSize+p*s.panelBytes():][:s.panelBytes()]
}

// group returns group g of a panel.
func (s LUTShape) group(panel []byte, g int) []byte {
	return panel[tableBytes+g*s.groupBytes():][:s.groupBytes()]
}

func (s LUTShape) check(w *LUTWeights) error {
	if err := s.Validate(); err != nil {
		return err
	}
	biases := 0
	if s.Bias {
		biases = s.Rows
	}
	if err := checkLength("tables", len(w.Tables), s.Tables<<s.Bits); err != nil {
		return err
	}
	return checkTableWeights(s.Bits, w.Indices, w.Scales, w.Bias, s.Rows*s.Cols, s.Rows*(s.Cols/s.Group), biases)
}

// checkTableWeights checks what the weights of types 4 and 5 have in common,
// given how many of each there must be.
func checkTableWeights(bits int, indices []uint8, scales, bias []float32, nIndices, nScales, nBias int) error {
	if err := checkLength("indices", len(indices), nIndices); err != nil {
		return err
	}
	if err := checkLength("scales", len(scales), nScales); err != nil {
		return err
	}
	if err := checkLength("bias", len(bias), nBias); err != nil {
		return err
	}
	for i, x := range indices {
		if x >= 1<<bits {
			return inputError("indices", i, "%d, tables of %d bits have %d entries", x, bits, 1<<bits)
		}
	}
	for i, s := range scales {
		if !packing.ScaleF32.IsNormal(s) {
			return inputError("scales", i, "%v, want a normal number", s)
		}
	}
	return checkFinite("bias", bias)
}

// checkAgain makes an error of the first byte in which data differs from
// again, what was read from data packed again, or of what packing failed with.
func checkAgain(data, again []byte, err error) error {
	var input *InputError
	if errors.As(err, &input) {
		return formatError(HeaderSize, "the buffer holds %s", input)
	}
	for i, b := range again {
		if data[i] != b {
			return formatError(int64(i), "%#02x, the weights in the buffer pack to %#02x: damaged, or of another shape", data[i], b)
		}
	}
	return err
}

// packIndices packs a unit of 128 indices to the start of dst. Code i of the
// unit is indices[place(i)], or 0 where that is negative. TorchAO stores an index
// as it is, without the 2^(bits-1) that PackUnit adds to a code.
func packIndices(bits int, dst []byte, indices []uint8, place func(i int) int) {
	var codes [unitCodes]int8
	for i := range codes {
		codes[i] = -1 << (bits - 1)
		if at := place(i); at >= 0 {
			codes[i] += int8(indices[at])
		}
	}
	packing.PackUnit(bits, unitCodes, dst[:16*bits], codes[:])
}

// unpackIndices is the inverse of packIndices.
func unpackIndices(bits int, indices []uint8, src []byte, place func(i int) int) {
	var codes [unitCodes]int8
	packing.UnpackUnit(bits, unitCodes, codes[:], src[:16*bits])
	for i, q := range codes {
		if at := place(i); at >= 0 {
			indices[at] = uint8(q + 1<<(bits-1))
		}
	}
}

// putFloat writes the i-th float32 of dst.
func putFloat(dst []byte, i int, v float32) {
	binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
}
