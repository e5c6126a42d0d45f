package hfquant

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
)

// MLX stores the weight of a linear layer or an embedding M of shape [N, K]:
//
//	M.weight U32 [N, K*bits/32], each row a stream of unsigned codes q
//	M.scales [N, groups], in the dtype of the model
//	M.biases [N, groups], the same
//
// A weight is q * scale + bias.
//
// Source: affine_quantize in mlx/ops.cpp and quantize in mlx/backend/cpu/quantized.cpp of MLX.

var (
	mlxBits   = []int{2, 3, 4, 5, 6, 8}
	mlxGroups = []int64{32, 64, 128}
)

type mlxParams struct {
	GroupSize int64  `json:"group_size"`
	Bits      int    `json:"bits"`
	Mode      string `json:"mode"` // "" is affine
}

// mlxDefaults are what MLX takes for values that an entry for a module leaves out.
var mlxDefaults = mlxParams{GroupSize: 64, Bits: 4}

func findMLX(f *finder) error {
	var usual mlxParams
	if err := f.readEntry(&usual); err != nil {
		return err
	}
	var modules map[string]json.RawMessage // the values for modules among others
	if err := f.readEntry(&modules); err != nil {
		return err
	}
	for _, t := range f.ck.Tensors() {
		module, last := splitName(t.Name)
		codes, ok := f.ck.Lookup(module + "weight")
		if last != "scales" || !ok || codes.Dtype != packing.U32 {
			continue
		}
		p := usual
		if raw := modules[module[:max(0, len(module)-1)]]; len(raw) > 0 && raw[0] == '{' {
			p = mlxDefaults // not the values of the other modules: so does mlx-lm
			if err := json.Unmarshal(raw, &p); err != nil {
				return f.formatError(codes.Name, "quantization of config.json: %v", err)
			}
		}
		if err := f.addMLX(module, codes, p); err != nil {
			return err
		}
	}
	f.q.Format = MLX
	return nil
}

func (f *finder) addMLX(module string, t safetensors.Tensor, p mlxParams) error {
	switch {
	case p.Mode != "" && p.Mode != "affine":
		return f.unsupported(t.Name, "mode %s is not read: only affine is", quote(p.Mode))
	case !slices.Contains(mlxBits, p.Bits):
		return f.unsupported(t.Name, "config.json says that codes have %d bits, expected %s", p.Bits, list(mlxBits))
	case !slices.Contains(mlxGroups, p.GroupSize):
		return f.unsupported(t.Name, "config.json says that groups have %d columns, expected %s", p.GroupSize, list(mlxGroups))
	}
	n, words, err := f.dimensions(t.Name, t.Name)
	if err != nil {
		return err
	}
	k := words * 32 / int64(p.Bits)
	if words*32%int64(p.Bits) != 0 || k%p.GroupSize != 0 {
		return f.formatError(t.Name, "shape %v does not hold groups of %d codes of %d bits", t.Shape, p.GroupSize, p.Bits)
	}
	w := &mlxWeight{bits: p.Bits}
	if w.codes, err = f.part(t.Name, t.Name, []packing.Dtype{packing.U32}, []int64{n, words}); err != nil {
		return err
	}
	if w.scales, err = f.part(t.Name, module+"scales", scaleDtypes, []int64{n, k / p.GroupSize}); err != nil {
		return err
	}
	if w.biases, err = f.part(t.Name, module+"biases", []packing.Dtype{w.scales.dtype}, []int64{n, k / p.GroupSize}); err != nil {
		return err
	}
	scheme := Scheme{Bits: p.Bits, Group: p.GroupSize, Scales: w.scales.dtype, Zeros: w.zeros(n, k/p.GroupSize)}
	return f.add(Weight{Name: t.Name, Shape: []int64{n, k}, Scheme: scheme, codec: w}, t.Name, module+"scales", module+"biases")
}

type mlxWeight struct {
	bits                  int
	codes, scales, biases *matrix
}

// zeros tells what biases stand for: codes' middle as zero points, other zero points, or offsets.
func (w *mlxWeight) zeros(n, groups int64) Zeros {
	scales, biases := make([]float32, groups), make([]float32, groups)
	kind := NoZeros
	for row := range n {
		w.scales.floats(scales, row)
		w.biases.floats(biases, row)
		for g, s := range scales {
			switch z, ok := zeroPoint(biases[g], s, w.bits); {
			case !ok:
				return Offsets
			case z != 0:
				kind = IntZeros
			}
		}
	}
	return kind
}

// zeroPoint returns the zero point z of signed codes for which bias is exactly -(z + 2^(bits-1)) *
// scale; false if there is none among the codes.
func zeroPoint(bias, scale float32, bits int) (z int, ok bool) {
	if scale == 0 {
		return 0, bias == 0
	}
	unsigned := math.RoundToEven(-float64(bias) / float64(scale))
	if !(unsigned >= 0 && unsigned < float64(int(1)<<bits)) {
		return 0, false
	}
	return int(unsigned) - 1<<(bits-1), float64(unsigned*float64(scale)) == -float64(bias)
}

func (w *mlxWeight) readCodes(row *Row, n int64) error {
	unpackCodes(row.Codes, w.codes.row(n), w.bits)
	return nil
}

func (w *mlxWeight) readGroups(row *Row, n int64) error {
	w.scales.floats(row.Scales, n)
	if err := checkFinite(w.scales.name, n, row.Scales); err != nil {
		return err
	}
	switch {
	case len(row.Zeros) > 0:
		return w.readZeros(row, n)
	case len(row.Offsets) > 0:
		return w.readOffsets(row, n)
	}
	return nil
}

func (w *mlxWeight) readZeros(row *Row, n int64) error {
	biases, size := w.biases.row(n), w.biases.dtype.Bits()/8
	var bias [1]float32
	for g, s := range row.Scales {
		safetensors.Widen(bias[:], biases[g*size:][:size], w.biases.dtype)
		z, ok := zeroPoint(bias[0], s, w.bits)
		if !ok {
			return fmt.Errorf("tensor %s: row %d changed while it was read", quote(w.biases.name), n)
		}
		row.Zeros[g] = int8(z)
	}
	return nil
}

func (w *mlxWeight) readOffsets(row *Row, n int64) error {
	w.biases.floats(row.Offsets, n)
	if err := checkFinite(w.biases.name, n, row.Offsets); err != nil {
		return err
	}
	middle := float64(int(1) << (w.bits - 1))
	for g, s := range row.Scales {
		offset, ok := exactSum(float64(row.Offsets[g]), float64(middle*float64(s)))
		if !ok {
			return fmt.Errorf("tensor %s: row %d: bias %g plus %g times scale %g of group %d is not a float32 number: codes around 0 have no exact offset",
				quote(w.biases.name), n, row.Offsets[g], middle, s, g)
		}
		row.Offsets[g] = offset
	}
	return nil
}

// exactSum returns a + b, and whether the sum is a finite float32 number.
func exactSum(a, b float64) (float32, bool) {
	sum := a + b
	t := sum - a
	lost := (a - (sum - t)) + (b - t) // of the sum's rounding (Knuth)
	f := float32(sum)
	return f, lost == 0 && float64(f) == sum && !math.IsInf(sum, 0)
}

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

func layoutMLX(name string, n, k int64, s Scheme) *Layout {
	module := strings.TrimSuffix(name, "weight")
	biases := scalesPart(module+"biases", n, k, s)
	biases.fill = func(dst []byte, r *Row) {
		for g := range r.Scales {
			bias, _ := mlxBias(s, r, g)
			putFloat(dst[g*s.Scales.Bits()/8:], s.Scales, bias)
		}
	}
	return &Layout{
		Parts:   []Part{streamPart(name, packing.U32, n, k, s), scalesPart(module+"scales", n, k, s), biases},
		RowStep: 1,
		exact: func(r *Row) error {
			for g := range r.Scales {
				if bias, ok := mlxBias(s, r, g); !ok || !isExact(s.Scales, bias) {
					return fmt.Errorf("the bias of group %d for unsigned codes, %g, is not exact in %s, which format mlx stores: quantize symmetrically", g, bias, s.Scales)
				}
			}
			return nil
		},
	}
}

// mlxBias is the weight of unsigned code 0 in group g; ok reports a float32 number.
func mlxBias(s Scheme, r *Row, g int) (bias float32, ok bool) {
	zero, offset := 1<<(s.Bits-1), float32(0)
	switch s.Zeros {
	case IntZeros:
		zero += int(r.Zeros[g])
	case Offsets:
		offset = r.Offsets[g]
	}
	return exactSum(float64(offset), -float64(float64(zero)*float64(r.Scales[g])))
}

// configMLX describes the weights by the most frequent scheme, and by an entry for each module with
// another scheme. Modules without scales are not quantized and need no entry.
func configMLX(_ Format, config []byte, weights []ModelWeight) ([]byte, map[string]string, error) {
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
	out, err := WithEntry(config, "quantization", entry)
	if err == nil {
		out, err = appendMember(out, "quantization_config", entry) // for readers of other libraries
	}
	return out, map[string]string{"format": "mlx"}, err
}
