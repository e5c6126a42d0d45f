package gq

import (
	"context"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/fromquantized"
	"github.com/lowbit-go/gq/internal/job/lattice"
	"github.com/lowbit-go/gq/internal/job/location"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/pattern"
	"github.com/lowbit-go/gq/packing"
)

// LatticeOptions are the options of InspectLattices. The zero value is ready to use.
type LatticeOptions struct {
	// Match restricts the search to tensors with a matching name, as in InspectTensors. Default: all.
	Match string
	// Lora names adapters to merge into the checkpoint first, as in quantizer.Recipe. Default: none.
	Lora []string
	// Threads is how many tensors are read at once. Default (0): GOMAXPROCS.
	Threads int
	// Progress is told how many bytes were read. Default (nil): none.
	Progress Progress
}

// LatticeReport is the result of InspectLattices.
type LatticeReport struct {
	// Tensors are the floating-point matrices of the checkpoint, sorted by name.
	Tensors []TensorLattice `json:"tensors"`
	// Lattices is how many of them are on a lattice.
	Lattices int `json:"lattices"`
}

// TensorLattice is a matrix and the lattice that its weights are on.
type TensorLattice struct {
	Name  string  `json:"name"`
	Dtype string  `json:"dtype"`
	Shape []int64 `json:"shape"`
	// Lattice has the fewest bits and the largest group that hold the weights exactly; nil if there is
	// none.
	Lattice *lattice.Lattice `json:"lattice"`
}

// InspectLattices reads all matrices of a checkpoint and finds those whose weights are codes times
// scales already: of models that were trained with quantized weights, or dequantized. Quantize
// keeps such codes if its scheme has these bits, this group and this mapping.
func InspectLattices(ctx context.Context, path string, o LatticeOptions) (r *LatticeReport, err error) {
	from, err := resolveSource(ctx, path, true, stages{to: o.Progress})
	if err != nil {
		return nil, err
	}
	defer from.Release()
	err = withAdapters(ctx, from.Path, o.Lora, o.Threads, stages{to: o.Progress}, func(merged string, _ *provenance.Provenance) error {
		r, err = withContainer(ctx, merged, true, nil, o.Progress, func(_ *location.Source, m container) (*LatticeReport, error) {
			return findLattices(ctx, m.checkpoint, path, o)
		})
		return err
	})
	return r, err
}

// findLattices reads ck, the checkpoint name of InspectLattices. ck is nil for other files.
func findLattices(ctx context.Context, ck *safetensors.Checkpoint, name string, o LatticeOptions) (*LatticeReport, error) {
	if ck == nil {
		return nil, optionf("lattice", "is for safetensors checkpoints, and %s is none: it says itself how its weights are quantized", name)
	}
	data, err := assets.ReadConfig(ck)
	if err != nil {
		data = nil // the weights need no config.json
	}
	if q, err := fromquantized.Inspect(ck, data); err == nil && q != nil {
		return nil, optionf("lattice", "is for unquantized weights, and %s is quantized already (%s): gq repack takes its codes over", name, q)
	}
	r := &LatticeReport{Tensors: []TensorLattice{}}
	list, err := latticeTensors(ck, name, o.Match)
	if err != nil {
		return nil, err
	}
	var bytes int64
	for _, t := range list {
		r.Tensors = append(r.Tensors, TensorLattice{Name: t.Name, Dtype: t.DtypeName, Shape: t.Shape})
		bytes += t.Size
	}
	add, end := stages{to: o.Progress}.begin("looking for lattices", "bytes", bytes)
	defer end()
	config, err := arch.ParseConfig(data)
	if data == nil || err != nil {
		config = nil // the names alone say what tensors are
	}
	err = cpu.Parallel(ctx, cpu.Threads(o.Threads), len(list), func() func(i int) error {
		return func(i int) error {
			t := list[i]
			transposed := arch.Classify(config, t.Name, t.Shape).Transposed
			w, err := ck.Weights(t, safetensors.WeightsOptions{Transposed: transposed})
			if err == nil {
				r.Tensors[i].Lattice, err = lattice.FindLattice(w, 0)
			}
			add(t.Size)
			return err
		}
	})
	if err != nil {
		return nil, err
	}
	for _, t := range r.Tensors {
		if t.Lattice != nil {
			r.Lattices++
		}
	}
	return r, nil
}

// latticeTensors lists the matrices of a checkpoint that may be on a lattice.
func latticeTensors(ck *safetensors.Checkpoint, path, match string) (list []safetensors.Tensor, err error) {
	p := pattern.Pattern{}
	if match != "" {
		if p, err = pattern.Parse(match); err != nil {
			return nil, optionf("tensor", "%q: %w", match, err)
		}
	}
	var names []string
	for _, t := range ck.Tensors() {
		names = append(names, t.Name)
		if (match == "" || p.Match(t.Name)) && t.Precision() != packing.ScaleNone && len(t.Shape) >= 2 && !slices.Contains(t.Shape, 0) {
			list = append(list, t)
		}
	}
	if match != "" && len(list) == 0 {
		return nil, fmt.Errorf("%s: no floating-point matrix matches %q%s", path, match, pattern.NoMatch(match, names))
	}
	return list, nil
}
