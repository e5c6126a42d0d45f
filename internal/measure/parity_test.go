package measure

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// layoutFile quantizes a small model into several layouts.
func layoutFile(t *testing.T, r quantizer.Recipe) string {
	t.Helper()
	dir := writeCheckpoint(t, "",
		testTensor{name: "model.embed_tokens.weight", dtype: packing.BF16, shape: []int64{97, 64}},
		testTensor{name: "model.layers.0.self_attn.q_proj.weight", dtype: packing.F32, shape: []int64{37, 192}},
		testTensor{name: "model.layers.0.self_attn.q_proj.bias", dtype: packing.F32, shape: []int64{37}},
		testTensor{name: "model.layers.0.mlp.up_proj.weight", dtype: packing.BF16, shape: []int64{200, 192}},
		testTensor{name: "lm_head.weight", dtype: packing.BF16, shape: []int64{97, 64}},
	)
	skip, err := quantizer.ParseRule("lm_head.weight=skip")
	if err != nil {
		t.Fatal(err)
	}
	path, _ := quantize(t, dir, conversion.Options{Recipe: r, Rules: []quantizer.Rule{skip}})
	return path
}

func TestCheckParity(t *testing.T) {
	recipes := []struct {
		name string
		r    quantizer.Recipe
		none string // a part of the reason why a payload has no kernel
	}{
		{"lowbit", quantizer.Recipe{}, ""},
		{"1 bit", quantizer.Recipe{Bits: 1}, ""},
		{"asymmetric", quantizer.Recipe{Bits: 5, Mapping: gqf.MappingAsymmetric}, ""},
		{"two layouts", quantizer.Recipe{Layouts: formats(t, "lowbit,kleidiai"), ScaleDtype: packing.ScaleF16}, ""},
		{"torchao", quantizer.Recipe{Layouts: formats(t, "torchao"), ScaleDtype: packing.ScaleF32}, "torchao-embedding"},
		{"codes", quantizer.Recipe{Layouts: formats(t, "codes")}, "codes"},
	}
	for _, tt := range recipes {
		t.Run(tt.name, func(t *testing.T) {
			f := openFile(t, layoutFile(t, tt.r))
			list, err := CheckParity(context.Background(), f, ParityOptions{})
			if err != nil {
				t.Fatal(err)
			}
			m := map[string][]int{} // by tensor and variant
			reason := ""
			for _, p := range list {
				if !p.Equal {
					t.Errorf("%+v", p)
				}
				reason += p.NoKernel
				if p.NoKernel == "" && (len(p.Panels) == 0 || p.Panels[len(p.Panels)-1] != p.PanelsOf-1) {
					t.Errorf("%s: panels %v of %d", p.Tensor, p.Panels, p.PanelsOf)
				}
				name := fmt.Sprint(p.Tensor, " ", p.Variant)
				m[name] = append(m[name], p.M...)
			}
			for name, tried := range m {
				for _, n := range parityM {
					if !slices.Contains(tried, n) && len(tried) > 0 {
						t.Errorf("%s: no kernel was given %d rows", name, n)
					}
				}
			}
			if (tt.none == "") != (reason == "") || !strings.Contains(reason, tt.none) {
				t.Errorf("no kernel: %s", reason)
			}
			if len(m["lm_head.weight 0"]) == 0 {
				t.Error("the unquantized lm_head was not compared")
			}
		})
	}
}

// TestEveryKernel checks a file in the layout of every kernel, and that no kernel of this machine
// is missed.
func TestEveryKernel(t *testing.T) {
	f := openFile(t, layoutFile(t, quantizer.Recipe{}))
	list, err := CheckParity(context.Background(), f, ParityOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range kernels.Table() {
		if !info.Available || !slices.Contains(info.Layouts, packing.LayoutLowbit) || info.Bits != 4 || !slices.Contains(info.Tiles, packing.DefaultTile) ||
			!slices.Contains(info.Zeros, packing.ZeroNone) || !slices.Contains(info.Grids, packing.GridInteger) || !slices.Contains(info.Scales, packing.ScaleBF16) {
			continue
		}
		if !slices.ContainsFunc(list, func(p accuracy.Parity) bool { return p.Kernel == info.Name }) {
			t.Errorf("%s was not compared", info.Name)
		}
	}
}

// A wrongOperator gives other bits in one output, for the given number of rows.
type wrongOperator struct {
	kernels.Operator
	rows int
}

func (o wrongOperator) Forward(w *kernels.Workspace, dst, x []float32, m int) error {
	err := o.Operator.Forward(w, dst, x, m)
	if m == o.rows {
		dst[o.Rows()*(m-1)+2]++
	}
	return err
}

// TestDifference checks that differing bits are found and described.
func TestDifference(t *testing.T) {
	h := packing.PlainHeader(packing.F32, 16, 16)
	ref, ops, err := operators(h, make([]byte, 16*16*4), []string{"generic"})
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, parityRows*16)
	want, got := make([]float32, parityRows*16), make([]float32, parityRows*16)
	w := kernels.NewWorkspace(nil)
	if err := ref.Forward(w, want, x, parityRows); err != nil {
		t.Fatal(err)
	}
	for _, m := range append(parityM, 0) {
		c := comparison{payload: accuracy.Parity{Panels: []int{3, 9}}}
		if err := c.run(w, wrongOperator{ops[0], m}, "generic", x, want, got); err != nil {
			t.Fatal(err)
		}
		different := ""
		for _, k := range c.kernels {
			if !k.Equal {
				different = k.FirstDifference
			}
		}
		text := ""
		if m > 0 {
			text = fmt.Sprintf("m %d: output 2 of panel 3 for activations %d is 1 (0x3f800000), the reference has 0 (0x00000000)", m, m-1)
		}
		if different != text {
			t.Errorf("%d rows: %q, want %q", m, different, text)
		}
	}
}

// TestParityGolden compares the reference's outputs on this machine with a file from another
// machine.
func TestParityGolden(t *testing.T) {
	path, _ := quantize(t, filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16"), conversion.Options{})
	list, err := compareKernels(context.Background(), openFile(t, path), ParityOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range list {
		lines = append(lines, c.reference+" "+c.payload.Tensor)
		for _, k := range c.kernels {
			if !k.Equal {
				t.Errorf("%s: %s %s", k.Tensor, k.Kernel, k.FirstDifference)
			}
		}
	}
	compareGolden(t, filepath.Join("testdata", "parity.txt"), []byte(strings.Join(lines, "\n")+"\n"))
}

func TestSpread(t *testing.T) {
	for _, tt := range []struct {
		all  int
		want []int
	}{{0, nil}, {1, []int{0}}, {4, []int{0, 1, 2, 3}}, {5, []int{0, 1, 2, 4}}, {100, []int{0, 33, 66, 99}}} {
		if got := spread(tt.all, 4); !slices.Equal(got, tt.want) {
			t.Errorf("spread(%d) = %v, want %v", tt.all, got, tt.want)
		}
	}
}
