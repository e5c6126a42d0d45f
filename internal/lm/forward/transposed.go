package forward

import (
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// transposed is linear for weights that are stored inputs x outputs.
func (f floats) transposed(data []byte, d packing.Dtype, rows, cols int) (kernels.Operator, error) {
	size := d.Bits() / 8
	if f.packed {
		turned := make([]byte, len(data))
		for r := range rows {
			for c := range cols {
				copy(turned[(r*cols+c)*size:][:size], data[(c*rows+r)*size:])
			}
		}
		return f.linear(turned, d, rows, cols)
	}
	read := func(dst []float32, row int) {
		for c := range cols {
			safetensors.Widen(dst[c:c+1], data[(c*rows+row)*size:][:size], d)
		}
	}
	return kernels.NewRows(rows, cols, read, nil, f.options)
}

// storedBias reads the bias of a linear layer. The biases of fused experts are a single tensor, and
// read once.
func (m *Model) storedBias(l *linear) ([]float32, error) {
	s := l.spec
	if s.slices == 0 {
		return readVector(m.source, l.biasName, s.rows)
	}
	all, ok := m.biases[l.biasName]
	if !ok {
		var err error
		if all, err = m.source.tensor(l.biasName, int64(s.slices), int64(s.rows)); err != nil {
			return nil, err
		}
		m.biases[l.biasName] = all
	}
	return all[s.slice*s.rows:][:s.rows], nil
}
