package kernels

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// TestReference: the exported reference refuses the payloads that NewLinear refuses, and clamps in
// the same way.
func TestReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	h := packing.Header{Layout: packing.LayoutLowbit, Bits: 3, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile, Rows: 13, Cols: 70, Group: 16}
	p := newPayload(t, rng, h.Canonical(), ordinary)
	ref, err := NewReference(p.h, p.data)
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLinear(p.h, p.data, Options{})
	if err != nil {
		t.Fatal(err)
	}
	const m = 3
	x := make([]float32, m*ref.Cols())
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	x[75] = float32(math.NaN())
	w := NewWorkspace(nil)
	want, got := make([]float32, m*ref.Rows()), make([]float32, m*ref.Rows())
	for _, clamp := range [][2]float32{{float32(math.Inf(-1)), float32(math.Inf(1))}, {-0.25, 0.5}} {
		if err := errors.Join(ref.ForwardClamped(w, want, x, m, clamp[0], clamp[1]), l.ForwardClamped(w, got, x, m, clamp[0], clamp[1])); err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
				t.Errorf("output %d is %v, the reference has %v", i, got[i], want[i])
			}
		}
	}
	if err := ref.Forward(w, want, x, m+1); err == nil {
		t.Error("outputs of a wrong length were taken")
	}
	if _, err := NewReference(p.h, p.data[1:]); err == nil {
		t.Error("data of a wrong length was taken")
	}
	var unsupported *UnsupportedError
	if _, err := NewReference(packing.PlainHeader(packing.F32, 2, 2), make([]byte, 16)); !errors.As(err, &unsupported) {
		t.Errorf("error %v for a plain payload", err)
	}
}
