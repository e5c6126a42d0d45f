package kernels

import (
	"cmp"
	"slices"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/kernels/internal/floatmm"
	"github.com/lowbit-go/gq/kernels/internal/gemv"
	"github.com/lowbit-go/gq/kernels/internal/tile"
	"github.com/lowbit-go/gq/packing"
)

// Info describes a kernel: the payloads that it reads and the CPU that it needs.
type Info struct {
	Name      string
	Feature   string // the instruction set, as Options.CPU names it
	Available bool   // whether this CPU and this build have the instruction set
	// Kind is gemv for kernels that read the packed bytes for each row of activations, gemm for
	// kernels that unpack panels and multiply them with many rows, float for the kernels of
	// NewFloat and NewRows.
	Kind string
	// Layouts, Tiles and Zeros list the payloads that the kernel reads. A payload needs one of
	// each.
	Layouts []packing.Layout
	Tiles   []packing.Tile
	Bits    int // bits of a weight
	Zeros   []packing.ZeroKind
	Grids   []packing.Grid
	Scales  []packing.ScaleDtype
	Rows    []int // rows of activations in a step, largest first
	// Cost is the cost of a row and a weight in the largest step, without unpacking, by which
	// kernels for one payload are compared. Each architecture has its own unit, see cost.go. It is
	// 0 for floating-point kernels, among which there is no choice.
	Cost float64
}

// Table lists every kernel that this build registers, whether or not this CPU runs it: by layout
// and width, gemv kernels first, and from the least instruction set to the best.
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

// gemvInfos describes the kernels of package gemv.
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

// floatInfos describes the kernels of NewFloat and NewRows.
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

// gemmInfos describes the tile kernels for a layout.
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

// readAsLowbit lists the layouts whose panels are lowbit panels: lowbit, and torchao-kleidiai after
// TorchAO's header.
func readAsLowbit(bits int, scales packing.ScaleDtype, zeros packing.ZeroKind, grid packing.Grid, t packing.Tile) []packing.Layout {
	list := []packing.Layout{packing.LayoutLowbit}
	if bits == 4 && scales == packing.ScaleBF16 && zeros == packing.ZeroNone && grid == packing.GridInteger && slices.Contains(packing.LayoutTorchAOKleidiAI.Tiles(), t) {
		list = append(list, packing.LayoutTorchAOKleidiAI)
	}
	return list
}

// KernelFor is the name of the kernel that an operator for payloads of h would run for m rows. It
// fails as NewLinear does. It allocates for each group of a row, so h must fit its data.
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
