package forward

import "math"

// stateBlock is the number of tokens between the states that the backward passes of delta nets and
// state spaces keep. They compute the states in between again, a block at a time.
const stateBlock = 32

// stateGradient is the memory of states in a backward pass.
type stateGradient struct {
	kept   []float32 // the states before each block
	states []float32 // of a block: before the block, and behind each of its tokens
	dState []float32
}

func takeStates(w *mixerWorker, n, size int) stateGradient {
	return stateGradient{w.take((n + stateBlock - 1) / stateBlock * size), w.take((stateBlock + 1) * size), w.take(size)}
}

// run moves a state of this size by n tokens with first. Then it goes back: it moves the states of
// a block again with again, and calls back for each token with the states before and behind it.
func (g *stateGradient) run(n, size int, first, again func(state []float32, t int), back func(t int, before, behind []float32)) {
	state := g.states[:size]
	clear(state)
	for t := range n {
		if t%stateBlock == 0 {
			copy(g.kept[t/stateBlock*size:], state)
		}
		first(state, t)
	}
	clear(g.dState)
	for from := (n - 1) / stateBlock * stateBlock; from >= 0; from -= stateBlock {
		to := min(n, from+stateBlock)
		copy(g.states[:size], g.kept[from/stateBlock*size:])
		for t := from; t < to; t++ {
			next := g.states[(t+1-from)*size:][:size]
			copy(next, g.states[(t-from)*size:])
			again(next, t)
		}
		for t := to - 1; t >= from; t-- {
			back(t, g.states[(t-from)*size:][:size], g.states[(t+1-from)*size:][:size])
		}
	}
}

func (d *deltaNet) workerSize(n int) int {
	width, dk, dv, states := d.width(), d.KeyDim, d.ValueDim, (n+stateBlock-1)/stateBlock+stateBlock+2
	return (d.Kernel+4*n)*width + (3+2*d.decays)*n + 2*n*dv + states*dk*dv + 4*dv + 2*dk
}

// deltaGradient is the backward pass of a part of a delta net for a sequence.
type deltaGradient struct {
	*deltaNet
	part, from, n int
	dIn, in       [][]float32
	gains         []float64

	mixed, x, dx []float32 // [token][channel]: convolution, behind stretch, gradients
	lengths      []float32 // [token][2]: factors of stretch
	out, dOut    []float32 // [token][dv]: of a head of values
	decay, slope []float32 // [token][decays]
	beta         []float32 // of the tokens
	stateGradient
	delta, dDelta, row, z []float32
	decayed               []float32 // [dk]: keys times decays
}

func (d *deltaNet) backward(w *mixerWorker, part int, dIn [][]float32, dOut []float32, in [][]float32, from, n int, gains []float64) {
	width, dk, dv, size := d.width(), d.KeyDim, d.ValueDim, d.KeyDim*d.ValueDim
	w.reset(d.workerSize(n))
	g := &deltaGradient{deltaNet: d, part: part, from: from, n: n, dIn: dIn, in: in, gains: gains}
	g.mixed, g.x, g.dx, g.lengths = w.take(n*width), w.take(n*width), w.take(n*width), w.take(2*n)
	g.out, g.dOut = w.take(n*dv), w.take(n*dv)
	g.decay, g.beta, g.slope = w.take(n*d.decays), w.take(n), w.take(n*d.decays)
	g.decayed = w.take(dk)
	g.stateGradient = takeStates(w, n, size)
	g.delta, g.dDelta, g.row, g.z = w.take(dv), w.take(dv), w.take(dv), w.take(dv)
	du, u, taps := w.take(n*width), w.take(width), w.take((d.Kernel-1)*width)

	clear(taps)
	for t := range n {
		d.gather(u, in, from+t, part)
		mixed, x := g.mixed[t*width:][:width], g.x[t*width:][:width]
		convolve(mixed, u, taps, d.kernels[part])
		copy(x, mixed)
		d.m.activate(x, d.ones[:width])
		g.lengths[2*t], g.lengths[2*t+1] = stretch(x[:dk], 1/math.Sqrt(float64(dk))), stretch(x[dk:2*dk], 1)
	}
	clear(g.dx)
	for j := range d.group {
		g.head(j, dOut)
	}
	for t := range n {
		x, dx := g.x[t*width:][:width], g.dx[t*width:][:width]
		stretchBackward(dx[:dk], x[:dk], g.lengths[2*t], math.Sqrt(float64(dk)))
		stretchBackward(dx[dk:2*dk], x[dk:2*dk], g.lengths[2*t+1], 1)
		d.m.gateBackward(dx, u, dx, g.mixed[t*width:][:width], d.ones[:width])
	}
	convolveBack(du, g.dx, d.kernels[part], n, width)
	for t := range n {
		from := du[t*width:][:width]
		for i := range 3 {
			from = from[copy(d.places[i].of(dIn, g.from+t, part), from):]
		}
	}
}

// stretchBackward replaces the gradients dx of a scaled vector x by the gradients of the vector
// before, given the factor and 1 / length:
//
//	dx = factor (dx - x (x dx) / length^2)
func stretchBackward(dx, x []float32, factor float32, inverse float64) {
	along := float32(float64(dot(x, dx)) * (inverse * inverse))
	for i, v := range dx {
		dx[i] = float32((v - float32(x[i]*along)) * factor)
	}
}

// split returns a token's queries, keys and values of a head of values in x or dx.
func (g *deltaGradient) split(x []float32, t, j int) (q, k, v []float32) {
	x = x[t*g.width():][:g.width()]
	return x[:g.KeyDim], x[g.KeyDim : 2*g.KeyDim], x[2*g.KeyDim+j*g.ValueDim:][:g.ValueDim]
}

// head computes the gradients of a head of values, and adds those of its queries and keys to dx.
func (g *deltaGradient) head(j int, dOut []float32) {
	dv, size, head := g.ValueDim, g.KeyDim*g.ValueDim, g.part*g.group+j
	step := func(state []float32, t int, out []float32) {
		q, k, v := g.split(g.x, t, j)
		g.step(state, q, k, v, out, g.delta, g.decay[t*g.decays:][:g.decays], g.beta[t])
	}
	g.run(g.n, size, func(state []float32, t int) {
		g.forget(g.decay[t*g.decays:], g.slope[t*g.decays:], g.places[5].of(g.in, g.from+t, g.part), g.part, j)
		g.beta[t] = logistic(g.places[4].of(g.in, g.from+t, g.part)[j])
		step(state, t, g.out[t*dv:][:dv])
		g.outputBackward(t, j, dOut[(g.from+t)*g.inner()+head*dv:][:dv])
	}, func(state []float32, t int) { step(state, t, g.row) },
		func(t int, before, behind []float32) { g.stepBackward(t, j, before, behind) })
}

// outputBackward computes the gradients of a token's o and z, with the norm f = o inverse gain: the
// output is f silu(z), or f sigmoid(z).
func (g *deltaGradient) outputBackward(t, j int, dy []float32) {
	dv := g.ValueDim
	o, to := g.out[t*dv:][:dv], g.dOut[t*dv:][:dv]
	rmsNorm(g.row, o, g.by.weights, g.m.config.NormEps)
	z := g.places[3].of(g.in, g.from+t, g.part)[j*dv:][:dv]
	dz := g.places[3].of(g.dIn, g.from+t, g.part)[j*dv:][:dv]
	if g.ChannelDecay {
		for i, d := range dy {
			s := logistic(z[i])
			dz[i] = float32(float32(d*g.row[i]) * float32(s*(1-s)))
			to[i] = float32(d * s)
		}
	} else {
		g.m.gateBackward(dz, to, dy, z, g.row)
	}
	inverse := rmsInverse(o, g.m.config.NormEps)
	for i, v := range to {
		g.gains[i] += float64(float64(v) * float64(float32(o[i]*inverse)))
	}
	normRowBackward(to, to, o, g.by.weights, 0, inverse, false, false)
}

// stepBackward goes back through deltaNet.step, given the states before and behind the token.
// dState is the gradient of the state behind the token, and becomes that of the state before. With
// the gradient dO of the output:
//
//	dS += q dO, dq = S dO, dDelta = k dS, dk = dS delta,
//	dv = beta dDelta, dbeta = dDelta (v - decay (k before)), dk -= decay before dv,
//	dS -= k dv, ddecay = dS before, dbefore = decay dS
//
// With a decay of each channel, decay multiplies the rows of the state.
func (g *deltaGradient) stepBackward(t, j int, before, behind []float32) {
	set, dk, dv := g.m.math, g.KeyDim, g.ValueDim
	q, k, v := g.split(g.x, t, j)
	dq, dKeys, dValues := g.split(g.dx, t, j)
	dO, decay, beta := g.dOut[t*dv:][:dv], g.decay[t*g.decays:][:g.decays], g.beta[t]
	keys, later := k, decay[0]
	if g.ChannelDecay {
		keys, later = g.decayed, 1
		for i, v := range k {
			keys[i] = float32(v * decay[i])
		}
	}

	set.MulAdd(g.dState, dv, q, 1, dO, dv, dk, 1, dv)
	clear(g.row)
	set.MulAdd(g.row, dv, keys, dk, before, dv, 1, dk, dv)
	for i, known := range g.row { // what beta multiplies
		g.row[i] = v[i] - float32(known*later)
		g.delta[i] = float32(g.row[i] * beta)
	}
	clear(g.dDelta)
	set.MulAdd(g.dDelta, dv, k, dk, g.dState, dv, 1, dk, dv)
	dBeta := dot(g.dDelta, g.row)
	for i, x := range g.dDelta {
		dValues[i] = float32(x * beta)
		g.z[i] = -dValues[i]
	}
	for i := range dk {
		row := func(s []float32) []float32 { return s[i*dv:][:dv] }
		dq[i] += dot(row(behind), dO)
		dKeys[i] += dot(row(g.dState), g.delta) + float32(dot(row(before), g.z)*decay[i%len(decay)])
	}
	set.MulAdd(g.dState, dv, k, 1, g.z, dv, dk, 1, dv)
	da, slope := g.places[5].of(g.dIn, g.from+t, g.part)[j*g.decays:], g.slope[t*g.decays:]
	each := len(before) / len(decay)
	for i, f := range decay {
		da[i] = float32(float32(dot(g.dState[i*each:][:each], before[i*each:])*f) * slope[i])
	}
	g.scaleRows(g.dState, decay)
	g.places[4].of(g.dIn, g.from+t, g.part)[j] = float32(dBeta * float32(beta*(1-beta)))
}
