package quantizer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
)

// checkpointTargets are the targets that load checkpoints in a format of another library. They have
// the names of the formats, except that torchao names a layout of .gqf files.
var checkpointTargets = []Target{
	{Name: "int-quantized", Format: hfquant.IntQuantized},
	{Name: "pack-quantized", Format: hfquant.PackQuantized},
	{Name: "gptq", Format: hfquant.GPTQ},
	{Name: "mlx", Format: hfquant.MLX},
	{Name: "torchao-safetensors", Format: hfquant.TorchAO},
}

// CheckpointTarget is the target that loads checkpoints of a format that gq writes.
func CheckpointTarget(f hfquant.Format) Target {
	return checkpointTargets[slices.IndexFunc(checkpointTargets, func(t Target) bool { return t.Format == f })]
}

// CheckpointFormat is the format of checkpoints that the recipe's target chooses schemes for, "" if
// the target is another.
func (r Recipe) CheckpointFormat() hfquant.Format {
	for _, t := range r.Targets {
		if t.Format != "" {
			return t.Format
		}
	}
	return ""
}

// channelsAt is the number of bits at which groups of a format are channels, unless a group is
// stated: vLLM's kernels for int8 weights and activations have no smaller groups.
var channelsAt = map[hfquant.Format]int{hfquant.IntQuantized: 8}

// checkpointScheme gives a scheme the group of its bits, if the group was not stated.
func checkpointScheme(f hfquant.Format, s rounding.Scheme, grouped bool) rounding.Scheme {
	if !grouped && channelsAt[f] == s.Bits {
		s.Group = 0
	}
	return s
}

func storedScales(f hfquant.Format, d packing.ScaleDtype) packing.Dtype {
	switch {
	case f == hfquant.GPTQ || d == packing.ScaleF16:
		return packing.F16
	case d == packing.ScaleF32:
		return packing.F32
	}
	return packing.BF16
}

// repeatedGroups are the groups that share a scale where a format has no groups as large as the
// scheme's.
var repeatedGroups = []int64{128, 64, 32}

// CheckpointLayout lays out a weight of shape [N, K] in a format, and returns the scheme that the
// format stores. Its groups may be smaller than the groups of s: the scale is then repeated. The
// error lists the bits and groups that the format can store.
func CheckpointLayout(f hfquant.Format, name string, shape []int64, s rounding.Scheme) (*hfquant.Layout, hfquant.Scheme, error) {
	stored := hfquant.Scheme{Bits: s.Bits, Group: int64(s.Group), Scales: storedScales(f, s.ScaleDtype)}
	switch s.Mapping {
	case gqf.MappingHalfStep, gqf.MappingKQuant:
		return nil, stored, fmt.Errorf("%s has no codes of mapping %s: use full-range", f, s.Mapping)
	case gqf.MappingAsymmetric:
		if f == hfquant.MLX {
			return nil, stored, fmt.Errorf("mlx stores a bias in the dtype of scales, which a zero point times a scale is not: use mapping full-range")
		}
		stored.Zeros = hfquant.IntZeros
	}
	layout, err := f.NewLayout(name, shape, stored)
	if err == nil {
		return layout, stored, nil
	}
	group := stored.Group
	if group == 0 && len(shape) == 2 {
		group = shape[1]
	}
	for _, g := range repeatedGroups {
		if g > group || group%g != 0 {
			continue
		}
		smaller := stored
		smaller.Group = g
		if layout, e := f.NewLayout(name, shape, smaller); e == nil {
			return layout, smaller, nil
		}
	}
	return nil, stored, fmt.Errorf("%s does not hold %s: %w", f, stored, cmp.Or(errors.Unwrap(err), err))
}

// checkpointHolds reports why no matrix of a checkpoint can have the scheme.
func checkpointHolds(f hfquant.Format, s rounding.Scheme) error {
	if f == hfquant.GPTQ && s.ScaleDtype == packing.ScaleF32 {
		return fmt.Errorf("gptq stores f16 scales, not f32: leave the scale dtype out")
	}
	cols := int64(4096)
	if s.Group != 0 {
		cols = int64(s.Group) * 128 // which all units of packing divide
	}
	_, _, err := CheckpointLayout(f, "model.layers.0.mlp.up_proj.weight", []int64{1024, cols}, s)
	return err
}
