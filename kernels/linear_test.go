package kernels

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/kernels/reference"
	"github.com/lowbit-go/gq/internal/kernels/tile"
	"github.com/lowbit-go/gq/packing"
)

// variants are the ways in which an operator can compute a product: by the gemv kernel, by the tile
// kernels mixed as they are, and by each of their steps alone.
func variants(t testing.TB, p *payload, feature string) map[string]*Linear {
	t.Helper()
	make1 := func() *Linear {
		l, err := NewLinear(p.h, p.data, Options{CPU: feature})
		if err != nil {
			t.Fatalf("%v: %v", p, err)
		}
		return l
	}
	all := map[string]*Linear{"chosen": make1()}
	if l := make1(); l.gemv != nil {
		l.gemv.cost = 0
		all[l.gemv.name] = l
	}
	gemm := make1()
	gemm.gemv = nil
	all[gemm.gemm.name] = gemm
	for i, step := range gemm.set.Steps {
		l := make1()
		l.gemv = nil
		l.set.Steps = []tile.Step{step}
		if last := gemm.set.Steps[len(gemm.set.Steps)-1]; i%2 == 1 && last.MR < step.MR {
			l.set.Steps = append(l.set.Steps, last)
		}
		l.tiling = newTiling(l.panelLayout, l.set)
		l.use()
		all[fmt.Sprintf("%s by %d", l.gemm.name, step.MR)] = l
	}
	return all
}

// check compares outputs with the reference's, bit for bit.
func check(t testing.TB, what string, got, want []float32, rows int) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: output %d of row %d is %v (%#08x), want %v (%#08x)", what, i%rows, i/rows,
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

// forward runs l with guard values on both sides of its output.
func forward(t testing.TB, what string, w *Workspace, l *Linear, x []float32, m int) []float32 {
	t.Helper()
	const margin, guard = 64, 12345
	all := make([]float32, m*l.Rows()+2*margin)
	for i := range all {
		all[i] = guard
	}
	dst := all[margin:][:m*l.Rows()]
	if err := l.Forward(w, dst, x, m); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for i, v := range all {
		if v != guard && (i < margin || i >= len(all)-margin) {
			t.Fatalf("%s: element %d of %d outputs was written", what, i-margin, len(dst))
		}
	}
	return dst
}

// TestLinear holds every kernel of this machine to the reference, bit for bit, for every layout,
// width, tile, grid, kind of zero points and scales, group, ragged shape and sort of activations.
func TestLinear(t *testing.T) {
	pool := NewPool(3)
	defer pool.Close()
	workspaces := []*Workspace{NewWorkspace(nil), NewWorkspace(pool)}
	every := 1
	if testing.Short() {
		every = 13
	}
	for _, feature := range Features() {
		t.Run(feature, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			ran := map[string]int{}
			allHeaders(rng, func(n int, h packing.Header) {
				if n%every != 0 {
					return
				}
				p := newPayload(t, rng, h, contents(rng.IntN(4)))
				m := 1 + rng.IntN(21)
				if rng.IntN(3) == 0 {
					m = 1
				}
				x := someRows(rng, m, int(h.Cols))
				want := expected(t, p, x, m)
				for name, l := range variants(t, p, feature) {
					what := fmt.Sprintf("%v, m %d, %s (%s)", p, m, name, l.Kernel(m))
					got := forward(t, what, workspaces[n%2], l, x, m)
					check(t, what, got, want, l.Rows())
					ran[l.Kernel(m)]++
				}
			})
			if every > 1 {
				return
			}
			for _, info := range Table() {
				if info.Kind != "float" && !slices.Contains(info.Layouts, packing.LayoutBlocks) && info.Feature == feature && ran[info.Name] == 0 {
					t.Errorf("%s did not run", info.Name)
				}
			}
		})
	}
}

// TestExpectedCPU fails where a builder that must test kernels would pass without them, see package
// cpu.
func TestExpectedCPU(t *testing.T) {
	want := os.Getenv("GQ_EXPECT_CPU")
	if want == "" {
		t.Skip("GQ_EXPECT_CPU names no instruction set")
	}
	p := newPayload(t, rand.New(rand.NewPCG(1, 1)), packing.Header{
		Layout: packing.LayoutLowbit, Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile, Rows: 8, Cols: 64, Group: 32,
	}.Canonical(), ordinary)
	l, err := NewLinear(p.h, p.data, Options{CPU: want})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(l.gemm.name, "_"+want) {
		t.Errorf("GQ_EXPECT_CPU is %s, many rows run %s", want, l.gemm.name)
	}
	if want != "generic" && l.gemv == nil {
		t.Errorf("GQ_EXPECT_CPU is %s and there is no gemv kernel", want)
	}
}

// TestManyRows takes several passes, and batches of several panels.
func TestManyRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	pool := NewPool(2)
	defer pool.Close()
	h := packing.Header{Layout: packing.LayoutLowbit, Bits: 3, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile, Rows: 300, Cols: 100, Group: 48}
	p := newPayload(t, rng, h, ordinary)
	const m = 67
	x := someRows(rng, m, int(h.Cols))
	want := expected(t, p, x, m)
	for _, feature := range Features() {
		l, err := NewLinear(p.h, p.data, Options{CPU: feature})
		if err != nil {
			t.Fatal(err)
		}
		l.maxRows = 3 * l.set.Steps[0].MR
		check(t, feature, forward(t, feature, NewWorkspace(pool), l, x, m), want, 300)
	}
}

// TestLongestGroup multiplies groups of 65,536 columns with codes and activations at their limits.
func TestLongestGroup(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, h := range []packing.Header{
		{Layout: packing.LayoutLowbit, Bits: 8, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8, Tile: packing.DefaultTile},
		{Layout: packing.LayoutLowbit, Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile},
		{Layout: packing.LayoutLowbit, Bits: 1, ScaleDtype: packing.ScaleBF16, ZeroKind: packing.ZeroFraction, Tile: packing.DefaultTile},
		{Layout: packing.LayoutLowbit, Bits: 4, ScaleDtype: packing.ScaleBF16, ZeroKind: packing.ZeroFraction, Tile: packing.DefaultTile},
		{Layout: packing.LayoutQSI4CXP, Bits: 4, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile},
		{Layout: packing.LayoutQSI8CXP, Bits: 8, ScaleDtype: packing.ScaleF32, Tile: packing.Tile{NR: 4, KR: 8, SR: 1}},
	} {
		h.Rows, h.Cols = 8, maxGroup
		p := newPayload(t, rng, h.Canonical(), extreme)
		x := make([]float32, maxGroup)
		for i := range x {
			x[i] = -1
		}
		want := expected(t, p, x, 1)
		for _, feature := range Features() {
			for name, l := range variants(t, p, feature) {
				check(t, fmt.Sprintf("%v, %s", p, name), forward(t, name, NewWorkspace(nil), l, x, 1), want, 8)
			}
		}
	}
}

func TestClamp(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	inf := float32(math.Inf(1))
	h := packing.Header{Layout: packing.LayoutQSI4CXP, Bits: 4, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Rows: 19, Cols: 50}
	p := newPayload(t, rng, h, ordinary)
	for _, m := range []int{1, 9} {
		x := someRows(rng, m, 50)
		x[1] = float32(math.NaN())
		plain := expected(t, p, x, m)
		for _, r := range [][2]float32{{-0.1, 0.2}, {0, inf}, {-inf, 0}, {float32(math.Copysign(0, -1)), inf}, {-inf, inf}, {1, -1}} {
			want := slices.Clone(plain)
			reference.Clamp(want, r[0], r[1])
			for _, feature := range Features() {
				for name, l := range variants(t, p, feature) {
					got := make([]float32, len(want))
					if err := l.ForwardClamped(NewWorkspace(nil), got, x, m, r[0], r[1]); err != nil {
						t.Fatal(err)
					}
					check(t, fmt.Sprintf("%s, %v", name, r), got, want, l.Rows())
				}
			}
		}
	}
	zeros := []float32{0, float32(math.Copysign(0, -1)), floats.NaN, 1, -1}
	reference.Clamp(zeros, 0, 0)
	for i, v := range zeros {
		if want := []uint32{0, 0, 0x7fc00000, 0, 0}[i]; math.Float32bits(v) != want {
			t.Errorf("clamped to 0..0, element %d is %#x, want %#x", i, math.Float32bits(v), want)
		}
	}
}

func TestForwardRefuses(t *testing.T) {
	p := newPayload(t, rand.New(rand.NewPCG(1, 1)), packing.Header{
		Layout: packing.LayoutLowbit, Bits: 4, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Rows: 9, Cols: 40,
	}, ordinary)
	l, err := NewLinear(p.h, p.data, Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := NewWorkspace(nil)
	nan := float32(math.NaN())
	for name, err := range map[string]error{
		"dst":        l.Forward(w, make([]float32, 9), make([]float32, 80), 2),
		"x":          l.Forward(w, make([]float32, 18), make([]float32, 79), 2),
		"negative m": l.Forward(w, nil, nil, -1),
		"huge m":     l.Forward(w, nil, nil, math.MaxInt/10),
		"lo":         l.ForwardClamped(w, make([]float32, 9), make([]float32, 40), 1, nan, 1),
		"hi":         l.ForwardClamped(w, make([]float32, 9), make([]float32, 40), 1, 0, nan),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := l.Forward(w, nil, nil, 0); err != nil {
		t.Errorf("no rows: %v", err)
	}
	if l.Rows() != 9 || l.Cols() != 40 || l.Header() != p.h {
		t.Errorf("%d x %d, %+v", l.Rows(), l.Cols(), l.Header())
	}
}

func TestNewLinearRefuses(t *testing.T) {
	long := packing.Header{Layout: packing.LayoutLowbit, Bits: 1, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Rows: 1, Cols: maxGroup + 1}
	for _, c := range []struct {
		h    packing.Header
		want string
	}{
		{packing.PlainHeader(packing.BF16, 4, 8), "no kernel reads plain BF16, 4 x 8: want a quantized layout; NewFloat multiplies with plain F32, F16 and BF16"},
		{
			packing.Header{Layout: packing.LayoutCodes, Bits: 3, ScaleDtype: packing.ScaleF32, Rows: 2, Cols: 48, Group: 16},
			"no kernel reads codes, 3 bits, group 16, 2 x 48: this layout has no matrix product",
		},
		{
			packing.Header{Layout: packing.LayoutTorchAOEmbedding, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8, Rows: 2, Cols: 32},
			"no kernel reads torchao-embedding, 4 bits, group 0, 2 x 32: this layout has no matrix product",
		},
		{long, "no kernel reads lowbit 8x16x2, 1 bits, group 0, 1 x 65537: a group of 65537 columns, want at most 65536, so that sums of products are exact"},
	} {
		size, err := c.h.DataSize()
		if err != nil {
			t.Fatal(err)
		}
		_, err = NewLinear(c.h, make([]byte, size), Options{})
		var u *UnsupportedError
		if !errors.As(err, &u) || err.Error() != c.want || u.Header != c.h {
			t.Errorf("error %v\nwant  %s", err, c.want)
		}
		if _, err := KernelFor(c.h, 1, Options{}); !errors.As(err, &u) {
			t.Errorf("KernelFor: error %v", err)
		}
	}
	var invalid *packing.HeaderError
	if _, err := NewLinear(packing.Header{}, nil, Options{}); !errors.As(err, &invalid) {
		t.Errorf("error %v for an empty header", err)
	}
	// 2^38 groups: such a header is refused before memory is allocated for the groups.
	if strconv.IntSize == 64 {
		huge := packing.Header{Layout: packing.LayoutLowbit, Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile, Group: 16, Rows: 1, Cols: 1 << 42}
		if _, err := NewLinear(huge, make([]byte, 10), Options{}); err == nil || !strings.Contains(err.Error(), "10 bytes of data") {
			t.Errorf("error %v for a header that claims too much", err)
		}
	}
	long.Cols = 64
	if _, err := NewLinear(long, make([]byte, 5), Options{}); err == nil || !strings.Contains(err.Error(), "5 bytes of data") {
		t.Errorf("error %v for short data", err)
	}
}
