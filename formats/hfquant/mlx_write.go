package hfquant

import (
	"fmt"
	"slices"
	"strings"

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
	parts := []Part{
		mlxCodes:  {Name: name, Dtype: packing.U32, Shape: []int64{n, k * int64(s.Bits) / 32}},
		mlxScales: {Name: module + "scales", Dtype: s.Scales, Shape: []int64{n, groups}},
		mlxBiases: {Name: module + "biases", Dtype: s.Scales, Shape: []int64{n, groups}},
	}
	return &Layout{Parts: parts, RowStep: 1, encoder: &mlxEncoder{name: name, scheme: s, n: n, parts: parts}}
}

// mlxEncoder writes rows of n x k weights.
type mlxEncoder struct {
	name   string
	scheme Scheme
	n      int64
	parts  []Part
}

func (e *mlxEncoder) put(rows []Row, first int64, write func(part int, off int64, b []byte) error) error {
	for i := range rows {
		if err := e.checkBiases(&rows[i], first+int64(i)); err != nil {
			return err
		}
	}
	for part, put := range []func(dst []byte, r *Row){mlxCodes: e.putCodes, mlxScales: e.putScales, mlxBiases: e.putBiases} {
		if err := putRows(e.parts[part], e.n, rows, first, part, write, put); err != nil {
			return err
		}
	}
	return nil
}

func (e *mlxEncoder) putCodes(dst []byte, r *Row) { packCodes(dst, r.Codes, e.scheme.Bits) }

func (e *mlxEncoder) putScales(dst []byte, r *Row) { putFloats(dst, e.scheme.Scales, r.Scales) }

func (e *mlxEncoder) putBiases(dst []byte, r *Row) {
	size := e.scheme.Scales.Bits() / 8
	for g := range r.Scales {
		bias, _ := e.bias(r, g)
		putFloat(dst[g*size:], e.scheme.Scales, bias)
	}
}

// checkBiases fails if a bias of row n is not a number of the scales' dtype.
func (e *mlxEncoder) checkBiases(r *Row, n int64) error {
	for g := range r.Scales {
		if bias, ok := e.bias(r, g); !ok || !isExact(e.scheme.Scales, bias) {
			return fmt.Errorf("tensor %s: row %d: the bias of group %d for unsigned codes, %g, is not exact in %s, which format mlx stores: quantize symmetrically",
				quote(e.name), n, g, bias, e.scheme.Scales)
		}
	}
	return nil
}

// bias is the weight of unsigned code 0 in group g, and whether it is a float32 number.
func (e *mlxEncoder) bias(r *Row, g int) (bias float32, ok bool) {
	zero, offset := 1<<(e.scheme.Bits-1), float32(0)
	switch e.scheme.Zeros {
	case IntZeros:
		zero += int(r.Zeros[g])
	case Offsets:
		offset = r.Offsets[g]
	}
	return exactSum(float64(offset), -float64(float64(zero)*float64(r.Scales[g])))
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
