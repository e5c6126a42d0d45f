// Package testplan makes plans and texts for tests of jobs that calibrate, tune and allocate. Only
// tests import testplan.
package testplan

import (
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/quantizer"
)

// Open opens the checkpoint in dir until the test ends. config is its config.json.
func Open(t testing.TB, dir string) (ck *safetensors.Checkpoint, config []byte) {
	t.Helper()
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	if config, err = assets.ReadConfig(ck); err != nil {
		t.Fatal(err)
	}
	return ck, config
}

// New plans the quantization of the checkpoint in dir with a recipe.
func New(t testing.TB, dir string, r quantizer.Recipe) *fromcheckpoint.Plan {
	t.Helper()
	ck, config := Open(t, dir)
	p, err := conversion.NewPlan(ck, config, conversion.Options{Recipe: r})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Text makes sequences of arbitrary tokens, the same in each call.
func Text(vocab int, lengths ...int) *text.Text {
	list := &text.Text{Source: "tokens", SHA256: strings.Repeat("0", 64)}
	x := uint32(1)
	for _, n := range lengths {
		s := make([]int32, n)
		for i := range s {
			x = x*1664525 + 1013904223
			s[i] = int32(x>>8) % int32(vocab)
		}
		list.Sequences = append(list.Sequences, s)
	}
	return list
}
