package hfquant

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/lowbit-go/gq/packing"
)

// holdsMLX fails if MLX does not hold a weight of shape [n, k] in the scheme.
func holdsMLX(s Scheme, _, k int64) error {
	switch {
	case !slices.Contains(mlxBits, s.Bits):
		return fmt.Errorf("codes have %s bits", list(mlxBits))
	case !slices.Contains(mlxGroups, s.Group):
		return fmt.Errorf("groups have %s columns", list(mlxGroups))
	case k%s.Group != 0:
		return fmt.Errorf("groups of %d columns do not divide rows of %d", s.Group, k)
	}
	return nil
}

// The indices of parts.
const (
	mlxCodes = iota
	mlxScales
	mlxBiases
)

func layoutMLX(name string, n, k int64, s Scheme) *Layout {
	module := strings.TrimSuffix(name, "weight")
	groups := s.Groups(k)
	return &Layout{
		Parts: []Part{
			mlxCodes:  {Name: name, Dtype: packing.U32, Shape: []int64{n, k * int64(s.Bits) / 32}},
			mlxScales: {Name: module + "scales", Dtype: s.Scales, Shape: []int64{n, groups}},
			mlxBiases: {Name: module + "biases", Dtype: s.Scales, Shape: []int64{n, groups}},
		},
		RowStep: 1,
		encoder: &mlxEncoder{name: name, scheme: s, k: k, groups: groups},
	}
}

// mlxEncoder writes rows of k weights.
type mlxEncoder struct {
	name      string
	scheme    Scheme
	k, groups int64
}

// bytePool has the memory of ranges that are written.
var bytePool = sync.Pool{New: func() any { return new([]byte) }}

func (e *mlxEncoder) put(rows []Row, first int64, write func(part int, off int64, b []byte) error) error {
	b := bytePool.Get().(*[]byte)
	defer bytePool.Put(b)
	width := int(e.k) * e.scheme.Bits / 8
	*b = resize(*b, len(rows)*width)
	for i := range rows {
		packCodes((*b)[i*width:][:width], rows[i].Codes, e.scheme.Bits)
	}
	if err := write(mlxCodes, first*int64(width), *b); err != nil {
		return err
	}
	width = int(e.groups) * e.scheme.Scales.Bits() / 8
	*b = resize(*b, len(rows)*width)
	for i := range rows {
		putFloats((*b)[i*width:], e.scheme.Scales, rows[i].Scales)
	}
	if err := write(mlxScales, first*int64(width), *b); err != nil {
		return err
	}
	for i := range rows {
		if err := e.putBiases((*b)[i*width:], &rows[i], first+int64(i)); err != nil {
			return err
		}
	}
	return write(mlxBiases, first*int64(width), *b)
}

// putBiases stores the biases of row n at the start of dst.
func (e *mlxEncoder) putBiases(dst []byte, r *Row, n int64) error {
	size := e.scheme.Scales.Bits() / 8
	middle := int(1) << (e.scheme.Bits - 1)
	for g, s := range r.Scales {
		var bias float32
		var ok bool
		if e.scheme.Zeros == Offsets {
			bias, ok = exactSum(float64(r.Offsets[g]), -float64(float64(middle)*float64(s)))
		} else {
			zero := middle
			if e.scheme.Zeros == IntZeros {
				zero += int(r.Zeros[g])
			}
			bias, ok = exactSum(0, -float64(float64(zero)*float64(s)))
		}
		if !ok || !isExact(e.scheme.Scales, bias) {
			return fmt.Errorf("tensor %s: row %d: the bias of group %d for unsigned codes, %g, is not exact in %s, which format mlx stores: quantize symmetrically",
				quote(e.name), n, g, bias, e.scheme.Scales)
		}
		putFloat(dst[g*size:], e.scheme.Scales, bias)
	}
	return nil
}

func (e *mlxEncoder) constant(int) []byte { return nil }

// configMLX describes the weights by the most frequent scheme, and by an entry for each module that
// has another one. A module is quantized if it has scales: modules without need no entry.
func configMLX(config []byte, weights []ModelWeight) ([]byte, map[string]string, error) {
	usual, err := usualScheme(weights)
	if err != nil {
		return nil, nil, err
	}
	entry := map[string]any{"group_size": usual.Group, "bits": usual.Bits, "mode": "affine"}
	for _, w := range weights {
		if w.Scheme != nil && (w.Scheme.Bits != usual.Bits || w.Scheme.Group != usual.Group) {
			entry[strings.TrimSuffix(w.Name, ".weight")] = mlxParams{GroupSize: w.Scheme.Group, Bits: w.Scheme.Bits, Mode: "affine"}
		}
	}
	out, err := withEntry(config, "quantization", entry)
	if err == nil {
		out, err = appendMember(out, "quantization_config", entry) // for readers of other libraries
	}
	return out, map[string]string{"format": "mlx"}, err
}
