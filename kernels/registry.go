package kernels

import (
	"slices"

	"github.com/lowbit-go/gq/kernels/internal/cpu"
	"github.com/lowbit-go/gq/kernels/internal/floatmm"
	"github.com/lowbit-go/gq/kernels/internal/tile"
	"github.com/lowbit-go/gq/packing"
)

// Info describes a kernel: what it reads and needs.
type Info struct {
	Name      string
	Feature   string // the instruction set, as Options.CPU names it
	Available bool   // whether this CPU and this build have the instruction set
	// Kind is gemv for kernels that read the packed bytes for each row of activations, gemm for those that unpack panels
	// and multiply them with many rows, float for those of NewFloat and NewRows.
	Kind string
	// Layouts, Tiles and Zeros list what the kernel reads. A payload needs one of each.
	Layouts []packing.Layout
	Tiles   []packing.Tile
	Bits    int // of a weight
	Zeros   []packing.ZeroKind
	Grids   []packing.Grid
	Scales  []packing.ScaleDtype
	Rows    []int // of activations that it takes in a step, largest first
	// Cost is what kernels of one payload are compared by: that of a row and a weight in the largest step, unpacking apart,
	// in units that each architecture has for itself, see cost.go; 0 for floats, among which there is no choice.
	Cost float64
}

// Table lists every kernel of this build, whether or not this CPU runs it, by layout and width, gemv kernels first, and
// from the least instruction set to the best.
func Table() []Info {
	var table []Info
	for _, k := range gemvKernels() {
		layouts, scales := []packing.Layout{k.Layout}, []packing.ScaleDtype{packing.ScaleF32}
		if k.Layout == packing.LayoutLowbit {
			layouts, scales = readAsLowbit(int(k.Bits), k.Zeros, k.Grid, k.Tile), []packing.ScaleDtype{packing.ScaleBF16}
		}
		table = append(table, Info{
			Name: k.Name, Feature: k.Feature, Kind: "gemv", Layouts: layouts, Tiles: []packing.Tile{k.Tile}, Bits: int(k.Bits),
			Zeros: []packing.ZeroKind{k.Zeros}, Grids: []packing.Grid{k.Grid}, Scales: scales, Rows: []int{1}, Cost: gemvCost(k),
		})
	}
	table = append(table, floatInfos()...)
	for _, layout := range packing.Layouts {
		if forms[layout] == nil || layout == packing.LayoutTorchAOKleidiAI {
			continue
		}
		for bits := 1; bits <= 8; bits++ {
			if !hasWidth(layout, bits) {
				continue
			}
			for _, feature := range cpu.Names {
				if info, ok := gemmInfo(layout, bits, feature); ok {
					table = append(table, info)
				}
			}
		}
	}
	for i := range table {
		table[i].Available = cpu.Check(table[i].Feature) == nil
	}
	slices.SortStableFunc(table, func(a, b Info) int {
		for _, d := range []int{
			int(a.Layouts[0]) - int(b.Layouts[0]), a.Bits - b.Bits,
			slices.Index(kinds, a.Kind) - slices.Index(kinds, b.Kind), slices.Index(cpu.Names, a.Feature) - slices.Index(cpu.Names, b.Feature),
		} {
			if d != 0 {
				return d
			}
		}
		return 0
	})
	return table
}

var kinds = []string{"gemv", "gemm", "float"}

// floatInfos describes the kernels of NewFloat and NewRows.
func floatInfos() []Info {
	var list []Info
	for _, feature := range cpu.Names {
		set, ok := floatmm.Sets(feature)
		if !ok || set.Feature != feature { // another one's
			continue
		}
		for _, bits := range []int{16, 32} {
			for _, mr := range set.Tiles {
				list = append(list, Info{
					Name: set.Name(bits == 16, mr), Feature: feature, Kind: "float", Layouts: []packing.Layout{packing.LayoutPlain}, Bits: bits, Rows: []int{mr},
				})
			}
		}
	}
	return list
}

// hasWidth says whether payloads of a layout may have codes of that width.
func hasWidth(l packing.Layout, bits int) bool {
	switch l {
	case packing.LayoutLowbit, packing.LayoutTorchAOLinear:
		return true
	case packing.LayoutQSI8CXP:
		return bits == 8
	case packing.LayoutQSU2CXP:
		return bits == 2
	}
	return bits == 4
}

// gemmInfo describes the tile kernels of an instruction set for a layout.
func gemmInfo(layout packing.Layout, bits int, feature string) (Info, bool) {
	set, ok := tile.Sets(feature, bits)
	if !ok {
		return Info{}, false
	}
	info := Info{
		Name: gemmName(layout, bits, feature), Feature: feature, Kind: "gemm", Layouts: []packing.Layout{layout}, Tiles: layout.Tiles(), Bits: bits,
		Zeros: []packing.ZeroKind{packing.ZeroNone}, Grids: []packing.Grid{packing.GridInteger}, Scales: []packing.ScaleDtype{packing.ScaleF32},
	}
	switch layout {
	case packing.LayoutLowbit:
		info.Layouts = readAsLowbit(bits, packing.ZeroNone, packing.GridInteger, packing.DefaultTile)
		info.Zeros = append(info.Zeros, packing.ZeroInt8)
		info.Scales = []packing.ScaleDtype{packing.ScaleBF16, packing.ScaleF16, packing.ScaleF32}
		if bits <= 2 {
			info.Grids = append(info.Grids, packing.GridHalfStep)
		}
	case packing.LayoutTorchAOLinear:
		info.Zeros = append(info.Zeros, packing.ZeroInt8)
	case packing.LayoutQAI4C32P:
		info.Zeros = []packing.ZeroKind{packing.ZeroF32}
	case packing.LayoutQSI4C32PF16:
		info.Scales = []packing.ScaleDtype{packing.ScaleF16}
	}
	for _, s := range set.Steps {
		info.Rows = append(info.Rows, s.MR)
	}
	info.Cost = stepCost(feature, bits, info.Rows[0]) / float64(info.Rows[0])
	return info, true
}

// readAsLowbit lists the layouts whose panels are lowbit's: torchao-kleidiai's are, behind TorchAO's header.
func readAsLowbit(bits int, zeros packing.ZeroKind, grid packing.Grid, t packing.Tile) []packing.Layout {
	list := []packing.Layout{packing.LayoutLowbit}
	if bits == 4 && zeros == packing.ZeroNone && grid == packing.GridInteger && slices.Contains(packing.LayoutTorchAOKleidiAI.Tiles(), t) {
		list = append(list, packing.LayoutTorchAOKleidiAI)
	}
	return list
}

// Chosen names the kernel that an operator made for payloads of h would run for m rows. It fails as NewLinear does,
// and takes memory for each group of a row, so h has to be one that fits its data.
func Chosen(h packing.Header, m int, o Options) (string, error) {
	f, err := newForm(h)
	if err != nil {
		return "", err
	}
	features, err := o.features()
	if err != nil {
		return "", err
	}
	s, err := newSelection(f, features)
	if err != nil {
		return "", err
	}
	return s.choose(m).name, nil
}
