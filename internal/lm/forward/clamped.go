package forward

// clampBlock is the number of values that the functions of this file clamp at a time.
const clampBlock = 256

// clamp writes the clamped values of gate and up: g = min(gate, limit), and u = up between -limit
// and limit, plus 1.
func (m *Model) clamp(g, u, gate, up []float32) {
	limit := float32(m.config.GateLimit)
	for i, v := range up {
		g[i], u[i] = min(gate[i], limit), max(-limit, min(v, limit))+1
	}
}

// clampedSilu is activate for [arch.ClampedSilu].
func (m *Model) clampedSilu(gate, up []float32) {
	var u [clampBlock]float32
	for len(gate) > 0 {
		n := min(clampBlock, len(gate))
		m.clamp(gate[:n], u[:n], gate[:n], up[:n])
		m.math.Gate(gate[:n], u[:n], -m.config.GateSlope, 0)
		gate, up = gate[n:], up[n:]
	}
}

// clampedSiluBackward is gateBackward for [arch.ClampedSilu]. Clamped values have no gradient.
func (m *Model) clampedSiluBackward(dgate, dup, dy, gate, up []float32) {
	limit := float32(m.config.GateLimit)
	var g, u [clampBlock]float32
	for from := 0; from < len(dy); from += clampBlock {
		to := min(from+clampBlock, len(dy))
		n := to - from
		m.clamp(g[:n], u[:n], gate[from:to], up[from:to])
		m.gateSlopes(dgate[from:to], dup[from:to], dy[from:to], g[:n], u[:n], -m.config.GateSlope, 0)
		for i := from; i < to; i++ {
			if gate[i] > limit {
				dgate[i] = 0
			}
			if up[i] > limit || up[i] < -limit {
				dup[i] = 0
			}
		}
	}
}
