package kernels

import (
	"cmp"
	"fmt"
	"math"
	"slices"

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
	Bits    int // bits of a weight
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
	table := append(gemvInfos(), floatInfos()...)
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
			int(a.Layouts[0])-int(b.Layouts[0]), a.Bits-b.Bits,
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
			for _, s := range i.Code.Set(bits).Steps {
				info.Rows = append(info.Rows, s.MR)
			}
			info.Cost = stepCost(i.Feature, bits, info.Rows[0]) / float64(info.Rows[0])
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
	f, err := newPanelLayout(h)
	if err != nil {
		return "", err
	}
	features, err := o.features()
	if err != nil {
		return "", err
	}
	s := newSelection(f, features)
	return s.choose(m).name, nil
}

type plainReference struct{ op *reference.Operator }

// NewReference makes the operator that defines the bits of every kernel, in plain Go: slow and
// single-threaded. It shares only the layout's packer and the quantization of activations with the
// kernels. A payload without a kernel is an *UnsupportedError.
func NewReference(h packing.Header, data []byte) (Operator, error) {
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
