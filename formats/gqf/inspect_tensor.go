package gqf

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/suggest"
	"github.com/lowbit-go/gq/packing"
)

// A TensorInspection is a payload, for people and, as JSON, for programs: keys never change.
type TensorInspection struct {
	Tensor TensorRow `json:"tensor"`
	Slice  int       `json:"slice"`
	Offset int64     `json:"offset"` // in the file, of the packed header
	Bytes  int64     `json:"bytes"`  // of packed header and data
	Header struct {
		Layout     string `json:"layout"`
		Flags      string `json:"flags"`
		Bits       int    `json:"bits"`
		Grid       string `json:"grid"`
		ScaleDtype string `json:"scale_dtype"`
		ZeroPoints string `json:"zero_points"`
		Tile       string `json:"tile"`
		Dtype      string `json:"dtype"`
		Rows       uint64 `json:"rows"`
		Cols       uint64 `json:"cols"`
		Group      uint64 `json:"group"` // 0: per channel
		Groups     uint64 `json:"groups_per_row"`
		DataBytes  int64  `json:"data_bytes"`
	} `json:"packed_header"`
	// Scales, Codes and ZeroPoints are null for a plain payload.
	Scales *ScaleStatistics `json:"scales"`
	Codes  []CodeCount      `json:"codes"` // every code of the width, ascending
	// integer zero points, ascending; null if there are none or some are floating-point
	ZeroPoints []CodeCount `json:"zero_points"`
	// FloatZeroPoints describes floating-point zero points; null unless some are not an integer
	// times the scale. Its JSON key keeps the former name.
	FloatZeroPoints *ZeroStatistics `json:"floating_point_zero_points"`
	// the first 16 weights of row 0; null unless an element is a number of whole bytes
	Values []Value `json:"values"`
}

// ScaleStatistics summarizes all scales of a payload, or other numbers. Add counts numbers.
type ScaleStatistics struct {
	Count    int64 `json:"count"`
	Min      Value `json:"min"`
	Max      Value `json:"max"`
	Mean     Value `json:"mean"`
	Negative int64 `json:"negative"`

	sum float64
}

func (s *ScaleStatistics) Add(values []float32) {
	if len(values) == 0 {
		return
	}
	if s.Count == 0 {
		s.Min, s.Max = Value(math.Inf(1)), Value(math.Inf(-1))
	}
	for _, v := range values {
		s.Min, s.Max = min(s.Min, Value(v)), max(s.Max, Value(v))
		s.sum += float64(v)
		if v < 0 {
			s.Negative++
		}
	}
	s.Count += int64(len(values))
	s.Mean = Value(s.sum / float64(s.Count))
}

// ZeroStatistics summarizes all zero points of a payload, as the addends of q * scale.
type ZeroStatistics struct {
	Count int64 `json:"count"`
	// NotInteger counts zero points other than -128 to 127 times the scale.
	NotInteger int64 `json:"not_integer"`
	Min        Value `json:"min"`
	Max        Value `json:"max"`
	Mean       Value `json:"mean"`
}

// add adds the zero points of a row. scales are the scales of its groups.
func (z *ZeroStatistics) add(zeros, scales []float32) {
	for g, v := range zeros {
		if z.Count == 0 {
			z.Min, z.Max = Value(v), Value(v)
		}
		if _, whole := packing.IntegerZero(v, scales[g]); !whole {
			z.NotInteger++
		}
		z.Count++
		z.Min, z.Max = min(z.Min, Value(v)), max(z.Max, Value(v))
		z.Mean += (Value(v) - z.Mean) / Value(z.Count)
	}
}

// CodeCount counts the occurrences of a code or integer zero point.
type CodeCount struct {
	Code  int   `json:"code"`
	Count int64 `json:"count"`
}

// A Value is a number that JSON shows with as many digits as a float32 or float64 needs, and as the
// strings "NaN", "+Inf" and "-Inf".
type Value float64

// String returns the shortest text that reads back as the same float32, if possible, or float64.
func (v Value) String() string {
	size := 64
	if x := float64(v); float64(float32(x)) == x || math.IsNaN(x) {
		size = 32
	}
	return strconv.FormatFloat(float64(v), 'g', -1, size)
}

// MarshalJSON returns String, quoted if JSON has no such number.
func (v Value) MarshalJSON() ([]byte, error) {
	s := v.String()
	if x := float64(v); math.IsNaN(x) || math.IsInf(x, 0) {
		return json.Marshal(s)
	}
	return []byte(s), nil
}

const firstValues = 16

func (f *File) tensorNames() []string {
	var names []string
	for n := range f.AllNames() {
		if !n.Absorbed {
			names = append(names, n.Name)
		}
	}
	return names
}

// InspectTensor reads a slice of a tensor, given by any of its names, in the first of its variants.
// Damaged bytes are a [*FormatError]: see [File.CheckSums].
func InspectTensor(f *File, name string, slice int) (*TensorInspection, error) {
	f.CheckSums()
	t, ok := f.Lookup(name)
	if !ok {
		return nil, fmt.Errorf("%s: no tensor %q in this file%s", f.name, name, suggest.DidYouMean(name, f.tensorNames()))
	}
	p, ok := t.Payload(0, slice, KindWeights)
	if err := t.Usable(); err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%s: tensor %q has no slice %d, its slices are 0 to %d", f.name, name, slice, t.Experts-1)
	}
	data, err := f.Data(p)
	if err != nil {
		return nil, err
	}
	var source int64
	for i := range f.count(secNames) {
		if n := f.nameRec(i); int(n.tensor) == t.Index {
			source += int64(n.sourceBytes)
		}
	}
	h := &p.Header
	r := &TensorInspection{
		Tensor: newRow(t, source), Slice: slice, Offset: p.Offset, Bytes: p.Length,
	}
	x := &r.Header
	x.Layout, x.Flags, x.Bits, x.Grid, x.ScaleDtype, x.ZeroPoints = h.Layout.String(), h.Flags.String(), int(h.Bits), h.Grid.String(), h.ScaleDtype.String(), h.ZeroKind.String()
	x.Tile, x.Dtype = h.Tile.String(), h.Dtype.String()
	x.Rows, x.Cols, x.Group, x.Groups, x.DataBytes = h.Rows, h.Cols, h.Group, h.Groups(), int64(len(data))
	err = f.Guard(func() error {
		if h.Layout == packing.LayoutPlain {
			r.Values = plainValues(h, data)
			return nil
		}
		rows, err := t.Rows(0, slice)
		if err == nil {
			r.quantized(h, rows)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (r *TensorInspection) quantized(h *packing.Header, rows *Rows) {
	var codes, zeros [256]int64 // by code + 128
	r.Scales = &ScaleStatistics{}
	q, s := make([]int8, h.Cols), make([]float32, rows.Groups())
	var z []int8
	if h.ZeroKind != packing.ZeroNone {
		z = make([]int8, rows.Groups())
	}
	var floats []float32
	if h.ZeroKind == packing.ZeroF32 {
		floats = make([]float32, rows.Groups())
	}
	floating := &ZeroStatistics{}
	for row := range int(h.Rows) {
		rows.Codes(q, s, z, row)
		count(&codes, q)
		count(&zeros, z)
		if floats != nil {
			rows.FloatZeros(floats, row)
			floating.add(floats, s)
		}
		r.Scales.Add(s)
	}
	for q := -(1 << (h.Bits - 1)); q < 1<<(h.Bits-1); q++ {
		r.Codes = append(r.Codes, CodeCount{q, codes[q+128]})
	}
	if floating.NotInteger > 0 {
		r.FloatZeroPoints = floating
	}
	for z, n := range zeros {
		if n > 0 && floating.NotInteger == 0 {
			r.ZeroPoints = append(r.ZeroPoints, CodeCount{z - 128, n})
		}
	}
	weights := make([]float32, h.Cols)
	rows.Dequantize(weights, 0)
	for _, w := range weights[:min(len(weights), firstValues)] {
		r.Values = append(r.Values, Value(w))
	}
}

func count(histogram *[256]int64, q []int8) {
	for _, v := range q {
		histogram[byte(v)^0x80]++
	}
}

var plainValue = map[packing.Dtype]func(b []byte) Value{
	packing.F64:    func(b []byte) Value { return Value(math.Float64frombits(le.Uint64(b))) },
	packing.F32:    func(b []byte) Value { return Value(math.Float32frombits(le.Uint32(b))) },
	packing.F16:    func(b []byte) Value { return Value(floats.F16ToF32(le.Uint16(b))) },
	packing.BF16:   func(b []byte) Value { return Value(floats.BF16ToF32(le.Uint16(b))) },
	packing.F8E4M3: func(b []byte) Value { return Value(floats.F8E4M3ToF32(b[0])) },
	packing.F8E5M2: func(b []byte) Value { return Value(floats.F8E5M2ToF32(b[0])) },
	packing.I64:    func(b []byte) Value { return Value(int64(le.Uint64(b))) },
	packing.I32:    func(b []byte) Value { return Value(int32(le.Uint32(b))) },
	packing.I16:    func(b []byte) Value { return Value(int16(le.Uint16(b))) },
	packing.I8:     func(b []byte) Value { return Value(int8(b[0])) },
	packing.U64:    func(b []byte) Value { return Value(le.Uint64(b)) },
	packing.U32:    func(b []byte) Value { return Value(le.Uint32(b)) },
	packing.U16:    func(b []byte) Value { return Value(le.Uint16(b)) },
	packing.U8:     func(b []byte) Value { return Value(b[0]) },
	packing.Bool:   func(b []byte) Value { return Value(b[0]) },
}

// plainValues reads the first elements of row 0: nil unless an element is a number of whole bytes.
func plainValues(h *packing.Header, data []byte) []Value {
	read := plainValue[h.Dtype]
	n := int(min(h.Cols, firstValues))
	if h.Rows == 0 {
		n = 0
	}
	if n > 0 && read == nil {
		return nil
	}
	values := make([]Value, n)
	for i := range values {
		values[i] = read(data[i*h.Dtype.Bits()/8:])
	}
	return values
}
