package reference

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// single is arithmetic in float32 (but for its range) by numbers of any length: each result is
// rounded once, to 24 bits.
type single struct{}

func num(v float64) *big.Float { return new(big.Float).SetPrec(1000).SetFloat64(v) }

func round(x *big.Float) *big.Float {
	return num(0).Set(new(big.Float).SetPrec(24).SetMode(big.ToNearestEven).Set(x))
}

func (single) mul(x, y *big.Float) *big.Float    { return round(num(0).Mul(x, y)) }
func (single) add(x, y *big.Float) *big.Float    { return round(num(0).Add(x, y)) }
func (single) fma(x, y, z *big.Float) *big.Float { return round(num(0).Add(num(0).Mul(x, y), z)) }

// ordered computes one output with the operations of design.md and kleidiai.md in their order.
func (m *matrix) ordered(a *Activations, i, row int, sum float32) float32 {
	var s single
	f := num(0)
	for g := range m.groups {
		at := row*m.groups + g
		dot, codes, sums := 0, 0, 0
		for k := g * m.group; k < min(m.cols, (g+1)*m.group); k++ {
			code, q := int(m.codes[row*m.cols+k]), int(a.Q[i*((m.cols+31)/32*32)+k])
			dot += code * q
			codes += code
			sums += q
		}
		scale, zero := float64(m.scales[at]), float64(m.zeros[at])
		switch m.h.Layout {
		case packing.LayoutLowbit, packing.LayoutTorchAOKleidiAI:
			f = s.fma(round(num(float64(dot)-zero*float64(sums))), num(scale), f)
		case packing.LayoutQSI4C32PF16:
			f = s.fma(round(num(float64(dot))), s.mul(num(float64(a.BlockScale[i*m.groups+g])), num(scale)), f)
		case packing.LayoutQAI4C32P:
			f = s.fma(s.mul(num(-zero), num(scale)), num(float64(a.BlockSum[i*m.groups+g])), f)
			f = s.fma(round(num(float64(dot))), s.mul(num(scale), num(float64(a.BlockScale[i*m.groups+g]))), f)
		case packing.LayoutTorchAOLinear:
			n := min(m.cols, (g+1)*m.group) - g*m.group
			za, zw := int(a.Zero[i]), int(zero)
			t := dot - za*codes - zw*sums + n*zw*za
			f = s.add(f, s.mul(s.mul(num(scale), num(float64(a.Rec[i]))), round(num(float64(t)))))
		default: // a scale a row
			t := dot - codes*int(a.Zero[i])
			f = s.mul(round(num(float64(t))), s.mul(num(scale), num(float64(a.Rec[i]))))
		}
	}
	switch m.h.Layout {
	case packing.LayoutLowbit, packing.LayoutTorchAOKleidiAI:
		f = s.fma(num(float64(sum)), num(float64(-a.Zero[i])), f)
		f = s.mul(f, num(float64(a.Rec[i])))
	}
	out, _ := s.add(f, num(float64(m.bias[row]))).Float32()
	return out
}

// TestOrder holds every sort of payload to its order of operations, to the bit: numbers are such
// that none leaves the normal range of float32.
func TestOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	list := headers(rng)
	if testing.Short() {
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		list = list[:len(list)/10]
	}
	for _, h := range list {
		m := newMatrix(t, rng, h, ordinary(rng))
		o := m.operator(t)
		const n = 2
		a := o.Quantize(normal(rng, n*m.cols, 0.3), n)
		dst := make([]float32, n*m.rows)
		o.MultiplyQuantized(dst, a, n)
		for i := range n {
			for row := range m.rows {
				sum := float32(0)
				if l, ok := o.packer.(interface {
					Sum(data []byte, row int) float32
				}); ok {
					sum = l.Sum(m.data, row)
				}
				if want := m.ordered(a, i, row, sum); dst[i*m.rows+row] != want {
					t.Fatalf("%v: output %d of row %d is %x, want %x", m, row, i, dst[i*m.rows+row], want)
				}
			}
		}
	}
}
