package kernels

import (
	"fmt"
	"testing"

	"github.com/lowbit-go/gq/internal/kernels/act"
	"github.com/lowbit-go/gq/internal/test/vectors"
)

// TestKleidiAIVectors holds every kernel to all runs of KleidiAI's kernels, to the bit: from
// float32 activations.
func TestKleidiAIVectors(t *testing.T) {
	products := vectors.KleidiAI(t)
	for _, feature := range Features() {
		t.Run(feature, func(t *testing.T) {
			w := NewWorkspace(nil)
			for i := range products {
				v := &products[i]
				for name, l := range variants(t, &payload{v.Header, v.Data}, feature) {
					got := make([]float32, len(v.Want))
					if err := l.ForwardClamped(w, got, v.X, v.M, v.Min, v.Max); err != nil {
						t.Fatal(err)
					}
					check(t, fmt.Sprintf("%s, %s", v.Name, name), got, v.Want, l.Rows())
				}
			}
		})
	}
}

// TestTorchAOVectors does the same with the runs of TorchAO's kernels, from the activations that
// TorchAO quantized.
func TestTorchAOVectors(t *testing.T) {
	products := vectors.TorchAO(t)
	for _, feature := range Features() {
		t.Run(feature, func(t *testing.T) {
			w := NewWorkspace(nil)
			for i := range products {
				v := &products[i]
				for name, l := range variants(t, &payload{v.Header, v.Data}, feature) {
					got := make([]float32, len(v.Want))
					w.job.limit(v.Min, v.Max)
					w.begin(l, l.choose(v.M), got, v.X, v.M)
					w.quantize()
					w.replace(l, &v.Activations, v.M)
					w.product()
					check(t, fmt.Sprintf("%s, %s", v.Name, name), got, v.Want, l.Rows())
				}
			}
		})
	}
}

// replace puts quantized rows in the place of the job's rows. They have a scale and a zero point a
// row.
func (w *Workspace) replace(l *Linear, from *vectors.Activations, m int) {
	a, c := &w.acts, w.job.c
	at := make([]int, m) // of each row in a
	for i := range at {
		at[i] = i
	}
	sums := make([]int32, l.groups)
	if c.gemv == nil {
		for _, t := range a.tiles {
			step := &l.set.Steps[t.step]
			mr := step.MR
			for i := range t.valid {
				q := from.Row(t.row + i)[:l.stored]
				interleaveRow(a.codes[t.at*l.stored:][:mr*l.stored], step, i, q)
				act.GroupSums(sums, q, l.group)
				for g, s := range sums {
					a.sums[t.at*l.groups+g*mr+i] = s
				}
				at[t.row+i] = t.at + i
			}
		}
	} else {
		for i := range m {
			a.negInt[i] = -from.Zero[i]
			a.arrange(l.panelLayout, c.gemv, i, from.Row(i)[:l.stored])
		}
	}
	for i, j := range at {
		a.negZero[j], a.negInt[j], a.rec[j], a.bad[j] = float32(-from.Zero[i]), -from.Zero[i], from.Rec[i], false
	}
}
