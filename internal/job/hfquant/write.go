package hfquant

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// Layout says how a format stores a weight.
type Layout struct {
	Parts []Part
	// Put takes rows from a multiple of RowStep on, in multiples of RowStep except at the end.
	RowStep int64

	exact  func(r *Row) error // fails for a row that the parts cannot hold; nil: they hold all rows
	name   string
	shape  []int64
	scheme Scheme
}

type writer struct {
	// holds fails if the format does not hold the weight name of shape [n, k] in the scheme.
	holds func(s Scheme, n, k int64) error
	// layout returns Parts, RowStep and exact for what holds accepts.
	layout func(name string, n, k int64, s Scheme) *Layout
	config func(f Format, config []byte, weights []ModelWeight) ([]byte, map[string]string, error)
}

var writers = map[Format]writer{
	IntQuantized:  {holdsIntQuantized, layoutIntQuantized, configCompressed},
	TorchAO:       {holdsIntegers, layoutTorchAO, configTorchAO},
	PackQuantized: {holdsIntegers, layoutPackQuantized, configCompressed},
	GPTQ:          {holdsGPTQ, layoutGPTQ, configGPTQ},
	MLX:           {holdsMLX, layoutMLX, configMLX},
}

// NewLayout lays out the weight name of shape [N, K] in a format. If the format cannot hold the
// scheme, the error says what the format holds.
func (f Format) NewLayout(name string, shape []int64, s Scheme) (*Layout, error) {
	w, ok := writers[f]
	if !ok {
		_, err := ParseFormat(string(f))
		return nil, err
	}
	if err := f.holds(w, shape, s); err != nil {
		return nil, fmt.Errorf("tensor %s: format %s does not hold %s: %w", quote(name), f, s, err)
	}
	if !strings.HasSuffix(name, ".weight") {
		return nil, fmt.Errorf("tensor %s: format %s holds weights of layers, whose names end in .weight", quote(name), f)
	}
	l := w.layout(name, shape[0], shape[1], s)
	l.name, l.shape, l.scheme = name, shape, s
	return l, nil
}

// maxElements bounds a tensor's weights, so that products with sizes do not overflow.
const maxElements = 1 << 56

func (f Format) holds(w writer, shape []int64, s Scheme) error {
	if len(shape) != 2 || shape[0] <= 0 || shape[1] <= 0 || shape[0] > maxElements/shape[1] {
		return fmt.Errorf("its shape is %v, expected [rows, columns]", shape)
	}
	if s.Bits < 1 || s.Bits > 8 {
		return fmt.Errorf("codes have 1 to 8 bits")
	}
	if s.Group < 0 {
		return fmt.Errorf("a group has at least one column")
	}
	switch s.Scales {
	case packing.BF16, packing.F16, packing.F32:
	default:
		return fmt.Errorf("scales are %s", list(scaleDtypes))
	}
	return w.holds(s, shape[0], shape[1])
}

// Put turns rows first, first + 1, ... into bytes of the parts, and calls write for each contiguous
// range with the part's index, the offset in the part, and the bytes, valid during the call. A row
// that the format cannot hold exactly, such as a scale that the scheme's dtype cannot store, is an
// error. Several goroutines may call Put at once.
func (l *Layout) Put(rows []Row, first int64, write func(part int, off int64, b []byte) error) error {
	last := first + int64(len(rows))
	if first < 0 || last > l.shape[0] || first%l.RowStep != 0 || last%l.RowStep != 0 && last != l.shape[0] {
		return fmt.Errorf("tensor %s: rows %d to %d of %d do not fit steps of %d rows", quote(l.name), first, last, l.shape[0], l.RowStep)
	}
	for i := range rows {
		if err := l.check(&rows[i]); err != nil {
			return fmt.Errorf("tensor %s: row %d: %w", quote(l.name), first+int64(i), err)
		}
	}
	for i, p := range l.Parts {
		to := func(off int64, b []byte) error { return write(i, off, b) }
		put := p.put
		if p.fill != nil {
			put = l.rows(p)
		}
		if put == nil { // a constant
			continue
		}
		if err := put(rows, first, to); err != nil {
			return err
		}
	}
	return nil
}

// check fails if the layout's scheme does not hold the row exactly.
func (l *Layout) check(r *Row) error {
	s, k := l.scheme, l.shape[1]
	groups, zeros, offsets := int(s.Groups(k)), 0, 0
	switch s.Zeros {
	case IntZeros:
		zeros = groups
	case Offsets:
		offsets = groups
	}
	if int64(len(r.Codes)) != k || len(r.Scales) != groups || len(r.Zeros) != zeros || len(r.Offsets) != offsets {
		return fmt.Errorf("%d codes, %d scales, %d zero points and %d offsets, expected %d, %d, %d and %d",
			len(r.Codes), len(r.Scales), len(r.Zeros), len(r.Offsets), k, groups, zeros, offsets)
	}
	low, high := limits(s.Bits)
	for i, c := range r.Codes {
		if int(c) < low || int(c) > high {
			return fmt.Errorf("code %d of column %d is outside of %d .. %d of %d bits", c, i, low, high, s.Bits)
		}
	}
	for g, z := range r.Zeros {
		if int(z) < low || int(z) > high {
			return fmt.Errorf("zero point %d of group %d is outside of %d .. %d of %d bits", z, g, low, high, s.Bits)
		}
	}
	for g, v := range r.Scales {
		if !isExact(s.Scales, v) {
			return fmt.Errorf("scale %g of group %d is not a finite %s number", v, g, s.Scales)
		}
	}
	for g, v := range r.Offsets {
		if !isExact(packing.F32, v) {
			return fmt.Errorf("offset %g of group %d is not a finite number", v, g)
		}
	}
	if l.exact != nil {
		return l.exact(r)
	}
	return nil
}

func isExact(d packing.Dtype, v float32) bool {
	var b [4]byte
	putFloat(b[:], d, v)
	back := v
	switch d {
	case packing.BF16:
		back = floats.BF16ToF32(binary.LittleEndian.Uint16(b[:]))
	case packing.F16:
		back = floats.F16ToF32(binary.LittleEndian.Uint16(b[:]))
	}
	return floats.Finite(v) && math.Float32bits(back) == math.Float32bits(v)
}

// putFloat stores v, rounded to dtype d, at the start of dst.
func putFloat(dst []byte, d packing.Dtype, v float32) {
	switch d {
	case packing.BF16:
		binary.LittleEndian.PutUint16(dst, floats.BF16FromF32(v))
	case packing.F16:
		binary.LittleEndian.PutUint16(dst, floats.F16FromF32(v))
	case packing.F32:
		binary.LittleEndian.PutUint32(dst, math.Float32bits(v))
	}
}

// putFloats stores vs, numbers of dtype d, at the start of dst.
func putFloats(dst []byte, d packing.Dtype, vs []float32) {
	size := d.Bits() / 8
	for i, v := range vs {
		putFloat(dst[i*size:], d, v)
	}
}

func putInt8s(dst []byte, vs []int8) {
	for i, v := range vs {
		dst[i] = byte(v)
	}
}

// holdsIntegers refuses offsets, and groups that do not divide rows of k weights.
func holdsIntegers(s Scheme, _, k int64) error {
	switch {
	case s.Zeros == Offsets:
		return errors.New("zero points are integers")
	case s.Group > 0 && k%s.Group != 0:
		return fmt.Errorf("groups of %d columns do not divide rows of %d", s.Group, k)
	}
	return nil
}

var bytePool = sync.Pool{New: func() any { return new([]byte) }}

// rows fills rows of a part. All rows have the same length.
func (l *Layout) rows(p Part) putFunc {
	width := int64(p.Dtype.Bits()/8) * p.Shape[1]
	return func(rows []Row, first int64, write func(off int64, b []byte) error) error {
		b := bytePool.Get().(*[]byte)
		defer bytePool.Put(b)
		*b = resize(*b, int(int64(len(rows))*width))
		clear(*b)
		for i := range rows {
			p.fill((*b)[int64(i)*width:][:width], &rows[i])
		}
		return write(first*width, *b)
	}
}

// Constant is the content of a part that Put does not write; nil for other parts.
func (l *Layout) Constant(part int) []byte {
	if constant := l.Parts[part].constant; constant != nil {
		return constant()
	}
	return nil
}

// ModelWeight is a tensor of a model, for Config.
type ModelWeight struct {
	Name   string
	Shape  []int64
	Scheme *Scheme // nil: not quantized
	Linear bool    // else of an embedding, or of no layer that a format knows
	// Dtype is the dtype of an unquantized tensor, DtypeNone if it is not known.
	Dtype packing.Dtype
}

var errNothingQuantized = errors.New("no weight is quantized")

// Config returns config with the entry that says how the weights are quantized, and metadata for
// every safetensors file (nil: none). weights are all tensors of the model, quantized or not, norms
// and biases too. A format that cannot say so is an error. The rest of config does not change,
// except for entries that described quantization before.
func (f Format) Config(config []byte, weights []ModelWeight) (out []byte, metadata map[string]string, err error) {
	w, ok := writers[f]
	if !ok {
		_, err := ParseFormat(string(f))
		return nil, nil, err
	}
	if out, metadata, err = w.config(f, config, weights); err != nil {
		err = fmt.Errorf("config.json for format %s: %w", f, err)
	}
	return out, metadata, err
}
