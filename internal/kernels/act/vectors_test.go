package act

import (
	"math"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
	"github.com/lowbit-go/gq/internal/test/vectors"
)

// TestKleidiAI quantizes the activations of KleidiAI's vectors, of both packers and products.
func TestKleidiAI(t *testing.T) {
	quantizations, products := vectors.Quantizations(t), vectors.KleidiAI(t)
	asmtest.Each(t, accelerated, func(t *testing.T, _ bool) {
		checked := map[string]int{}
		for _, v := range quantizations {
			if v.Kind == "qsi8d32p4x8sb_f32_neon" {
				continue // ties to even: the numbers of an Arm kernel that gq has no use for
			}
			checked[v.Kind]++
			checkRows(t, v.Name, v.X, v.M, v.K, v.Block, &v.Results)
		}
		for _, v := range products {
			k := int(v.Header.Cols)
			block := k
			if v.Activations.Blocks > 0 {
				block = k / v.Activations.Blocks
			}
			checkRows(t, v.Name, v.X, v.M, k, block, &v.Activations)
		}
		want := map[string]int{"qai8dxp_f32": 45, "qsi8d32p_f32": 13, "qsi8d32p_f32_neon": 2, "qsi8d32pscalef32_f32_neon": 12}
		for kind, n := range want {
			if checked[kind] != n {
				t.Errorf("%d vectors of %s, want %d", checked[kind], kind, n)
			}
		}
	})
}

func checkRows(t *testing.T, name string, x []float32, m, k, block int, want *vectors.Activations) {
	t.Helper()
	q := make([]int8, want.Stride)
	for i := range m {
		for c := range q {
			q[c] = -77 // all of it is written
		}
		row := x[i*k:][:k]
		switch {
		case want.Blocks == 0:
			zero, rec, ok := Asymmetric(q, row)
			if !ok || zero != want.Zero[i] || !same(rec, want.Rec[i]) {
				t.Fatalf("%s: row %d has zero point %d, scale %v (%v), want %d, %v", name, i, zero, rec, ok, want.Zero[i], want.Rec[i])
			}
		case want.BlockSum == nil:
			scales := make([]float32, want.Blocks)
			if ok := BlocksF16(q, scales, row, block); !ok || !slices.EqualFunc(scales, want.BlockScale[i*want.Blocks:][:want.Blocks], same) {
				t.Fatalf("%s: row %d has other scales than KleidiAI's (%v)", name, i, ok)
			}
		default:
			scales, sums := make([]float32, want.Blocks), make([]float32, want.Blocks)
			if ok := BlocksF32(q, scales, sums, row, block); !ok || !slices.EqualFunc(scales, want.BlockScale[i*want.Blocks:][:want.Blocks], same) ||
				!slices.EqualFunc(sums, want.BlockSum[i*want.Blocks:][:want.Blocks], same) {
				t.Fatalf("%s: row %d has other scales or sums than KleidiAI's (%v)", name, i, ok)
			}
		}
		if !slices.Equal(q, want.Row(i)) {
			t.Fatalf("%s: row %d has other codes than KleidiAI's", name, i)
		}
	}
}

// same compares bits.
func same(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
