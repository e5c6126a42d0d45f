package kernels

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/kernels/floatmm"
	"github.com/lowbit-go/gq/internal/kernels/gemv"
	"github.com/lowbit-go/gq/internal/kernels/reference"
	"github.com/lowbit-go/gq/internal/kernels/tile"
	"github.com/lowbit-go/gq/packing"
)

// Info describes a kernel, the payloads that a kernel reads and the CPU that a kernel needs.
type Info struct {
	Name      string
	Feature   string // instruction set, as in Options.CPU
	Available bool   // whether this CPU and this build have the instruction set
	// Kind is gemv for kernels that read the packed bytes for each row of activations, gemm for
	// kernels that unpack panels and multiply them with many rows, float for the kernels of
	// NewFloat and NewRows.
	Kind string
	// Layouts, Tiles and Zeros list the payloads that the kernel reads. A payload needs one of each.
	Layouts []packing.Layout
	Tiles   []packing.Tile
	Type    gguf.TensorType // of LayoutBlocks
	Bits    int             // bits of a weight
	Zeros   []packing.ZeroKind
	Grids   []packing.Grid
	Scales  []packing.ScaleDtype
	Rows    []int // rows of activations in a step, largest first
	// Cost is the cost of a row and a weight in the largest step, without unpacking. Operators compare
	// the costs of kernels for the same payload; each architecture has its own unit, see cost.go.
	// Floating-point kernels have cost 0: there is no choice among them.
	Cost float64
}

// Table lists every kernel that this build registers, including kernels that this CPU cannot run:
// by layout and width, gemv kernels first, and from the least instruction set to the best.
func Table() []Info {
	table := slices.Concat(gemvInfos(), floatInfos(), blockInfos())
	for _, layout := range packing.Layouts {
		if f, ok := supported[layout]; ok && f.as == 0 {
			table = append(table, gemmInfos(layout, f)...)
		}
	}
	for i := range table {
		table[i].Available = cpu.Check(table[i].Feature) == nil
	}
	slices.SortStableFunc(table, func(a, b Info) int {
		return cmp.Or(
			int(a.Layouts[0])-int(b.Layouts[0]), int(a.Type)-int(b.Type), a.Bits-b.Bits,
			slices.Index(kinds, a.Kind)-slices.Index(kinds, b.Kind), slices.Index(cpu.Names, a.Feature)-slices.Index(cpu.Names, b.Feature),
		)
	})
	return table
}

var kinds = []string{"gemv", "gemm", "float"}

func gemvInfos() (list []Info) {
	for _, k := range gemv.Kernels() {
		layouts := []packing.Layout{k.Layout}
		if k.Layout == packing.LayoutLowbit {
			layouts = readAsLowbit(int(k.Bits), k.Scales, k.Zeros, k.Grid, k.Tile)
		}
		list = append(list, Info{
			Name: k.Name, Feature: k.Feature, Kind: "gemv", Layouts: layouts, Tiles: []packing.Tile{k.Tile}, Bits: int(k.Bits),
			Zeros: []packing.ZeroKind{k.Zeros}, Grids: []packing.Grid{k.Grid}, Scales: []packing.ScaleDtype{k.Scales}, Rows: []int{1}, Cost: gemvCost(k),
		})
	}
	return list
}

func floatInfos() (list []Info) {
	for _, i := range floatmm.Sets.All() {
		set := i.Code
		for _, bits := range []int{16, 32} {
			for _, mr := range set.Tiles {
				list = append(list, Info{
					Name: set.Name(bits == 16, mr), Feature: i.Feature, Kind: "float", Layouts: []packing.Layout{packing.LayoutPlain}, Bits: bits, Rows: []int{mr},
				})
			}
		}
	}
	return list
}

func gemmInfos(layout packing.Layout, f layoutSupport) (list []Info) {
	for _, bits := range f.widths {
		layouts, grids := []packing.Layout{layout}, []packing.Grid{packing.GridInteger}
		if layout == packing.LayoutLowbit {
			layouts = readAsLowbit(bits, packing.ScaleBF16, packing.ZeroNone, packing.GridInteger, packing.DefaultTile)
			if bits <= 2 {
				grids = append(grids, packing.GridHalfStep)
			}
		}
		for _, i := range tile.Sets.All() {
			info := Info{
				Name: gemmName(layout, bits, i.Feature), Feature: i.Feature, Kind: "gemm", Layouts: layouts, Tiles: layout.Tiles(), Bits: bits,
				Zeros: f.zeros, Grids: grids, Scales: f.scales,
			}
			steps := i.Code.Set(bits).Steps
			for _, s := range steps {
				info.Rows = append(info.Rows, s.MR)
			}
			info.Cost = stepCost(i.Feature, bits, &steps[0]) / float64(steps[0].MR)
			list = append(list, info)
		}
	}
	return list
}

// readAsLowbit lists the layouts of lowbit panels; torchao-kleidiai has TorchAO's header in front.
func readAsLowbit(bits int, scales packing.ScaleDtype, zeros packing.ZeroKind, grid packing.Grid, t packing.Tile) []packing.Layout {
	list := []packing.Layout{packing.LayoutLowbit}
	if bits == 4 && scales == packing.ScaleBF16 && zeros == packing.ZeroNone && grid == packing.GridInteger && slices.Contains(packing.LayoutTorchAOKleidiAI.Tiles(), t) {
		list = append(list, packing.LayoutTorchAOKleidiAI)
	}
	return list
}

// KernelFor is the name of the kernel that an operator for payloads of h would run for m rows. It
// fails as NewLinear does. h must fit its data, because KernelFor allocates for each group of a
// row.
func KernelFor(h packing.Header, m int, o Options) (string, error) {
	features, err := o.features()
	if err != nil {
		return "", err
	}
	f, err := layoutOf(h, features)
	if err != nil {
		return "", err
	}
	s := newSelection(f, features)
	return s.choose(m).name, nil
}

// layoutOf is newPanelLayout, or newBlockLayout.
func layoutOf(h packing.Header, features []string) (*panelLayout, error) {
	if h.Layout != packing.LayoutBlocks {
		return newPanelLayout(h)
	}
	f, err := formatOf(h)
	if err != nil {
		return nil, err
	}
	return newBlockLayout(f, h, features), nil
}

type plainReference struct{ op product }

// product is an operator of package reference.
type product interface {
	Rows() int
	Cols() int
	Multiply(dst, x []float32, m int)
}

// NewReference makes the operator that defines the bits of every kernel, in plain Go: slow and
// single-threaded. It shares only the layout's packer, the quantization of activations and clamping
// with the kernels. A payload without a kernel is an *UnsupportedError.
func NewReference(h packing.Header, data []byte) (Operator, error) {
	if h.Layout == packing.LayoutBlocks {
		f, err := formatOf(h)
		if err != nil {
			return nil, err
		}
		return &plainReference{&blockReference{f, int(h.Rows), int(h.Cols), data}}, nil
	}
	if _, err := newPanelLayout(h); err != nil {
		return nil, err
	}
	op, err := reference.New(h, data)
	if err != nil {
		return nil, fmt.Errorf("kernels: %w", err)
	}
	return &plainReference{op}, nil
}

func (r *plainReference) Rows() int { return r.op.Rows() }

func (r *plainReference) Cols() int { return r.op.Cols() }

func (r *plainReference) Kernel(int) string { return "reference" }

// Forward implements Operator. Forward allocates and does not use the Workspace.
func (r *plainReference) Forward(w *Workspace, dst, x []float32, m int) error {
	return r.ForwardClamped(w, dst, x, m, float32(math.Inf(-1)), float32(math.Inf(1)))
}

func (r *plainReference) ForwardClamped(_ *Workspace, dst, x []float32, m int, lo, hi float32) error {
	if err := checkForward(r.Rows(), r.Cols(), dst, x, m, lo, hi); err != nil || m == 0 {
		return err
	}
	r.op.Multiply(dst, x, m)
	reference.Clamp(dst, lo, hi)
	return nil
}

// Query asks for kinds of packed weights. A nil list asks for every value that fits the others.
type Query struct {
	Layouts []LayoutTile
	Bits    []int    // of a code
	Groups  []uint64 // group sizes; 0 is a scale per row
	// Zeros asks for weights with zero points. Default: without, where a layout has such weights.
	Zeros bool
	// Fractions asks only for weights with fractional zero points. Default: Zeros decides.
	Fractions bool
}

// LayoutTile is a layout and the requested tile. Default (zero tile): the tile for i8mm.
type LayoutTile struct {
	Layout packing.Layout
	Tile   packing.Tile
	Type   gguf.TensorType // of LayoutBlocks
}

// Floats reports whether q asks for unquantized weights: LayoutPlain, and no width or group.
func (q *Query) Floats() bool {
	return q.AnyTile(packing.LayoutPlain) && q.Bits == nil && q.Groups == nil && !q.Zeros && !q.Fractions
}

// AnyTile reports whether q asks for a layout without a tile.
func (q *Query) AnyTile(l packing.Layout) bool {
	return q.Layouts == nil || slices.Contains(q.Layouts, LayoutTile{Layout: l})
}

// Headers returns a header for each combination of layout, width and group that kernels read, for
// weights of shape(group). usual has the values to combine where q has none. A value of q that fits
// no combination is an error that says why, and so is a layout that no kernel reads. LayoutPlain
// has no bits and groups and is left out.
func (q *Query) Headers(usual Query, shape func(group uint64) (rows, cols uint64)) ([]packing.Header, error) {
	var headers []packing.Header
	layouts, bits, groups := uses[LayoutTile]{}, uses[int]{}, uses[uint64]{}
	for _, l := range or(q.Layouts, usual.Layouts) {
		switch l.Layout {
		case packing.LayoutPlain:
			continue
		case packing.LayoutBlocks:
			h, err := q.header(l, 0, 0, shape)
			if err != nil {
				return nil, err
			}
			headers = append(headers, h)
			continue
		}
		for _, b := range or(q.Bits, usual.Bits) {
			list := or(q.Groups, usual.Groups)
			if q.Groups == nil && !slices.ContainsFunc(list, func(g uint64) bool { _, err := q.header(l, b, g, shape); return err == nil }) {
				list = []uint64{0} // a layout with a scale per row
			}
			for _, g := range list {
				h, err := q.header(l, b, g, shape)
				if err == nil {
					headers = append(headers, h)
				} else if q.Bits == nil && field(err) == "bits" {
					continue
				}
				layouts.note(l, err)
				bits.note(b, err)
				groups.note(g, err)
			}
		}
	}
	for _, err := range []error{layouts.unused(q.Layouts == nil), bits.unused(q.Bits == nil), groups.unused(q.Groups == nil)} {
		if bad, ok := errors.AsType[*packing.HeaderError](err); ok {
			return nil, errors.New(bad.Msg) // no header exists, so nothing else can be wrong
		} else if err != nil {
			return nil, err
		}
	}
	return headers, nil
}

func or[T any](list, usual []T) []T {
	if list == nil {
		return usual
	}
	return list
}

// header is the header with the first dtype of scales and kind of zero points that the layout has.
func (q *Query) header(l LayoutTile, bits int, group uint64, shape func(group uint64) (rows, cols uint64)) (packing.Header, error) {
	h := packing.Header{Layout: l.Layout, Bits: uint8(bits), Tile: l.Tile, Group: group}
	h.Rows, h.Cols = shape(group)
	if l.Layout == packing.LayoutBlocks {
		h = l.Type.Header(h.Rows, h.Cols)
		_, err := KernelFor(h, 1, Options{CPU: "generic"})
		return h, err
	}
	if tiles := l.Layout.Tiles(); l.Tile == (packing.Tile{}) && len(tiles) > 0 {
		h.Tile = tiles[len(tiles)-1] // the tile for i8mm, and lowbit's default
	}
	zeros := []packing.ZeroKind{packing.ZeroNone, packing.ZeroF32} // qai4c32p has no other
	switch {
	case q.Fractions:
		zeros = []packing.ZeroKind{packing.ZeroFraction}
	case q.Zeros:
		zeros[0] = packing.ZeroInt8
	}
	var most error
	for _, h.ZeroKind = range zeros {
		for _, h.ScaleDtype = range []packing.ScaleDtype{packing.ScaleBF16, packing.ScaleF16, packing.ScaleF32} {
			h := h.Canonical()
			_, err := KernelFor(h, 1, Options{CPU: "generic"})
			if err == nil {
				return h, nil
			}
			if most == nil || weight(err) > weight(most) {
				most = err
			}
		}
	}
	return packing.Header{}, most
}

// weight ranks errors by how informative they are. Errors about choices of header itself rank last.
func weight(err error) int {
	switch field(err) {
	case "scale dtype":
		return 0
	case "zero kind":
		return 1
	}
	return 2
}

func field(err error) string {
	if bad, ok := errors.AsType[*packing.HeaderError](err); ok {
		return bad.Field
	}
	return ""
}

// uses records the error of each value of a list, in order: nil once a combination has fit.
type uses[T comparable] struct {
	values []T
	errs   []error
}

func (u *uses[T]) note(x T, err error) {
	i := slices.Index(u.values, x)
	switch {
	case i < 0:
		u.values, u.errs = append(u.values, x), append(u.errs, err)
	case u.errs[i] != nil:
		u.errs[i] = err
	}
}

// unused returns the error of the first value that fits no combination. With any, a single fitting
// value suffices.
func (u *uses[T]) unused(any bool) error {
	if any && slices.Contains(u.errs, nil) {
		return nil
	}
	for _, err := range u.errs {
		if err != nil {
			return err
		}
	}
	return nil
}
