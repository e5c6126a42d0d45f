package conversion

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// TestRepackedRecipe: the recipe of a repacked file states the schemes that its tensors have, if
// targets chose them before. A recipe does not state the kind of zero points, which follows from
// the layouts: lowbit gets fractional ones where the target's files have integers.
func TestRepackedRecipe(t *testing.T) {
	testshared.SlowEmulated(t, "recipes are the same natively")
	dir := t.TempDir()
	testmodels.Find(t, "llama-bias-tied").Write(t, dir)
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	config, err := assets.ReadConfig(ck)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		target string
		recipe quantizer.Recipe
		rules  []quantizer.Rule
	}{
		{"gguf", quantizer.Recipe{}, []quantizer.Rule{{Match: "*.q_proj", Bits: 8}, {Match: "*.layers.1.*", Skip: true}, {Match: "*.k_proj", Bits: 1}}},
		{"pytorch-aarch64", quantizer.Recipe{Group: new(quantizer.PerChannel)}, []quantizer.Rule{{Match: "*.down_proj", Group: new(64)}}},
		{"xnnpack-i8mm", quantizer.Recipe{}, nil},
		{"torchao", quantizer.Recipe{Bits: 3}, []quantizer.Rule{{Match: "*.up_proj", Mapping: gqf.MappingAsymmetric}}},
		{"gptq", quantizer.Recipe{Bits: 3, Mapping: gqf.MappingAsymmetric}, nil},
	} {
		t.Run(c.target, func(t *testing.T) {
			if c.recipe.Targets, err = quantizer.ParseTargets(c.target); err != nil {
				t.Fatal(err)
			}
			made, _ := writeVerified(t, func() (*write.Job, error) { return quantizing(ck, config, Options{Recipe: c.recipe, Rules: c.rules}) })
			f, _ := writeVerified(t, func() (*write.Job, error) {
				return NewRepack(made, "made.gqf", RepackOptions{Layouts: []quantizer.LayoutRequest{{}}})
			})
			data, err := f.Asset(gqf.RecipeName)
			if err != nil {
				t.Fatal(err)
			}
			r, err := quantizer.ParseRecipe(gqf.RecipeName, data)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Targets) > 0 {
				t.Errorf("targets %s", quantizer.TargetNames(r.Targets))
			}
			// The recipe makes the same schemes again.
			again, err := quantizing(ck, config, Options{Recipe: r})
			if err != nil {
				t.Fatalf("%v\n%s", err, data)
			}
			out := filepath.Join(t.TempDir(), "again.gqf")
			if _, err := again.Write(context.Background(), out); err != nil {
				t.Fatal(err)
			}
			g, err := gqf.Open(out, gqf.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			for i := range f.Len() {
				a, b := headerOf(f.Tensor(i)), headerOf(g.Tensor(i))
				if a.Layout == packing.LayoutPlain && b.Layout == packing.LayoutPlain {
					continue
				}
				if a.Bits != b.Bits || a.Group != b.Group || a.ScaleDtype != b.ScaleDtype || a.Grid != b.Grid || (a.ZeroKind == packing.ZeroNone) != (b.ZeroKind == packing.ZeroNone) {
					t.Errorf("tensor %q: the recipe makes %+v, the file has %+v\n%s", f.Tensor(i).Name, b, a, data)
				}
			}
		})
	}
}

func headerOf(t gqf.Tensor) packing.Header {
	p, _ := t.Payload(0, 0, gqf.KindWeights)
	return p.Header
}
