package kleidiai

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/testshared"
)

// vector is a run of one of KleidiAI's packers, an entry of the shared vectors'
// manifest (shared/vectors/kleidiai/README.md). testdata/vectors/kleidiai has
// all of its kinds rhs_pack and lhs_pack.
type vector struct {
	ID, Kind, Func    string
	M, N, K, BL       int
	MR, NR, KR, SR    int
	RHSStride         int    `json:"rhs_stride"`
	RHSZeroPoint      int    `json:"rhs_zero_point"`
	LHSZeroPoint      int    `json:"lhs_zero_point"`
	ScaleDtype        string `json:"scale_dt"`
	LUT               string
	PackedTileStride  int `json:"packed_tile_stride"`
	UnwrittenBytes    int `json:"unwritten_bytes"`
	RHS, LHS          *array
	Scale, Zero, Bias *array
	Packed, Unwritten *array
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

// rhsFuncs gives for each packing function its kind and the source it takes.
var rhsFuncs = map[string]struct {
	kind   Kind
	sums   SumOrder
	source string
}{
	"nxk_qsi4c32p_qsu4c32s1s0":                          {QSI4C32P, SumSegments, "nxk"},
	"kxn_qsi4c32p_qsu4c32s1s0":                          {QSI4C32P, SumSegments, "kxn"},
	"nxk_qsi4c32pnrx4_qsu4c32s1s0_neon":                 {QSI4C32P, SumBlocks, "nxk"},
	"nxk_qsi4c32pnrx8_qsu4c32s1s0_neon":                 {QSI4C32P, SumBlocks, "nxk"},
	"nxk_qsi4c32ps1s0nrx4_qsu4c32s1s0_neon":             {QSI4C32PS1S0NRX4, 0, "nxk"},
	"nxk_qsi4c32pscalef16_qsu4c32s16s0":                 {QSI4C32PScaleF16, 0, "blocks"},
	"nxk_qsi4c32ps1s0scalef16_qsu4c32s16s0_neon":        {QSI4C32PS1S0ScaleF16, 0, "blocks"},
	"nxk_qsi4c32ps4s0sf16_qsu4c32s16s0_neon":            {QSI4C32PS4S0SF16, 0, "blocks"},
	"nxk_qsi4cxp_qs4cxs1s0":                             {QSI4CXP, 0, "nxk"},
	"kxn_qsi4cxp_qs4cxs1s0":                             {QSI4CXP, 0, "kxn"},
	"nxk_qsi4cxps1s0_qsu4cxs1s0_neon":                   {QSI4CXPS1S0, 0, "nxk"},
	"nxk_qsi8cxp_qsi8cx_neon":                           {QSI8CXP, 0, "nxk8"},
	"kxn_qsi8cxp_qsi8cx_neon":                           {QSI8CXP, 0, "kxn8"},
	"nxk_qai4c32p_qau4c32s0s1_f32_f32_f32_neon":         {QAI4C32P, 0, "nxk swapped"},
	"nxk_qai4c32ps1s0nrx4_qau4c32s0s1_f32_f32_f32_neon": {QAI4C32PS1S0NRX4, 0, "nxk swapped"},
	"nxk_qai4c32ps1s0nrx4_qau4c32s1s0_f32_f32_f32_neon": {QAI4C32PS1S0NRX4, 0, "nxk"},
	"nxk_qsu2cxp4x4bf32sf32_qsu2cx_neon":                {QSU2CXP4X4, 0, "quarters"},
	"nxk_qsu2cxp4vlx4_qsu2cx_neon":                      {QSU2CXP4VLX4, 0, "quarters"},
}

// rhs prepares packing of an rhs_pack vector, and reads its input.
func (v *vector) rhs(t testing.TB) (*RHS, *Weights) {
	t.Helper()
	f, ok := rhsFuncs[strings.TrimPrefix(v.Func, "kai_run_rhs_pack_")]
	if !ok {
		t.Fatalf("%s is not known", v.Func)
	}
	c := RHSConfig{Kind: f.kind, N: v.N, K: v.K, BL: v.BL, NR: v.NR, KR: v.KR, SR: v.SR, Sums: f.sums}
	if f.kind == QSI8CXP {
		c.LHSZeroPoint = v.LHSZeroPoint
	}
	if v.LUT == "-3,-1,1,3" {
		c.LUT = &[4]int32{-3, -1, 1, 3}
	} else if v.LUT != "" && v.LUT != "NULL(-2,-1,0,1)" {
		t.Fatalf("lut %q", v.LUT)
	}
	r, err := NewRHS(c)
	if err != nil {
		t.Fatal(err)
	}
	w := &Weights{Scales: v.Scale.floats32(t), Zeros: v.Zero.floats32(t), Bias: v.Bias.floats32(t)}
	if v.ScaleDtype == "bf16" {
		b := v.Scale.bytes(t)
		w.Scales = nil
		for i := 0; i < len(b); i += 2 {
			w.Scales = append(w.Scales, floats.BF16ToF32(binary.LittleEndian.Uint16(b[i:])))
		}
	}
	src, form := v.RHS.bytes(t), NibblesU4
	if v.RHSZeroPoint == 0 {
		form = NibblesS4
	}
	switch f.source {
	case "nxk":
		w.Codes = NibblesNxK(src, v.N, v.K, (v.K+1)/2, form)
	case "nxk swapped":
		w.Codes = NibblesNxK(src, v.N, v.K, (v.K+1)/2, NibblesU4S0S1)
	case "kxn":
		w.Codes, w.RowPairs = NibblesKxN(src, v.N, v.K, (v.N+1)/2, form), true
	case "nxk8":
		w.Codes = int8s(src)
	case "kxn8":
		w.Codes = Int8KxN(int8s(src), v.N, v.K, v.N)
	case "blocks":
		w.Codes, w.Scales = Blocks16(src, v.N, v.K, v.BL, v.RHSStride)
	case "quarters":
		w.Codes = QuartersNxK(src, v.N, v.K)
	}
	return r, w
}

func int8s(b []byte) []int8 {
	s := make([]int8, len(b))
	for i := range b {
		s[i] = int8(b[i])
	}
	return s
}

// checkPacked compares got, packed into a buffer of fill, with the vector's
// bytes.
func (v *vector) checkPacked(t *testing.T, got []byte, fill byte) {
	t.Helper()
	want, mask := slices.Clone(v.Packed.bytes(t)), v.Unwritten.bytes(t)
	unwritten := 0
	for i, m := range mask {
		if m != 0 {
			want[i] = fill
			unwritten++
		}
	}
	if unwritten != v.UnwrittenBytes {
		t.Fatalf("%d bytes masked, %d unwritten", unwritten, v.UnwrittenBytes)
	}
	if len(got) != len(want) {
		t.Fatalf("%d bytes, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("byte %d is %#02x, want %#02x", i, got[i], want[i])
		}
	}
}

func TestRHSVectors(t *testing.T) {
	all, seen := vectors(t, "rhs_pack"), map[string]int{}
	for _, v := range all {
		seen[strings.TrimPrefix(v.Func, "kai_run_rhs_pack_")]++
		t.Run(v.ID, func(t *testing.T) {
			r, w := v.rhs(t)
			if v.PackedTileStride != 0 && r.PanelBytes() != v.PackedTileStride {
				t.Errorf("panel of %d bytes, want %d", r.PanelBytes(), v.PackedTileStride)
			}
			got := slices.Repeat([]byte{0x5a}, r.PackedSize())
			r.Pack(got, w)
			v.checkPacked(t, got, 0x5a)
			checkUnpack(t, r, got, w)
		})
	}
	if len(all) != 249 || len(seen) != len(rhsFuncs) {
		t.Errorf("%d vectors of %d functions, want 249 of %d", len(all), len(seen), len(rhsFuncs))
	}
}

// checkUnpack wants Unpack to give back what was packed.
func checkUnpack(t testing.TB, r *RHS, packed []byte, w *Weights) {
	t.Helper()
	back := r.Unpack(packed)
	if r.c.Kind == QSI4C32PS4S0SF16 { // stored in F16 as scale / 16, which may round
		w = &Weights{Codes: w.Codes, Scales: slices.Clone(w.Scales)}
		for i, s := range w.Scales {
			w.Scales[i] = 16 * floats.F16ToF32(floats.F16FromF32(s/16))
		}
	}
	if !slices.Equal(back.Codes, w.Codes[:r.c.N*r.c.K]) || !sameBits(back.Scales, w.Scales) || !sameBits(back.Zeros, w.Zeros) {
		t.Fatal("codes, scales or zero points are not those packed")
	}
	switch {
	case w.Bias != nil && r.f.bias0 >= 0:
		if !sameBits(back.Bias, w.Bias) {
			t.Fatal("biases are not those packed")
		}
	default:
		for _, b := range back.Bias {
			if math.Float32bits(b) != 0 {
				t.Fatalf("bias %v out of nothing", b)
			}
		}
	}
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) })
}

var lhsFuncs = map[string]LHSKind{
	"qai8dxp_f32": QAI8DXP, "qsi8d32p_f32": QSI8D32P, "qsi8d32p4x8sb_f32_neon": QSI8D32P4X8SB, "qsi8d32p_f32_neon": QSI8D32PNeon,
	"qsi8d32pscalef32_f32_neon": QSI8D32PScaleF32,
}

func TestLHSVectors(t *testing.T) {
	all, seen := vectors(t, "lhs_pack"), map[LHSKind]int{}
	for _, v := range all {
		kind := lhsFuncs[strings.TrimPrefix(v.Func, "kai_run_lhs_quant_pack_")]
		seen[kind]++
		t.Run(v.ID, func(t *testing.T) {
			l, err := NewLHS(LHSConfig{Kind: kind, M: v.M, K: v.K, BL: v.BL, MR: v.MR, KR: v.KR, SR: v.SR})
			if err != nil {
				t.Fatal(err)
			}
			got := slices.Repeat([]byte{0x5a}, l.PackedSize())
			if err := l.Pack(got, v.LHS.floats32(t)); err != nil {
				t.Fatal(err)
			}
			v.checkPacked(t, got, 0x5a)
		})
	}
	if len(all) != 74 || len(seen) != len(lhsFuncs) {
		t.Errorf("%d vectors of %d kinds, want 74 of %d", len(all), len(seen), len(lhsFuncs))
	}
}
