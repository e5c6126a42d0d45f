package rounding

import (
	"errors"
	"hash/crc32"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

var blockTypes = slices.Sorted(maps.Keys(blockGrids))

// blockRowsOf returns rows of 512 weights that are easy to get wrong.
func blockRowsOf(rng *rand.Rand) map[string][]float32 {
	const k = 512
	rows := map[string][]float32{}
	add := func(name string, value func(i int) float32) {
		row := make([]float32, k)
		for i := range row {
			row[i] = value(i)
		}
		rows[name] = row
	}
	normal := func(int) float32 { return float32(rng.NormFloat64() * 0.02) }
	add("normal", normal)
	add("zeros", func(int) float32 { return 0 })
	add("negative zeros", func(int) float32 { return float32(math.Copysign(0, -1)) })
	add("zero groups", func(i int) float32 { return normal(i) * float32(i/16%2) })
	add("zero block", func(i int) float32 { return normal(i) * float32(i/256) })
	add("one weight", func(i int) float32 {
		if i == 300 {
			return -0.7
		}
		return 0
	})
	add("constant", func(int) float32 { return 0.37 })
	add("negative constant", func(int) float32 { return -0.37 })
	add("positive", func(i int) float32 { return float32(math.Abs(float64(normal(i)))) })
	add("negative", func(i int) float32 { return -float32(math.Abs(float64(normal(i)))) })
	add("shifted", func(i int) float32 { return 1 + normal(i) })
	add("shifted down", func(i int) float32 { return -1 + normal(i) })
	add("heavy tails", func(i int) float32 { return normal(i) / float32(0.01+rng.Float64()) })
	add("groups of different size", func(i int) float32 { return normal(i) * float32(int(1)<<(i/16%16)) })
	add("subnormal scales", func(i int) float32 { return normal(i) * 1e-4 })
	add("too small", func(i int) float32 { return normal(i) * 1e-8 })
	add("float32 subnormals", func(int) float32 { return math.Float32frombits(uint32(rng.IntN(100))) })
	add("huge", func(i int) float32 { return normal(i) * 1e5 })
	return rows
}

func quantizeBlocks(t *testing.T, s Scheme, x []float32) (blocks []byte, weights []float32, sum vec.ErrorSum) {
	t.Helper()
	q, err := NewRowQuantizer(s, len(x))
	if err != nil {
		t.Fatal(err)
	}
	c := NewCodes(s.Shape(1, len(x)))
	if err := q.QuantizeBlocks(c.Blocks, x, &sum); err != nil {
		t.Fatal(err)
	}
	weights = make([]float32, len(x))
	c.DequantizeRow(weights, 0)
	return c.Blocks, weights, sum
}

// TestBlockCodes: no other code is nearer to a weight, with the scales and minima that the blocks
// hold; the sums equal the sums of the weights that gguf decodes.
func TestBlockCodes(t *testing.T) {
	rows := blockRowsOf(rand.New(rand.NewPCG(1, 2)))
	for _, kind := range blockTypes {
		grid := blockGrids[kind]
		for _, a := range []gqf.Algorithm{gqf.AlgorithmRTN, gqf.AlgorithmSearch} {
			s, _ := BlockScheme(kind, a)
			for name, x := range rows {
				blocks, weights, sum := quantizeBlocks(t, s, x)
				var f gguf.Fields
				if err := kind.Unpack(&f, blocks); err != nil {
					t.Fatal(err)
				}
				noise := 0.0
				for i, v := range x {
					e := math.Abs(float64(v) - float64(weights[i]))
					noise += e * e
					was := f.Codes[i]
					for _, f.Codes[i] = range grid.neighbours(was) {
						n := i / kind.BlockWeights()
						if other := math.Abs(float64(v) - blockWeight(grid, &f, n, i)); other < e*(1-1e-5)-1e-7*math.Abs(float64(v)) {
							t.Fatalf("%s, %s, weight %d: %g is %g with code %d, %g from it, and %g from it with code %d", s, name, i, v, weights[i], was, e, other, f.Codes[i])
						}
					}
					f.Codes[i] = was
				}
				if got, _ := sum.Total(); math.Abs(got-noise) > 1e-5*noise+1e-30 {
					t.Errorf("%s, %s: squared error %g, want %g", s, name, got, noise)
				}
			}
		}
	}
}

// neighbours are the codes next to a code, none where codes depend on each other (see TestPoints).
func (g *blockGrid) neighbours(q int8) (list []int8) {
	if g.points != nil {
		return nil
	}
	if g.table != nil {
		values := slices.Compact(slices.Clone(g.table.nearest[:])) // ascending
		i := slices.Index(values, q)
		list = append(list, values[max(i-1, 0):i]...)
		return append(list, values[i+1:min(i+2, len(values))]...)
	}
	for _, step := range []int{-1, 1} {
		if other := int(q) + step; other >= g.qmin && other <= g.qmax {
			list = append(list, int8(other))
		}
	}
	return list
}

// blockWeight is the weight of code i of block n, by the definition of the types.
func blockWeight(grid *blockGrid, f *gguf.Fields, n, i int) float64 {
	q, d := float64(f.Codes[i]), float64(f.Scales[n])
	switch g := i / grid.group; {
	case grid.points != nil:
		return q * d * float64(f.SubScales[g]) * float64(grid.part)
	case !grid.super() && grid.minMax == 0:
		return q * d
	case !grid.super():
		return q*d + float64(f.Mins[n])
	case grid.minMax == 0:
		return q * d * float64(f.SubScales[g])
	default:
		return q*d*float64(f.SubScales[g]) - float64(f.Mins[n])*float64(f.SubMins[g])
	}
}

// TestBlocksExact: weights of a checkpoint that a type with a table holds come back, by every
// algorithm. MXFP4's scales are the largest that the group's numbers allow, or larger.
func TestBlocksExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, kind := range []gguf.TensorType{tq1, tq2, mxfp4} {
		for _, a := range []gqf.Algorithm{gqf.AlgorithmRTN, gqf.AlgorithmSearch, gqf.AlgorithmImatrix} {
			s, _ := BlockScheme(kind, a)
			for _, scale := range []float32{1, 0x1p-9 * 171, -0.0234375} {
				x := make([]float32, 512)
				for i := range x {
					x[i] = scale * float32(rng.IntN(3)-1)
					if kind == mxfp4 {
						x[i] = float32(math.Ldexp([]float64{0, .5, 1, 1.5, 2, 3, 4, 6}[rng.IntN(i/32%8+1)], i/32-20))
						if rng.IntN(2) > 0 {
							x[i] = -x[i]
						}
					}
				}
				_, weights, sum := quantizeBlocks(t, s, x)
				if noise, _ := sum.Total(); noise != 0 || !slices.Equal(weights, x) {
					t.Errorf("%s, scale %g: squared error %g", s, scale, noise)
				}
			}
		}
	}
}

// TestBlockErrors: what cannot be quantized is refused.
func TestBlockErrors(t *testing.T) {
	for _, kind := range blockTypes {
		for _, a := range []gqf.Algorithm{gqf.AlgorithmRTN, gqf.AlgorithmSearch} {
			s, _ := BlockScheme(kind, a)
			n := kind.BlockWeights()
			if _, err := NewRowQuantizer(s, n+16); err == nil {
				t.Errorf("%s: rows of %d weights", s, n+16)
			}
			q, err := NewRowQuantizer(s, 2*n)
			if err != nil {
				t.Fatal(err)
			}
			dst, x := make([]byte, 2*kind.BlockBytes()), make([]float32, 2*n)
			x[n+3] = float32(math.NaN())
			var bad *NonFiniteError
			if err := q.QuantizeBlocks(dst, x, nil); !errors.As(err, &bad) || bad.Column != n+3 {
				t.Errorf("%s, NaN: %v", s, err)
			}
			x[n+3] = 3e38
			var scale *ScaleError
			if err := q.QuantizeBlocks(dst, x, nil); blockGrids[kind].power && err == nil {
				continue // E8M0 has larger numbers than F16
			} else if !errors.As(err, &scale) || scale.Group != (n+3)/s.Group {
				t.Errorf("%s, 3e38: %v", s, err)
			}
		}
	}
}

// TestBlockSchemes: exactly the schemes of BlockScheme are valid.
func TestBlockSchemes(t *testing.T) {
	for _, kind := range blockTypes {
		s, ok := BlockScheme(kind, gqf.AlgorithmSearch)
		if !ok || s.Validate() != nil {
			t.Errorf("%s: %v, %v", kind, ok, s.Validate())
		}
		if got, ok := BlockType(s.Bits, s.Mapping); !ok || got != kind {
			t.Errorf("%d bits, %s: %s", s.Bits, s.Mapping, got)
		}
		if got, want := s.String(), kind.String()+" search"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		for i, change := range []func(*Scheme){
			func(s *Scheme) { s.Bits++ },
			func(s *Scheme) { s.Group *= 2 },
			func(s *Scheme) { s.Mapping = gqf.MappingFullRange },
			func(s *Scheme) { s.ScaleDtype = packing.ScaleBF16 },
			func(s *Scheme) { s.PositiveScales = true },
			func(s *Scheme) { s.Algorithm = gqf.AlgorithmMSE },
			func(s *Scheme) { s.Type = gguf.Q4_0 },
		} {
			other := s
			if change(&other); other.Validate() == nil {
				t.Errorf("%s, change %d: %+v is valid", kind, i, other)
			}
		}
	}
	if _, ok := BlockScheme(gguf.Q8_0, gqf.AlgorithmSearch); ok {
		t.Error("Q8_0 is one of gq's own grids")
	}
	own := Scheme{Bits: 4, Group: 32, Mapping: gqf.MappingKQuant, ScaleDtype: packing.ScaleF16}
	if own.Validate() == nil {
		t.Error("a K type without its type")
	}
}

// weightedError is the error that a search makes small.
func weightedError(w, x, y []float32) (sum float64) {
	for i, v := range x {
		e := float64(v) - float64(y[i])
		sum += float64(w[i]) * e * e
	}
	return sum
}

// TestBlockSearch: the search is never worse than round-to-nearest, and much better on normally
// distributed weights, with weights of columns and without.
func TestBlockSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	importance := make([]float32, 512)
	for i := range importance {
		importance[i] = float32(math.Exp(rng.NormFloat64()))
		if i%5 == 0 || i/32 == 3 {
			importance[i] = 0
		}
	}
	rows := blockRowsOf(rng)
	for _, kind := range blockTypes {
		for _, d := range [][]float32{nil, importance} {
			for name, x := range rows {
				rtn, _ := BlockScheme(kind, gqf.AlgorithmRTN)
				_, simple, _ := quantizeBlocks(t, rtn, x)
				s, _ := BlockScheme(kind, gqf.AlgorithmSearch)
				q, err := NewRowQuantizer(s, len(x))
				if err != nil {
					t.Fatal(err)
				}
				q.Weigh(d, false)
				c := NewCodes(s.Shape(1, len(x)))
				if err := q.QuantizeBlocks(c.Blocks, x, nil); err != nil {
					t.Fatal(err)
				}
				y := make([]float32, len(x))
				c.DequantizeRow(y, 0)
				w := q.rowWeights(x)
				// The search measures in float32.
				got, most := weightedError(w, x, y), weightedError(w, x, simple)
				if got > most*(1+1e-5)+1e-30 {
					t.Errorf("%s, %s, weights %t: error %g, round-to-nearest has %g", s, name, d != nil, got, most)
				}
				less := 0.9
				if blockGrids[kind].power { // few powers of two are near
					less = 1
				}
				if name == "normal" && got > less*most {
					t.Errorf("%s, weights %t: error %g of normally distributed weights, round-to-nearest has %g", s, d != nil, got, most)
				}
			}
		}
	}
}

// TestBlockBits compares with results from another CPU: they are the same everywhere.
func TestBlockBits(t *testing.T) {
	integers, tables, points := crc32.NewIEEE(), crc32.NewIEEE(), crc32.NewIEEE()
	for _, kind := range blockTypes {
		sum := integers
		switch {
		case blockGrids[kind].table != nil:
			sum = tables
		case blockGrids[kind].points != nil:
			sum = points
		}
		for _, a := range []gqf.Algorithm{gqf.AlgorithmRTN, gqf.AlgorithmSearch} {
			s, _ := BlockScheme(kind, a)
			for row := range 12 {
				x, rng := make([]float32, 768), detmath.Source(row)
				for i := range x { // exact: no logarithms, whose last bit may differ
					x[i] = float32(int16(rng.Next()>>48)/4+int16(rng.Next()>>48)/4) / []float32{8192, 3e6, 1e10}[(row+i/256)%3]
				}
				blocks, _, _ := quantizeBlocks(t, s, x)
				sum.Write(blocks)
			}
		}
	}
	if got := [...]uint32{integers.Sum32(), tables.Sum32(), points.Sum32()}; got != [...]uint32{0xb4954a77, 0x144483df, 0x4b0ae078} {
		t.Errorf("the blocks have the checksums %#x", got)
	}
}

// BenchmarkBlocks measures nanoseconds a weight.
func BenchmarkBlocks(b *testing.B) {
	rng := rand.New(rand.NewPCG(3, 4))
	x := make([]float32, 4096)
	for i := range x {
		x[i] = float32(rng.NormFloat64() * 0.02)
	}
	for _, kind := range blockTypes {
		for _, a := range []gqf.Algorithm{gqf.AlgorithmRTN, gqf.AlgorithmSearch} {
			s, _ := BlockScheme(kind, a)
			b.Run(kind.String()+"/"+a.String(), func(b *testing.B) {
				q, err := NewRowQuantizer(s, len(x))
				if err != nil {
					b.Fatal(err)
				}
				dst := NewCodes(s.Shape(1, len(x))).Row(0).Blocks
				for b.Loop() {
					if err := q.QuantizeBlocks(dst, x, nil); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(x)), "ns/weight")
			})
		}
	}
}
