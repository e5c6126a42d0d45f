package hfquant

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
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

// mergedLayers are the layers that vLLM merges from several. vLLM can load such a layer only if all
// parts have the same scheme, or none is quantized.
var mergedLayers = []struct {
	name  string
	parts []string
}{
	{"qkv_proj", []string{"q_proj", "k_proj", "v_proj"}},
	{"gate_up_proj", []string{"gate_proj", "up_proj"}},
}

// MergedName is the name of a weight with the layer after vLLM's merge:
// "model.layers.0.mlp.gate_up_proj.weight" for gate and up. Other names do not change.
func MergedName(tensor string) string {
	module, last := splitName(tensor)
	if last != "weight" || module == "" {
		return tensor
	}
	parent, part := splitName(module[:len(module)-1])
	for _, m := range mergedLayers {
		if slices.Contains(m.parts, part) {
			return parent + m.name + ".weight"
		}
	}
	return tensor
}

// UnevenLayers lists, in order of weights, the first parts of layers that vLLM merges with others
// of another scheme, so that vLLM cannot load the model.
func UnevenLayers(weights []ModelWeight) []string {
	schemes := map[string]Scheme{} // of modules; the zero value: not quantized
	for _, w := range weights {
		module, last := splitName(w.Name)
		if last != "weight" || module == "" || !w.Linear {
			continue
		}
		var s Scheme
		if w.Scheme != nil {
			s = Scheme{Bits: w.Scheme.Bits, Group: w.Scheme.Group, Zeros: w.Scheme.Zeros}
		}
		schemes[module[:len(module)-1]] = s
	}
	var uneven []string
	for _, w := range weights {
		module, last := splitName(w.Name)
		if last != "weight" || module == "" {
			continue
		}
		parent, part := splitName(module[:len(module)-1])
		for _, m := range mergedLayers {
			if part == m.parts[0] && slices.ContainsFunc(m.parts, func(other string) bool {
				s, ok := schemes[parent+other]
				return ok && s != schemes[parent+part]
			}) {
				uneven = append(uneven, w.Name)
			}
		}
	}
	return uneven
}

// OddKernels lists the weights in format GPTQ that vLLM has no kernel for. If most weights are
// symmetric, with 4 or 8 bits in groups that its kernel Marlin takes, vLLM multiplies all weights
// with Marlin, and cannot load the model.
func OddKernels(weights []ModelWeight) []string {
	marlin := func(s Scheme) bool {
		return (s.Bits == 4 || s.Bits == 8) && slices.Contains([]int64{0, 32, 64, 128}, s.Group) && s.Zeros == NoZeros
	}
	usual, err := usualScheme(weights)
	if err != nil || !marlin(usual) {
		return nil
	}
	var odd []string
	for _, w := range weights {
		switch {
		case w.Scheme == nil:
		case w.Scheme.Zeros != NoZeros: // then all have zero points
			return nil
		case !marlin(*w.Scheme):
			odd = append(odd, w.Name)
		}
	}
	return odd
}

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
