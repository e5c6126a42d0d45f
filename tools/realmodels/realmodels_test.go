package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDisguise: the changed checkpoint has other weights and the same logits, and a grid that a
// quantizer left is gone.
func TestDisguise(t *testing.T) {
	src, dir := filepath.Join("..", "..", "testdata", "books1.3M-bf16"), t.TempDir()
	hidden := filepath.Join(dir, "hidden")
	if err := disguise(src, hidden); err != nil {
		t.Fatal(err)
	}
	if err := compare(src, hidden); err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(dir, "again")
	if err := disguise(hidden, again); err != nil {
		t.Fatal(err)
	}
	if err := compare(src, again); err != nil {
		t.Fatal(err)
	}
	table := filepath.Join(dir, "histograms.tsv")
	if err := histograms(table, src, hidden); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(raw), "\n"); lines != 1+2*43 {
		t.Errorf("%d lines, want a title and two for each of 43 matrices", lines)
	}
}

func TestSteps(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, want := range []int{1, 15, 31, 255} {
		w := []float32{-0.3, 0}
		for range 30 {
			w = append(w, -0.3+0.02*float32(random.IntN(want+1)))
		}
		w[0], w[1] = -0.3, -0.3+0.02*float32(want)
		slices.Sort(w)
		if n := steps(w); n != want {
			t.Errorf("a grid of %d steps: %d", want, n)
		}
	}
	w := make([]float32, 16)
	for i := range w {
		w[i] = float32(random.NormFloat64())
	}
	slices.Sort(w)
	if n := steps(w); n <= maxSteps {
		t.Errorf("random weights are on a grid of %d steps", n)
	}
}
