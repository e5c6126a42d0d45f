package forward

import (
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// mixer is the middle of a layer that has a state in place of keys and values: everything between
// the input projections and the output projection. Parts of a mixer are independent of each other.
// Each part has a range of the state, and the state of a part follows from the inputs of the part
// alone.
type mixer interface {
	inner() int // number of inputs of the output projection
	parts() int
	cost() int // float operations of a token in a part
	// state returns the range of a part in the layer's state.
	state(part int) (from, to int)
	// forward computes a part for the rows from to from+n-1, and moves the part's state on. in are the
	// outputs of the input projections, [row][...] each; out is [row][inner].
	forward(w *mixerWorker, part int, out []float32, in [][]float32, from, n int, state []float32)
	// backward computes the gradients of a part's inputs from the gradients dOut of its outputs, for a
	// sequence of n rows from row from on. It adds the gradients of the norm's gains, if there is a
	// norm, to gains.
	backward(w *mixerWorker, part int, dIn [][]float32, dOut []float32, in [][]float32, from, n int, gains []float64)
	// workerSize is the number of elements of a worker's memory in backward.
	workerSize(n int) int
	norm() *norm // of the outputs, or nil
}

// mixerWorker is the memory of a thread.
type mixerWorker struct {
	memory []float32
	at     int
	_      [64]byte // keeps threads out of each other's cache lines
}

// reset makes room for n elements.
func (w *mixerWorker) reset(n int) {
	buffer.Grow(&w.memory, n)
	w.at = 0
}

// take returns the next n elements, with undefined content.
func (w *mixerWorker) take(n int) []float32 {
	w.at += n
	return w.memory[w.at-n : w.at : w.at]
}

// stateSize returns the number of elements of a layer's state.
func stateSize(c *arch.ForwardConfig, layer int) int {
	switch c.Layers[layer].Mixer {
	case arch.ShortConvMixer:
		return (c.ShortConv.Kernel - 1) * c.HiddenSize
	case arch.DeltaNetMixer:
		d := c.DeltaNet
		return (d.Kernel-1)*d.Channels() + d.Inner()*d.KeyDim
	}
	return 0
}

// pageSize returns the number of elements of a layer's page: keys and values of pageTokens tokens,
// or the state behind the last token of a page.
func pageSize(c *arch.ForwardConfig, layer int) int {
	if c.Layers[layer].States() {
		return stateSize(c, layer)
	}
	return 2 * pageTokens * c.KVHeads * c.HeadDim
}

// middle returns the largest numbers of a token's outputs of input projections, and of inputs of
// output projections, in layers with states.
func (m *Model) middle() (raw, inner int) {
	for i := range m.layers {
		if l := &m.layers[i]; l.mixer != nil {
			n := 0
			for _, in := range l.qkv {
				n += in.spec.rows
			}
			raw, inner = max(raw, n), max(inner, l.mixer.inner())
		}
	}
	return raw, inner
}

// reachState makes room for tokens up to position n-1. Outside of a Batch, all pages are the same:
// the state changes in place.
func (c *cache) reachState(n int) {
	for len(c.pages)*pageTokens < n {
		switch {
		case len(c.pages) > 0:
			c.pages = append(c.pages, c.pages[0])
		case len(c.free) > 0:
			c.pages, c.free = append(c.pages, c.free[0]), nil
		default:
			c.pages = append(c.pages, &page{state: make([]float32, c.state)})
		}
	}
}

// inputs computes the input projections of a layer with a state for m rows, one behind the other in
// b.
func (s *Session) inputs(l *layer, b *[]float32, x []float32, m int) ([][]float32, error) {
	n := 0
	for _, in := range l.qkv {
		n += in.spec.rows
	}
	rest, list := buffer.Grow(b, m*n), make([][]float32, len(l.qkv))
	for i, in := range l.qkv {
		list[i], rest = rest[:m*in.spec.rows], rest[m*in.spec.rows:]
		if err := s.multiply(list[i], x, m, in); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// mix computes a layer with a state for the m rows of a pass, x, into dst.
func (s *Session) mix(i int, dst, x []float32, m int) error {
	l := &s.m.layers[i]
	in, err := s.inputs(l, &s.raw, x, m)
	if err != nil {
		return err
	}
	heads := buffer.Grow(&s.heads, m*l.mixer.inner())
	s.recur(i, heads, in)
	return s.multiply(dst, heads, m, l.out)
}

// recur moves the states of all segments on. Threads divide segments and parts, so that the bits do
// not depend on the number of threads. A part takes its tokens one after the other, so that the
// bits do not depend on the division into passes.
func (s *Session) recur(i int, out []float32, in [][]float32) {
	mixer := s.m.layers[i].mixer
	rows := 0
	for j := range s.segments {
		g := &s.segments[j]
		g.caches[i].reachState(g.start + g.rows)
		rows += g.rows
	}
	if len(s.mixers) == 0 {
		s.mixers = make([]mixerWorker, s.m.pool.Threads())
	}
	parts := mixer.parts()
	run := func(worker, at int) {
		g, part := &s.segments[at/parts], at%parts
		from, to := mixer.state(part)
		for row := 0; row < g.rows; {
			position := g.start + row
			page := g.caches[i].pages[position/pageTokens]
			state := page.state[from:to]
			n := min(g.rows-row, pageTokens-position%pageTokens)
			if position == 0 {
				clear(state)
			} else if position%pageTokens == 0 {
				copy(state, g.caches[i].pages[position/pageTokens-1].state[from:to])
			}
			mixer.forward(&s.mixers[worker], part, out, in, g.row+row, n, state)
			row += n
		}
	}
	s.each(len(s.segments)*parts, rows*parts*mixer.cost(), run)
}

// each runs n items of work, on all threads if the cost, in float operations, pays.
func (s *Session) each(n, cost int, run func(worker, at int)) {
	if s.m.pool.Threads() > 1 && cost >= 1<<15 {
		s.m.pool.Run(n, run)
		return
	}
	for at := range n {
		run(0, at)
	}
}

// convolve computes a convolution of each channel of a row u for itself into y, and moves the
// state, the rows before, on. kernel is [tap][channel], the tap of the current row last.
func convolve(y, u, state, kernel []float32) {
	n := len(u)
	now := kernel[len(state):]
	for i, v := range u {
		sum := float32(0)
		for j := i; j < len(state); j += n {
			sum += float32(state[j] * kernel[j])
		}
		y[i] = sum + float32(v*now[i])
	}
	if len(state) > 0 {
		copy(state, state[n:])
		copy(state[len(state)-n:], u)
	}
}

// convolveBack computes the gradients du of the rows from the gradients dy of the outputs,
// [n][width] each.
func convolveBack(du, dy, kernel []float32, n, width int) {
	taps := len(kernel) / width
	clear(du[:n*width])
	for t := range n {
		to := du[t*width:][:width]
		for j := range min(taps, n-t) { // the output j rows later
			k, d := kernel[(taps-1-j)*width:][:width], dy[(t+j)*width:][:width]
			for i := range to {
				to[i] += float32(k[i] * d[i])
			}
		}
	}
}

// loadKernel reads the weights of a convolution, [channel][1][tap], as [tap][channel] of each part.
// channels lists the channels of a part.
func (m *Model) loadKernel(name string, channels, taps int, parts [][]int) ([][]float32, error) {
	m.used[name] = true
	weights, err := m.source.tensor(name, int64(channels), 1, int64(taps))
	if err != nil {
		return nil, err
	}
	kernels := make([][]float32, len(parts))
	for p, list := range parts {
		kernels[p] = make([]float32, taps*len(list))
		for i, c := range list {
			for j := range taps {
				kernels[p][j*len(list)+i] = weights[c*taps+j]
			}
		}
	}
	return kernels, nil
}

// loadMixer opens the tensors of a layer with a state.
func (m *Model) loadMixer(l *layer, at string) (err error) {
	if l.Mixer == arch.ShortConvMixer {
		return m.loadShortConv(l, at)
	}
	return m.loadDeltaNet(l, at)
}

// recur runs all sequences through a layer with a state, and keeps the outputs of the input
// projections.
func (t *Tape) recur(i int) (err error) {
	s, l, r := t.s, &t.m.layers[i], &t.record
	if r.in, err = s.inputs(l, &r.raw, r.normed, t.tokens()); err != nil {
		return err
	}
	s.n = 0
	s.caches[i].free, t.statePage = t.statePage, nil
	inner := l.mixer.inner()
	for j, from := range t.starts[:len(t.starts)-1] {
		to := t.starts[j+1]
		s.alone(to - from)
		part := make([][]float32, len(r.in))
		for k, in := range l.qkv {
			part[k] = r.in[k][from*in.spec.rows : to*in.spec.rows]
		}
		s.recur(i, r.heads[from*inner:to*inner], part)
		s.caches[i].reset()
	}
	t.statePage, s.caches[i].free = s.caches[i].free, nil
	return nil
}

// mixBackward takes the gradients of a mixer's outputs, t.back.dheads, back to the layer's input.
// If input is set, t.back.dnormed receives the gradients of the projections' input.
func (t *Tape) mixBackward(i int, g *Gradients, input bool) error {
	l, r, b, n := &t.m.layers[i], &t.record, &t.back, t.tokens()
	sequences, parts := len(t.starts)-1, l.mixer.parts()
	draw, rest := make([][]float32, len(l.qkv)), buffer.Grow(&b.draw, len(r.raw))
	for k, in := range l.qkv {
		draw[k], rest = rest[:n*in.spec.rows], rest[n*in.spec.rows:]
	}
	width := 0
	if l.mixer.norm() != nil {
		width = l.mixer.norm().Width
	}
	gains := buffer.Grow(&b.partGains, sequences*parts*width)
	clear(gains)
	t.s.each(sequences*parts, n*parts*8*l.mixer.cost(), func(worker, at int) {
		from, to := t.starts[at/parts], t.starts[at/parts+1]
		l.mixer.backward(&t.s.mixers[worker], at%parts, draw, b.dheads, r.in, from, to-from, gains[at*width:][:width])
	})
	if width > 0 {
		for at := range sequences * parts {
			for j, v := range gains[at*width:][:width] {
				b.gains[j] += v
			}
		}
		if err := t.finishNorm(g, l.mixer.norm()); err != nil {
			return err
		}
	}
	return t.fused(l.qkv, g, b.dnormed, r.normed, draw, r.in, n, input, nil)
}
