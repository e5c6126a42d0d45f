package main

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/internal/job/synth"
	"github.com/lowbit-go/gq/internal/lm/forward"
)

// A copy with its channels in another order gives the model's logits.
func TestReorder(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "model"), filepath.Join(dir, "copy")
	if _, err := gq.Synth(context.Background(), src, synth.Presets["tiny"], nil); err != nil {
		t.Fatal(err)
	}
	if err := reorder(src, dst, 1); err != nil {
		t.Fatal(err)
	}
	var logits [2][]float32
	for i, d := range []string{src, dst} {
		m, err := forward.OpenCheckpoint(d, forward.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		tokens := []int32{1, 5, 9, 2, 7, 3}
		logits[i] = make([]float32, len(tokens)*m.VocabSize())
		if err := m.NewSession(len(tokens)).Forward(tokens, logits[i], true); err != nil {
			t.Fatal(err)
		}
	}
	if slices.Equal(logits[0], logits[1]) {
		t.Error("the copy's sums have the model's order")
	}
	largest := 0.0
	for _, v := range logits[0] {
		largest = max(largest, math.Abs(float64(v)))
	}
	for i, v := range logits[0] {
		if d := math.Abs(float64(v - logits[1][i])); !(d <= 1e-5*largest) {
			t.Fatalf("logit %d is %g, and %g of the copy", i, v, logits[1][i])
		}
	}
}
