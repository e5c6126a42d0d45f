package model

import (
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// derivative is the central difference of the loss in a random direction of a tensor; dir is the
// direction.
func (r *reference) derivative(rng *rand.Rand, name string) (slope float64, dir []float64) {
	values := r.params[name]
	dir = make([]float64, len(values))
	for i := range dir {
		dir[i] = rng.NormFloat64()
	}
	const step = 1e-5
	moved := make([]float64, len(values))
	r.params[name] = moved
	defer func() { r.params[name] = values }()
	at := func(step float64) float64 {
		for i, v := range values {
			moved[i] = v + step*dir[i]
		}
		return r.total()
	}
	return (at(step) - at(-step)) / (2 * step), dir
}

// worst compares all gradients with numeric ones, each in a few random directions, and returns the
// largest error relative to the norm of the tensor's gradient, and its tensor.
func (r *reference) worst(t testing.TB, got gradients) (worst float64, tensor string) {
	rng := rand.New(rand.NewPCG(41, 42))
	for _, name := range slices.Sorted(maps.Keys(r.params)) {
		g := got[name]
		if g == nil && strings.Contains(name, "experts") { // no tokens
			g = make([]float32, len(r.params[name]))
		}
		if len(g) != len(r.params[name]) {
			t.Errorf("%s: %d gradients, want %d", name, len(g), len(r.params[name]))
			continue
		}
		for range 2 {
			want, dir := r.derivative(rng, name)
			square, slope := 0.0, 0.0
			for i, v := range g {
				square += float64(v) * float64(v)
				slope += float64(v) * dir[i]
			}
			err := math.Abs(slope - want)
			if length := math.Sqrt(square); err > 1e-9 {
				err /= length
			} else {
				err = 0
			}
			if !(err <= worst) {
				worst, tensor = err, name
			}
		}
	}
	return worst, tensor
}

// TestGradients holds the gradients of every architecture to numeric derivatives of an independent
// float64 implementation.
func TestGradients(t *testing.T) {
	for _, c := range torchCases(t) {
		t.Run(filepath.Base(c.dir), func(t *testing.T) {
			m := openCase(t, c.dir, Options{Threads: 2})
			sequences := tapeSequences(m.VocabSize())
			checkGradients(t, m, sequences, nil)
		})
	}
}

func checkGradients(t *testing.T, m *Model, sequences [][]int32, routing [][]int32) {
	t.Helper()
	tape, err := m.NewTape(TapeOptions{MaxTokens: 64, MaxLength: 21})
	if err != nil {
		t.Fatal(err)
	}
	if err := tape.Forward(sequences, routing); err != nil {
		t.Fatal(err)
	}
	r := newReference(t, m, sequences, tape.Routing())
	got := gradientsOf(t, m, TapeOptions{MaxTokens: 64, MaxLength: 21, LogitRows: 8, Outputs: true}, sequences, routing)
	worst, tensor := r.worst(t, got)
	t.Logf("largest relative error %.2g, of %s", worst, tensor)
	if !(worst < 1e-4) {
		t.Errorf("the gradient of %s differs by %.2g of its norm from the numeric one", tensor, worst)
	}
}
