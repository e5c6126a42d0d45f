package forward

// whole is a part with a single way to run: with a record, which a Session overwrites. Factors and
// rotations leave such parts alone.
type whole struct{ steps }

type steps interface {
	run(s *Session, r *record, dst, x []float32, m int) error
	memory(s *Session, r *record, m int) []size
	backward(t *Tape, r *record, g *Gradients, dy []float32, input bool) error
	gradientSizes(t *Tape, n int) []size
	stages() [][]Group
}

func (p whole) forward(s *Session, dst, x []float32, m int) error {
	return p.run(s, &s.record, dst, x, m)
}

func (p whole) record(t *Tape, r *record, _, x []float32) error {
	return p.run(t.s, r, r.out, x, t.tokens())
}

func (p whole) scratch(s *Session, m int) []size             { return p.memory(s, &s.record, m) }
func (p whole) recordSizes(t *Tape, r *record, n int) []size { return p.memory(t.s, r, n) }
func (p whole) last() *linear                                { return nil }
func (p whole) scalings(*Model) []Scaling                    { return nil }
func (p whole) readers(*Model) []Block                       { return nil }
func (p whole) writers() []Block                             { return nil }
