package act

import (
	"fmt"
	"github.com/lowbit-go/gq/internal/floats"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// edgeValues are float32 that arithmetic treats specially.
var edgeValues = []float32{
	0, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32,
	math.Float32frombits(0x007fffff), math.Float32frombits(0x807fffff), // largest subnormals
	0x1p-126, -0x1p-126, 0.5, -0.5, 0.49999997, -0.49999997, 1.5, -1.5, 2.5, -2.5, 126.5, 127, -127.5, -128, 254.5, -254.5,
	math.MaxFloat32, -math.MaxFloat32, 0x1p127, -0x1p127, 0x1p100, 0x1p-100, 65504 * 127, 65520 * 127, 7.5e-37, 3e-39,
}

// rowKinds make rows of every sort: each writes all of x.
var rowKinds = []func(rng *rand.Rand, x []float32){
	func(rng *rand.Rand, x []float32) { // ordinary activations
		fill(x, func() float32 { return float32(rng.NormFloat64()) })
	},
	func(rng *rand.Rand, x []float32) { // of one sign, of any size
		size, sign := math.Ldexp(1, rng.IntN(250)-125), float64(1-2*rng.IntN(2))
		fill(x, func() float32 { return float32(sign * size * (1 + rng.Float64())) })
	},
	func(rng *rand.Rand, x []float32) { // constant, 0 too
		v := edgeValues[rng.IntN(len(edgeValues))]
		fill(x, func() float32 { return v })
	},
	func(rng *rand.Rand, x []float32) { // zeros of both signs
		fill(x, func() float32 { return edgeValues[rng.IntN(2)] })
	},
	func(rng *rand.Rand, x []float32) { // a spike
		fill(x, func() float32 { return float32(rng.NormFloat64() * 0.01) })
		x[rng.IntN(len(x))] = 300
	},
	// Ties of a factor of 1, in Asymmetric (first) or in blocks of any size.
	func(rng *rand.Rand, x []float32) {
		top := float32(127)
		if rng.IntN(2) == 0 {
			top = 254.5
		}
		fill(x, func() float32 { return min(top, float32(rng.IntN(510))*0.5) * float32(1-2*rng.IntN(2)) })
		for i := 0; i < len(x); i += 32 {
			x[i] = 127
		}
		if top > 127 {
			x[0] = -0.5
			x[len(x)-1] = 254.5
		}
	},
	func(rng *rand.Rand, x []float32) { // edge values
		fill(x, func() float32 { return edgeValues[rng.IntN(len(edgeValues))] })
	},
	func(rng *rand.Rand, x []float32) { // about where a scale or its inverse overflows
		size := math.Ldexp(1+rng.Float64(), []int{-130, -129, -128, -122, -121, -120, 22, 23, 126, 127}[rng.IntN(10)])
		fill(x, func() float32 { return float32(size * (2*rng.Float64() - 1)) })
	},
	func(rng *rand.Rand, x []float32) { // subnormal
		fill(x, func() float32 { return math.Float32frombits(rng.Uint32() & 0x807fffff) })
	},
	func(rng *rand.Rand, x []float32) { // any bits, not finite ones rare
		fill(x, func() float32 { return math.Float32frombits(rng.Uint32()) })
	},
	func(rng *rand.Rand, x []float32) { // one value not finite, anywhere
		fill(x, func() float32 { return float32(rng.NormFloat64()) })
		x[rng.IntN(len(x))] = math.Float32frombits([]uint32{0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001}[rng.IntN(5)])
	},
}

func fill(x []float32, value func() float32) {
	for i := range x {
		x[i] = value()
	}
}

var columns = []int{1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 45, 63, 64, 65, 96, 100, 128, 160, 255, 256, 320, 1000}

// eachRow calls f with rows of every kind and length.
func eachRow(rng *rand.Rand, f func(x []float32)) {
	rounds := 60
	if testing.Short() {
		rounds = 4
	}
	for _, k := range columns {
		x := make([]float32, k)
		for _, kind := range rowKinds {
			for range rounds {
				kind(rng, x)
				f(x)
			}
		}
	}
}

func checkCodesOf(t *testing.T, what string, x []float32, q, codes []int8) {
	t.Helper()
	for i, got := range q {
		want := int8(0)
		if i < len(x) {
			want = codes[i]
		}
		if got != want {
			t.Fatalf("%s: code %d of %d is %d, want %d (%v)", what, i, len(x), got, want, x)
		}
	}
}

func TestAsymmetric(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ bool) {
		good := 0
		eachRow(rand.New(rand.NewPCG(1, 2)), func(x []float32) {
			k32 := (len(x) + 31) / 32 * 32
			codes := make([]int8, len(x))
			wantZero, wantRec, wantOK := asymmetric(codes, x)
			q := slices.Repeat([]int8{99}, k32+16) // more than enough is fine
			zero, rec, ok := Asymmetric(q, x)
			if ok != wantOK {
				t.Fatalf("ok is %v for %v", ok, x)
			}
			if !ok {
				checkRefused(t, q, []float32{float32(zero), rec})
				return
			}
			good++
			if zero != wantZero || !same(rec, wantRec) {
				t.Fatalf("zero point %d and scale %v of %v, want %d and %v", zero, rec, x, wantZero, wantRec)
			}
			checkCodesOf(t, "asymmetric", x, q, codes)
		})
		if good == 0 {
			t.Error("no row has a scale")
		}
	})
}

// checkRefused wants zeros for a refused row.
func checkRefused(t *testing.T, q []int8, rest []float32) {
	t.Helper()
	for _, v := range q {
		if v != 0 {
			t.Fatalf("a refused row has codes: %v", q)
		}
	}
	for _, v := range rest {
		if !same(v, 0) {
			t.Fatalf("a refused row has scales: %v", rest)
		}
	}
}

func TestBlocks(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ bool) {
		good, sums := 0, 0
		eachRow(rand.New(rand.NewPCG(3, 4)), func(x []float32) {
			if len(x)%32 != 0 {
				return
			}
			for _, block := range []int{32, 64, 160, len(x)} {
				if len(x)%block != 0 {
					continue
				}
				if checkBlocksF16(t, x, block) {
					good++
				}
				if checkBlocksF32(t, x, block) {
					sums++
				}
			}
		})
		if good == 0 || sums == 0 {
			t.Errorf("%d rows have F16 scales, %d float32 scales", good, sums)
		}
	})
}

func checkBlocksF16(t *testing.T, x []float32, block int) (ok bool) {
	t.Helper()
	codes, stored, wantOK := blocksF16(x, block)
	q, scales := slices.Repeat([]int8{99}, len(x)+32), make([]float32, len(x)/block)
	ok = BlocksF16(q, scales, x, block)
	if ok != wantOK {
		t.Fatalf("F16 scales: ok is %v for %v", ok, x)
	}
	if !ok {
		checkRefused(t, q, scales)
		return false
	}
	for g, scale := range scales {
		checkCodesOf(t, fmt.Sprintf("block %d with an F16 scale", g), x[g*block:][:block], q[g*block:][:block], codes[g*block:])
		if half(scale) != float64(stored[g]) {
			t.Fatalf("scale %d is %v, want F16 %#x", g, scale, stored[g])
		}
	}
	checkRefused(t, q[len(x):], nil)
	checkBlocksSums(t, x, block, q, scales)
	return true
}

// checkBlocksSums compares BlocksSums with the codes and scales of BlocksF16.
func checkBlocksSums(t *testing.T, x []float32, block int, codes []int8, wantScales []float32) {
	t.Helper()
	q, scales, sums := slices.Repeat([]int8{99}, len(x)+32), make([]float32, len(x)/block), make([]float32, len(x)/block)
	ok, wantOK := BlocksSums(q, scales, sums, x, block), true
	for g, got := range sums {
		sum := int32(0)
		for _, v := range codes[g*block:][:block] {
			sum += int32(v)
		}
		want := floats.RoundF16(float32(float32(sum) * (absMax(x[g*block:][:block]) / 127)))
		wantOK = wantOK && finite(want)
		if ok && !same(got, want) {
			t.Fatalf("block %d has the sum %v, want %v", g, got, want)
		}
	}
	switch {
	case ok != wantOK:
		t.Fatalf("F16 sums: ok is %v for %v", ok, x)
	case !ok:
		checkRefused(t, q, append(scales, sums...))
	case !slices.Equal(q, codes) || !slices.Equal(scales, wantScales):
		t.Fatalf("BlocksSums has other codes or scales than BlocksF16 for %v", x)
	}
}

// half encodes a non-negative F16 number by its definition.
func half(x float32) float64 {
	if x < 0x1p-14 {
		return float64(x) * 0x1p24
	}
	e := math.Ilogb(float64(x))
	return math.Ldexp(float64(x), 10-e) - 1024 + float64(e+15)*1024
}

func checkBlocksF32(t *testing.T, x []float32, block int) (ok bool) {
	t.Helper()
	codes, wantScales, wantSums, wantOK := blocksF32(x, block)
	q, scales, sums := slices.Repeat([]int8{99}, len(x)+32), make([]float32, len(x)/block), make([]float32, len(x)/block)
	ok = BlocksF32(q, scales, sums, x, block)
	if ok != wantOK {
		t.Fatalf("float32 scales: ok is %v for %v", ok, x)
	}
	if !ok {
		checkRefused(t, q, append(scales, sums...))
		return false
	}
	for g, scale := range scales {
		checkCodesOf(t, fmt.Sprintf("block %d with a float32 scale", g), x[g*block:][:block], q[g*block:][:block], codes[g*block:])
		if !same(sums[g], wantSums[g]) || !same(scale, wantScales[g]) {
			t.Fatalf("block %d has scale %v and sum %v, want %v and %v", g, scale, sums[g], wantScales[g], wantSums[g])
		}
	}
	checkRefused(t, q[len(x):], nil)
	return true
}

// TestShortBlock compares a row with a short last block with its blocks quantized as rows of their
// own.
func TestShortBlock(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	x := make([]float32, 100)
	rowKinds[0](rng, x)
	q, scales, sums := make([]int8, 128), make([]float32, 4), make([]float32, 4)
	one, oneScale, oneSum := make([]int8, 32), make([]float32, 1), make([]float32, 1)
	for g := range scales {
		part := x[32*g : min(100, 32*g+32)]
		if !BlocksF16(q, scales, x, 32) || !BlocksF16(one, oneScale, part, 32) || scales[g] != oneScale[0] || !slices.Equal(q[32*g:][:32], one) {
			t.Fatalf("F16 scales: block %d", g)
		}
		if !BlocksF32(q, scales, sums, x, 32) || !BlocksF32(one, oneScale, oneSum, part, 32) ||
			scales[g] != oneScale[0] || sums[g] != oneSum[0] || !slices.Equal(q[32*g:][:32], one) {
			t.Fatalf("float32 scales: block %d", g)
		}
	}
}

// TestRounding meets all ties and their neighbours in every lane.
func TestRounding(t *testing.T) {
	var x []float32
	for v := float32(-256); v <= 256; v += 0.5 {
		x = append(x, v, math.Nextafter32(v, 300), math.Nextafter32(v, -300))
	}
	// Beyond 16 bits too, where an addition must not wrap.
	for v := float32(1000); v < 1<<22; v *= 1.5 {
		x = append(x, v, -v)
	}
	x = append(x, 32767, -32768)
	asmtest.Each(t, accelerated, func(t *testing.T, _ bool) {
		for cut := range 9 {
			x := x[cut:]
			q := make([]int8, len(x)+1)
			for _, zero := range []int32{0, -128, 127, 5} {
				quantizeAway(q[:len(x)], x, []float32{1}, len(x), zero)
				for i, v := range x {
					if want := int8(max(-128, min(math.Round(float64(v))+float64(zero), 127))); q[i] != want {
						t.Fatalf("%v + %d is %d, want %d", v, zero, q[i], want)
					}
				}
			}
			quantizeEven(q[:len(x)], x, []float32{1}, len(x))
			for i, v := range x {
				if want := int8(max(-128, min(math.RoundToEven(float64(v)), 127))); q[i] != want {
					t.Fatalf("%v is %d, want %d", v, q[i], want)
				}
			}
			if q[len(x)] != 0 {
				t.Fatal("wrote past the end")
			}
		}
	})
}

func TestGroupSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	asmtest.Each(t, accelerated, func(t *testing.T, _ bool) {
		for _, k := range append([]int{4096, 70_000}, columns...) {
			for _, past := range []int{0, 1, 16, 31} {
				q := make([]int8, k+past)
				for i := range k {
					q[i] = int8(rng.IntN(256) - 128)
				}
				if rng.IntN(4) == 0 {
					fillCodes(q[:k], int8(255*rng.IntN(2)-128))
				}
				for _, group := range []int{16, 32, 48, 64, 96, 128, 256, 1000, k, 1 << 20} {
					dst := make([]int32, (k+group-1)/group+1)
					n := len(dst) - 1
					dst[n] = 12345
					GroupSums(dst[:n], q, group)
					for g := range n {
						want := int32(0)
						for _, v := range q[g*group : min(k, (g+1)*group)] {
							want += int32(v)
						}
						if dst[g] != want {
							t.Fatalf("%d codes and %d: sum %d in groups of %d is %d, want %d", k, past, g, group, dst[g], want)
						}
					}
					if dst[n] != 12345 {
						t.Fatal("wrote past the end")
					}
				}
			}
		}
	})
}

func fillCodes(q []int8, v int8) {
	for i := range q {
		q[i] = v
	}
}

func TestNoAllocation(t *testing.T) {
	x, q := make([]float32, 256), make([]int8, 256)
	rowKinds[0](rand.New(rand.NewPCG(9, 10)), x)
	scales, sums, groups := make([]float32, 8), make([]float32, 8), make([]int32, 8)
	asmtest.Each(t, accelerated, func(t *testing.T, _ bool) {
		if n := testing.AllocsPerRun(10, func() {
			Asymmetric(q, x)
			BlocksF16(q, scales, x, 32)
			BlocksF32(q, scales, sums, x, 32)
			GroupSums(groups, q, 32)
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

// TestEmpty: a row of no columns has no codes.
func TestEmpty(t *testing.T) {
	q := []int8{1}
	if zero, rec, ok := Asymmetric(q, nil); !ok || zero != 127 || rec != 1 || q[0] != 0 {
		t.Errorf("no columns: zero point %d, scale %v, %v", zero, rec, ok)
	}
	GroupSums(nil, q, 16)
}

func TestPanics(t *testing.T) {
	x := make([]float32, 64)
	for name, f := range map[string]func(){
		"too few codes":  func() { Asymmetric(make([]int8, 63), x) },
		"too few scales": func() { BlocksF16(make([]int8, 64), make([]float32, 1), x, 32) },
		"too many sums":  func() { BlocksF32(make([]int8, 64), make([]float32, 2), make([]float32, 3), x, 32) },
		"no block":       func() { BlocksF16(make([]int8, 64), make([]float32, 2), x, 0) },
		"no group":       func() { GroupSums(make([]int32, 1), make([]int8, 64), 0) },
		"too many sums of groups": func() {
			GroupSums(make([]int32, 4), make([]int8, 64), 32)
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func BenchmarkRow(b *testing.B) {
	const k = 4096
	x, q := make([]float32, k), make([]int8, k)
	rowKinds[0](rand.New(rand.NewPCG(11, 12)), x)
	scales, sums, groups := make([]float32, k/32), make([]float32, k/32), make([]int32, k/32)
	for _, i := range asmtest.Implementations(accelerated) {
		for _, f := range []struct {
			name string
			run  func()
		}{
			{"Asymmetric", func() { Asymmetric(q, x) }},
			{"BlocksF16", func() { BlocksF16(q, scales, x, 32) }},
			{"BlocksF32", func() { BlocksF32(q, scales, sums, x, 32) }},
			{"GroupSums", func() { GroupSums(groups, q, 32) }},
		} {
			b.Run(f.name+"/"+i.Feature, func(b *testing.B) {
				asmtest.Restrict(b, i.Feature)
				for b.Loop() {
					f.run()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/k, "ns/column")
			})
		}
	}
}
