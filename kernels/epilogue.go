package kernels

import (
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/kernels/tile"
)

func (f *panelLayout) product(step *tile.Step) func(*tile.Args) {
	switch f.epilogue {
	case epilogueRow:
		return step.Row
	case epilogueF16:
		return step.Blocks
	case epilogueQAI4:
		return step.BlocksQAI4
	case epilogueTorchAO:
		return step.TorchAO
	}
	if f.shift > 0 {
		return step.Shifted
	}
	return step.Group
}

// shiftDots turns dot products without zero points, [mr][groups][NR], into tile.Step.Shifted's t.
func (l *Linear) shiftDots(dots, zeros, sums []int32, mr int) {
	n := l.groups * l.set.NR
	for i := range mr {
		row := dots[i*n:][:n]
		for j := range row {
			row[j] = row[j]<<l.shift - zeros[j]*sums[j/l.set.NR*mr+i]
		}
	}
}

// epilogueUnit is the arithmetic of tile.Step.Group for scales that cannot be multiplied by the
// unit of t, a power of 2: the term of a group is fma(float32(t)*unit, scale, f). The first product
// is exact.
func epilogueUnit(out []float32, t []int32, unit float32, scales, rowSums, bias []float32, negZero, rec float32) {
	nr := len(out)
	for r := range out {
		f := float32(0)
		for i := r; i < len(t); i += nr {
			f = floats.FMA32(float32(float32(t[i])*unit), scales[i], f)
		}
		f = floats.FMA32(rowSums[r], negZero, f)
		if out[r] = float32(f*rec) + bias[r]; out[r] != out[r] {
			out[r] = floats.NaN
		}
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
				out[r] = floats.NaN
			}
		} else if j.clamped {
			clamp(out, j.min, j.max)
		}
	}
}

// clamp clamps as KleidiAI does: the maximum with lo, then the minimum with hi, where -0 is below
// +0 and NaN stays. Go's max and min do the same, but may change the bits of a NaN.
func clamp(out []float32, lo, hi float32) {
	for i, x := range out {
		if x == x {
			out[i] = min(max(x, lo), hi)
		}
	}
}
