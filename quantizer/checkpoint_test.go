package quantizer

import (
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
)

// TestCheckpointTargets: every format that gq writes has a target, whose defaults the format holds
// and programs have kernels for, at 4 bits.
func TestCheckpointTargets(t *testing.T) {
	for _, f := range hfquant.Formats() {
		target := CheckpointTarget(f)
		r := Recipe{Targets: []Target{target}}
		if r.CheckpointFormat() != f || r.Validate() != nil {
			t.Errorf("%s: target %q, format %q, %v", f, target.Name, r.CheckpointFormat(), r.Validate())
		}
		s := r.Scheme(gqf.RoleProjection, nil)
		layout, stored, err := CheckpointLayout(f, "model.layers.0.mlp.up_proj.weight", []int64{64, 128}, s)
		if err != nil || layout == nil || stored.Bits != 4 || stored.Group != 32 || !f.Served(4, 32) {
			t.Errorf("%s: %s, %v", f, stored, err)
		}
	}
}

// TestCheckpointSchemes: groups follow from bits where programs have no others, and a canonical
// recipe gives the same schemes again.
func TestCheckpointSchemes(t *testing.T) {
	for _, c := range []struct {
		target string
		recipe Recipe
		rule   *Rule
		bits   int
		group  int
	}{
		{"int-quantized", Recipe{}, nil, 4, 32},
		{"int-quantized", Recipe{Bits: 8}, nil, 8, 0},
		{"int-quantized", Recipe{Bits: 8, Group: new(64)}, nil, 8, 64},
		{"int-quantized", Recipe{}, &Rule{Bits: 8}, 8, 0},
		{"int-quantized", Recipe{}, &Rule{Bits: 8, Group: new(128)}, 8, 128},
		{"pack-quantized", Recipe{Bits: 8}, nil, 8, 32},
		{"torchao-safetensors", Recipe{Bits: 1, Group: new(PerChannel)}, nil, 1, 0},
	} {
		r := c.recipe
		var err error
		if r.Targets, err = ParseTargets(c.target); err != nil {
			t.Fatal(err)
		}
		text, err := r.JSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseRecipe("recipe", text)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []Recipe{r, again} {
			if err := r.Validate(); err != nil {
				t.Errorf("%s, %+v: %v", c.target, c.recipe, err)
			}
			if s := r.Scheme(gqf.RoleProjection, c.rule); s.Bits != c.bits || s.Group != c.group || s.Mapping != gqf.MappingFullRange {
				t.Errorf("%s, %+v, rule %v: %s, want %d bits, group %d", c.target, c.recipe, c.rule, s, c.bits, c.group)
			}
		}
	}
}

// TestCheckpointRefused: what a format cannot hold is refused before any work.
func TestCheckpointRefused(t *testing.T) {
	for _, c := range []struct {
		target, want string
		recipe       Recipe
	}{
		{"gptq", "codes have 2, 3, 4 or 8 bits", Recipe{Bits: 6}},
		{"gptq", "f16 scales, not f32", Recipe{ScaleDtype: packing.ScaleF32}},
		{"gptq", "state neither bits nor group of the embedding", Recipe{EmbeddingBits: 4}},
		{"mlx", "codes have 2, 3, 4, 5, 6 or 8 bits", Recipe{Bits: 7}},
		{"mlx", "embedding: mlx does not hold", Recipe{EmbeddingBits: 7}},
		{"mlx", "use mapping full-range", Recipe{Mapping: gqf.MappingAsymmetric}},
		{"int-quantized", "weights are symmetric", Recipe{Mapping: gqf.MappingAsymmetric}},
		{"torchao-safetensors", "no codes of mapping half-step", Recipe{Bits: 2, Mapping: gqf.MappingHalfStep}},
		{"pack-quantized,gptq", "make two files", Recipe{}},
	} {
		r := c.recipe
		var err error
		if r.Targets, err = ParseTargets(c.target); err != nil {
			t.Fatal(err)
		}
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %+v: %v, want %q", c.target, c.recipe, err, c.want)
		}
	}
}

// TestRepeatedScales: a group that a format has not is several that it has.
func TestRepeatedScales(t *testing.T) {
	for _, c := range []struct {
		f     hfquant.Format
		cols  int64
		group int
		want  int64
	}{
		{hfquant.MLX, 384, 0, 128},
		{hfquant.MLX, 128, 0, 128},
		{hfquant.MLX, 128, 128, 128},
		{hfquant.MLX, 96, 0, 32},
		{hfquant.MLX, 512, 256, 128},
		{hfquant.GPTQ, 384, 96, 32},
		{hfquant.MLX, 128, 64, 64},
	} {
		s := rounding.Scheme{Bits: 4, Group: c.group, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16}
		if _, stored, err := CheckpointLayout(c.f, "a.weight", []int64{64, c.cols}, s); err != nil || stored.Group != c.want {
			t.Errorf("%s, group %d of %d: %d, %v, want %d", c.f, c.group, c.cols, stored.Group, err, c.want)
		}
	}
	if _, _, err := CheckpointLayout(hfquant.MLX, "a.weight", []int64{64, 80}, rounding.Scheme{Bits: 4, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16}); err == nil {
		t.Error("rows of 80 have no groups of 32")
	}
}
