package tune

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
)

// schemes are all grids, some with a short last group.
func schemes(t *testing.T) map[string]rounding.Scheme {
	list := map[string]rounding.Scheme{
		"full-range":    {Bits: 4, Group: 48, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF32},
		"per channel":   {Bits: 3, Mapping: gqf.MappingSymmetric, ScaleDtype: packing.ScaleF32},
		"integer zeros": {Bits: 4, Group: 32, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF32},
		"fractions":     {Bits: 2, Group: 48, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF32, Fractions: true},
		"half-step":     {Bits: 2, Group: 32, Mapping: gqf.MappingHalfStep, ScaleDtype: packing.ScaleF32},
		"bf16":          {Bits: 4, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16},
		"f16":           {Bits: 8, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleF16},
	}
	kinds := []gguf.TensorType{gguf.Q4_1, gguf.Q5_1, gguf.Q2_K, gguf.Q3_K, gguf.Q4_K, gguf.Q5_K, gguf.Q6_K}
	for _, name := range []string{"IQ4_NL", "IQ4_XS", "TQ2_0", "MXFP4", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"} {
		kind, _ := gguf.ParseType(name)
		kinds = append(kinds, kind)
	}
	for _, kind := range kinds {
		s, ok := rounding.BlockScheme(kind, gqf.AlgorithmSearch)
		if !ok {
			t.Fatal(kind)
		}
		list[kind.String()] = s
	}
	return list
}

// quantized are the codes of random weights.
func quantized(t *testing.T, s rounding.Scheme, rows, cols int) (*matrix, []float32) {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(s.Bits), uint64(s.Mapping)))
	w := make([]float32, rows*cols)
	for i := range w {
		w[i] = float32(r.NormFloat64()) / 16
	}
	clear(w[:32]) // a group of zeros
	q, err := rounding.NewRounder(s, cols)
	if err != nil {
		t.Fatal(err)
	}
	c := rounding.NewCodes(s.Shape(rows, cols))
	for i := range rows {
		if err := q.Quantize(c.Row(i), w[i*cols:][:cols]); err != nil {
			t.Fatal(err)
		}
	}
	m, err := newMatrix(plan.Matrix{Tensor: "w", Slices: 1, Rows: rows, Cols: cols, Scheme: s}, c)
	if err != nil {
		t.Fatal(err)
	}
	return m, w
}

// read dequantizes the numbers as the file would hold them.
func read(t *testing.T, m *matrix) []float32 {
	t.Helper()
	c := rounding.NewCodes(m.shape)
	list := make([]float32, m.Rows*m.Cols)
	for r := range m.Rows {
		if err := m.ReadRow(r, c.Row(r)); err != nil {
			t.Fatal(err)
		}
		c.DequantizeRow(list[r*m.Cols:][:m.Cols], r)
	}
	return list
}

// TestMatrix checks on every grid that the student computes with the weights that the file holds,
// before and after training, and the gradients of the parameters against differences.
func TestMatrix(t *testing.T) {
	const rows, cols = 3, 512
	for name, s := range schemes(t) {
		t.Run(name, func(t *testing.T) {
			for _, perRow := range []bool{false, true} {
				m, w := quantized(t, s, rows, cols)
				start := slices.Clone(m.codes)
				m.train(perRow, rate)
				if err := m.trainCodes(codesRate, func(dst []float32, first, n int) error {
					copy(dst, w[first*cols:][:n*cols])
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				m.refresh(0, rows)
				if !slices.Equal(m.codes, start) {
					t.Error("codes have changed before training")
				}
				same(t, "before training", m)
				c := make([]float32, rows*cols) // d loss / d weight
				for i := range c {
					c[i] = float32(math.Cos(float64(7 * i)))
				}
				for r := range rows {
					m.gradient(r, c[r*cols:][:cols])
				}
				checkGradient(t, m, m.scales.by, c)
				if m.mins != nil && m.mins.by != m.scales.by {
					checkGradient(t, m, m.mins.by, c)
				}
				if perRow && s.Mapping != rounding.MappingMXFP4 { // its scales stay
					checkFactors(t, m, c)
				}
				for step := range 60 { // down the slope
					for r := range rows {
						m.gradient(r, c[r*cols:][:cols])
					}
					first, second := corrections(step)
					m.scales.by.update(0, len(m.scales.by.x), 1e-2, first, second)
					if m.steps != nil {
						m.steps.update(0, len(m.steps.x), 1e-2, first, second)
						m.confine(0, rows*cols)
					}
					m.refresh(0, rows)
				}
				same(t, "after training", m)
				if apart := m.apart(); slices.Equal(m.codes, start) != apart {
					t.Errorf("codes have changed: %t", apart)
				}
				if power := s.Mapping == rounding.MappingMXFP4; slices.Equal(m.scales.value, m.scales.base) != power {
					t.Errorf("scales have changed: %t", power)
				}
				if least, most := slices.Min(m.codes), slices.Max(m.codes); int(least) < m.lo || int(most) > m.hi {
					t.Errorf("codes %d .. %d of %d .. %d", least, most, m.lo, m.hi)
				}
				if m.width <= 32 && !slices.Equal(m.codes[:m.width], start[:m.width]) {
					t.Error("codes of a group of zeros have changed")
				}
			}
		})
	}
}

func same(t *testing.T, when string, m *matrix) {
	t.Helper()
	file := read(t, m)
	row := make([]float32, m.Cols)
	for r := range m.Rows {
		m.row(row, r)
		for k, v := range row {
			want := file[r*m.Cols+k]
			if d := math.Abs(float64(v - want)); d > 1e-6*math.Abs(float64(want))+1e-9 {
				t.Fatalf("%s: row %d, column %d: %v, the file has %v", when, r, k, v, want)
			}
		}
	}
}

// loss is the sum of weights times c, with scales that are not rounded.
func loss(m *matrix, c []float32) (sum float64) {
	dtype := m.scales.dtype
	for _, f := range []*factors{m.scales, m.mins} {
		if f != nil {
			f.dtype = packing.ScaleF32
			f.refresh(0, len(f.value))
			f.dtype = dtype
		}
	}
	row := make([]float32, m.Cols)
	for r := range m.Rows {
		m.row(row, r)
		for k, v := range row {
			sum += float64(v) * float64(c[r*m.Cols+k])
		}
	}
	return sum
}

func checkGradient(t *testing.T, m *matrix, p *trained, c []float32) {
	t.Helper()
	const h = 1.0 / 64
	for i := range p.x {
		p.x[i] = h
		up := loss(m, c)
		p.x[i] = -h
		down := loss(m, c)
		p.x[i] = 0
		want := (up - down) / (2 * h)
		if got := float64(p.grad[i]); math.Abs(got-want) > 1e-4*math.Abs(want)+1e-4 {
			t.Fatalf("parameter %d: the gradient is %g, differences give %g", i, got, want)
		}
	}
	m.refresh(0, m.Rows)
}

// checkFactors compares the gradients from factors of the rows with the gradients from weights,
// also after a change of the parameters.
func checkFactors(t *testing.T, m *matrix, c []float32) {
	t.Helper()
	by := m.scales.by
	want := slices.Clone(by.grad)
	row, factors := make([]float32, m.Cols), make([]float32, m.Rows)
	for _, x := range []float32{.25, 0} {
		for r := range m.Rows {
			by.x[r] = x
		}
		m.refresh(0, m.Rows)
		for r := range m.Rows {
			sum := 0.0
			m.row(row, r)
			for k, v := range row {
				sum += float64(v) * float64(c[r*m.Cols+k])
			}
			factors[r] = float32(sum)
		}
		clear(by.grad)
		m.factorGradient(factors)
		for r, v := range by.grad {
			// Scales are rounded.
			if d := math.Abs(float64(v - want[r])); d > 0.02*math.Abs(float64(want[r]))+2e-3 {
				t.Errorf("parameter %g of row %d: the gradient is %g, from weights %g", x, r, v, want[r])
			}
		}
	}
}

// TestFactors keeps values that the file cannot hold, and gains that are 1 + a stored number.
func TestFactors(t *testing.T) {
	f := newFactors([]float32{0x1p-24, 65504, 1, 0}, packing.ScaleF16, 0x1p-24, 1, rate)
	copy(f.by.x, []float32{-.5, .5, .5, .5})
	f.refresh(0, 4)
	if want := []float32{0x1p-24, 65504, 1.5, 0}; !slices.Equal(f.value, want) {
		t.Errorf("values %v, want %v", f.value, want)
	}
	g := newFactors([]float32{1.25}, packing.ScaleBF16, 0, 1, rate)
	g.minus, g.by.x[0] = 1, 1e-3
	g.refresh(0, 1)
	if stored := g.value[0] - 1; stored != packing.ScaleBF16.Round(1.25*1.001-1) {
		t.Errorf("the file would hold %v", stored)
	}
}

// TestKLGradient compares the gradient with differences.
func TestKLGradient(t *testing.T) {
	const n = 9
	r := rand.New(rand.NewPCG(1, 1))
	teacher, student := make([]float32, n), make([]float32, n)
	for i := range n {
		teacher[i], student[i] = float32(3*r.NormFloat64()), float32(3*r.NormFloat64())
	}
	p, q := make([]float64, n), make([]float64, n)
	kl := func(student []float32) (sum float64) {
		softmax(p, teacher)
		softmax(q, student)
		for i := range p {
			sum += p[i] * math.Log(p[i]/q[i])
		}
		return sum
	}
	got := slices.Clone(student)
	klGradient(got, teacher, .5, p, q)
	for i := range n {
		const h = 1.0 / 256
		up, down := slices.Clone(student), slices.Clone(student)
		up[i] += h
		down[i] -= h
		if want := .5 * (kl(up) - kl(down)) / (2 * h); math.Abs(float64(got[i])-want) > 1e-5 {
			t.Errorf("logit %d: %g, differences give %g", i, got[i], want)
		}
	}
}

// TestSchedule describes the learning rate and the corrections of the moments.
func TestSchedule(t *testing.T) {
	var list []string
	for _, step := range []int{0, 9, 10, 85, 159} {
		list = append(list, fmt.Sprintf("%.3f", schedule(step, 160)))
	}
	if want := []string{"0.100", "1.000", "1.000", "0.525", "0.050"}; !slices.Equal(list, want) {
		t.Errorf("%v, want %v", list, want)
	}
	if first, second := corrections(1); math.Abs(first-.19) > 1e-12 || math.Abs(second-.0199) > 1e-12 {
		t.Errorf("corrections %v, %v", first, second)
	}
}
