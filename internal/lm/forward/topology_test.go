package forward

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/arch"
)

// TestTopology compares the blocks of Scalings and Residual with the tensors: each linear layer
// between embedding and lm_head reads through one place, and either adds to the hidden states or
// feeds the next layer.
func TestTopology(t *testing.T) {
	for _, c := range torchCases(t) {
		t.Run(filepath.Base(c.dir), func(t *testing.T) {
			m := openCase(t, c.dir, Options{Threads: 1})
			fits := func(b Block) {
				shape, ok := m.source.shape(b.Tensor)
				rows := int64(1)
				for _, d := range shape[:max(0, len(shape)-1)] {
					rows *= d
				}
				if !ok || len(shape) < 2 || shape[len(shape)-1] != int64(b.Cols) || b.From < 0 || int64(b.From+b.Rows) > rows || m.linears[b.Linear] == nil {
					t.Errorf("block %+v, tensor of shape %v", b, shape)
				}
			}
			read := map[string]int{}
			for layer := range m.Config().Layers {
				for _, s := range m.Scalings(layer) {
					if (s.Norm == nil) == (s.Rows == nil) {
						t.Errorf("layer %d: %+v has not one producer", layer, s)
					}
					if s.Rows != nil {
						fits(*s.Rows)
					}
					for _, b := range s.Consumers {
						fits(b)
						read[b.Linear]++
						if s.Factor(0) != 0 || s.Factor(b.Cols-1) != s.Width-1 {
							t.Errorf("layer %d: factors %d to %d of %d for %q", layer, s.Factor(0), s.Factor(b.Cols-1), s.Width, b.Linear)
						}
					}
				}
			}
			gated := map[string]bool{} // reads a gated norm of each head of a delta net
			for i := range m.layers {
				if r, ok := m.layers[i].blocks[0].part.(*recurrence); ok && r.behind == nil && r.scaled(r.in) == nil {
					gated[r.out.name] = true
				}
			}
			unnormed := map[string]bool{} // no norm before these takes factors
			for i := range m.layers {
				blocks := m.layers[i].blocks
				for j, b := range blocks {
					shared := slices.ContainsFunc(blocks[j:min(j+2, len(blocks))], func(b block) bool { return b.beside })
					if b.norm == nil || shared || m.config.NormBias {
						for _, b := range b.readers(m) {
							unnormed[b.Linear] = true
						}
					}
					if l, ok := b.part.(*mixture); ok && m.config.ExpertsTransposed() {
						readers := []*linear{l.router}
						if l.shared != nil {
							readers = append(readers, l.shared.gateUp...)
						}
						for _, f := range l.experts {
							readers = append(append(readers, f.gateUp...), f.down)
						}
						for _, l := range readers {
							unnormed[l.name] = true
						}
					}
					switch p := b.part.(type) {
					case *attention:
						// Values are not in one block, or a norm follows.
						unnormed[p.out.name] = unnormed[p.out.name] || p.latent != nil || p.values != nil
					case *mixture:
						if p.out != nil {
							gated[p.out.name] = true // reads the sum of several experts
						}
					case *prediction, *correction, *ownInput, *laurel:
						for _, stage := range p.stages() {
							unnormed[stage[0].Linears[0]] = true
						}
					}
				}
			}
			for _, name := range m.Linears() {
				if m.config.Activation == arch.SquaredRelu && strings.HasSuffix(name, ".down_proj.weight") {
					gated[name] = true // no factor passes the square
				}
				want := 1
				if name == m.Head() || unnormed[name] || gated[name] || m.LayerOf(name) < 0 {
					want = 0
				}
				if read[name] != want {
					t.Errorf("%q reads in %d places, want %d", name, read[name], want)
				}
			}
			r, err := m.Residual()
			if c := m.Config(); !c.Facts.Has(arch.InputNorm) || c.Facts.Has(arch.PostAttentionNorm) || c.HasStates() || c.LayerNorm || c.Latent != nil || c.ExpertsTransposed() {
				if err == nil {
					t.Error("a model with norms behind the linear layers, or with states, can be rotated")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range r.Reads {
				fits(b.Block)
			}
			for _, b := range append(r.Writes, r.Values...) {
				fits(b)
			}
			if n := len(r.Reads) + len(r.Writes); n != len(m.Linears())-1 {
				t.Errorf("%d of %d linear layers read hidden states or add to them", n, len(m.Linears())-1)
			}
		})
	}
}

func TestFactor(t *testing.T) {
	s := Scaling{HeadDim: 2, Repeat: 3} // two heads of values for six heads of queries
	for column, want := range []int{0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3} {
		if got := s.Factor(column); got != want {
			t.Errorf("column %d has factor %d, want %d", column, got, want)
		}
	}
}
