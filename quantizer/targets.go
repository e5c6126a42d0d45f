package quantizer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/suggest"
	"github.com/lowbit-go/gq/packing"
)

// Target is a consumer of weights: of .gqf files on a kind of CPU, of .gguf files, of directories
// for ONNX Runtime, or of checkpoints in a format of another library. The layouts for a kind of CPU
// are those that the consumer's own packers make there, so that it can use a file's bytes
// unchanged. docs/FORMAT.md says how each consumer loads them.
type Target struct {
	Name string
	// positive: the consumer refuses scales that are not positive normal numbers.
	positive bool
	// Tiles of 4-bit groups, 4-bit channels and 8-bit channels. A zero tile says that the consumer
	// has no kernel for them.
	grouped, channel4, channel8 packing.Tile
	// groupScale is the dtype of the scales of 4-bit groups; scales of channels are F32.
	groupScale packing.ScaleDtype
	group      int  // the only group size; 0: any multiple of 32
	even       bool // channels of 4 bits have an even number of columns
	torchao    bool // TorchAO's own layouts, for every width
	// Format is the format of checkpoints that the target loads, "" for other targets. A .gqf file
	// with the target's schemes has the layout lowbit.
	Format hfquant.Format
	// onnx: ONNX Runtime loads the target. grouped is then the tile of packed weights that its files
	// hold in addition to the codes; a zero tile: none.
	onnx bool
	// CPU is the CPU features that the name implies, which the file records with the variant.
	CPU gqf.CPUFeatures
}

var (
	tile4x8x2  = packing.Tile{NR: 4, KR: 8, SR: 2}
	tile4x16x2 = packing.Tile{NR: 4, KR: 16, SR: 2}
	tile8x16x2 = packing.Tile{NR: 8, KR: 16, SR: 2}
	tile4x4x1  = packing.Tile{NR: 4, KR: 4, SR: 1}
	tile4x8x1  = packing.Tile{NR: 4, KR: 8, SR: 1}
)

// Targets are the consumers that gq knows.
var Targets = append([]Target{
	{Name: "pytorch-aarch64", grouped: tile8x16x2, channel4: tile8x16x2, groupScale: packing.ScaleBF16},
	{Name: "xnnpack-i8mm", positive: true, even: true, grouped: tile4x16x2, channel4: tile8x16x2, channel8: tile4x8x1, groupScale: packing.ScaleBF16, CPU: gqf.CPUDotProd | gqf.CPUI8MM},
	{Name: "xnnpack-dotprod", positive: true, even: true, grouped: tile4x8x2, channel4: tile4x8x2, channel8: tile4x4x1, groupScale: packing.ScaleBF16, CPU: gqf.CPUDotProd},
	{Name: "llama.cpp-i8mm", grouped: tile4x16x2, channel8: tile4x8x1, groupScale: packing.ScaleF16, group: 32, CPU: gqf.CPUDotProd | gqf.CPUI8MM},
	{Name: "llama.cpp-dotprod", grouped: tile4x8x2, channel8: tile4x4x1, groupScale: packing.ScaleF16, group: 32, CPU: gqf.CPUDotProd},
	{Name: "torchao", torchao: true, groupScale: packing.ScaleF32},
	TargetGGUF,
	{Name: "onnx", onnx: true},
	{Name: "onnx-arm-i8mm", onnx: true, grouped: tile4x16x2},
	{Name: "onnx-arm-dotprod", onnx: true, grouped: tile4x8x2},
}, checkpointTargets...)

// ParseTargets reads a list of target names.
func ParseTargets(s string) ([]Target, error) {
	var list []Target
	for _, name := range strings.Split(s, ",") {
		var names []string
		found := false
		for _, t := range Targets {
			names = append(names, t.Name)
			if t.Name == name {
				list, found = append(list, t), true
			}
		}
		if err := hfquant.NotWritten(name); err != nil {
			return nil, err
		}
		if !found {
			return nil, suggest.Unknown("target", name, names)
		}
	}
	return list, nil
}

// AdaptToTargets adapts the scheme of a tensor with rows of k weights to the targets, in the dtype
// of scales, unless the recipe or the rule states it, and in their sign. rule may be nil. To
// targets, one group per row is a channel. Targets that need different scales cannot share codes.
func (r Recipe) AdaptToTargets(s rounding.Scheme, k int64, rule *Rule) (rounding.Scheme, error) {
	if r.ForGGUF() {
		return s, nil // Recipe.Scheme chose it
	}
	if len(r.Targets) > 0 && int64(s.Group) >= k {
		s.Group = 0
	}
	var by string
	for _, t := range r.Targets {
		s.PositiveScales = s.PositiveScales || t.positive
		want := t.ScaleDtype(s)
		if want == packing.ScaleNone || r.ScaleStated(rule) {
			continue
		}
		if by != "" && want != s.ScaleDtype {
			return s, Requestf("targets %s and %s need different scales (%s and %s) for %s: their codes cannot be shared; make two files", by, t.Name, s.ScaleDtype, want, s)
		}
		s.ScaleDtype, by = want, t.Name
	}
	return s, nil
}

// ScaleDtype is the dtype of scales in the target's layout for s; ScaleNone if it has no layout.
func (t Target) ScaleDtype(s rounding.Scheme) packing.ScaleDtype {
	switch {
	case t.torchao:
		return packing.ScaleF32
	case s.Group == 0 && (s.Bits == 4 && t.channel4.NR > 0 || s.Bits == 8 && t.channel8.NR > 0):
		return packing.ScaleF32
	case s.Group != 0 && s.Bits == 4:
		return t.groupScale
	}
	return packing.ScaleNone
}

// Layout is the target's layout for a scheme and rows of k weights. The error says why the target
// cannot store it.
func (t Target) Layout(s rounding.Scheme, k int64) (LayoutRequest, error) {
	cannot := func(what string) (LayoutRequest, error) {
		return LayoutRequest{}, fmt.Errorf("%s has no kernel for %s", t.Name, what)
	}
	switch want := t.ScaleDtype(s); {
	case t.alone():
		return LayoutRequest{Family: FamilyLowbit}, nil
	case want != packing.ScaleNone && want != s.ScaleDtype:
		return cannot(fmt.Sprintf("%s scales here, only %s", s.ScaleDtype, want))
	case t.positive && !s.Positive():
		return cannot("negative scales: quantize with --positive-scales")
	case t.torchao:
		return LayoutRequest{Family: FamilyTorchAO}, nil
	case s.Mapping == gqf.MappingAsymmetric:
		return cannot("asymmetric codes")
	case s.Bits != 4 && s.Bits != 8:
		return cannot(fmt.Sprintf("%d-bit codes", s.Bits))
	}
	tile := t.channel8
	switch {
	case s.Bits == 8 && s.Group != 0:
		return cannot("8-bit groups")
	case s.Bits == 4 && s.Group == 0:
		tile = t.channel4
		if t.even && k%2 != 0 {
			return cannot(fmt.Sprintf("4-bit codes per channel with an odd number of columns (%d)", k))
		}
	case s.Bits == 4:
		tile = t.grouped
		if t.group != 0 && s.Group != t.group {
			return cannot(fmt.Sprintf("groups of %d, only of %d", s.Group, t.group))
		}
	}
	if tile == (packing.Tile{}) {
		return cannot(fmt.Sprintf("%d-bit codes per channel", s.Bits))
	}
	return LayoutRequest{Family: FamilyKleidiAI, Tile: tile}, nil
}

// alone reports whether the target chooses schemes that other targets do not load.
func (t Target) alone() bool { return t.Format != "" || t.Name == TargetGGUF.Name || t.onnx }

// TargetNames lists targets as ParseTargets reads them.
func TargetNames(list []Target) string {
	var names []string
	for _, t := range list {
		names = append(names, t.Name)
	}
	return strings.Join(names, ",")
}

// TargetGGUF loads .gguf files: llama.cpp and programs built on it. It chooses group, mapping and
// scale dtype from the bits of a tensor.
var TargetGGUF = Target{Name: "gguf"}

// ForGGUF reports whether the schemes of the recipe are the types of GGUF files.
func (r Recipe) ForGGUF() bool {
	return slices.ContainsFunc(r.Targets, func(t Target) bool { return t.Name == TargetGGUF.Name })
}

// ForONNX reports whether the recipe's target is ONNX Runtime.
func (r Recipe) ForONNX() bool {
	return slices.ContainsFunc(r.Targets, func(t Target) bool { return t.onnx })
}

// PackedTile is the tile of the packed weights in the files of a target of ONNX Runtime; zero if
// they have none.
func (t Target) PackedTile() packing.Tile { return t.grouped }

// IntegerZeros reports whether zero points must be integers: the target loads no others.
func (r Recipe) IntegerZeros() bool { return r.ForONNX() || r.CheckpointFormat() != "" }

// Alone reports whether the recipe's target chooses schemes, or the form of the output, so that
// neither other targets nor layouts go with it.
func (r Recipe) Alone() bool { return slices.ContainsFunc(r.Targets, Target.alone) }

// stated says which fields of a scheme a person stated for the very bits that the scheme has.
type stated struct{ group, mapping, scales bool }

// ggufScheme gives a scheme group, mapping and scale dtype of the type of its bits, where they were
// not stated.
func ggufScheme(s rounding.Scheme, given stated) rounding.Scheme {
	t, ok := rounding.BlockType(s.Bits, s.Mapping)
	if !ok {
		t, ok = rounding.GGUFGrid(s.Bits, s.Mapping)
	}
	if !ok && !given.mapping {
		s.Mapping = rounding.GGUFMapping(s.Bits)
		if t, ok = rounding.BlockType(s.Bits, s.Mapping); !ok {
			t, ok = rounding.GGUFGrid(s.Bits, s.Mapping)
		}
	}
	want, _ := rounding.GGUFScheme(t, s)
	if !ok { // GGUFType reports it
		want = rounding.Scheme{Group: 32, ScaleDtype: packing.ScaleF16}
	}
	if !given.group {
		s.Group = want.Group
	}
	if !given.scales {
		s.ScaleDtype = want.ScaleDtype
	}
	s.Type = want.Type
	return s
}

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
// format stores. Its groups may be smaller than the groups of s: the scale is then repeated. The
// error lists the bits and groups that the format can store.
func CheckpointLayout(f hfquant.Format, name string, shape []int64, s rounding.Scheme) (*hfquant.Layout, hfquant.Scheme, error) {
	stored := hfquant.Scheme{Bits: s.Bits, Group: int64(s.Group), Scales: storedScales(f, s.ScaleDtype)}
	switch {
	case s.Mapping == gqf.MappingHalfStep || rounding.OnlyBlocks(s.Mapping):
		return nil, stored, fmt.Errorf("%s has no codes of mapping %s: use full-range", f, s.Mapping)
	case s.Mapping == gqf.MappingAsymmetric:
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
