package llamacpp

import (
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/model/arch"
)

// Yarn's rotations are fixed in llama.cpp's code for the families here.
const (
	yarnFast = 32
	yarnSlow = 1
)

// noRopeStep: in llama.cpp's smollm3 every fourth layer has no rope.
const noRopeStep = 4

// skipsRope reports whether layer i of smollm3 has no rope.
func skipsRope(i int) bool { return (i+1)%noRopeStep == 0 }

// describeRope writes the keys of the positions.
func (m *Model) describeRope(f *family, c *arch.ForwardConfig) error {
	r := &c.Ropes[0]
	if err := f.checkRope(c); err != nil {
		return err
	}
	m.set(keyRopeDims, r.Dims)
	m.set(keyRopeBase, float32(r.Theta))
	if len(c.Ropes) > 1 {
		m.set(keyRopeBaseWindow, float32(c.Ropes[1].Theta))
	}
	switch r.Type {
	case "linear":
		m.set(keyScalingType, "linear")
		m.set(keyScalingFactor, float32(r.Factor))
	case "yarn":
		m.set(keyScalingType, "yarn")
		m.set(keyScalingFactor, float32(r.Factor))
		m.set(keyScalingContext, r.OriginalPositions)
		if a := r.AttentionFactor / yarnAttention(r.Factor); float32(a) != 1 {
			m.set(keyScalingAttn, float32(a))
		}
	case "longrope":
		if f.name != "phi3" { // the llama family reads the factors only with the type
			m.set(keyScalingType, "longrope")
		}
		m.set(keyScalingContext, r.OriginalPositions)
		m.set(keyScalingAttn, float32(r.AttentionFactor))
	}
	return nil
}

// yarnAttention is the factor of sines and cosines that llama.cpp computes from yarn's factor.
func yarnAttention(factor float64) float64 {
	if factor <= 1 {
		return 1
	}
	return float64(0.1*detmath.Log(factor)) + 1
}

// checkRope refuses ropes that llama.cpp's code for the family lacks.
func (f *family) checkRope(c *arch.ForwardConfig) error {
	r := &c.Ropes[0]
	switch {
	case r.Type == "llama3" && !f.llama3, r.Type == "longrope" && !f.longrope:
		return unsupported("llama.cpp's %s does not read the rope factors of rope_type %q", f.name, r.Type)
	case r.Type == "yarn" && (r.FastRotations != yarnFast || r.SlowRotations != yarnSlow || !r.Truncate):
		return unsupported("llama.cpp's %s computes yarn with beta_fast %d, beta_slow %d and truncate true, config.json asks for %v, %v and %v",
			f.name, yarnFast, yarnSlow, r.FastRotations, r.SlowRotations, r.Truncate)
	case len(c.Ropes) > 1 && c.Ropes[1].Type != "default":
		return unsupported("llama.cpp's %s does not scale the rope of layers with a sliding window, but rope_type is %q there", f.name, c.Ropes[1].Type)
	case len(c.Ropes) > 1 && r.Type == "yarn":
		return unsupported("llama.cpp's %s would use yarn in layers with a sliding window too", f.name)
	}
	for i, l := range c.Layers {
		without := f.noRope && skipsRope(i)
		if without != (l.Rope < 0) {
			return unsupported("llama.cpp's %s has no rope in every %dth layer, but layer %d of no_rope_layers differs", f.name, noRopeStep, i)
		}
	}
	return nil
}

// ropeTensors returns the tensors of factors by which frequencies are divided.
func ropeTensors(c *arch.ForwardConfig) []Tensor {
	tensor := func(name string, values []float64) Tensor {
		t := Tensor{Name: name, Shape: []int64{int64(len(values))}, F32: true}
		for _, v := range values {
			t.Values = append(t.Values, float32(v))
		}
		return t
	}
	switch r := &c.Ropes[0]; r.Type {
	case "llama3":
		return []Tensor{tensor(ropeFreqs, r.Divisors())}
	case "longrope":
		return []Tensor{tensor(ropeLong, r.Long), tensor(ropeShort, r.Short)}
	}
	return nil
}
