package forward

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// source provides a model's weights, from a checkpoint or a .gqf.
type source interface {
	// names lists the tensors, except scales that are part of other tensors' values.
	names() []string
	// shape returns the shape of a tensor in the checkpoint.
	shape(name string) ([]int64, bool)
	// tensor reads a small tensor of this shape.
	tensor(name string, shape ...int64) ([]float32, error)
	// embedding opens the token embedding.
	embedding(name string, rows, cols int) (Embedding, error)
	// linear opens a matrix, and sets l.added if the operator adds the layer's bias itself.
	linear(l *linearSpec) (kernels.Operator, error)
	// biasOf returns the name of the bias tensor that belongs to these weights.
	biasOf(weights string) string
	// guard calls fn, and returns an error if reading the map fails in fn.
	guard(fn func() error) error
	// release takes the pages of the map out of the memory of this process.
	release()
	close() error
}

// linearSpec names a matrix of rows outputs x cols inputs.
type linearSpec struct {
	name   string
	slice  int // expert
	slices int // slices of a tensor of fused experts, else 0
	rows   int
	cols   int
	bias   bool // the layer has a bias
	added  bool // the operator adds the bias
	// transposed: the tensor is stored inputs x outputs.
	transposed bool
}

func (l linearSpec) wantShape() []int64 {
	switch {
	case l.slices > 0 && l.transposed:
		return []int64{int64(l.slices), int64(l.cols), int64(l.rows)}
	case l.slices > 0:
		return []int64{int64(l.slices), int64(l.rows), int64(l.cols)}
	}
	return []int64{int64(l.rows), int64(l.cols)}
}

// label returns the tensor's name, with the slice if there are several.
func (l linearSpec) label() string {
	if l.slices > 0 {
		return fmt.Sprintf("%s[%d]", l.name, l.slice)
	}
	return l.name
}

// readVector reads a tensor of n values, which may be stored as [1, n].
func readVector(s source, name string, n int) ([]float32, error) {
	if shape, _ := s.shape(name); len(shape) == 2 && shape[0] == 1 {
		return s.tensor(name, 1, int64(n))
	}
	return s.tensor(name, int64(n))
}

func checkShape(name string, got, want []int64) error {
	if !slices.Equal(got, want) {
		return fmt.Errorf("tensor %q: shape %v, but config.json makes it %v", name, got, want)
	}
	return nil
}

// floats makes linear layers of float weights.
type floats struct {
	options kernels.Options
	packed  bool
}

func (f floats) linear(data []byte, d packing.Dtype, rows, cols int) (kernels.Operator, error) {
	if f.packed && (d == packing.F32 || d == packing.F16 || d == packing.BF16) {
		return kernels.NewFloat(packing.PlainHeader(d, uint64(rows), uint64(cols)), data, f.options)
	}
	if d == packing.BF16 {
		return kernels.NewRowsBF16(rows, cols, data, f.options)
	}
	stride := cols * d.Bits() / 8
	read := func(dst []float32, row int) { safetensors.Widen(dst, data[row*stride:][:stride], d) }
	return kernels.NewRows(rows, cols, read, nil, f.options)
}

// unpacked copies weights into memory as float32.
func (f floats) unpacked(read func(dst []float32, row int), rows, cols int) (kernels.Operator, error) {
	row := make([]float32, cols)
	data := make([]byte, 0, 4*rows*cols)
	for r := range rows {
		read(row, r)
		for _, v := range row {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
	}
	return f.linear(data, packing.F32, rows, cols)
}

// checkpointSource reads the tensors of a mapped checkpoint.
type checkpointSource struct {
	ck     *safetensors.Checkpoint
	block  [2]int // rows and columns of a block of FP8 weights
	floats floats
}

func (s *checkpointSource) biasOf(weights string) string { return arch.BiasName(weights) }

func (s *checkpointSource) names() []string {
	var names []string
	for _, t := range s.ck.Tensors() {
		if weight, ok := arch.ScaleOf(t.Name); ok {
			if _, ok := s.ck.Lookup(weight); ok {
				continue
			}
		}
		names = append(names, t.Name)
	}
	return names
}

func (s *checkpointSource) shape(name string) ([]int64, bool) {
	t, ok := s.ck.Lookup(name)
	return t.Shape, ok
}

func (s *checkpointSource) find(name string, shape ...int64) (*safetensors.Weights, error) {
	t, ok := s.ck.Lookup(name)
	if !ok {
		return nil, arch.Missing(name)
	}
	if err := checkShape(name, t.Shape, shape); err != nil {
		return nil, err
	}
	if !t.Dtype.IsFloat() {
		return nil, &arch.UnsupportedError{Msg: fmt.Sprintf("tensor %q: %s is not a dtype of weights", name, t.DtypeName)}
	}
	w, err := s.ck.Weights(t, safetensors.WeightsOptions{Block: s.block, Transposed: t.MXFP4()})
	if err != nil {
		return nil, err
	}
	if w.Scale == nil && (t.Dtype == packing.F8E4M3 || t.Dtype == packing.F8E5M2) {
		return nil, fmt.Errorf("tensor %q: %s without scales", name, t.DtypeName)
	}
	return w, nil
}

func (s *checkpointSource) tensor(name string, shape ...int64) ([]float32, error) {
	w, err := s.find(name, shape...)
	if err != nil {
		return nil, err
	}
	v := make([]float32, elements(shape))
	return v, w.Read(v, 0, max(1, len(v)/int(shape[len(shape)-1])))
}

// elements returns the number of elements of a shape.
func elements(shape []int64) int {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return int(n)
}

func (s *checkpointSource) embedding(name string, rows, cols int) (Embedding, error) {
	w, err := s.find(name, int64(rows), int64(cols))
	if err != nil {
		return nil, err
	}
	return checkpointEmbedding{w}, nil
}

type checkpointEmbedding struct{ *safetensors.Weights }

func (t checkpointEmbedding) Lookup(dst []float32, row int) error { return t.Read(dst, row, 1) }

func (s *checkpointSource) linear(l *linearSpec) (kernels.Operator, error) {
	w, err := s.find(l.name, l.wantShape()...)
	if err != nil {
		return nil, err
	}
	if l.transposed && !w.Tensor.MXFP4() {
		if w.Scale != nil {
			return nil, &arch.UnsupportedError{Msg: fmt.Sprintf("tensor %q is FP8 with scales and stored inputs x outputs: BF16, F16 or F32 was expected", l.name)}
		}
		return s.floats.transposed(w.Bytes(l.slice*l.cols, l.cols), w.Tensor.Dtype, l.rows, l.cols)
	}
	first := l.slice * l.rows
	if w.Scale != nil {
		read := func(dst []float32, row int) { w.Widen(dst, first+row, 1) }
		return kernels.NewRows(l.rows, l.cols, read, nil, s.floats.options)
	}
	return s.floats.linear(w.Bytes(first, l.rows), w.Tensor.Dtype, l.rows, l.cols)
}

func (s *checkpointSource) guard(fn func() error) error { return s.ck.Guard(fn) }
func (s *checkpointSource) release()                    { s.ck.Release() }
func (s *checkpointSource) close() error                { return s.ck.Close() }
