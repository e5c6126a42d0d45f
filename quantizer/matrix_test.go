package quantizer

import (
	"errors"
	"math"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/test/testrows"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
)

// TestQuantizeMatrix packs matrices of every kind of zero points, and compares the payload's
// weights with the matrix's.
func TestQuantizeMatrix(t *testing.T) {
	const rows, cols = 13, 160
	x := testrows.Gaussian(7, rows*cols)
	for _, tt := range []struct {
		name   string
		recipe Recipe
		kind   packing.ZeroKind
		most   float64 // error
	}{
		{"symmetric", Recipe{}, packing.ZeroNone, 0.09},
		{"1 bit", Recipe{Bits: 1}, packing.ZeroNone, 0.63},
		{"per channel", Recipe{Bits: 8, Group: new(PerChannel)}, packing.ZeroNone, 0.01},
		{"integer", Recipe{Mapping: gqf.MappingAsymmetric, Algorithm: gqf.AlgorithmRTN}, packing.ZeroInt8, 0.11},
		{"fractions", Recipe{Mapping: gqf.MappingAsymmetric}, packing.ZeroFraction, 0.08},
		{"floats", Recipe{Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF32, Layouts: []LayoutRequest{{Family: FamilyKleidiAI}}}, packing.ZeroF32, 0.08},
		{"floats by rtn", Recipe{Mapping: gqf.MappingAsymmetric, Algorithm: gqf.AlgorithmRTN, ScaleDtype: packing.ScaleF32, Layouts: []LayoutRequest{{Family: FamilyKleidiAI}}}, packing.ZeroF32, 0.11},
		{"torchao", Recipe{Bits: 3, ScaleDtype: packing.ScaleF32, Layouts: []LayoutRequest{{Family: FamilyTorchAO}}}, packing.ZeroNone, 0.2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := QuantizeMatrix(x, cols, tt.recipe)
			if err != nil {
				t.Fatal(err)
			}
			if m.Header.ZeroKind != tt.kind || !(m.Error > 0 && m.Error < tt.most) {
				t.Errorf("%+v, error %.4f", m.Header, m.Error)
			}
			if (m.Zeros != nil) != tt.kind.IsInt8() || (m.FloatZeros != nil) != (tt.kind == packing.ZeroF32) {
				t.Errorf("%d integer and %d floating-point zero points", len(m.Zeros), len(m.FloatZeros))
			}
			data, err := m.Pack()
			if err != nil {
				t.Fatal(err)
			}
			if n, err := m.Header.DataSize(); err != nil || int(n) != len(data) {
				t.Errorf("%d bytes, want %d (%v)", len(data), n, err)
			}
			pk, err := layouts.New(m.Header)
			if err != nil {
				t.Fatal(err)
			}
			y, row := make([]float32, len(x)), make([]float32, cols)
			m.Dequantize(y)
			for i := range rows {
				pk.DequantizeRow(row, data, i)
				for k, v := range row {
					if math.Float32bits(v) != math.Float32bits(y[i*cols+k]) {
						t.Fatalf("row %d, column %d: %g packed, %g dequantized", i, k, v, y[i*cols+k])
					}
				}
			}
			for i := range pk.Panels() {
				at := len(pk.Prefix()) + i*pk.PanelBytes()
				if err := pk.CheckPanel(i, data[at:at+pk.PanelBytes()]); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestQuantizeMatrixExact quantizes dequantized weights again: nothing is lost.
func TestQuantizeMatrixExact(t *testing.T) {
	m, err := QuantizeMatrix(testrows.Gaussian(3, 4*64), 64, Recipe{Bits: 5})
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, 4*64)
	m.Dequantize(x)
	if again, err := QuantizeMatrix(x, 64, Recipe{Bits: 5}); err != nil || again.Error != 0 {
		t.Errorf("error %g, %v", again.Error, err)
	}
	if zero, err := QuantizeMatrix(make([]float32, 64), 64, Recipe{}); err != nil || zero.Error != 0 {
		t.Errorf("a matrix of zeros has error %g, %v", zero.Error, err)
	}
}

func TestQuantizeMatrixRefused(t *testing.T) {
	x := make([]float32, 64)
	for _, tt := range []struct {
		name   string
		cols   int
		recipe Recipe
	}{
		{"columns", 48, Recipe{}},
		{"no columns", 0, Recipe{}},
		{"calibrated", 64, Recipe{Algorithm: gqf.AlgorithmGPTQ}},
		{"bits", 64, Recipe{Bits: 9}},
		{"layouts", 64, Recipe{Layouts: []LayoutRequest{{}, {Family: FamilyCodes}}}},
		{"target", 64, Recipe{Targets: Targets[:1]}},
		{"rules", 64, Recipe{Rules: []Rule{{Match: "*", Bits: 2}}}},
		{"layout", 64, Recipe{Bits: 3, Layouts: []LayoutRequest{{Family: FamilyKleidiAI}}}},
	} {
		var refused *RequestError
		if _, err := QuantizeMatrix(x, tt.cols, tt.recipe); !errors.As(err, &refused) {
			t.Errorf("%s: %v, want a *RequestError", tt.name, err)
		}
	}
	x[40] = float32(math.NaN())
	var nan *rounding.NonFiniteError
	if _, err := QuantizeMatrix(x, 32, Recipe{}); !errors.As(err, &nan) || nan.Column != 8 || err.Error()[:6] != "row 1:" {
		t.Errorf("%v, want a *NonFiniteError in row 1", err)
	}
	x[40] = 3e38
	if m, err := QuantizeMatrix(x, 32, Recipe{}); err != nil {
		t.Error(err)
	} else if _, err := m.Pack(); err != nil {
		t.Error(err)
	}
	for i := range x {
		x[i] = 3e38
	}
	m, err := QuantizeMatrix(x, 32, Recipe{})
	if err != nil {
		t.Fatal(err)
	}
	var sum *rounding.SumError
	if _, err := m.Pack(); !errors.As(err, &sum) {
		t.Errorf("%v, want a *SumError", err)
	}
}
