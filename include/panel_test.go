//go:build unix

package include_test

import (
	"bytes"
	"math/rand/v2"
	"os"
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

// panelFiles are files of every layout, most with rows past the last one, columns past the last one
// and short groups.
func panelFiles(t testing.TB) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for name, recipe := range map[string]struct {
		shape  []int64
		recipe quantizer.Recipe
		format string
	}{
		"lowbit 3 asymmetric":   {[]int64{2, 37, 80}, quantizer.Recipe{Bits: 3, Group: new(48), Mapping: gqf.MappingAsymmetric}, "lowbit:4x8x2"},
		"lowbit 5":              {[]int64{2, 41, 40}, quantizer.Recipe{Bits: 5, Group: new(16), ScaleDtype: packing.ScaleF32}, "lowbit:8x8x2"},
		"lowbit 2 half-step":    {[]int64{2, 41, 40}, quantizer.Recipe{Bits: 2, Group: new(16), Mapping: gqf.MappingHalfStep, ScaleDtype: packing.ScaleF16}, "lowbit"},
		"lowbit 1":              {[]int64{2, 41, 72}, quantizer.Recipe{Bits: 1, Group: new(quantizer.PerChannel), Mapping: gqf.MappingFullRange}, "lowbit:4x16x2"},
		"lowbit 6":              {[]int64{2, 43, 64}, quantizer.Recipe{Bits: 6, Group: new(32), Mapping: gqf.MappingAsymmetric}, "lowbit,codes"},
		"lowbit 7":              {[]int64{2, 43, 64}, quantizer.Recipe{Bits: 7, Group: new(32)}, "lowbit,codes"},
		"lowbit 8":              {[]int64{2, 43, 64}, quantizer.Recipe{Bits: 8, Group: new(32), PositiveScales: new(true), Mapping: gqf.MappingSymmetric}, "lowbit"},
		"qsi4c32p":              {[]int64{2, 41, 64}, quantizer.Recipe{Bits: 4, Group: new(32)}, "kleidiai:8x16x2,kleidiai:4x8x2,torchao"},
		"torchao even":          {[]int64{2, 42, 64}, quantizer.Recipe{Bits: 4, Group: new(32)}, "torchao,torchao:8x8x2"},
		"qsi4cxp":               {[]int64{2, 41, 40}, quantizer.Recipe{Bits: 4, Group: new(quantizer.PerChannel), ScaleDtype: packing.ScaleF32}, "kleidiai:8x16x2,kleidiai:4x8x2"},
		"qsi4c32p-f16":          {[]int64{2, 41, 64}, quantizer.Recipe{Bits: 4, Group: new(32), ScaleDtype: packing.ScaleF16}, "kleidiai:4x16x2,kleidiai:8x8x2"},
		"qsi8cxp":               {[]int64{2, 41, 40}, quantizer.Recipe{Bits: 8, Group: new(quantizer.PerChannel), ScaleDtype: packing.ScaleF32}, "kleidiai:4x8x1,kleidiai:4x4x1"},
		"qai4c32p":              {[]int64{2, 41, 64}, quantizer.Recipe{Bits: 4, Group: new(32), Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF32}, "kleidiai:4x16x2,kleidiai:4x8x2"},
		"qsu2cxp":               {[]int64{2, 41, 64}, quantizer.Recipe{Bits: 2, Group: new(quantizer.PerChannel), Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF32}, "kleidiai"},
		"torchao 3 asymmetric":  {[]int64{2, 41, 96}, quantizer.Recipe{Bits: 3, Group: new(48), Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF32}, "torchao"},
		"torchao 8 per channel": {[]int64{2, 41, 96}, quantizer.Recipe{Bits: 8, Group: new(quantizer.PerChannel), ScaleDtype: packing.ScaleF32}, "torchao"},
	} {
		ck, err := safetensors.Open(fused(t, "qwen3_5_moe", "model.layers.0.mlp.experts.gate_up_proj", recipe.shape...), safetensors.Options{})
		if err != nil {
			t.Fatal(err)
		}
		config, err := assets.ReadConfig(ck)
		if err != nil {
			t.Fatal(err)
		}
		if recipe.recipe.Layouts, err = quantizer.ParseLayouts(recipe.format); err != nil {
			t.Fatal(err)
		}
		plan, err := conversion.NewPlan(ck, config, conversion.Options{Recipe: recipe.recipe})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		path := filepath.Join(t.TempDir(), "a.gqf")
		if _, err := plan.Write(t.Context(), path); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ck.Close()
		if files[name], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// A panelChanges is a file with all kinds of changes.
type panelChanges struct {
	name  string
	good  []byte
	edits [][]byte // of each change, for driver.c
	want  []string // the panelVerdict after each change
}

// changePanels makes n changes of each of panelFiles. The first one changes nothing.
func changePanels(t testing.TB, n int) []panelChanges {
	t.Helper()
	var all []panelChanges
	for name, good := range panelFiles(t) {
		f, err := gqf.OpenBytes(good, gqf.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := panelChanges{name: name, good: good}
		r := rand.New(rand.NewPCG(1, 2))
		for i := range n {
			b := bytes.Clone(good)
			p := f.Payload(r.IntN(f.NumPayloads()))
			if size := p.Length - packing.HeaderSize; i > 0 {
				at := p.Offset + packing.HeaderSize + r.Int64N(size)
				b[at] = [...]byte{b[at] ^ 1<<r.IntN(8), 0, 0x80, 0xff, 0x7f, b[at] + 1}[r.IntN(6)]
			}
			if i%8 != 7 {
				sealAll(b)
			}
			c.edits = append(c.edits, edits(nil, good, b))
			c.want = append(c.want, panelVerdict(t, b))
		}
		all = append(all, c)
	}
	return all
}

// TestPanels compares the verdicts of gqf_verify_tensor and of gqf.File.Verify on thousands of
// payloads with a changed byte and correct checksums.
func TestPanels(t *testing.T) {
	files := changePanels(t, 200)
	for _, test := range []struct {
		toolchain
		n int // the first changes
	}{{sanitized, 80}, {optimized, 200}, {arm64, 20}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			run := test.compile(t, driver)
			for _, c := range files {
				path := filepath.Join(t.TempDir(), "good.gqf")
				if err := os.WriteFile(path, c.good, 0o666); err != nil {
					t.Fatal(err)
				}
				out, err := run(bytes.Join(c.edits[:test.n], nil), "panels", path)
				if err != nil {
					t.Fatal(err)
				}
				got, want := strings.Split(strings.TrimSuffix(out, "\n"), "\n"), c.want[:test.n]
				if len(got) != len(want) || want[0] != "." {
					t.Fatalf("%s: %d lines for %d changes, unchanged is %q", c.name, len(got), len(want), want[0])
				}
				wrong, refused := 0, 0
				for i := range got {
					if strings.Contains(want[i], "p") {
						refused++
					}
					if got[i] != want[i] {
						if wrong++; wrong < 5 {
							t.Errorf("%s: change %d: C says %q, Go %q", c.name, i, got[i], want[i])
						}
					}
				}
				if refused < max(1, test.n/40) { // few in layouts without sums
					t.Errorf("%s: only %d of %d changes are wrong panels", c.name, refused, test.n)
				}
			}
		})
	}
}

// panelVerdict is the output that driver.c must print for a file with one tensor.
func panelVerdict(t testing.TB, b []byte) string {
	t.Helper()
	f, err := gqf.OpenBytes(b, gqf.Options{})
	if err != nil {
		return "not open"
	}
	for _, deep := range []bool{false, true} {
		r, err := f.Verify(t.Context(), gqf.VerifyOptions{Deep: deep, Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		if !r.OK() {
			return map[bool]string{false: "s", true: "p"}[deep]
		}
	}
	return "."
}
