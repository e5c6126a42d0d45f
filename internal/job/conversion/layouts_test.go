package conversion

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// layoutCases are schemes with the layouts that hold them.
var layoutCases = []struct {
	scheme rounding.Scheme
	format string
	want   string // of the plan
}{
	{rounding.Scheme{Bits: 4, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16, Algorithm: gqf.AlgorithmRTN}, "kleidiai", "lowbit=qsi4c32p 8x16x2"},
	{rounding.Scheme{Bits: 4, Group: 64, Mapping: gqf.MappingSymmetric, ScaleDtype: packing.ScaleBF16, Algorithm: gqf.AlgorithmRTN}, "kleidiai:4x8x2", "lowbit=qsi4c32p 4x8x2"},
	{rounding.Scheme{Bits: 4, Group: 0, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF32, Algorithm: gqf.AlgorithmRTN}, "kleidiai", "qsi4cxp 8x16x2"},
	{rounding.Scheme{Bits: 4, Group: 0, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF32, PositiveScales: true, Algorithm: gqf.AlgorithmRTN}, "kleidiai:4x16x2", "qsi4cxp 4x16x2"},
	{rounding.Scheme{Bits: 4, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF16, Algorithm: gqf.AlgorithmRTN}, "kleidiai", "qsi4c32p-f16 4x16x2"},
	{rounding.Scheme{Bits: 8, Group: 0, Mapping: gqf.MappingSymmetricNoClip, ScaleDtype: packing.ScaleF32, Algorithm: gqf.AlgorithmRTN}, "kleidiai", "qsi8cxp 4x8x1"},
	{rounding.Scheme{Bits: 8, Group: 0, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF32, Algorithm: gqf.AlgorithmRTN}, "kleidiai:4x4x1", "qsi8cxp 4x4x1"},
	{rounding.Scheme{Bits: 4, Group: 32, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF32, Algorithm: gqf.AlgorithmRTN}, "kleidiai", "qai4c32p 4x16x2"},
	{rounding.Scheme{Bits: 2, Group: 0, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF32, Algorithm: gqf.AlgorithmRTN}, "kleidiai", "qsu2cxp 4x4x1"},
	{rounding.Scheme{Bits: 3, Group: 48, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF32, Algorithm: gqf.AlgorithmRTN}, "torchao", "torchao-linear 8x16x2"},
	{rounding.Scheme{Bits: 6, Group: 16, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF32, Algorithm: gqf.AlgorithmRTN}, "torchao", "torchao-linear 8x16x2"},
	{rounding.Scheme{Bits: 4, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16, Algorithm: gqf.AlgorithmRTN}, "torchao", "torchao-kleidiai 8x16x2"},
	{rounding.Scheme{Bits: 4, Group: 96, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16, Algorithm: gqf.AlgorithmRTN}, "torchao:8x8x2", "torchao-kleidiai 8x8x2"},
	{rounding.Scheme{Bits: 5, Group: 48, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF16, Algorithm: gqf.AlgorithmRTN}, "codes", "codes"},
	{rounding.Scheme{Bits: 1, Group: 0, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16, Algorithm: gqf.AlgorithmRTN}, "codes", "codes"},
	{rounding.Scheme{Bits: 7, Group: 16, Mapping: gqf.MappingSymmetric, ScaleDtype: packing.ScaleF32, Algorithm: gqf.AlgorithmRTN}, "lowbit:4x8x2", "lowbit 4x8x2"},
	{rounding.Scheme{Bits: 4, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16, Algorithm: gqf.AlgorithmSearch}, "kleidiai", "lowbit=qsi4c32p 8x16x2"},
	{rounding.Scheme{Bits: 4, Group: 0, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF32, PositiveScales: true, Algorithm: gqf.AlgorithmSearch}, "kleidiai", "qsi4cxp 8x16x2"},
	{rounding.Scheme{Bits: 4, Group: 64, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF32, Algorithm: gqf.AlgorithmRTN}, "kleidiai:4x8x2", "qai4c32p 4x8x2"},
	{rounding.Scheme{Bits: 2, Group: 0, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF32, Algorithm: gqf.AlgorithmRTN}, "kleidiai", "qsu2cxp 4x4x1"},
	{rounding.Scheme{Bits: 2, Group: 32, Mapping: gqf.MappingHalfStep, ScaleDtype: packing.ScaleBF16, Algorithm: gqf.AlgorithmSearch}, "lowbit:4x8x2", "lowbit 4x8x2"},
	{rounding.Scheme{Bits: 1, Group: 0, Mapping: gqf.MappingHalfStep, ScaleDtype: packing.ScaleF32, Algorithm: gqf.AlgorithmRTN}, "codes", "codes"},
}

func layoutsOf(t *testing.T, s string) []quantizer.LayoutRequest {
	t.Helper()
	f, err := quantizer.ParseLayouts(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// repack runs a repack in memory and opens the result.
func repack(t *testing.T, f *gqf.File, opts RepackOptions) (*write.Job, []byte, *gqf.File) {
	t.Helper()
	p, err := NewRepack(f, "in.gqf", opts)
	if err != nil {
		t.Fatal(err)
	}
	return fillPlan(t, p)
}

// codes reads all codes, scales and zero points of a tensor's variant.
func codes(t *testing.T, f *gqf.File, name string, variant int) string {
	t.Helper()
	gt, ok := f.Lookup(name)
	if !ok {
		t.Fatalf("no %q", name)
	}
	var b strings.Builder
	for s := range gt.Experts {
		rows, err := gt.Rows(variant, s)
		if err != nil {
			t.Fatal(err)
		}
		h := rows.Header()
		q, sc, z := make([]int8, h.Cols), make([]float32, rows.Groups()), make([]int8, rows.Groups())
		for r := range int(h.Rows) {
			if h.ZeroKind == packing.ZeroNone {
				rows.Codes(q, sc, nil, r)
			} else {
				rows.Codes(q, sc, z, r)
			}
			fmt.Fprintln(&b, q, sc, z)
		}
	}
	return b.String()
}

// TestLayouts packs the same codes in every layout, by quantizing and by repacking.
func TestLayouts(t *testing.T) {
	w := testTensor{name: "layers.0.q_proj.weight", dtype: packing.F32, shape: []int64{37, 192}}
	experts := testTensor{name: "model.layers.0.mlp.experts.down_proj", dtype: packing.BF16, shape: []int64{2, 41, 192}}
	bias := testTensor{name: "layers.0.q_proj.bias", dtype: packing.F32, shape: []int64{37}}
	kept := testTensor{name: "norm.weight", dtype: packing.BF16, shape: []int64{96}}
	dir := writeCheckpoint(t, `{"model_type": "qwen3_5_moe", "num_experts": 2}`, w, experts, bias, kept)
	for _, tc := range layoutCases {
		t.Run(fmt.Sprint(tc.scheme, " ", tc.format), func(t *testing.T) {
			recipe := recipeOf(tc.scheme, packing.Tile{})
			_, lowBytes, low := runJob(t, dir, Options{Recipe: recipe, Threads: 2})
			recipe.Layouts = layoutsOf(t, tc.format)
			p, direct, f := runJob(t, dir, Options{Recipe: recipe})
			if l := line(t, p, w.name); len(l.Layouts) != 1 || l.Layouts[0] != tc.want || l.Reason != "" {
				t.Fatalf("layouts %v (%s), want %s", l.Layouts, l.Reason, tc.want)
			}
			for _, name := range []string{w.name, experts.name} {
				if codes(t, f, name, 0) != codes(t, low, name, 0) {
					t.Errorf("%s has other codes than in lowbit", name)
				}
			}
			checkKept(t, f, kept)
			gt, _ := f.Lookup(w.name)
			rows, err := gt.Rows(0, 0)
			if err != nil {
				t.Fatal(err)
			}
			if h := rows.Header(); h.Flags&packing.FlagBias != 0 && rows.RowBias(36) != bias.values()[36] {
				t.Errorf("bias %v, want %v", rows.RowBias(36), bias.values()[36])
			}
			if _, got, _ := repack(t, low, RepackOptions{Layouts: recipe.Layouts}); !bytes.Equal(got, direct) {
				t.Error("repacking the lowbit file gives another file than quantizing into the layout")
			}
			if _, back, _ := repack(t, f, RepackOptions{}); tc.format[:3] != "low" && !bytes.Equal(back, lowBytes) {
				t.Error("repacking to lowbit does not give the lowbit file, bias and all")
			}
		})
	}
}

// TestVariants: one tensor in several layouts has the same codes in each.
func TestVariants(t *testing.T) {
	w := testTensor{name: "layers.0.q_proj.weight", dtype: packing.F32, shape: []int64{37, 192}}
	dir := writeCheckpoint(t, "", w)
	p, _, f := runJob(t, dir, Options{Recipe: quantizer.Recipe{Layouts: layoutsOf(t, "kleidiai:8x16x2,kleidiai:4x8x2,torchao,codes")}})
	want := []string{"lowbit=qsi4c32p 8x16x2", "lowbit=qsi4c32p 4x8x2", "torchao-kleidiai 8x16x2", "codes"}
	if l := line(t, p, w.name); !slices.Equal(l.Layouts, want) {
		t.Fatalf("layouts %v, want %v", l.Layouts, want)
	}
	for v := range want {
		if codes(t, f, w.name, v) != codes(t, f, w.name, 0) {
			t.Errorf("variant %d has other codes than the first", v)
		}
	}
	_, back, _ := repack(t, f, RepackOptions{})
	if _, low, _ := runJob(t, dir, Options{}); !bytes.Equal(back, low) {
		t.Error("repacking to lowbit does not give the lowbit file")
	}
}

// TestTargets: what each preset makes of 4-bit groups, a table and what it cannot hold.
func TestTargets(t *testing.T) {
	ts := []testTensor{
		{name: tableName, dtype: packing.BF16, shape: []int64{64, 96}},
		{name: "model.layers.0.mlp.up_proj.weight", dtype: packing.BF16, shape: []int64{48, 96}},
		// K 44: no group of 32 divides it
		{name: "model.layers.0.mlp.down_proj.weight", dtype: packing.BF16, shape: []int64{96, 44}},
	}
	tied, untied := writeCheckpoint(t, llamaConfig, ts...), writeCheckpoint(t, `{"model_type": "llama", "architectures": ["LlamaModel"]}`, ts...)
	for _, tc := range []struct {
		target            string
		table, free, proj string
		positive          bool
	}{
		{"pytorch-aarch64", "lowbit 8x16x2", "lowbit 8x16x2", "lowbit=qsi4c32p 8x16x2", false},
		{"xnnpack-i8mm", "qsi8cxp 4x8x1", "qsi8cxp 4x8x1", "lowbit=qsi4c32p 4x16x2", true},
		{"xnnpack-dotprod", "qsi8cxp 4x4x1", "qsi8cxp 4x4x1", "lowbit=qsi4c32p 4x8x2", true},
		{"llama.cpp-i8mm", "qsi8cxp 4x8x1", "qsi8cxp 4x8x1", "qsi4c32p-f16 4x16x2", false},
		{"llama.cpp-dotprod", "qsi8cxp 4x4x1", "qsi8cxp 4x4x1", "qsi4c32p-f16 4x8x2", false},
		{"torchao", "torchao-linear 8x16x2", "torchao-embedding", "torchao-linear 8x16x2", false},
	} {
		t.Run(tc.target, func(t *testing.T) {
			targets, err := quantizer.ParseTargets(tc.target)
			if err != nil {
				t.Fatal(err)
			}
			p, _, f := runJob(t, tied, Options{Recipe: quantizer.Recipe{Targets: targets}})
			if l := line(t, p, tableName); !slices.Equal(l.Layouts, []string{tc.table}) {
				t.Errorf("tied table: %v (%s), want %s", l.Layouts, l.Reason, tc.table)
			}
			if l := line(t, p, ts[1].name); !slices.Equal(l.Layouts, []string{tc.proj}) {
				t.Errorf("projection: %v (%s), want %s", l.Layouts, l.Reason, tc.proj)
			}
			if l := line(t, p, ts[2].name); !strings.HasPrefix(l.Layouts[0], "lowbit 8x16x2") || l.Reason == "" {
				t.Errorf("K 44: %v, reason %q", l.Layouts, l.Reason)
			}
			gt, _ := f.Lookup(ts[1].name)
			want := map[bool]gqf.CPUFeatures{strings.HasSuffix(tc.target, "-i8mm"): gqf.CPUDotProd | gqf.CPUI8MM, strings.HasSuffix(tc.target, "-dotprod"): gqf.CPUDotProd}[true]
			if got := gt.Payloads()[0].CPU; got != want {
				t.Errorf("for CPUs with %q, want %q", got, want)
			}
			if down, _ := f.Lookup(ts[2].name); down.Payloads()[0].CPU != 0 {
				t.Errorf("lowbit for CPUs with %q", down.Payloads()[0].CPU)
			}
			if flag := gt.Payloads()[0].Header.Flags & packing.FlagPositiveScales; (flag != 0) != tc.positive {
				t.Errorf("positive scales: %v, want %v", flag != 0, tc.positive)
			}
			p, _, _ = runJob(t, untied, Options{Recipe: quantizer.Recipe{Targets: targets}})
			if l := line(t, p, tableName); !slices.Equal(l.Layouts, []string{tc.free}) {
				t.Errorf("table that is no head: %v (%s), want %s", l.Layouts, l.Reason, tc.free)
			}
		})
	}
	// Per channel, PyTorch and XNNPACK read the same bytes: one variant, for the CPUs of either.
	shared, _ := quantizer.ParseTargets("xnnpack-i8mm,pytorch-aarch64,xnnpack-dotprod")
	_, _, f := runJob(t, tied, Options{Recipe: quantizer.Recipe{Targets: shared, Group: new(quantizer.PerChannel)}})
	gt, _ := f.Lookup(ts[1].name)
	if list := gt.Payloads(); len(list) != 2 || list[0].CPU != 0 || list[1].CPU != gqf.CPUDotProd {
		t.Errorf("shared by targets: %+v", list)
	}
	both, _ := quantizer.ParseTargets("pytorch-aarch64,llama.cpp-i8mm")
	if _, err := newPlan(t, tied, Options{Recipe: quantizer.Recipe{Targets: both}}); err == nil || !strings.Contains(err.Error(), "need different scales") {
		t.Errorf("targets with different scales: %v", err)
	}
}

// TestLayoutsRefused: a layout that cannot hold the scheme is an error that says what it holds.
func TestLayoutsRefused(t *testing.T) {
	dir := writeCheckpoint(t, "", testTensor{name: "layers.0.q_proj.weight", dtype: packing.F32, shape: []int64{37, 192}})
	for _, tc := range []struct{ format, want string }{
		{"kleidiai 4 32 asymmetric bf16", "qai4c32p holds f32 scales"},
		{"kleidiai 4 48 full-range bf16", "groups of a multiple of 32"},
		{"kleidiai 3 32 full-range bf16", "KleidiAI has no layout"},
		{"kleidiai 8 32 full-range f32", "KleidiAI has no layout"},
		{"kleidiai:4x4x1 4 32 full-range bf16", "tile"},
		{"torchao 3 32 full-range bf16", "f32"},
	} {
		f := strings.Fields(tc.format)
		var s rounding.Scheme
		fmt.Sscan(f[1], &s.Bits)
		fmt.Sscan(f[2], &s.Group)
		s.Mapping, _ = gqf.ParseMapping(f[3])
		s.ScaleDtype, _ = packing.ParseScaleDtype(f[4])
		recipe := recipeOf(s, packing.Tile{})
		recipe.Layouts = layoutsOf(t, f[0])
		if _, err := newPlan(t, dir, Options{Recipe: recipe}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", tc.format, err, tc.want)
		}
	}
}

// TestTargetsTakeWhatTheyCanRead: what a consumer could not read stays lowbit, whoever asked for
// it.
func TestTargetsTakeWhatTheyCanRead(t *testing.T) {
	w := testTensor{name: "layers.0.q_proj.weight", dtype: packing.F32, shape: []int64{40, 128}}
	dir := writeCheckpoint(t, "", w)
	target := func(name string) []quantizer.Target {
		list, err := quantizer.ParseTargets(name)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	check := func(t *testing.T, p *write.Job, layout, reason string) {
		t.Helper()
		l := line(t, p, w.name)
		if !slices.Equal(l.Layouts, []string{layout}) || !strings.Contains(l.Reason, reason) || (reason == "") != (l.Reason == "") {
			t.Errorf("layouts %v, reason %q; want %s, %q", l.Layouts, l.Reason, layout, reason)
		}
	}
	for _, tc := range []struct {
		recipe         quantizer.Recipe
		target         string
		layout, reason string
	}{
		// one group is a channel
		{quantizer.Recipe{Group: new(128)}, "pytorch-aarch64", "qsi4cxp 8x16x2", ""},
		{quantizer.Recipe{Group: new(64)}, "pytorch-aarch64", "lowbit=qsi4c32p 8x16x2", ""},
		{quantizer.Recipe{Group: new(64)}, "llama.cpp-i8mm", "lowbit 8x16x2", "groups of 64, only of 32"},
		{quantizer.Recipe{ScaleDtype: packing.ScaleF16}, "xnnpack-i8mm", "lowbit 8x16x2", "f16 scales here, only bf16"},
		{quantizer.Recipe{Bits: 3}, "xnnpack-dotprod", "lowbit 8x16x2", "3-bit codes"},
		{quantizer.Recipe{Bits: 3}, "torchao", "torchao-linear 8x16x2", ""},
	} {
		t.Run(tc.target+" "+tc.layout, func(t *testing.T) {
			tc.recipe.Targets = target(tc.target)
			p, _, _ := runJob(t, dir, Options{Recipe: tc.recipe})
			check(t, p, tc.layout, tc.reason)
		})
	}
	_, _, bf16 := runJob(t, dir, Options{})
	_, _, positive := runJob(t, dir, Options{Recipe: quantizer.Recipe{PositiveScales: new(true)}})
	for _, tc := range []struct {
		file           *gqf.File
		target         string
		layout, reason string
	}{
		{bf16, "xnnpack-i8mm", "lowbit=qsi4c32p 8x16x2", "negative scales"},
		{positive, "xnnpack-i8mm", "lowbit=qsi4c32p 4x16x2", ""},
		{bf16, "llama.cpp-i8mm", "lowbit=qsi4c32p 8x16x2", "bf16 scales here, only f16"},
		{bf16, "torchao", "torchao-linear 8x16x2", ""},
		{bf16, "pytorch-aarch64", "lowbit=qsi4c32p 8x16x2", ""},
	} {
		t.Run("repack "+tc.target+" "+tc.layout, func(t *testing.T) {
			p, _, f := repack(t, tc.file, RepackOptions{Targets: target(tc.target)})
			check(t, p, tc.layout, tc.reason)
			if codes(t, f, w.name, 0) != codes(t, tc.file, w.name, 0) {
				t.Error("repacking changed codes or scales")
			}
		})
	}
}

// TestOddColumns: XNNPACK rounds an odd K of 4-bit channels up and reads an activation past each
// row, so these weights are not for it. PyTorch multiplies with them.
func TestOddColumns(t *testing.T) {
	for _, tc := range []struct {
		bits           int
		target         string
		layout, reason string
	}{
		{4, "xnnpack-i8mm", "lowbit 8x16x2", "an odd number of columns (33)"},
		{4, "xnnpack-dotprod", "lowbit 8x16x2", "an odd number of columns (33)"},
		{8, "xnnpack-i8mm", "qsi8cxp 4x8x1", ""},
		{4, "pytorch-aarch64", "qsi4cxp 8x16x2", ""},
	} {
		dir := writeCheckpoint(t, "", testTensor{name: "layers.0.q_proj.weight", dtype: packing.F32, shape: []int64{40, 33}})
		targets, err := quantizer.ParseTargets(tc.target)
		if err != nil {
			t.Fatal(err)
		}
		p, _, _ := runJob(t, dir, Options{Recipe: quantizer.Recipe{Bits: tc.bits, Group: new(quantizer.PerChannel), Targets: targets}})
		l := line(t, p, "layers.0.q_proj.weight")
		if !slices.Equal(l.Layouts, []string{tc.layout}) || !strings.Contains(l.Reason, tc.reason) || (tc.reason == "") != (l.Reason == "") {
			t.Errorf("%s, %d bits: layouts %v, reason %q; want %s, %q", tc.target, tc.bits, l.Layouts, l.Reason, tc.layout, tc.reason)
		}
	}
}
