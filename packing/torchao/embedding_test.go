package torchao

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

var embeddingBase = packing.Header{
	Layout: packing.LayoutTorchAOEmbedding, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8,
	Rows: 3, Cols: 96, Group: 32,
}

// TestEmbedding reads back widths and groups that the vectors lack, and compares dequantized rows
// with codes, scales and zero points.
func TestEmbedding(t *testing.T) {
	for bits := uint8(1); bits <= 8; bits++ {
		for _, shape := range [][2]uint64{{32, 32}, {96, 96}, {192, 64}, {224, 32}, {480, 160}, {2048, 0}} {
			h := embeddingBase
			h.Bits, h.Cols, h.Group = bits, shape[0], shape[1]
			m := randomMatrix(rand.New(rand.NewPCG(uint64(bits), h.Cols)), h)
			data := pack(t, h, m)
			checkMatrix(t, h, m, data)
			e, err := newEmbedding(h)
			if err != nil {
				t.Fatal(err)
			}
			e, _ = e.testCompanions(t, h.Cols)
			if err := e.CheckCompanions(); err != nil {
				t.Fatal(err)
			}
			k, g := int(h.Cols), e.Groups()
			codes, scales, zeros, row := make([]int8, k), make([]float32, g), make([]int8, g), make([]float32, k)
			for r := range int(h.Rows) {
				e.Row(codes, scales, zeros, data, r)
				if !slices.Equal(codes, m.Codes[r*k:][:k]) {
					t.Fatalf("%+v: row %d is not what was packed", h, r)
				}
				e.DequantizeRow(row, data, r)
				for i, w := range row {
					if want := float32(float64(int(codes[i])-int(zeros[i/(k/g)])) * float64(scales[i/(k/g)])); w != want {
						t.Fatalf("%+v: row %d column %d dequantized is %v, want %v", h, r, i, w, want)
					}
				}
			}
		}
	}
}

func TestCompanions(t *testing.T) {
	h := embeddingBase
	h.Flags = packing.FlagPositiveScales
	e, err := newEmbedding(h)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.WithCompanions(make([]byte, 36), make([]byte, 9)); err != nil {
		t.Errorf("3 rows of 3 groups: %v", err)
	}
	for _, size := range [][2]int{{35, 9}, {36, 10}} {
		if _, err := e.WithCompanions(make([]byte, size[0]), make([]byte, size[1])); err == nil || !strings.Contains(err.Error(), "want 36 and 9") {
			t.Errorf("companions of %d bytes: error %v", size, err)
		}
	}
	var damage *packing.PanelError
	for _, bad := range []float32{0, -1, float32(math.Inf(1)), 1e-40} {
		with, scales := e.testCompanions(t, 1)
		binary.LittleEndian.PutUint32(scales[4*7:], math.Float32bits(bad))
		if err := with.CheckCompanions(); !errors.As(err, &damage) || damage.Offset != 28 {
			t.Errorf("scale %v: error %v, want a PanelError at byte 28", bad, err)
		}
	}
}
