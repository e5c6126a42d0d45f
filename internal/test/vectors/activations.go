package vectors

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/floats"
)

// Activations are quantized rows. The kind of quantization decides which fields besides Q are set.
// Each row has Stride codes: its columns rounded up to 32, with 0 past the last column.
type Activations struct {
	Stride int
	Q      []int8 // [m][Stride]
	// Zero and Rec are the zero point and the scale of each row.
	Zero []int32
	Rec  []float32
	// Blocks is the number of blocks in a row. Each block has a scale and, for some kinds, the sum
	// of its codes times the scale.
	Blocks     int
	BlockScale []float32 // [m][Blocks]
	BlockSum   []float32 // [m][Blocks]
}

// Row is the codes of row i.
func (a *Activations) Row(i int) []int8 { return a.Q[i*a.Stride:][:a.Stride] }

// Quantization is a run of a KleidiAI packer of activations.
type Quantization struct {
	Name string
	// Kind is the packer: qai8dxp_f32, qsi8d32p_f32, qsi8d32p_f32_neon (the same numbers in other
	// places), qsi8d32p4x8sb_f32_neon (ties to even), qsi8d32pscalef32_f32_neon.
	Kind    string
	M, K    int
	Block   int // columns of a block; K for qai8dxp_f32
	X       []float32
	Results Activations
}

// Quantizations returns the runs of all of KleidiAI's packers of activations.
func Quantizations(t testing.TB) []Quantization {
	t.Helper()
	m := openManifest(t, "pack")
	var list []Quantization
	for i := range m.entries {
		e := &m.entries[i]
		if e.Kind != "lhs_pack" {
			continue
		}
		q := Quantization{Name: e.ID, Kind: lhsKind(e.Func), M: e.M, K: e.K, Block: e.K, X: m.floats(e.LHS)}
		if e.BL != 0 {
			q.Block = e.BL
		}
		q.Results = m.activations(e, e.Func, m.bytes(e.Packed))
		list = append(list, q)
	}
	return list
}

func lhsKind(function string) string { return strings.TrimPrefix(function, "kai_run_lhs_quant_pack_") }

// activations reads the output of a packer of activations.
func (m *manifest) activations(e *entry, function string, packed []byte) Activations {
	run := e.KR / e.SR // adjacent bytes of a row
	switch kind := lhsKind(function); kind {
	case "qai8dxp_f32":
		return asymmetric(packed, e.M, e.K, e.MR, run)
	case "qsi8d32p_f32", "qsi8d32p4x8sb_f32_neon", "qsi8d32p_f32_neon", "qsi8d32pscalef32_f32_neon":
		return blocks(packed, kind, e.M, e.K, e.BL, e.MR, run)
	}
	m.t.Fatalf("%s: %s is not known", e.ID, function)
	return Activations{}
}

func newActivations(m, k int) Activations {
	stride := (k + 31) / 32 * 32
	return Activations{Stride: stride, Q: make([]int8, m*stride)}
}

// asymmetric reads qai8dxp: panels of mr rows of codes, mr negative zero points, mr scales.
func asymmetric(packed []byte, m, k, mr, run int) Activations {
	a := newActivations(m, k)
	a.Zero, a.Rec = make([]int32, m), make([]float32, m)
	codes := mr * a.Stride
	for i := range m {
		panel := packed[i/mr*(codes+8*mr):]
		a.Zero[i] = -int32(binary.LittleEndian.Uint32(panel[codes+4*(i%mr):]))
		a.Rec[i] = math.Float32frombits(binary.LittleEndian.Uint32(panel[codes+4*mr+4*(i%mr):]))
		for c := range k { // KleidiAI repeats the last code
			a.Q[i*a.Stride+c] = int8(panel[mr*run*(c/run)+run*(i%mr)+c%run])
		}
	}
	return a
}

// blocks reads the kinds with a scale per block. A panel of mr rows holds for each block:
//
//	qsi8d32p          mr F16 scales, codes (with _neon all codes, then all scales)
//	qsi8d32pscalef32  codes, mr sums, mr scales
func blocks(packed []byte, kind string, m, k, bl, mr, run int) Activations {
	a := newActivations(m, k)
	a.Blocks = k / bl
	a.BlockScale = make([]float32, m*a.Blocks)
	codes := mr * bl
	step, data0, scaleStep, scale0 := codes+2*mr, 2*mr, codes+2*mr, 0
	switch kind {
	case "qsi8d32p_f32_neon":
		step, data0, scaleStep, scale0 = codes, 0, 2*mr, a.Blocks*codes
	case "qsi8d32pscalef32_f32_neon":
		step, data0 = codes+8*mr, 0
		a.BlockSum = make([]float32, m*a.Blocks)
	}
	panelBytes := a.Blocks * (codes + 2*mr)
	if a.BlockSum != nil {
		panelBytes = a.Blocks * step
	}
	for i := range m {
		panel := packed[i/mr*panelBytes:]
		for b := range a.Blocks {
			data := panel[data0+b*step:]
			for c := range bl {
				a.Q[i*a.Stride+b*bl+c] = int8(data[mr*run*(c/run)+run*(i%mr)+c%run])
			}
			if at := i*a.Blocks + b; a.BlockSum != nil {
				a.BlockSum[at] = math.Float32frombits(binary.LittleEndian.Uint32(data[codes+4*(i%mr):]))
				a.BlockScale[at] = math.Float32frombits(binary.LittleEndian.Uint32(data[codes+4*mr+4*(i%mr):]))
			} else {
				a.BlockScale[at] = floats.F16ToF32(binary.LittleEndian.Uint16(panel[scale0+b*scaleStep+2*(i%mr):]))
			}
		}
	}
	return a
}
