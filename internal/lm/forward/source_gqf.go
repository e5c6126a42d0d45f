package forward

import (
	"errors"
	"fmt"

	"github.com/lowbit-go/gq/embedding"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/onnx"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// gqfSource multiplies with the payloads of a .gqf in place.
type gqfSource struct {
	file        *gqf.File
	activations Activations
	floats      floats
	cpu         gqf.CPUFeatures // the CPU for which variants are chosen; 0: any
}

// biasOf follows the file's link to the bias, if present.
func (s *gqfSource) biasOf(weights string) string {
	if t, ok := s.file.Lookup(weights); ok && t.Bias >= 0 {
		return s.file.Tensor(t.Bias).Name
	}
	return arch.BiasName(weights)
}

func (s *gqfSource) names() []string {
	var names []string
	for n := range s.file.AllNames() {
		if !n.Absorbed {
			names = append(names, n.Name)
		}
	}
	return names
}

func (s *gqfSource) shape(name string) ([]int64, bool) {
	t, ok := s.file.Lookup(name)
	return t.Shape, ok
}

func (s *gqfSource) find(name string, shape ...int64) (gqf.Tensor, error) {
	t, ok := s.file.Lookup(name)
	if !ok {
		return t, arch.Missing(name)
	}
	if u, ok := errors.AsType[*gqf.UnsupportedError](t.Usable()); ok {
		return t, &arch.UnsupportedError{Msg: u.Msg}
	}
	return t, checkShape(name, t.Shape, shape)
}

func (s *gqfSource) tensor(name string, shape ...int64) ([]float32, error) {
	t, err := s.find(name, shape...)
	if err != nil {
		return nil, err
	}
	data, h, err := s.plain(t, 0)
	if err != nil {
		return nil, err
	}
	v := make([]float32, elements(shape))
	return v, s.file.Guard(func() error {
		safetensors.Widen(v, data, h.Dtype)
		return nil
	})
}

// plain returns the data of a slice of an unquantized tensor.
func (s *gqfSource) plain(t gqf.Tensor, slice int) ([]byte, packing.Header, error) {
	p, ok := t.Payload(0, slice, gqf.KindWeights)
	switch {
	case !ok:
		return nil, p.Header, fmt.Errorf("tensor %q has no slice %d", t.Name, slice)
	case p.Header.Layout != packing.LayoutPlain:
		return nil, p.Header, &arch.UnsupportedError{Msg: fmt.Sprintf("tensor %q is quantized, but this forward pass needs it unquantized", t.Name)}
	case !p.Header.Dtype.IsFloat():
		return nil, p.Header, &arch.UnsupportedError{Msg: fmt.Sprintf("tensor %q: %s is not a dtype of weights", t.Name, p.Header.Dtype)}
	case p.Header.Dtype == packing.F8E4M3 || p.Header.Dtype == packing.F8E5M2:
		return nil, p.Header, &arch.UnsupportedError{Msg: fmt.Sprintf("tensor %q is unquantized %s, but this forward pass does not read its scales from a .gqf", t.Name, p.Header.Dtype)}
	}
	data, err := s.file.Data(p)
	return data, p.Header, err
}

func (s *gqfSource) embedding(name string, rows, cols int) (Embedding, error) {
	if _, err := s.find(name, int64(rows), int64(cols)); err != nil {
		return nil, err
	}
	return embedding.Open(s.file, name)
}

func (s *gqfSource) linear(l *linearSpec) (kernels.Operator, error) {
	t, err := s.find(l.name, l.wantShape()...)
	if err != nil {
		return nil, err
	}
	slice := l.slice
	if t.Experts == 1 && l.slices > 0 { // unquantized, in a single payload
		slice = 0
	}
	p, ok := t.Payload(0, slice, gqf.KindWeights)
	switch {
	case !ok:
		return nil, fmt.Errorf("tensor %q has no slice %d", l.name, slice)
	case p.Header.Layout == packing.LayoutPlain:
		return s.unquantized(t, l, slice)
	case t.Transposed != l.transposed:
		return nil, &arch.UnsupportedError{Msg: fmt.Sprintf("tensor %q: stored inputs x outputs is %v in the file, but %v was expected for config.json's model_type: quantize the checkpoint again", l.name, t.Transposed, l.transposed)}
	case s.activations == Float32:
		return s.dequantized(t, l, slice, 0)
	case s.activations == ONNX:
		return s.dequantized(t, l, slice, int(onnx.BlockOf(int64(p.Header.Group), int64(p.Header.Cols), false)))
	}
	return s.packed(t, l, slice)
}

func (s *gqfSource) unquantized(t gqf.Tensor, l *linearSpec, slice int) (kernels.Operator, error) {
	if p, _ := t.Payload(0, slice, gqf.KindWeights); s.file.View(p) != nil && !l.transposed {
		h := packing.PlainHeader(p.Header.Dtype, uint64(l.rows), uint64(l.cols))
		return s.viewed(p, h, l.slice*l.rows, func(h packing.Header, data []byte) (kernels.Operator, error) {
			return s.floats.linear(data, h.Dtype, int(h.Rows), l.cols)
		})
	}
	data, h, err := s.plain(t, slice)
	if err != nil {
		return nil, err
	}
	if t.Experts == 1 && l.slices > 0 {
		size := len(data) / l.slices
		data = data[l.slice*size:][:size]
	}
	if l.transposed {
		return s.floats.transposed(data, h.Dtype, l.rows, l.cols)
	}
	return s.floats.linear(data, h.Dtype, l.rows, l.cols)
}

// packed opens the best variant for the CPU that has kernels.
func (s *gqfSource) packed(t gqf.Tensor, l *linearSpec, slice int) (kernels.Operator, error) {
	var first error
	for _, variant := range t.VariantsFor(s.cpu) {
		p, _ := t.Payload(variant, slice, gqf.KindWeights)
		if s.file.View(p) != nil {
			return s.viewed(p, p.Header, 0, func(h packing.Header, data []byte) (kernels.Operator, error) {
				return kernels.NewLinear(h, data, s.floats.options)
			})
		}
		data, err := s.file.Data(p)
		if err != nil {
			return nil, err
		}
		op, err := kernels.NewLinear(p.Header, data, s.floats.options)
		if err == nil {
			if l.added = p.Header.Flags&packing.FlagBias != 0; l.added && !l.bias {
				err = fmt.Errorf("tensor %q has a bias, but config.json describes a model without one there", l.label())
			}
			return op, err
		}
		if first == nil {
			first = err
		}
	}
	return nil, fmt.Errorf("tensor %q: %w (float32 activations work with any layout)", l.label(), first)
}

// dequantized opens an operator that multiplies activations with the dequantized weights. If block
// is not 0, activations are rounded in blocks of this size.
func (s *gqfSource) dequantized(t gqf.Tensor, l *linearSpec, slice, block int) (kernels.Operator, error) {
	rows, err := t.Rows(0, slice)
	if err != nil {
		return nil, err
	}
	if s.floats.packed && block == 0 {
		return s.floats.unpacked(rows.Dequantize, l.rows, l.cols)
	}
	op, err := kernels.NewRows(l.rows, l.cols, rows.Dequantize, nil, s.floats.options)
	if err != nil || block == 0 {
		return op, err
	}
	return &roundedInputs{op, block}, nil
}

func (s *gqfSource) guard(fn func() error) error { return s.file.Guard(fn) }
func (s *gqfSource) release()                    { s.file.Release() }
func (s *gqfSource) close() error                { return nil } // the opener closes the file
