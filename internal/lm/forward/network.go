package forward

import (
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// mlp is a feed-forward network with a gate, down(f(gate(x)) up(x)), or plain, down(f(up(x))).
type mlp struct {
	gateUp []*linear // gate, up; or a single fused layer; or up alone
	down   *linear
	width  int // of gate and up
	plain  bool
	// interleaved: the rows of gate and up alternate in the fused layer.
	interleaved bool
}

// loadNetwork opens the feed-forward network or the mixture of a layer.
func (m *Model) loadNetwork(l arch.LayerConfig, at string) (part, error) {
	c := &m.config
	if l.Experts {
		return m.loadExperts(at)
	}
	inputs := []linearSpec{m.spec(at, arch.Gate, c.Intermediate, c.HiddenSize), m.spec(at, arch.Up, c.Intermediate, c.HiddenSize)}
	if c.Facts.Has(arch.FusedGateUp) {
		inputs = []linearSpec{m.spec(at, arch.FusedGateUp, 2*c.Intermediate, c.HiddenSize)}
	}
	return m.gated(inputs, m.spec(at, arch.Down, c.HiddenSize, c.Intermediate))
}

func (m *Model) gated(gateUp []linearSpec, down linearSpec) (f *mlp, err error) {
	f = &mlp{width: down.cols, plain: m.config.Activation == arch.SquaredRelu}
	if f.plain {
		gateUp = gateUp[1:]
	}
	if f.gateUp, err = m.linearsOf(gateUp); err == nil {
		f.down, err = m.linear(down)
	}
	return f, err
}

func (f *mlp) last() *linear { return f.down }

// fused reports whether gate and up are a single linear layer.
func (f *mlp) fused() bool { return len(f.gateUp) == 1 && !f.plain }

func (f *mlp) scratch(s *Session, m int) []size {
	list := []size{{&s.gate, m * f.width}, {&s.up, m * f.width}}
	if f.fused() {
		list = append(list, size{&s.both, 2 * m * f.width})
	}
	return list
}

func (f *mlp) forward(s *Session, dst, x []float32, m int) error {
	n := f.width
	gate, up := buffer.Grow(&s.gate, m*n), buffer.Grow(&s.up, m*n)
	if err := s.gateUp(f, gate, up, x, m); err != nil {
		return err
	}
	s.activate(gate, up)
	return s.multiply(dst, gate, m, f.down)
}

func (s *Session) gateUp(f *mlp, gate, up, x []float32, m int) error {
	n := f.width
	if !f.fused() {
		if err := s.multiply(gate, x, m, f.gateUp[0]); err != nil {
			return err
		}
		if f.plain {
			return nil
		}
		return s.multiply(up, x, m, f.gateUp[1])
	}
	both := buffer.Grow(&s.both, 2*m*n)
	if err := s.multiply(both, x, m, f.gateUp[0]); err != nil {
		return err
	}
	if f.interleaved {
		alternate(gate, up, both)
		return nil
	}
	for r := range m {
		copy(gate[r*n:][:n], both[2*r*n:])
		copy(up[r*n:][:n], both[(2*r+1)*n:])
	}
	return nil
}
