package rounding

import "github.com/lowbit-go/gq/internal/floats"

const (
	hqqTolerance = 1e-5
	hqqEps       = 0x1p-23 // finfo(float32).eps, the least scale
)

// TorchAOHQQScaleOnly quantizes the row-major matrix w (rows x cols) as TorchAO's
// hqq_scale_only does (_choose_qparams_and_quantize_scale_only_hqq in
// torchao/quantization/quant_primitives.py at pytorch/ao 36027d82): alternating least
// squares in float32, per group, from s = max|w| / 2^(b-1):
//
//	repeat at most 20 times: q = clamp(rne(w/s)); s = sum(w q) / sum(q q), at least 2^-23
//	until no scale of the matrix moves by 1e-5 of itself or more
//
// then q once more, and the scale is cast to the weight dtype. The codes are
// symmetric; o.Mapping is not used. TorchAO leaves the codes as they were before that
// cast, and so does o.Compat. If o.ScaleDtype is not the weights' dtype, TorchAO
// casts once more and then takes the affine rule's codes; so does this.
//
// The last bit of a scale depends on the order of the sums, which is the order of PyTorch's
// CPU kernel for vectors of 8 floats. Errors are as in TorchAOAffine.
func TorchAOHQQScaleOnly(w []float32, rows, cols int, o TorchAOOptions) (*TorchAOWeights, error) {
	t, err := newTorchAO(w, rows, cols, &o)
	if err != nil {
		return nil, err
	}
	qmin, qmax := codeRange(o.Bits)
	hqqScales(t.Scales, w, t.Group, qmin, qmax)
	for g, s := range t.Scales {
		x := w[g*t.Group : (g+1)*t.Group]
		codes := t.Codes[g*t.Group : (g+1)*t.Group]
		stored := o.ScaleDtype.Round(roundTo(o.WeightDtype, s))
		t.Scales[g] = stored
		if o.ScaleDtype != scaleDtypeOf(o.WeightDtype) {
			t.affineCodes(codes, x, stored, 0, qmin, qmax)
			continue
		}
		if !o.Compat {
			s = stored
		}
		for i, v := range x {
			codes[i] = clampCode(roundToEven(v/s), qmin, qmax)
		}
	}
	return t, nil
}

// hqqScales sets scales to the float32 scales of the groups of w.
func hqqScales(scales, w []float32, group, qmin, qmax int) {
	for g := range scales {
		var m float32
		for _, v := range w[g*group : (g+1)*group] {
			m = max(m, floats.Abs(v))
		}
		scales[g] = max(m/float32(-qmin), hqqEps)
	}
	wq, qq := make([]float32, group), make([]float32, group)
	for range hqqIterations {
		var moved float32
		for g, prev := range scales {
			for i, v := range w[g*group : (g+1)*group] {
				q := float32(clampCode(roundToEven(v/prev), qmin, qmax))
				wq[i], qq[i] = float32(v*q), float32(q*q)
			}
			s := prev
			if den := torchSum(qq); den > 0 {
				s = torchSum(wq) / den
			}
			s = max(s, hqqEps)
			moved = max(moved, floats.Abs(s-prev)/prev)
			scales[g] = s
		}
		if moved < hqqTolerance {
			return
		}
	}
}

const (
	torchLanes   = 8              // floats of a vector
	torchColumns = 4 * torchLanes // four vectors are summed side by side
	torchStep    = 16             // rows of torchColumns values before a partial sum moves up a level
	torchLevels  = 4
)

// torchSum adds x in the order of PyTorch's CPU sum over contiguous float32
// (aten/src/ATen/native/cpu/SumKernel.cpp): 32 columns of partial sums, to whose first 8 the
// vectors of an incomplete row are added; then columns 8 apart are added, then the values of an
// incomplete vector, then the 8 lanes. Long columns are summed in 16s of 16s for up to 2^25 values,
// beyond which PyTorch takes longer steps.
func torchSum(x []float32) float32 {
	var acc [torchLevels][torchColumns]float32
	full := len(x) / torchColumns
	for row := range full {
		for c, v := range x[row*torchColumns:][:torchColumns] {
			acc[0][c] += v
		}
		// After every 16th row level 0 moves to level 1, after every 256th level 1 to 2.
		for level, done := 1, row+1; level < torchLevels && done%torchStep == 0; level++ {
			done /= torchStep
			for c := range torchColumns {
				acc[level][c] += acc[level-1][c]
				acc[level-1][c] = 0
			}
		}
	}
	sums := &acc[0]
	for level := 1; level < torchLevels; level++ {
		for c := range torchColumns {
			sums[c] += acc[level][c]
		}
	}
	rest := x[full*torchColumns:]
	for ; len(rest) >= torchLanes; rest = rest[torchLanes:] {
		for c, v := range rest[:torchLanes] {
			sums[c] += v
		}
	}
	for c := torchLanes; c < torchColumns; c++ {
		sums[c%torchLanes] += sums[c]
	}
	var sum float32
	for _, v := range rest {
		sum += v
	}
	for _, v := range sums[:torchLanes] {
		sum += v
	}
	return sum
}
