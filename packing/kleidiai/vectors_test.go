package kleidiai

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// vector is a run of one of KleidiAI's packers, an entry of the shared vectors' manifest
// (shared/vectors/kleidiai/README.md). testdata/vectors/kleidiai has the kinds rhs_pack and
// lhs_pack.
type vector struct {
	ID, Kind, Func    string
	N, K, BL          int
	NR, KR, SR        int
	RHSStride         int `json:"rhs_stride"`
	RHSZeroPoint      int `json:"rhs_zero_point"`
	LHSZeroPoint      int `json:"lhs_zero_point"`
	LUT               string
	RHS               *array
	Scale, Zero, Bias *array
	Packed            *array
}

type array struct {
	Blob          string
	Offset, Bytes int
	CRC32         string
}

var blobs = map[string][]byte{}

// bytes returns the array's bytes; nil for an absent array.
func (a *array) bytes(t testing.TB) []byte {
	t.Helper()
	if a == nil {
		return nil
	}
	if blobs[a.Blob] == nil {
		blobs[a.Blob] = testshared.VectorsZst(t, "../../testdata/vectors/kleidiai/"+a.Blob+".zst")
	}
	b := blobs[a.Blob][a.Offset:][:a.Bytes]
	if sum := fmt.Sprintf("%08x", crc32.ChecksumIEEE(b)); sum != a.CRC32 {
		t.Fatalf("%+v: CRC32 %s", *a, sum)
	}
	return b
}

func (a *array) floats32(t testing.TB) []float32 {
	t.Helper()
	return floats32(a.bytes(t))
}

func floats32(b []byte) []float32 {
	if b == nil {
		return nil
	}
	f := make([]float32, len(b)/4)
	for i := range f {
		f[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return f
}

func vectors(t testing.TB, kind string) []vector {
	t.Helper()
	var all []vector
	if err := json.Unmarshal(testshared.VectorsZst(t, "../../testdata/vectors/kleidiai/pack.json.zst"), &all); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(v vector) bool { return v.Kind != kind })
}

// vectorLayouts maps KleidiAI's packing functions to the layouts that they pack.
var vectorLayouts = map[string]packing.Layout{
	"kai_run_rhs_pack_nxk_qsi4cxp_qs4cxs1s0":                     packing.LayoutQSI4CXP,
	"kai_run_rhs_pack_nxk_qsi4c32pscalef16_qsu4c32s16s0":         packing.LayoutQSI4C32PF16,
	"kai_run_rhs_pack_nxk_qsi8cxp_qsi8cx_neon":                   packing.LayoutQSI8CXP,
	"kai_run_rhs_pack_nxk_qai4c32p_qau4c32s0s1_f32_f32_f32_neon": packing.LayoutQAI4C32P,
	"kai_run_rhs_pack_nxk_qsu2cxp4x4bf32sf32_qsu2cx_neon":        packing.LayoutQSU2CXP,
}

// weights is the source of a matrix, row-major.
type weights struct {
	codes               []int8
	scales, zeros, bias []float32
}

// weights reads a source: rows of codes, two or four to a byte where they are short. The first code
// is in a byte's low bits, or in its high bits with layout QAI4C32P. Codes of QSI4C32PF16 come in
// GGUF's blocks of Q4_0: an F16 scale, then bytes with one code of the first half and one of the
// second.
func (v *vector) weights(t testing.TB, layout packing.Layout) *weights {
	t.Helper()
	w := &weights{codes: make([]int8, v.N*v.K), scales: v.Scale.floats32(t), zeros: v.Zero.floats32(t), bias: v.Bias.floats32(t)}
	src := v.RHS.bytes(t)
	for i := range w.codes {
		row, col := i/v.K, i%v.K
		pair := row*((v.K+1)/2) + col/2
		switch layout {
		case packing.LayoutQSI8CXP:
			w.codes[i] = int8(src[i])
		case packing.LayoutQSU2CXP:
			w.codes[i] = int8(src[row*((v.K+3)/4)+col/4]>>(2*(col%4))&3) - 2
		case packing.LayoutQAI4C32P:
			w.codes[i] = int8(src[pair]>>(4*(col%2^1))&15) - 8
		case packing.LayoutQSI4CXP:
			// q + RHSZeroPoint, or q in two's complement.
			w.codes[i] = int8((src[pair]>>(4*(col%2))+8-byte(v.RHSZeroPoint))&15) - 8
		case packing.LayoutQSI4C32PF16:
			block := src[row*v.RHSStride+col/v.BL*(v.BL/2+2):]
			if c := col % v.BL; c == 0 {
				w.scales = append(w.scales, floats.F16ToF32(binary.LittleEndian.Uint16(block)))
			}
			half := v.BL / 2
			w.codes[i] = int8(block[2+col%half]>>(4*(col%v.BL/half))&15) - 8
		}
	}
	return w
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) })
}
