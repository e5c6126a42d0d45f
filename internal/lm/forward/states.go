package forward

import (
	"slices"

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
	units() int // number of parts of backward
	cost() int  // float operations of a token in a part
	// state returns the range of a part in the layer's state.
	state(part int) (from, to int)
	// forward computes a part for the rows from to from+n-1, and moves the part's state on. in are
	// the outputs of the input projections, [row][...] each; out is [row][inner].
	forward(w *mixerWorker, part int, out []float32, in [][]float32, from, n int, state []float32)
	// backward computes the gradients of a unit's inputs from the gradients dOut of its outputs,
	// for a sequence of n rows from row from on. It adds the gradients of the norm's gains, if
	// there is a norm, to gains.
	backward(w *mixerWorker, unit int, dIn [][]float32, dOut []float32, in [][]float32, from, n int, gains []float64)
	// workerSize is the number of elements of a worker's memory in backward.
	workerSize(n int) int
	norm() *norm // of the outputs, or nil
	// scaled returns the rows of the input projections that factors can be moved out of, into the
	// columns of the output projection; nil if there are none.
	scaled(in []*linear) *Block
}

// recurrence is a part with a state in place of keys and values: a mixer between its projections.
type recurrence struct {
	mixer
	cache int // index among the caches
	in    []*linear
	ups   []lowRank
	// behind normalizes the mixer's outputs, if it is not nil. late is the mixer if its gate
	// follows the norm.
	behind *norm
	late   *mamba
	out    *linear
}

// lowRank is a projection that reads the outputs of another, a latent of few values. The mixer
// finds its outputs behind the outputs of all projections in in.
type lowRank struct {
	from int // index of the other
	*linear
}

// projections returns the linear layers of in and ups.
func (r *recurrence) projections() []*linear {
	list := slices.Clone(r.in)
	for _, up := range r.ups {
		list = append(list, up.linear)
	}
	return list
}

func (o *opener) recurrence(l arch.LayerConfig) *recurrence {
	open := map[arch.Mixer]func() *recurrence{
		arch.ShortConvMixer: o.shortConv, arch.DeltaNetMixer: o.deltaNet, arch.MambaMixer: o.mamba,
	}
	r := open[l.Mixer]()
	r.cache = len(o.caches)
	_, n := r.state(r.parts() - 1)
	o.caches = append(o.caches, cache{state: n})
	return r
}

func (r *recurrence) last() *linear { return r.out }

// raw is the number of a token's outputs of the input projections.
func (r *recurrence) raw() (n int) {
	for _, in := range r.projections() {
		n += in.spec.rows
	}
	return n
}

func (r *recurrence) memory(_ *Session, k *record, m int) []size {
	list := []size{{&k.raw, m * r.raw()}, {&k.heads, m * r.inner()}}
	if r.behind != nil && k.kept {
		list = append(list, size{&k.unnormed, m * r.inner()})
	}
	return list
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

// inputs computes the input projections of m rows, one behind the other in b.
func (r *recurrence) inputs(s *Session, b *[]float32, x []float32, m int) [][]float32 {
	all := r.projections()
	rest, list := buffer.Grow(b, m*r.raw()), make([][]float32, len(all))
	for i, in := range all {
		list[i], rest = rest[:m*in.spec.rows], rest[m*in.spec.rows:]
		if up := i - len(r.in); up >= 0 {
			x = list[r.ups[up].from]
		}
		s.multiply(list[i], x, m, in)
	}
	return list
}

func (r *recurrence) run(s *Session, k *record, dst, x []float32, m int) {
	k.inputs = r.inputs(s, &k.raw, x, m)
	inner := r.inner()
	heads := buffer.Grow(&k.heads, m*inner)
	y := heads
	if r.behind != nil && k.kept {
		y = buffer.Grow(&k.unnormed, m*inner)
	}
	s.sequences(k, r.cache, m, func(from, to int) {
		part := make([][]float32, len(k.inputs))
		for i, in := range r.projections() {
			part[i] = k.inputs[i][from*in.spec.rows : to*in.spec.rows]
		}
		s.recur(r, y[from*inner:to*inner], part)
	})
	r.finish(s, heads, y, k.inputs, m)
	if dst != nil {
		s.multiply(dst, heads, m, r.out)
	}
}

// finish computes the inputs dst of the output projection from the outputs y of the mixer.
func (r *recurrence) finish(s *Session, dst, y []float32, in [][]float32, m int) {
	if r.behind == nil {
		return
	}
	s.norm(dst, y, r.behind, m)
	if d := r.late; d != nil {
		n := d.Inner()
		s.split(m, 32*n, func(worker, from, to int) {
			w := &s.mixers[worker]
			w.reset(n)
			for t := from; t < to; t++ {
				d.gate(w, dst[t*n:][:n], in[0][t*d.Rows():], 0)
			}
		})
	}
}

// recur moves the states of all segments on. Threads divide segments and parts, so that the bits do
// not depend on the number of threads. A part takes its tokens one after the other, so that the
// bits do not depend on the division into passes.
func (s *Session) recur(mixer *recurrence, out []float32, in [][]float32) {
	rows := 0
	for j := range s.segments {
		g := &s.segments[j]
		// All pages of a sequence are the same: the state.
		for c := &g.caches[mixer.cache]; len(c.pages)*pageTokens < g.start+g.rows; {
			if len(c.pages) > 0 {
				c.pages = append(c.pages, c.pages[0])
			} else {
				c.pages = append(c.pages, c.take())
			}
		}
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
			page := g.caches[mixer.cache].pages[position/pageTokens]
			state := page.state[from:to]
			n := min(g.rows-row, pageTokens-position%pageTokens)
			if position == 0 {
				clear(state)
			} else if position%pageTokens == 0 {
				copy(state, g.caches[mixer.cache].pages[position/pageTokens-1].state[from:to])
			}
			mixer.mixer.forward(&s.mixers[worker], part, out, in, g.row+row, n, state)
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

// kernels reads the weights of a convolution, [channel][1][tap], as [tap][channel] of each part.
// The channels are those of all kinds in order; parts lists the channels of a part.
func (o *opener) kernels(channels, taps int, parts [][]int, kinds ...arch.Kind) [][]float32 {
	var weights []float32
	for _, kind := range kinds {
		weights = append(weights, o.values(o.name(kind)+".weight", int64(channels/len(kinds)), 1, int64(taps))...)
	}
	if o.err != nil {
		return nil
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
	return kernels
}

// spread lists the numbers of ranges: the first of a range, and how many.
func spread(ranges ...[2]int) (list []int) {
	for _, r := range ranges {
		for i := range r[1] {
			list = append(list, r[0]+i)
		}
	}
	return list
}

func (r *recurrence) gradientSizes(t *Tape, n int) []size {
	list := []size{{&t.back.draw, n * r.raw()}, {&t.back.dheads, n * r.inner()}}
	if r.late != nil {
		list = append(list, size{&t.s.heads, n * r.inner()})
	}
	return list
}

func (r *recurrence) backward(t *Tape, k *record, g *Gradients, dy []float32, input bool) {
	b, n := &t.back, t.tokens()
	t.through(g, r.out, b.dheads, k.heads, dy, k.out, false)
	sequences, parts := len(t.starts)-1, r.units()
	all := r.projections()
	draw, rest := make([][]float32, len(all)), buffer.Grow(&b.draw, len(k.raw))
	for i, in := range all {
		draw[i], rest = rest[:n*in.spec.rows], rest[n*in.spec.rows:]
	}
	r.finishBackward(t, k, g, draw)
	width := 0
	if r.norm() != nil {
		width = r.norm().Width
	}
	gains := buffer.Grow(&b.partGains, sequences*parts*width)
	clear(gains)
	t.s.each(sequences*parts, n*parts*8*r.cost(), func(worker, at int) {
		from, to := t.starts[at/parts], t.starts[at/parts+1]
		r.mixer.backward(&t.s.mixers[worker], at%parts, draw, b.dheads, k.inputs, from, to-from, gains[at*width:][:width])
	})
	if width > 0 {
		for at := range sequences * parts {
			for j, v := range gains[at*width:][:width] {
				b.gains[j] += v
			}
		}
		t.finishNorm(g, r.norm())
	}
	for i, up := range r.ups {
		at := len(r.in) + i
		t.through(g, up.linear, draw[up.from], k.inputs[up.from], draw[at], k.inputs[at], false)
	}
	t.fused(r.in, g, b.dnormed, k.in, draw[:len(r.in)], k.inputs[:len(r.in)], n, input, nil)
}

// finishBackward goes back through finish: t.back.dheads become the gradients of the mixer's
// outputs.
func (r *recurrence) finishBackward(t *Tape, k *record, g *Gradients, draw [][]float32) {
	if r.behind == nil {
		return
	}
	n, dheads := t.tokens(), t.back.dheads
	if d := r.late; d != nil {
		inner := d.Inner()
		normed := buffer.Grow(&t.s.heads, n*inner)
		t.s.norm(normed, k.unnormed, r.behind, n)
		t.s.split(n, 32*inner, func(worker, from, to int) {
			w := &t.s.mixers[worker]
			w.reset(inner)
			z := w.take(inner)
			for i := from; i < to; i++ {
				dy := dheads[i*inner:][:inner]
				d.gateBackward(draw[0][i*d.Rows():][:inner], dy, dy, k.inputs[0][i*d.Rows():][:inner], normed[i*inner:][:inner], z)
			}
		})
	}
	t.norm(g, r.behind, dheads, dheads, k.unnormed, n, false)
}
