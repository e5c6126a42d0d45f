package accuracy

import (
	"cmp"
	"math"
	"slices"
)

// DefaultGateName is the value of --gate that selects DefaultGate.
const DefaultGateName = "default"

// defaultKL limits the mean KL divergence in nats, by the width of most weights. Round-to-nearest
// at group 32 with an 8-bit embedding stays below these limits even in the smallest model measured
// (260K parameters: 0.0010, 0.0055, 0.021, 0.094 and 0.64 at 8, 6, 5, 4 and 3 bits), and far below
// in larger models. Above 0.7 the predictions have little in common, so 0.7 is the limit of 2 bits
// and 1 bit as well; few models meet that without calibration.
var defaultKL = map[int]float64{8: 0.005, 7: 0.01, 6: 0.02, 5: 0.05, 4: 0.15, 3: 0.7, 2: 0.7, 1: 0.7}

// roundingSQNR is the signal-to-noise ratio in dB of round-to-nearest on heavy-tailed weights
// (Student's t with 5 degrees of freedom, 524,288 weights, BF16 scales), by bits and group size;
// the group of a channel is its row. Of symmetric and symmetric-no-clip, the table has the lower
// ratio; full-range and asymmetric have higher ratios.
var roundingSQNR = map[int][]float64{
	//  16     32     64    128    256    512   1024   2048   4096   8192  16384
	2: {5.86, 4.46, 3.37, 2.53, 1.88, 1.37, 1.01, 0.72, 0.50, 0.33, 0.23},
	3: {13.21, 11.92, 10.47, 9.11, 7.88, 6.71, 5.68, 4.73, 3.82, 3.01, 2.37},
	4: {19.74, 18.43, 17.10, 15.76, 14.42, 13.15, 11.92, 10.69, 9.40, 8.22, 7.19},
	5: {26.05, 24.71, 23.36, 22.01, 20.69, 19.47, 18.21, 16.93, 15.59, 14.32, 13.18},
	6: {32.26, 30.90, 29.54, 28.18, 26.82, 25.64, 24.38, 23.11, 21.75, 20.50, 19.34},
	7: {38.38, 36.99, 35.62, 34.27, 32.96, 31.75, 30.48, 29.20, 27.85, 26.59, 25.42},
	8: {44.45, 43.06, 41.69, 40.32, 38.97, 37.77, 36.52, 35.25, 33.90, 32.64, 31.47},
}

// roundingMargin is how many dB a tensor may be below roundingSQNR. A column in 128 that is four
// times as large as the others costs 0.6 dB at group 32 and 2.5 dB in rows of 4,096.
const roundingMargin = 3

// defaultSQNR is the least SQNR of a tensor's weights in dB. Weights of zeros have an SQNR of 0.
func defaultSQNR(bits int, group int64) float64 {
	measured := roundingSQNR[bits]
	if measured == nil {
		return 0
	}
	i := 0
	for i < len(measured)-1 && group > 16<<i {
		i++
	}
	return max(0, math.Round(100*(measured[i]-roundingMargin))/100)
}

// DefaultGate is the gate for r's file. If there was a text, the mean KL divergence is limited by
// the width of most weights. The signal-to-noise ratio of each tensor's weights is limited by width
// and group. Of calibrated and tuned tensors, the errors of outputs on a text must be smaller than
// the outputs. If kernels were compared, all must agree.
func DefaultGate(r *Report) *Gate {
	g := &Gate{Name: DefaultGateName, Version: 1, Model: map[string]Limit{}, Parity: r.Parity != nil}
	if limit, ok := defaultKL[r.Totals.Bits]; ok && (r.Text != nil || r.NoModel != "") {
		g.Model["mean_kl"] = Limit{Max: &limit}
	}
	type scheme struct{ bits, group int }
	longest := map[scheme]int64{} // length of the longest group; group 0 is a row
	for i := range r.Tensors {
		s := &r.Tensors[i]
		if s.Unquantized {
			continue
		}
		of, n := scheme{s.Bits, s.Group}, int64(s.Group)
		if s.Group == 0 {
			n = s.Cols
		}
		longest[of] = max(longest[of], n)
	}
	for of, n := range longest {
		floor := defaultSQNR(of.bits, n)
		g.Tensors = append(g.Tensors, TensorRule{Bits: of.bits, Group: &of.group, Limits: map[string]Limit{"sqnr_db": {Min: &floor}}})
	}
	slices.SortFunc(g.Tensors, func(a, b TensorRule) int {
		return cmp.Or(cmp.Compare(b.Bits, a.Bits), cmp.Compare(*a.Group, *b.Group))
	})
	floor := 0.0
	outputs := TensorRule{fitted: true, Limits: map[string]Limit{"weight_sqnr_db": {Min: &floor}}}
	if slices.ContainsFunc(r.Tensors, func(s TensorStats) bool { return !s.Unquantized && outputs.matches(&s) }) {
		g.Tensors = append(g.Tensors, outputs)
	}
	return g
}
