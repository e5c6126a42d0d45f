package hfquant

import (
	"cmp"
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

func (m *matrix) row(n int64) []byte { return m.view[n*m.width:][:m.width] }

// floats reads row n, or the only row for all n.
func (m *matrix) floats(dst []float32, n int64) {
	if m.width == int64(len(m.view)) {
		n = 0
	}
	safetensors.Widen(dst, m.row(n), m.dtype)
}

func (m *matrix) scales(dst []float32, n int64) error {
	m.floats(dst, n)
	return checkFinite(m.name, n, dst)
}

var scaleDtypes = []packing.Dtype{packing.BF16, packing.F16, packing.F32}

// part returns the tensor called name, a part of weight. A missing tensor is an error, and so is a
// dtype or a shape not listed, or a dimension below 1. The first dimension counts rows.
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
// consecutive, the result has the group of each run, or is nil for groups in order or for a
// negative first index: no order was set. For scattered columns (activation order) the result has
// the group of each column, and groups of s become single columns.
func (f *finder) groupOrder(weight, name string, k int64, s *Scheme) ([]int32, error) {
	m, err := f.part(weight, name, []packing.Dtype{packing.I32}, []int64{k})
	if err != nil {
		return nil, err
	}
	release, err := f.ck.Fetch(f.ck.Context(), m.at)
	if err != nil {
		return nil, err
	}
	defer release()
	group := cmp.Or(min(s.Group, k), k)
	groups := s.Groups(k)
	at := func(i int64) int32 { return int32(binary.LittleEndian.Uint32(m.view[4*i:])) }
	if at(0) < 0 {
		return nil, nil
	}
	columns := make([]int32, k)
	order := make([]int32, groups)
	seen := make([]bool, groups)
	inOrder, scattered := true, false
	for i := range k {
		g, run := at(i), i/group
		if g < 0 || int64(g) >= groups {
			return nil, f.formatError(name, "column %d belongs to group %d, but %s has %d groups", i, g, quote(weight), groups)
		}
		columns[i] = g
		if i%group != 0 {
			scattered = scattered || g != order[run]
			continue
		}
		scattered = scattered || seen[g]
		order[run], seen[g] = g, true
		inOrder = inOrder && int64(g) == run
	}
	// A short group is the last group, with the last columns.
	if scattered || k%group != 0 && int64(order[groups-1]) != groups-1 {
		s.Group = 1
		return columns, nil
	}
	if inOrder {
		return nil, nil
	}
	return order, nil
}

// reorder changes the order of the groups, first in dst, from their storage to the columns'.
func reorder[T any](dst []T, order []int32) {
	if order == nil || len(dst) == 0 {
		return
	}
	stored := slices.Clone(dst)
	for i, g := range order {
		dst[i] = stored[g]
	}
}

// int8 reads an element of I8 of row n, or of the only row.
func (m *matrix) int8(n, col int64) int8 {
	if m.width == int64(len(m.view)) {
		n = 0
	}
	return int8(m.row(n)[col])
}

// int8s reads row n of I8, or the only row.
func (m *matrix) int8s(dst []int8, n int64) {
	if m.width == int64(len(m.view)) {
		n = 0
	}
	for i, b := range m.row(n) {
		dst[i] = int8(b)
	}
}

// codes reads row n of I8 and fails for values that a number of bits does not hold.
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
