package testmodels

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// TestVariants runs every variant on its own tokens. Package model refuses a checkpoint with a
// tensor too few or too many.
func TestVariants(t *testing.T) {
	testshared.SlowEmulated(t, "package model runs every architecture")
	seen := map[string]bool{}
	for _, v := range Variants(t) {
		t.Run(v.Name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), v.Name)
			v.Write(t, dir)
			tok, err := tokenizer.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			const text = "Licensed under the Apache License, Version 2.0 – 12345 «été»\n\tas is"
			ids, err := tok.Encode(text, tokenizer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if got := tok.Decode(ids, false); got != text || tok.VocabSize() != Vocab {
				t.Errorf("%d tokens in the vocabulary, %d: %q", tok.VocabSize(), ids, got)
			}
			if len(ids) > 60 {
				t.Errorf("%d tokens: merges are not used", len(ids))
			}
			m, err := forward.OpenCheckpoint(dir, forward.Options{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			seen[m.Config().Architecture] = true
			logits := make([]float32, m.VocabSize())
			if err := m.NewSession(len(ids)).Forward(ids, logits, false); err != nil {
				t.Fatal(err)
			}
			var square float64
			for _, l := range logits {
				square += float64(l) * float64(l)
			}
			// Predictions that tell models apart: neither uniform nor certain.
			if std := math.Sqrt(square / float64(len(logits))); std < 0.5 || std > 8 {
				t.Errorf("logits have a standard deviation of %v", std)
			}
		})
	}
	All(t, seen)
}
