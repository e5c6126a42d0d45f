package vec

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// edgeValues are finite float32 that arithmetic treats specially.
var edgeValues = []float32{
	0, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32,
	math.Float32frombits(0x007fffff), math.Float32frombits(0x807fffff), // largest denormals
	0x1p-126, -0x1p-126, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 7.5, -8.5, 1, -1, 127.5, -128.5, 128, -128, 255, -255,
	math.MaxFloat32, -math.MaxFloat32, 0x1p100, -0x1p100, 0x1p-70, -0x1p-70,
}

// fill writes one of several kinds of rows: ordinary weights, ties of a grid, edge values, one
// sign, all bits.
func fill(rng *rand.Rand, x []float32) {
	kind := rng.IntN(6)
	for i := range x {
		switch kind {
		case 0:
			x[i] = float32(rng.NormFloat64() * 0.02)
		case 1:
			x[i] = float32(rng.IntN(600)-300) * 0.5
		case 2:
			x[i] = edgeValues[rng.IntN(len(edgeValues))]
		case 3:
			x[i] = float32(-rng.Float64())
		case 4:
			x[i] = float32(rng.ExpFloat64())
		default:
			x[i] = finite(rng.Uint32())
		}
	}
}

func finite(bits uint32) float32 {
	if bits&expMask == expMask {
		bits &^= 1 << 30
	}
	return math.Float32frombits(bits)
}

// shapes gives row lengths and group sizes, every way that a row can be cut included.
func shapes(f func(k, group int)) {
	for _, k := range []int{0, 1, 12, 15, 16, 17, 31, 32, 48, 172, 256, 257, 300, 512, 520, 1040} {
		for _, group := range []int{1, 12, 16, 32, 48, 64, 128, 256, 272, 512, 528, 2048} {
			f(k, group)
		}
		if k > 0 {
			f(k, k)
		}
	}
}

func same(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

func TestBadArguments(t *testing.T) {
	f, q := make([]float32, 64), make([]int8, 64)
	for name, call := range map[string]func(){
		"bytes":      func() { WidenBF16(f, make([]byte, 127)) },
		"ranges":     func() { GroupRange(f[:1], f[:2], f, 32) },
		"group":      func() { GroupRange(f[:1], f[:1], f, 0) },
		"lattices":   func() { LatticeGroups(make([]uint8, 2), f[:9], f[:9], make([]uint32, 32), &LatticeTest{}) },
		"magnitudes": func() { LeastMagnitudes(make([]uint32, 3), f, 64) },
		"codes":      func() { QuantizeGroups(q[:63], f, f[:2], f[:2], nil, 32, -8, 7, new(ErrorSum)) },
		"scales":     func() { QuantizeGroups(q, f, f[:3], f[:2], nil, 32, -8, 7, new(ErrorSum)) },
		"zeros":      func() { QuantizeGroups(q, f, f[:2], f[:2], q[:1], 32, -8, 7, new(ErrorSum)) },
		"fractions":  func() { QuantizeFractions(q, f, f[:2], f[:2], nil, f[:3], 32, -8, 7, new(ErrorSum)) },
		"grids":      func() { NewGridFit(32, 4).SearchGrids(new(GridSearch), make([]GridStart, 3)) },
		"gridCodes":  func() { NewFit(32, new([FitStarts]float32), -8, 7).SearchGrids(new(GridSearch), make([]GridStart, 4)) },
		"choices":    func() { NewGridFit(32, 4).ChooseGrids(new(GridChoice), 12) },
		"gridBits":   func() { NewGridFit(32, 9) },
		"weights":    func() { SearchScales(new(Search), 1, f, f[:63]) },
		"nothing":    func() { ScaleErrors(new(Final), nil, nil) },
		"importance": func() { Importance(f[:2], f, 1) },
		"nibbles":    func() { DecodeNibbles(f, make([]byte, 35)) },
		"relaxed":    func() { StepSoft(new(SoftStep), 3, f[:7], f[:7], q[:7], f[:21], f[:21], f[:21]) },
		"logits":     func() { StepSoft(new(SoftStep), 3, f[:8], f[:8], q[:8], f[:24], f[:24], f[:25]) },
		"oneChoice":  func() { StepSoft(new(SoftStep), 1, f[:8], f[:8], q[:8], f[:8], f[:8], f[:8]) },
		"blocks":     func() { DecodeBytes(f[:31], make([]byte, 34)) },
		"codeRange":  func() { QuantizeGroups(q, f, f[:2], f[:2], nil, 32, -129, 7, new(ErrorSum)) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if s, ok := recover().(string); !ok || s[:4] != "vec:" {
					t.Errorf("panic %q, want one of this package", s)
				}
			}()
			call()
		})
	}
}

// TestNoAllocation keeps scratch of callers on their stacks.
func TestNoAllocation(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		if n := testing.AllocsPerRun(10, func() {
			var x, lo, hi [48]float32
			var q [48]int8
			var src [96]byte
			var acc ErrorSum
			var search Search
			final := Final{Scale: [FinalLanes]float32{1, 1, 1, 1, 1, 1, 1, 1}}
			SearchScales(&search, 1, x[:], x[:])
			ScaleErrors(&final, x[:], x[:])
			Importance(lo[:], x[:], 1)
			SumSquares(x[:])
			WidenBF16(x[:], src[:])
			GroupRange(lo[:3], hi[:3], x[:], 16)
			QuantizeGroups(q[:], x[:], lo[:3], hi[:3], q[:3:3], 16, -8, 7, &acc)
			QuantizeFractions(q[:], x[:], lo[:3], hi[:3], q[:3:3], hi[:3], 16, -8, 7, &acc)
		}); n != 0 {
			t.Errorf("%g allocations", n)
		}
	})
}
