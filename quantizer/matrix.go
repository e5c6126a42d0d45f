package quantizer

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
)

// Matrix is a quantized matrix: the codes of Header.Rows outputs by Header.Cols inputs.
type Matrix struct {
	// Header is the packed header of the matrix in its layout, without bias.
	Header packing.Header
	Codes  []int8    // [Rows][Cols]
	Scales []float32 // [Rows][Groups], as stored: rounded to Header.ScaleDtype
	// Zeros are the int8 zero points [Rows][Groups], in units of Header.ZeroUnit; nil for other kinds.
	// The weight is (q - z) * scale, or (q + 1/2) * scale on the half-step grid.
	Zeros []int8
	// FloatZeros are the zero points [Rows][Groups] of kind packing.ZeroF32: the weight is q * scale +
	// zero. FloatZeros is nil for other kinds.
	FloatZeros []float32
	// Error is the root mean square of the error divided by the root mean square of the weights.
	Error float64

	codes *rounding.Codes // with Codes, Scales and Zeros
}

// QuantizeMatrix quantizes rows of cols weights as the recipe says for a linear layer: Bits, Group,
// Mapping, ScaleDtype, Algorithm (search or rtn), PositiveScales and a single layout count, with
// their defaults. A job that quantizes an F32 checkpoint to that layout chooses the same codes.
// Small integers times a scale come back exactly. GOMAXPROCS goroutines share the rows; the result
// does not depend on the number.
//
// The error is a *RequestError if len(x) is no positive multiple of cols, or if the recipe cannot
// work: a calibrated algorithm, a target, rules, two layouts, or a layout that cannot hold the
// scheme. Other errors name a row: a weight is NaN or infinite, or too large for the scales.
func QuantizeMatrix(x []float32, cols int, r Recipe) (*Matrix, error) {
	if cols < 1 || len(x) == 0 || len(x)%cols != 0 {
		return nil, Requestf("%d weights are no rows of %d", len(x), cols)
	}
	rows := len(x) / cols
	r = r.WithDefaults()
	s := r.Scheme(gqf.RoleProjection, nil)
	switch {
	case len(r.Targets) > 0 || len(r.Rules) > 0 || len(r.Layouts) != 1:
		return nil, Requestf("a matrix has a single layout, no rules and no targets")
	case s.Algorithm.Calibrated():
		return nil, Requestf("algorithm %s needs the activations of a model: use search or rtn", s.Algorithm)
	}
	if err := r.ValidateScheme(s); err != nil {
		return nil, &RequestError{err}
	}
	h, err := r.Layouts[0].Header(s, int64(rows), int64(cols), false)
	if err != nil {
		return nil, &RequestError{err}
	}
	m := &Matrix{Header: h}
	if h.ZeroKind = packing.ZeroFraction; s.FractionalZeroPoints() && h.Validate() == nil {
		m.Header, s.Fractions = h, true
	}
	m.codes = rounding.NewCodes(s.Shape(rows, cols))
	m.Codes, m.Scales, m.Zeros = m.codes.Values, m.codes.Scales, m.codes.Zeros
	floating := m.Header.ZeroKind == packing.ZeroF32
	if floating {
		m.FloatZeros, m.Zeros = make([]float32, len(m.Scales)), nil
	}
	if err := m.quantize(x, s, floating && s.FloatZeroPoints()); err != nil {
		return nil, err
	}
	if floating && !s.FloatZeroPoints() {
		for i, z := range m.codes.Zeros {
			m.FloatZeros[i] = packing.FloatZero(float32(z), m.Scales[i])
		}
	}
	m.measure(x)
	return m, nil
}

// quantize chooses the codes of all rows, with floating-point zero points or others.
func (m *Matrix) quantize(x []float32, s rounding.Scheme, floating bool) error {
	cols, groups := m.codes.Cols, m.codes.Groups()
	return cpu.Parallel(context.Background(), cpu.Threads(0), m.codes.Rows, func() func(i int) error {
		q, err := rounding.NewRowQuantizer(s, cols)
		if err != nil {
			return func(int) error { return &RequestError{err} }
		}
		q.LimitScales(m.Header.SmallestScale())
		q.Recover(packing.ScaleF32)
		return func(i int) error {
			row, dst := x[i*cols:][:cols], m.codes.Row(i)
			if floating {
				err = q.QuantizeFloatZeros(dst.Codes, dst.Scales, m.FloatZeros[i*groups:][:groups], row, nil)
			} else {
				err = q.Quantize(dst.Codes, dst.Scales, dst.Zeros, row, nil)
			}
			if err != nil {
				return fmt.Errorf("row %d: %w", i, err)
			}
			return nil
		}
	})
}

func (m *Matrix) measure(x []float32) {
	y := make([]float32, len(x))
	m.Dequantize(y)
	var noise, signal float64
	for i, v := range x {
		e := float64(v) - float64(y[i])
		noise += float64(e * e)
		signal += float64(float64(v) * float64(v))
	}
	if signal > 0 {
		m.Error = math.Sqrt(noise / signal)
	}
}

// Dequantize sets dst, [Rows][Cols], to the weights that the codes stand for.
func (m *Matrix) Dequantize(dst []float32) {
	groups := m.codes.Groups()
	for i := range m.codes.Rows {
		row, r := dst[i*m.codes.Cols:][:m.codes.Cols], m.codes.Row(i)
		if m.FloatZeros == nil {
			m.codes.Dequantize(row, r)
		} else {
			m.codes.DequantizeFloats(row, r.Codes, r.Scales, m.FloatZeros[i*groups:])
		}
	}
}

// Pack packs the codes in the layout of m.Header. The result is the payload that follows the packed
// header, for packing/layouts and package kernels. Layout codes holds only the codes; scales and
// zero points are companions there. The error names a row with a sum of weights that is not finite.
func (m *Matrix) Pack() ([]byte, error) {
	pk, err := layouts.New(m.Header)
	if err != nil {
		return nil, err
	}
	sums, _ := pk.(packing.FloatSums)
	cols, groups := m.codes.Cols, m.codes.Groups()
	p, first := pk.NewPanel(), 0
	data := slices.Grow(slices.Clone(pk.Prefix()), pk.Panels()*pk.PanelBytes())
	for i := range pk.Panels() {
		p.Rows = pk.PanelRows(i)
		for r := range p.Rows {
			copy(p.Codes[r*pk.PackedCols():], m.Codes[(first+r)*cols:][:cols])
		}
		copy(p.Scales, m.Scales[first*groups:])
		copy(p.Zeros, m.Zeros[min(first*groups, len(m.Zeros)):])
		copy(p.FloatZeros, m.FloatZeros[min(first*groups, len(m.FloatZeros)):])
		panel := data[len(data):][:pk.PanelBytes()]
		pk.PackPanel(panel, p)
		for r := 0; sums != nil && r < p.Rows; r++ {
			if sum := sums.PanelSum(panel, r); !floats.Finite(sum) {
				return nil, fmt.Errorf("row %d: %w", first+r, &rounding.SumError{Sum: sum})
			}
		}
		data, first = data[:len(data)+len(panel)], first+p.Rows
	}
	return data, nil
}
