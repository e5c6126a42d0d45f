package gq

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/kernels/bench"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// KernelsOptions are the options of Kernels. The zero value is ready to use.
type KernelsOptions struct {
	// Weights selects kinds of weights. Default: every layout and width, in groups of 32 where the
	// layout has groups.
	Weights kernels.Query
	// M lists numbers of rows of activations to choose for. Default (nil): 1, 4, 16, 128.
	M []int
	// CPU is the best instruction set to choose from, as kernels.Options.CPU. Default (""): GQ_CPU,
	// or the best of this CPU.
	CPU string
}

// KernelsReport is the result of Kernels.
type KernelsReport struct {
	// instruction sets of this CPU, from the least to the best
	Features []string       `json:"features"`
	CPU      string         `json:"cpu"` // the best instruction set that may be chosen
	Kernels  []Kernel       `json:"kernels"`
	Choices  []KernelChoice `json:"choices"`
}

// Kernel is a kernel and the payloads that it reads.
type Kernel struct {
	Name      string   `json:"name"`
	CPU       string   `json:"cpu"`
	Available bool     `json:"available"`
	Kind      string   `json:"kind"`
	Layouts   []string `json:"layouts"`
	Tiles     []string `json:"tiles"`
	Bits      int      `json:"bits"`
	Grids     []string `json:"grids"`
	Zeros     []string `json:"zeros"`
	Scales    []string `json:"scales"`
	Rows      []int    `json:"rows"`
}

// KernelChoice lists the kernels chosen for a kind of weights, by number of rows.
type KernelChoice struct {
	Layout  string      `json:"layout"`
	Tile    string      `json:"tile,omitempty"`
	Bits    int         `json:"bits"`
	Group   string      `json:"group,omitempty"`
	Zeros   string      `json:"zeros,omitempty"`
	Kernels []KernelFor `json:"kernels"`
}

// KernelFor is the kernel for M rows.
type KernelFor struct {
	M      int    `json:"m"`
	Kernel string `json:"kernel"`
}

var (
	allWidths = []int{1, 2, 3, 4, 5, 6, 7, 8}
	usualRows = []int{1, 4, 16, 128}
)

// Kernels lists the kernels of this build that multiply with packed weights, and the choice among
// them on this CPU.
func Kernels(o KernelsOptions) (*KernelsReport, error) {
	allowed, err := allowedCPU(o.CPU)
	if err != nil {
		return nil, err
	}
	usual := kernels.Query{Bits: allWidths, Groups: []uint64{32}}
	for _, l := range packing.Layouts {
		usual.Layouts = append(usual.Layouts, kernels.LayoutTile{Layout: l})
	}
	headers, err := o.Weights.Headers(usual, largeShape)
	if err != nil {
		return nil, &OptionError{Err: err}
	}
	if o.M == nil {
		o.M = usualRows
	}
	r := &KernelsReport{Features: kernels.Features(), CPU: allowed[len(allowed)-1]}
	if r.Choices, err = kernelChoices(headers, &o, kernels.Options{CPU: r.CPU}); err != nil {
		return nil, err
	}
	for _, k := range kernels.Table() {
		if selects(&o.Weights, k, headers) {
			layouts := names(k.Layouts)
			if slices.Contains(k.Layouts, packing.LayoutBlocks) {
				layouts = []string{k.Type.String()}
			}
			r.Kernels = append(r.Kernels, Kernel{
				Name: k.Name, CPU: k.Feature, Available: k.Available, Kind: k.Kind, Layouts: layouts, Tiles: names(k.Tiles), Bits: k.Bits,
				Grids: names(k.Grids), Zeros: names(k.Zeros), Scales: names(k.Scales), Rows: k.Rows,
			})
		}
	}
	return r, nil
}

// allowedCPU lists the instruction sets up to name, from the least to the best.
func allowedCPU(name string) ([]string, error) {
	list, err := cpu.UpTo(name)
	switch {
	case err == nil:
		return list, nil
	case name == "": // GQ_CPU is wrong
		return nil, &OptionError{Err: err}
	}
	return nil, optionf("cpu", "%s: %w", name, err)
}

// largeShape is a shape that every group divides. The choice hardly depends on it.
func largeShape(group uint64) (rows, cols uint64) {
	cols = 4096
	if group != 0 {
		cols = 32 * group
	}
	return 4096, cols
}

// selects reports whether a query selects a kernel: the kernel reads some of the query's headers,
// or floating-point kernels are selected.
func selects(q *kernels.Query, k kernels.Info, headers []packing.Header) bool {
	switch {
	case k.Kind == "float":
		return q.Floats()
	case slices.Contains(k.Layouts, packing.LayoutBlocks):
		return everything(q) || slices.ContainsFunc(headers, func(h packing.Header) bool {
			return h.Layout == packing.LayoutBlocks && gguf.TensorType(h.Dtype) == k.Type
		})
	}
	return slices.ContainsFunc(headers, func(h packing.Header) bool {
		// Kernels of lowbit are shown for the half-step grid and for all scale dtypes.
		return int(h.Bits) == k.Bits && slices.Contains(k.Layouts, h.Layout) && (q.AnyTile(h.Layout) || slices.Contains(k.Tiles, h.Tile)) &&
			(!q.Zeros || slices.Contains(k.Zeros, h.ZeroKind))
	})
}

// everything reports whether a query selects all weights, ggml's blocks included.
func everything(q *kernels.Query) bool { return q.Layouts == nil && q.Floats() }

// blockHeaders are headers of ggml's types that kernels read.
func blockHeaders() (list []packing.Header) {
	for _, k := range kernels.Table() {
		if h := k.Type.Header(4096, 4096); slices.Contains(k.Layouts, packing.LayoutBlocks) && !slices.Contains(list, h) {
			list = append(list, h)
		}
	}
	return list
}

// kernelChoices looks up the choice for every header, and for floating-point weights.
func kernelChoices(headers []packing.Header, q *KernelsOptions, o kernels.Options) ([]KernelChoice, error) {
	var list []KernelChoice
	if everything(&q.Weights) {
		headers = slices.Concat(headers, blockHeaders())
	}
	for _, h := range headers {
		c := KernelChoice{Layout: h.Layout.String(), Tile: h.Tile.String(), Bits: int(h.Bits), Group: "channel", Zeros: h.ZeroKind.String()}
		if h.Group != 0 {
			c.Group = fmt.Sprint(h.Group)
		}
		if h.Layout == packing.LayoutBlocks {
			c.Layout, c.Tile, c.Zeros = gguf.TensorType(h.Dtype).String(), "", ""
		}
		for _, n := range q.M {
			name, err := kernels.KernelFor(h, n, o)
			if err != nil {
				return nil, err
			}
			c.Kernels = append(c.Kernels, KernelFor{n, name})
		}
		list = append(list, c)
	}
	if !q.Weights.Floats() {
		return list, nil
	}
	for _, d := range []packing.Dtype{packing.F32, packing.BF16} {
		op, err := kernels.NewFloat(packing.PlainHeader(d, 1, 1), make([]byte, d.Bits()/8), o)
		if err != nil {
			return nil, err
		}
		c := KernelChoice{Layout: packing.LayoutPlain.String(), Bits: d.Bits()}
		for _, n := range q.M {
			c.Kernels = append(c.Kernels, KernelFor{n, op.Kernel(n)})
		}
		list = append(list, c)
	}
	return list, nil
}

func names[T fmt.Stringer](list []T) []string {
	s := make([]string, len(list))
	for i, x := range list {
		s[i] = x.String()
	}
	return s
}

// BenchKernelsOptions are the options of BenchKernels. The zero value is ready to use.
type BenchKernelsOptions struct {
	// Weights selects kinds of weights. Default: lowbit of every width, in groups of 32 and 128.
	Weights kernels.Query
	// Rows and Cols are the outputs and inputs. Default (0): 4096 and 14336.
	Rows, Cols uint64
	// Quick measures 4 bits, group 32, 1 and 128 rows of activations, and half as long, where the
	// other options are not set. Default: false.
	Quick bool
	// Begin is called before the first measurement. Default (nil): nothing.
	Begin func(cacheBytes, memoryBytes int64)
	// Options are the options of the measurements. BenchKernels sets Headers.
	bench.Options
}

// BenchKernels measures products of activations with packed weights, with float32 and with BF16
// weights, and the rate of reading memory.
func BenchKernels(ctx context.Context, o BenchKernelsOptions) (*bench.Report, error) {
	usual := kernels.Query{Layouts: []kernels.LayoutTile{{Layout: packing.LayoutLowbit}}, Bits: allWidths, Groups: []uint64{32, 128}}
	if o.Quick {
		usual.Groups = usual.Groups[:1]
		if o.Weights.Layouts == nil {
			usual.Bits = []int{4}
		}
		if o.M == nil {
			o.M = []int{1, 128}
		}
		if o.Time == 0 {
			o.Time = time.Second / 4
		}
	}
	if slices.ContainsFunc(o.Weights.Layouts, func(l kernels.LayoutTile) bool { return l.Layout == packing.LayoutPlain }) {
		return nil, optionf("layout", "plain: float32 and BF16 are always measured")
	}
	for _, name := range o.CPU {
		if _, err := allowedCPU(name); err != nil {
			return nil, err
		}
	}
	if o.Rows == 0 && o.Cols == 0 {
		o.Rows, o.Cols = 4096, 14336
	}
	var err error
	if o.Headers, err = o.Weights.Headers(usual, func(uint64) (uint64, uint64) { return o.Rows, o.Cols }); err != nil {
		return nil, &OptionError{Err: err}
	}
	memory, err := o.Memory()
	if err != nil {
		return nil, &OptionError{Err: err}
	}
	defer memlimit.Lift()()
	if o.CacheBytes == 0 {
		o.CacheBytes = bench.CacheBytes()
	}
	if o.Begin != nil {
		o.Begin(o.CacheBytes, memory)
	}
	return bench.Run(ctx, o.Options)
}
