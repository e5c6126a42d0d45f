package forward

import "github.com/lowbit-go/gq/internal/lm/arch"

// convBlock is the number of channels of a part of a short convolution.
const convBlock = 256

// shortConv is the middle of a short convolution: of the projections B, C and x of a token, the
// output is C times the convolution of B x.
type shortConv struct {
	channels, taps int
	kernels        [][]float32 // of each part, [tap][channel]
}

func (o *opener) shortConv() *recurrence {
	h := o.config.HiddenSize
	conv := &shortConv{channels: h, taps: o.config.ShortConv.Kernel}
	lists := make([][]int, conv.parts())
	for p := range lists {
		from, to := conv.span(p)
		lists[p] = spread([2]int{from, to - from})
	}
	conv.kernels = o.kernels(h, conv.taps, lists, arch.ConvKernel)
	return &recurrence{mixer: conv, in: o.all(o.spec(arch.ConvIn, 3*h, h)), out: o.linear(arch.ConvOut, h, h)}
}

// scaled: C multiplies the convolution's outputs.
func (s *shortConv) scaled(in []*linear) *Block {
	rows := blockOf(in[0]).part(s.channels, s.channels)
	return &rows
}

func (s *shortConv) inner() int           { return s.channels }
func (s *shortConv) parts() int           { return (s.channels + convBlock - 1) / convBlock }
func (s *shortConv) units() int           { return s.parts() }
func (s *shortConv) cost() int            { return 2 * (s.taps + 2) * min(convBlock, s.channels) }
func (s *shortConv) norm() *norm          { return nil }
func (s *shortConv) workerSize(n int) int { return (3*n + s.taps) * convBlock }

func (s *shortConv) span(part int) (from, to int) {
	return part * convBlock, min(s.channels, (part+1)*convBlock)
}

func (s *shortConv) state(part int) (from, to int) {
	from, to = s.span(part)
	return from * (s.taps - 1), to * (s.taps - 1)
}

// row returns the part's values of B, C and x of a row.
func (s *shortConv) row(x []float32, row, part int) (b, c, v []float32) {
	from, to := s.span(part)
	n := s.channels
	x = x[row*3*n:][:3*n]
	return x[from:to], x[n+from : n+to], x[2*n+from : 2*n+to]
}

func (s *shortConv) forward(w *mixerWorker, part int, out []float32, in [][]float32, from, n int, state []float32) {
	first, last := s.span(part)
	w.reset(convBlock)
	u := w.take(last - first)
	for row := from; row < from+n; row++ {
		b, c, v := s.row(in[0], row, part)
		y := out[row*s.channels+first:][:len(u)]
		for i := range u {
			u[i] = float32(b[i] * v[i])
		}
		convolve(y, u, state, s.kernels[part])
		for i := range y {
			y[i] = float32(y[i] * c[i])
		}
	}
}

func (s *shortConv) backward(w *mixerWorker, part int, dIn [][]float32, dOut []float32, in [][]float32, from, n int, _ []float64) {
	first, last := s.span(part)
	width := last - first
	w.reset(s.workerSize(n))
	u, y, dy, du := w.take(width), w.take(n*width), w.take(n*width), w.take(n*width)
	state := w.take((s.taps - 1) * width)
	clear(state)
	for t := range n {
		b, c, v := s.row(in[0], from+t, part)
		for i := range u {
			u[i] = float32(b[i] * v[i])
		}
		convolve(y[t*width:][:width], u, state, s.kernels[part])
		for i, d := range dOut[(from+t)*s.channels+first:][:width] {
			dy[t*width+i] = float32(d * c[i])
		}
	}
	convolveBack(du, dy, s.kernels[part], n, width)
	for t := range n {
		b, _, v := s.row(in[0], from+t, part)
		db, dc, dv := s.row(dIn[0], from+t, part)
		for i, d := range dOut[(from+t)*s.channels+first:][:width] {
			dc[i] = float32(d * y[t*width+i])
			db[i] = float32(du[t*width+i] * v[i])
			dv[i] = float32(du[t*width+i] * b[i])
		}
	}
}
