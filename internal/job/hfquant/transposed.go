package hfquant

import (
	"encoding/binary"
	"fmt"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
)

// transposed is a weight stored with a column for each row, as in GPTQ and AWQ.
type transposed struct {
	codes  *matrix
	zeros  *matrix
	scales *matrix // [groups, N]
}

// transposedScales reads the scales of a weight. Their shape tells the weight's rows and groups.
func (f *finder) transposedScales(w *transposed, weight, module string) (n, groups int64, err error) {
	if groups, n, err = f.dimensions(weight, module+"scales"); err != nil {
		return 0, 0, err
	}
	w.scales, err = f.part(weight, module+"scales", scaleDtypes, []int64{groups, n})
	return n, groups, err
}

// dimensions returns the shape of the tensor called name, a part of weight.
func (f *finder) dimensions(weight, name string) (rows, cols int64, err error) {
	t, ok := f.ck.Lookup(name)
	switch {
	case !ok:
		return 0, 0, f.formatError(weight, "the checkpoint has no tensor %s", quote(name))
	case len(t.Shape) != 2 || t.Shape[0] <= 0 || t.Shape[1] <= 0:
		return 0, 0, f.unsupported(name, "shape %v, expected 2 dimensions that are not 0", t.Shape)
	}
	return t.Shape[0], t.Shape[1], nil
}

// transposedGroup returns the columns of a group, 0 for a row, of a weight of k columns and a
// number of groups. size is group_size of config.json; exceptions for modules may replace size.
func (f *finder) transposedGroup(weight string, size, k, groups int64, exceptions bool) (int64, error) {
	if size <= 0 {
		size = k
	}
	switch {
	case (k-1)/size+1 == groups:
	case exceptions && k%groups == 0:
		size = k / groups
	default:
		return 0, f.formatError(weight, "%d groups, but group_size of quantization_config makes %d of %d columns", groups, (k-1)/size+1, k)
	}
	if groups == 1 {
		return 0, nil
	}
	return size, nil
}

// groups is the number of stored groups of a row.
func (w *transposed) groups() int { return len(w.scales.view) / int(w.scales.width) }

// readScales sets the scales of row n, in the order of their storage.
func (w *transposed) readScales(row *Row, n int64) error {
	size := int64(w.scales.dtype.Bits() / 8)
	for g := range min(len(row.Scales), w.groups()) {
		safetensors.Widen(row.Scales[g:g+1], w.scales.row(int64(g))[n*size:][:size], w.scales.dtype)
	}
	return checkFinite(w.scales.name, n, row.Scales[:min(len(row.Scales), w.groups())])
}

// zeroError reports zero point z outside the codes. Such a zero point is stored as the largest
// number less 1, and libraries disagree: some add 1 and get z, others wrap around to 0.
func (w *transposed) zeroError(n int64, g, z int) error {
	return fmt.Errorf("tensor %s: row %d: the zero point of group %d is stored as %d: libraries read %d or 0; expected at most %d",
		quote(w.zeros.name), n, g, z-1, z, z-2)
}

func checkFinite(tensor string, n int64, values []float32) error {
	for g, v := range values {
		if !floats.Finite(v) {
			return fmt.Errorf("tensor %s: row %d: the value of group %d is %g, expected a finite number", quote(tensor), n, g, v)
		}
	}
	return nil
}

// unsignedAt returns number i of a stream of unsigned numbers.
func unsignedAt(stream []byte, i int64, bits int) int {
	at := i * int64(bits)
	v := int(stream[at/8]) >> (at % 8)
	if at%8+int64(bits) > 8 {
		v |= int(stream[at/8+1]) << (8 - at%8)
	}
	return v & (1<<bits - 1)
}

// tile keeps consecutive columns of a matrix of words from one Read to the next: reading a column
// from the file touches a cache line for each word, shared with words of 15 other columns.
type tile struct {
	of    *matrix
	first int64 // column
	data  []byte
}

// column returns the words of column i of m. tileColumns columns are transposed at once.
func (t *tile) column(m *matrix, i int64) []byte {
	words := len(m.view) / int(m.width)
	first := i - i%tileColumns
	if t.of != m || t.first != first {
		columns := int(min(tileColumns, m.width/4-first))
		t.of, t.first, t.data = m, first, resize(t.data, 4*columns*words)
		for w := range words {
			src := m.row(int64(w))[4*first:][:4*columns]
			dst := t.data[4*w:]
			for c := range columns {
				binary.LittleEndian.PutUint32(dst[4*words*c:], binary.LittleEndian.Uint32(src[4*c:]))
			}
		}
	}
	return t.data[4*words*int(i-first):][:4*words]
}

// tileColumns is the number of columns in a tile, 16 KB of each 1,024 words.
const tileColumns = 16
