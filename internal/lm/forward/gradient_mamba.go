package forward

import "github.com/lowbit-go/gq/internal/rowmath"

func (d *mamba) workerSize(n int) int {
	heads := d.Heads / d.Groups
	width, p, states := d.width(heads), d.HeadDim, (n+stateBlock-1)/stateBlock+stateBlock+2
	return (d.Kernel+4*n)*width + 3*n + n*p + states*d.State*p + 6*p
}

// mambaGradient is the backward pass of a group of heads for a sequence.
type mambaGradient struct {
	*mamba
	w                     *mixerWorker
	group, from, n, width int
	dIn, in, dOut         []float32
	mixed, x, dx          []float32 // [token][channel]: raw, activated, gradients
	dt, slope, decay      []float32 // of the tokens
	dO                    []float32 // [token][HeadDim]
	stateGradient
	v, dv, rest, row []float32
	decays           []float32 // [HeadDim]
}

// backward computes the gradients of a group.
func (d *mamba) backward(w *mixerWorker, group int, dIn [][]float32, dOut []float32, in [][]float32, from, n int, _ []float64) {
	heads, p := d.Heads/d.Groups, d.HeadDim
	first, width, size := group*heads, d.width(heads), d.State*p
	w.reset(d.workerSize(n))
	g := &mambaGradient{mamba: d, w: w, group: group, from: from, n: n, width: width, dIn: dIn[0], in: in[0], dOut: dOut}
	g.mixed, g.x, g.dx = w.take(n*width), w.take(n*width), w.take(n*width)
	g.dt, g.slope, g.decay, g.dO = w.take(n), w.take(n), w.take(n), w.take(n*p)
	g.stateGradient = takeStates(w, n, size)
	g.v, g.dv, g.rest, g.row, g.decays = w.take(p), w.take(p), w.take(p), w.take(p), w.take(p)
	du, u, taps := w.take(n*width), w.take(width), w.take((d.Kernel-1)*width)

	clear(taps)
	for t := range n {
		d.gather(u, g.inputs(t), first, heads)
		d.mix(g.x[t*width:][:width], g.mixed[t*width:][:width], u, taps, d.parts()+group)
	}
	clear(g.dx)
	for j := range heads {
		g.head(j, first+j)
	}
	for t := range n {
		dx := g.dx[t*width:][:width]
		d.m.gateSlopes(dx, u, dx, g.mixed[t*width:][:width], d.ones[:width], rowmath.SiluLinear, rowmath.SiluCubic)
	}
	convolveBack(du, g.dx, d.kernels[d.parts()+group], n, width)
	for t := range n {
		d.scatter(g.dIn[(from+t)*d.Rows():][:d.Rows()], du[t*width:][:width], first, heads)
	}
}

func (g *mambaGradient) inputs(t int) []float32 { return g.in[(g.from+t)*g.Rows():][:g.Rows()] }

// split returns a token's inputs of head j of the group, B and C, of x or dx.
func (g *mambaGradient) split(x []float32, t, j int) (own, b, c []float32) {
	x = x[t*g.width:][:g.width]
	rest := x[g.width-2*g.State:]
	return x[j*g.HeadDim:][:g.HeadDim], rest[:g.State], rest[g.State:]
}

// forwardStep moves the state of head j by a token. g.row receives C S.
func (g *mambaGradient) forwardStep(state []float32, t, j int) {
	x, b, c := g.split(g.x, t, j)
	for i, v := range x {
		g.v[i], g.decays[i] = float32(v*g.dt[t]), g.decay[t]
	}
	g.advance(state, b, c, g.v, g.decays, g.row)
}

// head computes the gradients of head j of the group, and adds those of B and C to dx.
func (g *mambaGradient) head(j, head int) {
	p, size := g.HeadDim, g.State*g.HeadDim
	again := func(state []float32, t int) { g.forwardStep(state, t, j) }
	g.run(g.n, size, func(state []float32, t int) {
		g.dt[t], g.slope[t], g.decay[t] = g.step(g.inputs(t), head)
		again(state, t)
		g.outputBackward(t, j, head)
	}, again, func(t int, before, behind []float32) { g.stepBackward(t, j, head, g.dO[t*p:][:p], before, behind) })
}

// outputBackward computes the gradients of a token's C S, of its gates and of the inputs that reach
// the output directly, given C S in g.row.
func (g *mambaGradient) outputBackward(t, j, head int) {
	p, at := g.HeadDim, (g.from+t)*g.Inner()+head*g.HeadDim
	x, _, _ := g.split(g.x, t, j)
	dx, _, _ := g.split(g.dx, t, j)
	dy, dO := g.dOut[at:][:p], g.dO[t*p:][:p]
	copy(dO, dy)
	if !g.NormFirst {
		for i, v := range x {
			g.row[i] += float32(v * g.skip[head])
		}
		g.gateBackward(g.dIn[(g.from+t)*g.Rows()+head*p:][:p], dO, dy, g.inputs(t)[head*p:][:p], g.row, g.rest)
	}
	for i, v := range dO {
		dx[i] = float32(v * g.skip[head])
	}
}

// gateBackward computes the gradients of the gates, which are raw[i] before their factor, and of
// the values y, from the gradients of y silu(z). z is memory.
func (d *mamba) gateBackward(dz, dValues, dy, raw, y, z []float32) {
	f := float32(d.Factors[0])
	for i, v := range raw {
		z[i] = float32(v * f)
	}
	d.m.gateSlopes(dz, dValues, dy, z, y, rowmath.SiluLinear, rowmath.SiluCubic)
	for i := range dz {
		dz[i] = float32(dz[i] * f)
	}
}

// stepBackward goes back through a token, given the states before and behind it. dState is the
// gradient of the state behind the token, and becomes that of the state before. With v = dt x:
//
//	dS += C dO, dC = S dO, dB = dS v, dv = B dS, ddecay = dS before, dbefore = decay dS
func (g *mambaGradient) stepBackward(t, j, head int, dO, before, behind []float32) {
	set, p := g.m.math, g.HeadDim
	x, b, c := g.split(g.x, t, j)
	dx, dB, dC := g.split(g.dx, t, j)
	for i, v := range x {
		g.v[i] = float32(v * g.dt[t])
	}
	set.MulAdd(g.dState, p, c, 1, dO, p, g.State, 1, p)
	clear(g.dv)
	set.MulAdd(g.dv, p, b, g.State, g.dState, p, 1, g.State, p)
	for i := range g.State {
		dC[i] += dot(behind[i*p:][:p], dO)
		dB[i] += dot(g.dState[i*p:][:p], g.v)
	}
	for i, v := range g.dv {
		dx[i] += float32(v * g.dt[t])
	}
	dDecay := dot(g.dState, before)
	for i, v := range g.dState {
		g.dState[i] = float32(v * g.decay[t])
	}
	dTime := dot(g.dv, x) + float32(float32(dDecay*g.decay[t])*float32(g.rate[head]))
	g.dIn[(g.from+t)*g.Rows()+g.Inner()+g.Channels()+head] = float32(dTime * g.slope[t])
}
