package hfquant

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
)

// matrix is a view of a tensor of the checkpoint with rows of equal length.
type matrix struct {
	name  string
	at    safetensors.Range
	dtype packing.Dtype
	view  []byte
	width int64 // bytes of a row
}

// row returns the bytes of row n.
func (m *matrix) row(n int64) []byte { return m.view[n*m.width:][:m.width] }

// floats reads row n, or one that all rows share.
func (m *matrix) floats(dst []float32, n int64) {
	if m.width == int64(len(m.view)) {
		n = 0
	}
	safetensors.Widen(dst, m.row(n), m.dtype)
}

// scales is floats for numbers that must be finite.
func (m *matrix) scales(dst []float32, n int64) error {
	m.floats(dst, n)
	return checkFinite(m.name, n, dst)
}

// scaleDtypes are the dtypes of scales and offsets.
var scaleDtypes = []packing.Dtype{packing.BF16, packing.F16, packing.F32}

// part returns the tensor called name, which holds some of weight. It fails if the tensor is
// missing, or is not of one of the dtypes and of one of the shapes, whose dimensions are positive.
// The first dimension counts rows.
func (f *finder) part(weight, name string, dtypes []packing.Dtype, shapes ...[]int64) (*matrix, error) {
	t, ok := f.ck.Lookup(name)
	if !ok {
		return nil, f.formatError(weight, "the checkpoint has no tensor %s", quote(name))
	}
	if !slices.Contains(dtypes, t.Dtype) {
		return nil, f.unsupported(name, "dtype %s, expected %s", t.DtypeName, list(dtypes))
	}
	if !slices.ContainsFunc(shapes, func(s []int64) bool { return slices.Equal(s, t.Shape) }) {
		words := make([]string, len(shapes))
		for i, s := range shapes {
			words[i] = fmt.Sprint(s)
		}
		return nil, f.formatError(name, "shape %v, but %s needs shape %s", t.Shape, quote(weight), list(words))
	}
	view, err := f.ck.Bytes(t)
	if err != nil {
		return nil, err
	}
	m := &matrix{name: name, at: t.Range(0, t.Size), dtype: t.Dtype, view: view, width: int64(len(view))}
	if len(t.Shape) > 0 {
		m.width /= t.Shape[0]
	}
	return m, nil
}

// integers reads a small tensor of I32 or I64, such as a shape.
func (m *matrix) integers(ck *safetensors.Checkpoint) ([]int64, error) {
	release, err := ck.Fetch(ck.Context(), m.at)
	if err != nil {
		return nil, err
	}
	defer release()
	size := m.dtype.Bits() / 8
	out := make([]int64, len(m.view)/size)
	for i := range out {
		if size == 8 {
			out[i] = int64(binary.LittleEndian.Uint64(m.view[8*i:]))
		} else {
			out[i] = int64(int32(binary.LittleEndian.Uint32(m.view[4*i:])))
		}
	}
	return out, nil
}

// groupOrder reads g_idx, the group of each of k columns. If the columns of each group are
// consecutive, it returns which group each run of columns has, nil for groups in order. A negative
// index at the first column means that no order was set. It fails for groups whose columns are
// scattered, as activation order makes them.
func (f *finder) groupOrder(weight, name string, k, group int64) ([]int32, error) {
	m, err := f.part(weight, name, []packing.Dtype{packing.I32}, []int64{k})
	if err != nil {
		return nil, err
	}
	release, err := f.ck.Fetch(f.ck.Context(), m.at)
	if err != nil {
		return nil, err
	}
	defer release()
	group = min(group, k)
	if group == 0 {
		group = k
	}
	groups := (k + group - 1) / group
	at := func(i int64) int32 { return int32(binary.LittleEndian.Uint32(m.view[4*i:])) }
	if at(0) < 0 {
		return nil, nil
	}
	order := make([]int32, groups)
	seen := make([]bool, groups)
	inOrder := true
	for i := range k {
		g, run := at(i), i/group
		if i%group != 0 {
			if g != order[run] {
				return nil, f.scattered(weight, name, i, g)
			}
			continue
		}
		if g < 0 || int64(g) >= groups || seen[g] {
			return nil, f.scattered(weight, name, i, g)
		}
		order[run], seen[g] = g, true
		inOrder = inOrder && int64(g) == run
	}
	if last := k % group; last != 0 && int64(order[groups-1]) != groups-1 {
		return nil, f.scattered(weight, name, k-last, order[groups-1])
	}
	if inOrder {
		return nil, nil
	}
	return order, nil
}

func (f *finder) scattered(weight, name string, column int64, group int32) error {
	return f.unsupported(name, "column %d belongs to group %d: the columns of a group of %s are not consecutive (activation order); "+
		"quantize the unquantized checkpoint instead", column, group, quote(weight))
}

// reorder puts what groups in the order of their storage have into the order of columns.
func reorder[T any](dst []T, order []int32) {
	if order == nil || len(dst) == 0 {
		return
	}
	stored := slices.Clone(dst)
	for i, g := range order {
		dst[i] = stored[g]
	}
}

// int8 reads one element of I8 of row n, or of one that all rows share.
func (m *matrix) int8(n, col int64) int8 {
	if m.width == int64(len(m.view)) {
		n = 0
	}
	return int8(m.row(n)[col])
}

// int8s reads row n, or one that all rows share, of I8.
func (m *matrix) int8s(dst []int8, n int64) {
	if m.width == int64(len(m.view)) {
		n = 0
	}
	for i, b := range m.row(n) {
		dst[i] = int8(b)
	}
}

// codes reads row n of I8. It fails for values that a number of bits does not hold.
func (m *matrix) codes(dst []int8, bits int, n int64) error {
	m.int8s(dst, n)
	if bits == 8 {
		return nil
	}
	low, high := limits(bits)
	for k, c := range dst {
		if int(c) < low || int(c) > high {
			return fmt.Errorf("tensor %s: row %d has the value %d in column %d, outside of %d .. %d of %d bits", quote(m.name), n, c, k, low, high, bits)
		}
	}
	return nil
}
