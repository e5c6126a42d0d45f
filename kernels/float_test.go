package kernels

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/kernels/reference"
	"github.com/lowbit-go/gq/packing"
)

// plainPayload is a random LayoutPlain payload, and its weights.
func plainPayload(rng *rand.Rand, d packing.Dtype, rows, cols int, sharp bool) (packing.Header, []byte, []float32) {
	var data []byte
	weights := make([]float32, rows*cols)
	for i := range weights {
		v := float32(rng.NormFloat64())
		if sharp && rng.IntN(50) == 0 {
			v = nastyFloat(rng)
		}
		switch d {
		case packing.F32:
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		case packing.BF16:
			b := floats.BF16FromF32(v)
			data, v = binary.LittleEndian.AppendUint16(data, b), floats.BF16ToF32(b)
		case packing.F16:
			b := floats.F16FromF32(v)
			data, v = binary.LittleEndian.AppendUint16(data, b), floats.F16ToF32(b)
		}
		weights[i] = v
	}
	return packing.PlainHeader(d, uint64(rows), uint64(cols)), data, weights
}

// chain computes the outputs that package floatmm promises: one chain of fused multiply-adds each.
func chain(weights, bias, x []float32, m, rows, cols int) []float32 {
	dst := make([]float32, m*rows)
	for i := range dst {
		w, a, f := weights[i%rows*cols:][:cols], x[i/rows*cols:][:cols], float32(0)
		for k := range w {
			f = floats.FMA32(a[k], w[k], f)
		}
		if bias != nil {
			f += bias[i%rows]
		} else {
			f += 0
		}
		if f != f {
			f = floats.NaN
		}
		dst[i] = f
	}
	return dst
}

// TestFloat holds float operators, of packed weights and of rows made on the fly, to the chain.
func TestFloat(t *testing.T) {
	pool := NewPool(3)
	defer pool.Close()
	workspaces := []*Workspace{NewWorkspace(nil), NewWorkspace(pool)}
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	for _, feature := range Features() {
		t.Run(feature, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			for i := range rounds {
				for _, d := range []packing.Dtype{packing.F32, packing.BF16, packing.F16} {
					rows, cols, m := 1+rng.IntN(90), 1+rng.IntN(70), 1+rng.IntN(20)
					h, data, weights := plainPayload(rng, d, rows, cols, i%2 == 1)
					x := someRows(rng, m, cols)
					f, err := NewFloat(h, data, Options{CPU: feature})
					if err != nil {
						t.Fatal(err)
					}
					bias := make([]float32, rows)
					for j := range bias {
						bias[j] = float32(rng.NormFloat64())
					}
					if i%3 == 0 {
						bias = nil
					}
					r, err := NewRows(rows, cols, func(dst []float32, row int) { copy(dst, weights[row*cols:]) }, bias, Options{CPU: feature})
					if err != nil {
						t.Fatal(err)
					}
					operators := []Operator{f, r}
					if d == packing.BF16 {
						mapped, err := NewRowsBF16(rows, cols, data, Options{CPU: feature})
						if err != nil {
							t.Fatal(err)
						}
						operators = append(operators, mapped)
					}
					w := workspaces[i%2]
					for j, op := range operators {
						want := chain(weights, [][]float32{nil, bias, nil}[j], x, m, rows, cols)
						got := make([]float32, m*rows)
						what := fmt.Sprintf("%s, %d x %d, m %d, %s", d, rows, cols, m, op.Kernel(m))
						if err := op.Forward(w, got, x, m); err != nil {
							t.Fatal(err)
						}
						check(t, what, got, want, rows)
						if err := op.ForwardClamped(w, got, x, m, -0.5, 1); err != nil {
							t.Fatal(err)
						}
						reference.Clamp(want, -0.5, 1)
						check(t, what+", clamped", got, want, rows)
					}
				}
			}
		})
	}
}

func TestFloatUse(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	h, data, _ := plainPayload(rng, packing.BF16, 40, 33, false)
	var logged []Choice
	f, err := NewFloat(h, data, Options{Log: func(c Choice) { logged = append(logged, c) }})
	if err != nil {
		t.Fatal(err)
	}
	if f.Rows() != 40 || f.Cols() != 33 || f.(*floatWeights).Header() != h {
		t.Errorf("%d x %d, %+v", f.Rows(), f.Cols(), f.(*floatWeights).Header())
	}
	pool := NewPool(2)
	defer pool.Close()
	w := NewWorkspace(pool)
	dst, x := make([]float32, 40*20), make([]float32, 33*20)
	for _, m := range []int{20, 1, 20, 0} {
		run := func() {
			if err := f.Forward(w, dst[:m*40], x[:m*33], m); err != nil {
				t.Error(err)
			}
		}
		run()
		if n := testing.AllocsPerRun(20, run); n > 1 { // a goroutine may get its first part late
			t.Errorf("m %d: %v allocations", m, n)
		}
	}
	want := []string{f.Kernel(20)}
	if f.Kernel(1) != want[0] {
		want = append(want, f.Kernel(1))
	}
	if !slices.EqualFunc(logged, want, func(c Choice, name string) bool { return c.Kernel == name }) {
		t.Errorf("logged %v, want %v", logged, want)
	}
	if !strings.HasPrefix(f.Kernel(1), "bf16_1x") {
		t.Errorf("one row runs %s", f.Kernel(1))
	}
	if err := f.Forward(w, dst[1:], x, 20); err == nil {
		t.Error("no error for short outputs")
	}
}

func TestFloatRefuses(t *testing.T) {
	for _, c := range []struct {
		h    packing.Header
		size int
		want string
	}{
		{packing.PlainHeader(packing.F64, 2, 3), 48, "no kernel reads plain F64, 2 x 3: floating-point operators are for plain F32, F16 and BF16"},
		{packing.PlainHeader(packing.F32, 2, 3), 20, "kernels: 20 bytes of data, the packed header needs 24"},
		{packing.PlainHeader(packing.F32, 0, 3), 0, "no kernel reads plain F32, 0 x 3: no product has this shape"},
		{
			packing.Header{Layout: packing.LayoutQSI4CXP, Bits: 4, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Rows: 8, Cols: 32}, 0,
			"no kernel reads qsi4cxp 8x16x2, 4 bits, group 0, 8 x 32: floating-point operators are for plain F32, F16 and BF16",
		},
	} {
		if _, err := NewFloat(c.h, make([]byte, c.size), Options{}); err == nil || err.Error() != c.want {
			t.Errorf("error %v\nwant  %s", err, c.want)
		}
	}
	var invalid *packing.HeaderError
	if _, err := NewFloat(packing.Header{}, nil, Options{}); !errors.As(err, &invalid) {
		t.Errorf("error %v for an empty header", err)
	}
	if _, err := NewRows(0, 3, nil, nil, Options{}); err == nil {
		t.Error("no rows: no error")
	}
	if _, err := NewRows(2, 3, nil, make([]float32, 3), Options{}); err == nil {
		t.Error("3 biases for 2 rows: no error")
	}
	if _, err := NewRows(2, 3, nil, nil, Options{CPU: "avx3"}); err == nil {
		t.Error("an unknown CPU: no error")
	}
}
