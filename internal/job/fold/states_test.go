package fold

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// TestStates folds models with states, with biases in norms, and with experts stored inputs x
// outputs: factors move through them, rotations are refused.
func TestStates(t *testing.T) {
	testshared.SlowEmulated(t, "TestSameBytes has the bytes")
	n := 0
	for _, g := range testmodels.AllGenerated(t) {
		c, err := arch.ParseForward(g.Config)
		if err != nil {
			t.Fatal(err)
		}
		if !c.HasStates() && !c.NormBias && !c.ExpertsTransposed() {
			continue
		}
		n++
		t.Run(g.Name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), g.Name)
			g.Write(t, dir)
			for _, j := range []Job{{Equalize: true}, {AWQ: awqOptions(), Text: randomText(t, dir)}} {
				_, r := makeFolded(t, dir, j)
				if r.Check.Difference == 0 || r.Check.Tokens < 128 {
					t.Errorf("%+v: the models were not compared, or nothing was folded", r.Check)
				}
				if name := "conv.out_proj"; c.ShortConv != nil && !reaches(r, name) {
					t.Errorf("no factors for %s", name)
				}
			}
			_, err := Make(context.Background(), dir, filepath.Join(t.TempDir(), "f"), Job{Rotate: true, Seed: 3})
			var refused *arch.UnsupportedError
			if !errors.As(err, &refused) {
				t.Errorf("%v, want a refusal", err)
			}
		})
	}
	if n < 8 {
		t.Errorf("%d models are like that", n)
	}
}
