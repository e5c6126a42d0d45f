//go:build unix

package include_test

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// TestMinimalReader compiles the reader on the first page of docs/FORMAT.md as it stands, and
// compares all weights that it reads from files of gq.
func TestMinimalReader(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("needs gcc")
	}
	document, err := os.ReadFile("../docs/FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(document), "## A minimal reader\n")
	text, _, end := strings.Cut(text, "\n## ")
	if !ok || !end {
		t.Fatal("docs/FORMAT.md has no minimal reader")
	}
	var source strings.Builder
	for line := range strings.Lines(text) {
		if code, ok := strings.CutPrefix(line, "    "); ok {
			source.WriteString(code)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "minimal.inc"), []byte(source.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "minimal")
	args := append([]string{"-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-missing-prototypes"}, sanitizer...)
	if out, err := exec.Command("gcc", append(args, "-I", dir, "-o", bin, "testdata/minimal.c", "-lm")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	checkpoint := fused(t, "qwen3_5_moe", "model.layers.0.mlp.experts.gate_up_proj", 3, 37, 80)
	ck, err := safetensors.Open(checkpoint, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	config, err := assets.ReadConfig(ck)
	if err != nil {
		t.Fatal(err)
	}
	for bits := 1; bits <= 8; bits++ {
		for i, mapping := range []gqf.Mapping{gqf.MappingFullRange, gqf.MappingAsymmetric, gqf.MappingHalfStep} {
			if mapping == gqf.MappingHalfStep && bits > 2 {
				continue
			}
			recipe := quantizer.Recipe{
				Bits: bits, Group: new([]int{48, 32, 16, quantizer.PerChannel}[(bits+i)%4]), Mapping: mapping, Layouts: []quantizer.LayoutRequest{{Tile: packing.LayoutLowbit.Tiles()[(bits+2*i)%4]}},
				ScaleDtype: []packing.ScaleDtype{packing.ScaleBF16, packing.ScaleF16, packing.ScaleF32}[(bits+i)%3],
			}
			plan, err := conversion.NewPlan(ck, config, conversion.Options{Recipe: recipe})
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, fmt.Sprintf("%d-%s.gqf", bits, mapping))
			if _, err := plan.Write(t.Context(), path); err != nil {
				t.Fatal(err)
			}
			f, err := gqf.Open(path, gqf.Options{})
			if err != nil {
				t.Fatal(err)
			}
			tensor := f.Tensor(0)
			for slice := range tensor.Experts {
				rows, err := tensor.Rows(0, slice)
				if err != nil {
					t.Fatal(err)
				}
				h := rows.Header()
				var want strings.Builder
				weights := make([]float32, h.Cols)
				for r := range int(h.Rows) {
					rows.Dequantize(weights, r)
					for _, w := range weights {
						fmt.Fprintf(&want, "%08x\n", math.Float32bits(w))
					}
				}
				got, err := exec.Command(bin, path, tensor.Name, fmt.Sprint(slice), fmt.Sprint(h.Rows), fmt.Sprint(h.Cols)).CombinedOutput()
				if err != nil || string(got) != want.String() {
					t.Errorf("%d bits, %s, %s, group %d, slice %d: other weights (%v)", bits, mapping, h.Tile, h.Group, slice, err)
				}
			}
			f.Close()
		}
	}
}
