package quantizer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/hfquant"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// checkpointTargets are the targets whose schemes a checkpoint format of another library holds. They
// have the names of the formats, but torchao, which names a layout of .gqf files.
var checkpointTargets = []Target{
	{Name: "int-quantized", Format: hfquant.IntQuantized},
	{Name: "pack-quantized", Format: hfquant.PackQuantized},
	{Name: "gptq", Format: hfquant.GPTQ},
	{Name: "mlx", Format: hfquant.MLX},
	{Name: "torchao-safetensors", Format: hfquant.TorchAO},
}

// CheckpointTarget is the target that chooses schemes for checkpoints of a format. ok is false for a
// format that gq does not write.
func CheckpointTarget(f hfquant.Format) (t Target, ok bool) {
	i := slices.IndexFunc(checkpointTargets, func(t Target) bool { return t.Format == f })
	if i < 0 {
		return Target{}, false
	}
	return checkpointTargets[i], true
}

// CheckpointTargetName is the name of the target for a format.
func CheckpointTargetName(f hfquant.Format) string {
	t, _ := CheckpointTarget(f)
	return t.Name
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

// QuantizesEmbedding reports whether programs that load checkpoints of a format know quantized
// embeddings. Transformers and vLLM quantize linear layers only.
func QuantizesEmbedding(f hfquant.Format) bool { return f == hfquant.MLX }

// QuantizesHead reports whether these programs expect a quantized lm_head where nothing is stated. vLLM
// loads compressed-tensors and GPTQ checkpoints with an unquantized one, Transformers torchao's.
func QuantizesHead(f hfquant.Format) bool { return f == hfquant.MLX }

// served are the schemes for which vLLM has kernels, by format: bits, and the groups (0: a channel).
// Programs for other formats have kernels for all schemes that the format holds.
var served = map[hfquant.Format]map[int][]int64{
	hfquant.IntQuantized:  {4: {0, 32, 64, 128, 256}, 8: {0}},
	hfquant.PackQuantized: {4: {0, 32, 64, 128}, 8: {0, 32, 64, 128}},
	hfquant.GPTQ:          {2: {0, 32, 64, 128}, 3: {0, 32, 64, 128}, 4: {0, 32, 64, 128}, 8: {0, 32, 64, 128}},
}

// Served reports whether the programs that load checkpoints of a format have kernels for bits and a
// group (0: a channel).
func Served(f hfquant.Format, bits int, group int64) bool {
	by, ok := served[f]
	return !ok || slices.Contains(by[bits], group)
}

// MergesLayers reports whether vLLM loads checkpoints of a format. It computes q, k and v, and gate and
// up, as one layer, which needs one scheme.
func MergesLayers(f hfquant.Format) bool { return f != "" && f != hfquant.MLX }

// MergedName is the name of a weight with the layer that programs for a format merge it into, see
// [MergesLayers] and [hfquant.MergedName]. Weights of experts keep their names.
func MergedName(f hfquant.Format, tensor string) string {
	if !MergesLayers(f) || strings.Contains(tensor, ".experts.") {
		return tensor
	}
	return hfquant.MergedName(tensor)
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

// CheckpointScales is the dtype of scales for weights of a dtype. Programs compute in the dtype of
// the model, so that F16 numbers serve F16 models. BF16 numbers serve all others.
func CheckpointScales(weights packing.Dtype) packing.ScaleDtype {
	if weights == packing.F16 {
		return packing.ScaleF16
	}
	return packing.ScaleBF16
}

// smallestBF16AsF16 is the smallest power of two from which on all BF16 numbers are F16 numbers.
const smallestBF16AsF16 = 0x1p-17

// SmallestCheckpointScale is the smallest magnitude of a scale that a format holds. GPTQ stores F16
// numbers. Scales of models that are not F16 are BF16 numbers too: a program that loads such a model
// as BF16 then rounds none of them.
func SmallestCheckpointScale(f hfquant.Format, d packing.ScaleDtype) float32 {
	if f == hfquant.GPTQ && d == packing.ScaleBF16 {
		return smallestBF16AsF16
	}
	return d.Smallest()
}

// storedScales is the dtype in which a format stores scales of dtype d.
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
// format stores. Its groups may be smaller than the groups of s: the scale is then repeated. The error
// lists the bits and groups that the format can store.
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

// checkCheckpoint reports what a recipe states that has no place in a checkpoint.
func (r Recipe) checkCheckpoint() error {
	f := r.CheckpointFormat()
	switch {
	case f == "":
	case len(r.Targets) > 1:
		return fmt.Errorf("target %s chooses schemes for checkpoints of that format: make two files", TargetNames(r.Targets[:1]))
	case !QuantizesEmbedding(f) && (r.EmbeddingBits != 0 || r.EmbeddingGroup != 0):
		return fmt.Errorf("programs that load %s know no quantized embeddings: state neither bits nor group of the embedding", f)
	}
	return nil
}
