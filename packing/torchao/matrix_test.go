package torchao

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// randomMatrix makes weights for h; without scales and zero points for an
// embedding.
func randomMatrix(rng *rand.Rand, h packing.Header) *Matrix {
	n, k, g := int(h.Rows), int(h.Cols), int(h.Groups())
	m := &Matrix{Codes: randomCodes(rng, int(h.Bits), n*k)}
	if h.Flags&packing.FlagBias != 0 {
		m.Bias = make([]float32, n)
		for i := range m.Bias {
			m.Bias[i] = float32(rng.NormFloat64())
		}
	}
	if h.Layout == packing.LayoutTorchAOEmbedding {
		return m
	}
	m.Scales = randomScales(rng, h, n*g)
	if h.ZeroKind == packing.ZeroInt8 {
		m.Zeros = randomCodes(rng, 8, n*g)
	}
	return m
}

func randomScales(rng *rand.Rand, h packing.Header, n int) []float32 {
	scales := make([]float32, n)
	for i := range scales {
		scales[i] = h.ScaleDtype.Round(float32(math.Ldexp(1+rng.Float64(), rng.IntN(14)-12)))
		if h.Flags&packing.FlagPositiveScales == 0 && rng.IntN(2) == 0 {
			scales[i] = -scales[i]
		}
	}
	return scales
}

func randomCodes(rng *rand.Rand, bits, n int) []int8 {
	q := make([]int8, n)
	for i := range q {
		q[i] = int8(rng.IntN(1<<bits) - 1<<(bits-1))
	}
	return q
}

// testCompanions gives e random companions.
func (e *Embedding) testCompanions(t testing.TB, seed uint64) *Embedding {
	rng := rand.New(rand.NewPCG(seed, 9))
	scales, zeros := make([]byte, 0, e.ScalesBytes()), make([]byte, e.ZerosBytes())
	for _, s := range randomScales(rng, e.h, len(zeros)) {
		scales = binary.LittleEndian.AppendUint32(scales, math.Float32bits(s))
	}
	for i := range zeros {
		zeros[i] = byte(rng.Uint32())
	}
	with, err := e.WithCompanions(scales, zeros)
	if err != nil {
		t.Fatal(err)
	}
	return with
}
