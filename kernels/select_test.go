package kernels

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/kernels/tile"
	"github.com/lowbit-go/gq/internal/test/asmtest"
	"github.com/lowbit-go/gq/packing"
)

// TestMix holds that tiles cover every number of rows, and that no other choice of steps costs
// less.
func TestMix(t *testing.T) {
	x := tiling{unpack: 7, costs: []float64{10, 6, 4}}
	for _, mr := range []int{8, 4, 1} {
		x.steps = append(x.steps, tile.Step{MR: mr})
	}
	x.solve()
	var tiles []rowTile
	for m := 1; m < 40; m++ {
		tiles = x.tiles(tiles[:0], m)
		row, at, cost := 0, 0, x.unpack
		for _, tl := range tiles {
			mr := x.steps[tl.step].MR
			if tl.row != row || tl.at != at || tl.valid < 1 || tl.valid > mr {
				t.Fatalf("m %d: tile %+v at row %d", m, tl, row)
			}
			row, at, cost = row+tl.valid, at+mr, cost+x.costs[tl.step]
		}
		if row != m || cost != x.cost(m) {
			t.Errorf("m %d: %d rows at cost %v, want %v", m, row, cost, x.cost(m))
		}
		best := x.unpack + 1e9
		for a := range m/8 + 2 {
			for b := range m/4 + 2 {
				rest := max(m-8*a-4*b, 0)
				best = min(best, x.unpack+float64(10*a+6*b+4*rest))
			}
		}
		if cost != best {
			t.Errorf("m %d costs %v, the best tiling %v", m, cost, best)
		}
	}
}

// TestChoose wants gemv kernels for the few rows for which they are faster, and all kernels of the
// named CPU.
func TestChoose(t *testing.T) {
	table := Table()
	h := packing.Header{Layout: packing.LayoutLowbit, Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile, Rows: 64, Cols: 256}
	for _, feature := range Features() {
		for i, m := range []int{-7, 0, 1, 2, 4, 16, 128, 1, 1} {
			h.Group = []uint64{32, 48, 80}[max(0, i-6)]
			name, err := KernelFor(h.Canonical(), m, Options{CPU: feature})
			if err != nil {
				t.Fatal(err)
			}
			m = max(m, 1)
			kind := "gemm_lowbit4_"
			if m == 1 && feature != "generic" {
				kind = "gemv_lowbit4_"
			}
			if !strings.HasPrefix(name, kind) && (m == 1 || m == 128) {
				t.Errorf("%s, m %d: %s, want %s...", feature, m, name, kind)
			}
			if !strings.HasSuffix(name, "_"+feature) && !(feature == "i8mm" && strings.HasPrefix(name, "gemv")) {
				t.Errorf("%s, m %d: %s", feature, m, name)
			}
			i := slices.IndexFunc(table, func(k Info) bool { return k.Name == name })
			if i < 0 || !table[i].Available {
				t.Errorf("%s is not in the table, or not available", name)
			}
		}
	}
}

// TestTable wants every kernel once, and one for every layout and width.
func TestTable(t *testing.T) {
	names, table := map[string]bool{}, Table()
	for _, k := range table {
		quantized := k.Cost > 0 && slices.Contains(k.Layouts, packing.LayoutBlocks) || k.Cost > 0 && len(k.Tiles) > 0 && len(k.Zeros) > 0 && len(k.Grids) > 0 && len(k.Scales) > 0
		if names[k.Name] || len(k.Rows) == 0 || quantized == (k.Kind == "float") {
			t.Errorf("%+v", k)
		}
		names[k.Name] = true
		if k.Available != slices.Contains(Features(), k.Feature) {
			t.Errorf("%s is available: %v", k.Name, k.Available)
		}
	}
	for _, want := range []string{"gemm_lowbit1_generic", "gemm_lowbit8_generic", "gemm_torchao-linear3_generic", "gemm_qsi4c32p-f16_generic", "bf16_1x8_generic", "gemm_q4_k_generic", "gemm_mxfp4_generic"} {
		if !names[want] {
			t.Errorf("no %s in the table", want)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	allHeaders(rng, func(_ int, h packing.Header) {
		for _, m := range []int{1, 5} {
			name, err := KernelFor(h, m, Options{})
			if err != nil {
				t.Fatal(err)
			}
			reads := func(k Info) bool {
				return k.Name == name && slices.Contains(k.Layouts, h.Layout) && k.Bits == int(h.Bits) && slices.Contains(k.Tiles, h.Tile) &&
					slices.Contains(k.Zeros, h.ZeroKind) && slices.Contains(k.Grids, h.Grid) && slices.Contains(k.Scales, h.ScaleDtype)
			}
			if !slices.ContainsFunc(table, reads) {
				t.Errorf("%s runs for %+v, which the table does not say", name, h)
			}
		}
	})
}

func TestOptions(t *testing.T) {
	h := packing.Header{Layout: packing.LayoutQSI4CXP, Bits: 4, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Rows: 8, Cols: 64}
	for _, name := range cpu.Names {
		asmtest.Restrict(t, "")
		_, direct := KernelFor(h, 1, Options{CPU: name})
		asmtest.Restrict(t, name)
		got, err := KernelFor(h, 1, Options{})
		if has := slices.Contains(Features(), name); has != (err == nil) || has != (direct == nil) {
			t.Errorf("%s: errors %v and %v on a CPU with %v", name, direct, err, Features())
		}
		if err != nil && !strings.HasPrefix(err.Error(), "kernels: GQ_CPU: this CPU or build lacks "+name) {
			t.Errorf("error %v", err)
		}
		if name == "generic" && got != "gemm_qsi4cxp_generic" {
			t.Errorf("generic runs %s", got)
		}
		// The option goes before the environment.
		if got, err := KernelFor(h, 1, Options{CPU: "generic"}); err != nil || got != "gemm_qsi4cxp_generic" {
			t.Errorf("%s, %v", got, err)
		}
	}
	asmtest.Restrict(t, "avx3")
	if _, err := KernelFor(h, 1, Options{}); err == nil || !strings.Contains(err.Error(), `GQ_CPU: unknown instruction set "avx3"`) {
		t.Errorf("error %v", err)
	}
	if (Options{}).log() != nil {
		t.Error("a log without GQ_LOG")
	}
	t.Setenv("GQ_LOG", "other,kernels")
	if (Options{}).log() == nil {
		t.Error("no log with GQ_LOG=other,kernels")
	}
}

func TestChoiceString(t *testing.T) {
	h := packing.Header{Layout: packing.LayoutLowbit, Bits: 4, Tile: packing.DefaultTile, Rows: 8, Cols: 64, Group: 32}
	for want, c := range map[string]Choice{
		"k: lowbit 8x16x2, 4 bits, group 32, 8 x 64, m 1":      {"k", h, 1},
		"k: qsi4cxp 8x16x2, 4 bits, group channel, 8 x 9, m 2": {"k", packing.Header{Layout: packing.LayoutQSI4CXP, Bits: 4, Tile: packing.DefaultTile, Rows: 8, Cols: 9}, 2},
		"k: plain BF16, 3 x 4, m 5":                            {"k", packing.PlainHeader(packing.BF16, 3, 4), 5},
	} {
		if got := c.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
