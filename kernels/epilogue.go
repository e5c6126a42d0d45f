package kernels

import (
	"math"

	"github.com/lowbit-go/gq/internal/floats"
)

// applyEpilogue turns the dot products of row i of a with a panel into outputs.
func (l *Linear) applyEpilogue(out []float32, t []int32, p *panel, a *activations, i int) {
	f, groups := l.panelLayout, l.groups
	switch f.epilogue {
	case epilogueRow:
		l.set.EpilogueRow(&out[0], &t[0], &p.sums[0], f.codeFactor, a.negInt[i], &p.scales[0], &p.bias[0], a.rec[i])
		return
	case epilogueGroup:
		epilogueUnit(out, t, l.reader.unit, p.scales, p.float, p.bias, a.negZero[i], a.rec[i])
	case epilogueF16:
		l.set.EpilogueFMA(&out[0], &t[0], groups, &p.scales[0], &a.scales[i*groups])
	case epilogueQAI4:
		l.set.EpilogueQAI4(&out[0], &t[0], groups, &p.scales[0], &p.points[0], &a.scales[i*groups], &a.asums[i*groups])
		addBias(out, p.bias)
	case epilogueTorchAO:
		l.set.AddSums(&t[0], &p.sums[0], groups, a.negInt[i])
		l.set.EpilogueTorchAO(&out[0], &t[0], groups, &p.scales[0], a.rec[i])
		if f.biasAt >= 0 {
			addBias(out, p.bias)
		}
	}
	canonical(out)
}

func addBias(out, bias []float32) {
	bias = bias[:len(out)]
	for r := range out {
		out[r] += bias[r]
	}
}

// shiftDots turns dot products without zero points, [mr][groups][NR], into the integers t of
// tile.Step.Shifted.
func (l *Linear) shiftDots(dots, zeros, sums []int32, mr int) {
	n := l.groups * l.set.NR
	for i := range mr {
		row := dots[i*n:][:n]
		for j := range row {
			row[j] = row[j]<<l.shift - zeros[j]*sums[j/l.set.NR*mr+i]
		}
	}
}

// epilogueUnit is the arithmetic of tile.Step.Group for scales that cannot be multiplied by the unit
// of t, a power of 2: the term of a group is fma(float32(t)*unit, scale, f). The first product is
// exact.
func epilogueUnit(out []float32, t []int32, unit float32, scales, rowSums, bias []float32, negZero, rec float32) {
	nr := len(out)
	for r := range out {
		f := float32(0)
		for i := r; i < len(t); i += nr {
			f = floats.FMA32(float32(float32(t[i])*unit), scales[i], f)
		}
		f = floats.FMA32(rowSums[r], negZero, f)
		out[r] = float32(f*rec) + bias[r]
	}
}

// finishRows clamps columns [from, to) of the outputs of rows [row, row+n), and writes NaN to the
// outputs of rows without codes. at is the index of the first row in w.acts.
func (w *Workspace) finishRows(row, at, n, from, to int) {
	j := &w.job
	for i := range n {
		out := j.dst[(row+i)*j.l.rows:][from:to]
		if w.acts.bad[at+i] {
			for r := range out {
				out[r] = nan
			}
		} else if j.clamped {
			clamp(out, j.min, j.max)
		}
	}
}

// nan is the only NaN in outputs.
var nan = math.Float32frombits(0x7fc00000)

// clamp clamps as KleidiAI does: the maximum with lo, then the minimum with hi, where -0 is below
// +0 and NaN stays. Go's max and min do the same, but may change the bits of a NaN.
func clamp(out []float32, lo, hi float32) {
	for i, x := range out {
		if x == x {
			out[i] = min(max(x, lo), hi)
		}
	}
}

// canonical replaces every NaN by nan.
func canonical(out []float32) {
	for i, x := range out {
		if x != x {
			out[i] = nan
		}
	}
}
