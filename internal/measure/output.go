package measure

import (
	"fmt"
	"math"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// textInputs is the OutputStats.Source of activations of a text.
const textInputs = "calibration"

const (
	// randomRows is the number of rows of random activations.
	randomRows = 16
	// maxOutputs is the number of rows of weights above which outputs are sampled.
	maxOutputs = 8192
	// inputRows is how many rows of activations are multiplied at a time.
	inputRows = 256
)

type outputSums struct{ all, weights, activations signalSums }

func (s *outputSums) merge(o *outputSums) {
	s.all.merge(&o.all)
	s.weights.merge(&o.weights)
	s.activations.merge(&o.activations)
}

func (s *outputSums) stats(in *inputs, outputs int64) *accuracy.OutputStats {
	return &accuracy.OutputStats{
		SQNR: s.all.ratio(), Cosine: cosineOf(s.all.dot, s.all.signal, s.all.other),
		WeightSQNR: s.weights.ratio(), ActivationSQNR: s.activations.ratio(),
		Source: in.source, Inputs: in.m, Outputs: outputs,
	}
}

type inputs struct {
	x      []float32
	m      int
	source string
}

// multiplied reports whether a payload is multiplied with activations, and if not, why: rows of an
// embedding that does not serve as lm_head too are only looked up, and some layouts have no kernel.
func multiplied(t gqf.Tensor, h packing.Header, o kernels.Options) (bool, string) {
	if (t.Role == gqf.RoleEmbedding && len(t.Names()) == 1) || t.Role == gqf.RolePosition {
		return false, "rows are looked up, not multiplied"
	}
	if _, err := kernels.KernelFor(h, 1, o); err != nil {
		return false, err.Error()
	}
	return true, ""
}

// outputs multiplies a block of n rows, the checkpoint's weights b.x and the stored weights b.y,
// with in. first is the beginning of a panel.
func (b *block) outputs(h packing.Header, data []byte, first, n int64, in *inputs, o kernels.Options) (*outputSums, error) {
	var panels []int
	for row := first; row < first+n; row += int64(h.Tile.NR) {
		panels = append(panels, int(row)/int(h.Tile.NR))
	}
	h, data, err := somePanels(h, data, panels)
	if err != nil {
		return nil, err
	}
	packed, err := kernels.NewLinear(h, data, o)
	if err != nil {
		return nil, err
	}
	rows, k := int(n), int(h.Cols)
	var bias []float32
	if h.Flags&packing.FlagBias != 0 {
		bias = make([]float32, rows)
		for r := range bias {
			bias[r] = b.rows.RowBias(int(first) + r)
		}
	}
	var float [2]*kernels.Rows
	for i, w := range [][]float32{b.x, b.y} {
		read := func(dst []float32, row int) { copy(dst, w[row*k:][:k]) }
		if float[i], err = kernels.NewRows(rows, k, read, bias, o); err != nil {
			return nil, err
		}
	}
	s := &outputSums{}
	for i := 0; i < in.m; i += inputRows {
		m := min(in.m-i, inputRows)
		x := in.x[i*k:][:m*k]
		var out [3][]float32
		for j, op := range []kernels.Operator{float[0], float[1], packed} {
			out[j] = buffer.Grow(&b.out[j], m*rows)
			if err := op.Forward(b.workspace, out[j], x, m); err != nil {
				return nil, err
			}
		}
		s.all.add(out[0], out[2])
		s.weights.add(out[0], out[1])
		s.activations.add(out[1], out[2])
	}
	if sum := s.all.noise + s.activations.noise + s.weights.noise; math.IsNaN(sum) || math.IsInf(sum, 0) {
		return nil, fmt.Errorf("the outputs of rows %d to %d are not finite", first, first+n-1)
	}
	return s, nil
}
