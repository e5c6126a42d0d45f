package measure

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
)

// ParityOptions are the options of CheckParity. The zero value is good.
type ParityOptions struct {
	// Threads is the number of goroutines; results are the same for any. Default: GOMAXPROCS.
	Threads int
	// Match chooses tensors by any of their names. Default: all.
	Match func(name string) bool
	// All checks every payload. Default: among payloads that differ only in rows and bytes, and that
	// the same kernels read in the same way, the first, the last and two between are checked.
	All bool
}

const (
	parityPayloads = 4 // of a sort
	parityPanels   = 4 // of a payload
	parityRows     = 24
)

// parityM are the numbers of rows of activations per run: 1, as in decoding, and several that fill
// the steps of kernels or do not. The last is all rows.
var parityM = []int{1, 4, 7, parityRows}

type comparison struct {
	payload   accuracy.Parity // without the fields about kernels
	reference string          // SHA-256 of the outputs of the portable reference
	kernels   []accuracy.Parity
}

// CheckParity compares every kernel that this machine has for a payload with the portable
// reference, bit for bit: for each instruction set, the kernels selected for 1, 4, 7 and 24 rows of
// activations. The activations include zeros, subnormal and huge numbers, NaN, infinities, and rows
// of equal signs. Payloads and panels are sampled: see ParityOptions and Parity.Panels.
//
// Plain F32, F16 and BF16 payloads that are multiplied are compared with the portable kernel.
func CheckParity(ctx context.Context, f *gqf.File, o ParityOptions) ([]accuracy.Parity, error) {
	list, err := compareKernels(ctx, f, o)
	if err != nil {
		return nil, err
	}
	var results []accuracy.Parity
	for _, c := range list {
		if results = append(results, c.kernels...); c.payload.NoKernel != "" {
			c.payload.Equal = true
			results = append(results, c.payload)
		}
	}
	return results, nil
}

// compareKernels compares the kernels for the chosen payloads, in the file's order.
func compareKernels(ctx context.Context, f *gqf.File, o ParityOptions) ([]comparison, error) {
	f.CheckSums()
	payloads, features := parityPayloadsOf(f, o), kernels.Features()
	list := make([]comparison, len(payloads))
	err := cpu.Parallel(ctx, cpu.Threads(o.Threads), len(payloads), func() func(i int) error {
		w := kernels.NewWorkspace(nil)
		return func(i int) error {
			p := f.Payload(int(payloads[i]))
			data, err := f.Data(p)
			if err == nil {
				err = f.Guard(func() (err error) {
					list[i], err = comparePayload(w, f.Tensor(p.Tensor), p, data, features)
					return err
				})
			}
			if err != nil {
				return fmt.Errorf("tensor %q: %w", f.Tensor(p.Tensor).Name, err)
			}
			return nil
		}
	})
	return list, err
}

// parityPayloadsOf chooses payloads, by their indices and in the file's order.
func parityPayloadsOf(f *gqf.File, o ParityOptions) []int32 {
	var chosen []int32
	sorts := map[packing.Header][]int32{}
	for i := range f.Len() {
		t := f.Tensor(i)
		if !matches(t, o.Match) {
			continue
		}
		for _, p := range t.Payloads() {
			if p.Kind != gqf.KindWeights || p.Header.Layout == packing.LayoutPlain && !plainMatrix(t, p.Header) {
				continue
			}
			if o.All {
				chosen = append(chosen, int32(p.Index))
				continue
			}
			sort := p.Header
			sort.Rows = 0
			sorts[sort] = append(sorts[sort], int32(p.Index))
		}
	}
	for _, list := range sorts {
		for _, i := range spread(len(list), parityPayloads) {
			chosen = append(chosen, list[i])
		}
	}
	slices.Sort(chosen)
	return chosen
}

// plainMatrix reports whether a plain payload is the matrix of a linear layer.
func plainMatrix(t gqf.Tensor, h packing.Header) bool {
	switch t.Role {
	case gqf.RoleProjection, gqf.RoleHead, gqf.RoleRouter:
	case gqf.RoleEmbedding:
		if len(t.Names()) == 1 {
			return false
		}
	default:
		return false
	}
	return len(t.Shape) == 2 && h.Rows > 0 && h.Cols > 0 && slices.Contains([]packing.Dtype{packing.F32, packing.F16, packing.BF16}, h.Dtype)
}

// spread chooses at most n numbers below all: the first, the last, and others evenly between.
func spread(all, n int) []int {
	var list []int
	for i := range min(all, n) {
		if all <= n {
			list = append(list, i)
		} else {
			list = append(list, i*(all-1)/(n-1))
		}
	}
	return list
}

// panelHeight is the number of rows of a panel, or of rows that somePanels copies together.
func panelHeight(h packing.Header) int {
	if h.Layout.Panels() {
		return max(int(h.Tile.NR), 1)
	}
	return panelRows
}

// somePanels copies some panels of a payload into a payload of their own.
func somePanels(h packing.Header, data []byte, panels []int) (packing.Header, []byte, error) {
	if !h.Layout.Panels() {
		size := len(data) / int(h.Rows)
		var part []byte
		for _, i := range panels {
			part = append(part, data[i*panelRows*size:min((i+1)*panelRows, int(h.Rows))*size]...)
		}
		h.Rows = uint64(len(part) / size)
		return h, part, nil
	}
	whole, err := layouts.New(h)
	if err != nil {
		return h, nil, err
	}
	h.Rows = 0
	for _, i := range panels {
		h.Rows += uint64(whole.PanelRows(i))
	}
	h = h.Canonical()
	p, err := layouts.New(h)
	if err != nil {
		return h, nil, err
	}
	prefix, size := len(whole.Prefix()), whole.PanelBytes()
	part := slices.Clone(p.Prefix())
	for _, i := range panels {
		part = append(part, data[prefix+i*size:][:size]...)
	}
	return h, part, nil
}

// operators makes the reference and the operator of each instruction set.
func operators(h packing.Header, data []byte, features []string) (ref kernels.Operator, ops []kernels.Operator, err error) {
	float := h.Layout == packing.LayoutPlain
	if float {
		ref, err = kernels.NewFloat(h, data, kernels.Options{CPU: "generic"})
	} else {
		ref, err = kernels.NewReference(h, data)
	}
	if err != nil {
		return nil, nil, err
	}
	for _, feature := range features {
		var op kernels.Operator
		if o := (kernels.Options{CPU: feature}); float {
			op, err = kernels.NewFloat(h, data, o)
		} else {
			op, err = kernels.NewLinear(h, data, o)
		}
		if err != nil {
			return nil, nil, err
		}
		ops = append(ops, op)
	}
	return ref, ops, nil
}

// comparePayload compares the kernels' outputs for a payload with the reference's.
func comparePayload(w *kernels.Workspace, t gqf.Tensor, p gqf.Payload, data []byte, features []string) (comparison, error) {
	h := p.Header
	nr := int64(panelHeight(h))
	panels := int((int64(h.Rows) + nr - 1) / nr)
	c := comparison{payload: accuracy.Parity{
		Tensor: t.Name, Slice: p.Slice, Variant: p.Variant, Layout: layoutName(h), Tile: h.Tile.String(),
		Bits: int(h.Bits), Group: int(h.Group), Rows: int64(h.Rows), Cols: int64(h.Cols), PanelsOf: panels,
	}}
	if h.Layout == packing.LayoutPlain {
		c.payload.Bits = h.Dtype.Bits()
	}
	c.payload.Panels = spread(panels, parityPanels)
	part, data, err := somePanels(h, data, c.payload.Panels)
	if err != nil {
		return c, err
	}
	ref, ops, err := operators(part, data, features)
	if unsupported, ok := errors.AsType[*kernels.UnsupportedError](err); ok {
		c.payload.NoKernel, c.payload.Panels = unsupported.Error(), []int{}
		return c, nil
	}
	if err != nil {
		return c, err
	}
	x := parityInputs(int(h.Cols))
	want, got := make([]float32, parityRows*part.Rows), make([]float32, parityRows*part.Rows)
	if err := ref.Forward(w, want, x, parityRows); err != nil {
		return c, err
	}
	sum := sha256.New()
	_ = binary.Write(sum, binary.LittleEndian, want)
	c.reference = hex.EncodeToString(sum.Sum(nil))
	for i, op := range ops {
		if err := c.run(w, op, features[i], x, want, got); err != nil {
			return c, err
		}
	}
	return c, nil
}

// run runs the kernel that op selects, and adds the result unless known for as many rows.
func (c *comparison) run(w *kernels.Workspace, op kernels.Operator, feature string, x, want, got []float32) error {
	for _, m := range parityM {
		name := op.Kernel(m)
		at := slices.IndexFunc(c.kernels, func(p accuracy.Parity) bool { return p.Kernel == name })
		if at >= 0 && slices.Contains(c.kernels[at].M, m) {
			continue
		}
		rows, cols := op.Rows(), op.Cols()
		for from := 0; from < parityRows; from += m {
			n := min(m, parityRows-from)
			if err := op.Forward(w, got[from*rows:][:n*rows], x[from*cols:][:n*cols], n); err != nil {
				return err
			}
		}
		if at < 0 {
			at = len(c.kernels)
			result := c.payload
			result.Kernel, result.CPU, result.Equal = name, feature, true
			c.kernels = append(c.kernels, result)
		}
		k := &c.kernels[at]
		k.M = append(k.M, m)
		if diff := c.difference(want, got, rows, m); diff != "" && k.Equal {
			k.FirstDifference, k.Equal = diff, false
		}
	}
	return nil
}

// difference describes the first output that differs.
func (c *comparison) difference(want, got []float32, rows, m int) string {
	for i := range want {
		if a, b := math.Float32bits(want[i]), math.Float32bits(got[i]); a != b {
			nr := (rows + len(c.payload.Panels) - 1) / len(c.payload.Panels)
			row := i % rows
			return fmt.Sprintf("m %d: output %d of panel %d for activations %d is %g (%#08x), the reference has %g (%#08x)",
				m, row%nr, c.payload.Panels[row/nr], i/rows, got[i], b, want[i], a)
		}
	}
	return ""
}

// parityInputs returns the rows of activations, the same on any machine: a dozen difficult rows,
// then random rows of all magnitudes.
func parityInputs(k int) []float32 {
	x := RandomInputs("parity", parityRows, k)
	n := newNormals("parity rows")
	row := func(i int) []float32 { return x[i*k:][:k] }
	each := func(i int, f func(v float32, c int) float32) {
		for c, v := range row(i) {
			row(i)[c] = f(v, c)
		}
	}
	abs := func(v float32, _ int) float32 { return float32(math.Abs(float64(v))) }
	each(1, func(float32, int) float32 { return 0 })
	each(2, abs)
	each(3, func(v float32, c int) float32 { return -abs(v, c) })
	each(4, func(v float32, _ int) float32 { return float32(v * 0x1p100) })
	// No scale, then subnormal.
	each(5, func(_ float32, c int) float32 { return [2]float32{math.MaxFloat32, -math.MaxFloat32}[c%2] })
	each(6, func(v float32, _ int) float32 { return float32(v * 0x1p-130) })
	row(7)[n.below(k)] = float32(math.NaN())
	row(8)[n.below(k)] = float32(math.Inf(-1))
	each(9, func(float32, int) float32 { return -3 })
	row(10)[n.below(k)] = 1e4
	each(11, func(v float32, _ int) float32 { return [2]float32{float32(math.Copysign(0, -1)), v}[n.below(2)] })
	// Codes at the ends of the range.
	each(12, func(v float32, _ int) float32 { return [2]float32{-1, 1}[n.below(2)] })
	each(13, func(v float32, c int) float32 { return [2]float32{-1, 1}[c/2%2] })
	for i := 14; i < parityRows; i += 2 {
		scale := float32(math.Ldexp(1, 6*(i-18)))
		each(i, func(v float32, _ int) float32 { return float32(v * scale) })
	}
	return x
}
