package vectors

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
)

// entry is a manifest entry of kind matmul or lhs_pack.
type entry struct {
	ID, Kind, Func string
	RHSPackFunc    string `json:"rhs_pack_func"`
	LHSPackFunc    string `json:"lhs_pack_func"`
	M, N, K, BL    int
	MR, NR, KR, SR int
	Clamped        int

	RHS, Scale, Zero, Bias *array
	LHS, Packed            *array
	RHSPacked              *array `json:"rhs_packed"`
	LHSPacked              *array `json:"lhs_packed"`
	Dst                    *array
}

// array is a range of a blob.
type array struct {
	Blob          string
	Offset, Bytes int
	CRC32         string
}

// manifest reads a manifest and its blobs.
type manifest struct {
	t       testing.TB
	dir     string
	entries []entry
	blobs   map[string][]byte
}

func openManifest(t testing.TB, name string) *manifest {
	t.Helper()
	m := &manifest{t: t, dir: filepath.Join(testshared.Root(t), "testdata", "vectors", "kleidiai"), blobs: map[string][]byte{}}
	if err := json.Unmarshal(testshared.VectorsZst(t, filepath.Join(m.dir, name+".json.zst")), &m.entries); err != nil {
		t.Fatal(err)
	}
	return m
}

// bytes returns an array's bytes, or nil for an absent array.
func (m *manifest) bytes(a *array) []byte {
	m.t.Helper()
	if a == nil {
		return nil
	}
	if m.blobs[a.Blob] == nil {
		m.blobs[a.Blob] = testshared.VectorsZst(m.t, filepath.Join(m.dir, a.Blob+".zst"))
	}
	b := m.blobs[a.Blob][a.Offset:][:a.Bytes]
	if sum := fmt.Sprintf("%08x", crc32.ChecksumIEEE(b)); sum != a.CRC32 {
		m.t.Fatalf("%+v: CRC32 %s", *a, sum)
	}
	return b
}

func (m *manifest) floats(a *array) []float32 { return float32s(m.bytes(a)) }

// float32s reads little-endian float32; nil gives nil.
func float32s(b []byte) []float32 {
	if b == nil {
		return nil
	}
	f := make([]float32, len(b)/4)
	for i := range f {
		f[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return f
}

func int8s(b []byte) []int8 {
	s := make([]int8, len(b))
	for i, v := range b {
		s[i] = int8(v)
	}
	return s
}

// A Product is a run of a kernel.
type Product struct {
	Name   string
	Kernel string // the library's function
	Header packing.Header
	Data   []byte // the packed weights

	M int
	// X holds M rows of activations; Activations holds the same rows in the library's quantization.
	X           []float32
	Activations Activations

	// Outputs are clamped to Min .. Max.
	Min, Max float32
	// Dst is the output of the library's kernel, M rows. Want is the output that gq's kernels must
	// give, bit for bit. Want equals Dst except for the kernel OtherOrder.
	Dst, Want []float32
}

// OtherOrder is the only kernel of KleidiAI with float32 outputs that rounds in another order than
// the other kernel of its weights: (A*scale)*rec + bias. The kernel for a single row, and gq for
// any number of rows, compute A*(scale*rec) + bias.
const OtherOrder = "kai_run_matmul_clamp_f32_qai8dxp4x4_qsu2cxp4x4bf32sf32_8x4_neon_dotprod"

// rhsHeaders maps KleidiAI's packing functions, without their prefix, to packed headers.
var rhsHeaders = map[string]packing.Header{
	"nxk_qsi4c32p_qsu4c32s1s0":          {Layout: packing.LayoutLowbit, Bits: 4, ScaleDtype: packing.ScaleBF16, Flags: packing.FlagBias},
	"nxk_qsi4c32pscalef16_qsu4c32s16s0": {Layout: packing.LayoutQSI4C32PF16, Bits: 4, ScaleDtype: packing.ScaleF16},
	"nxk_qsi4cxp_qs4cxs1s0":             {Layout: packing.LayoutQSI4CXP, Bits: 4, ScaleDtype: packing.ScaleF32, Flags: packing.FlagBias},
	"nxk_qsi8cxp_qsi8cx_neon":           {Layout: packing.LayoutQSI8CXP, Bits: 8, ScaleDtype: packing.ScaleF32, Flags: packing.FlagBias},
	"nxk_qai4c32p_qau4c32s0s1_f32_f32_f32_neon": {
		Layout: packing.LayoutQAI4C32P, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroF32, Flags: packing.FlagBias,
	},
	"nxk_qsu2cxp4x4bf32sf32_qsu2cx_neon": {Layout: packing.LayoutQSU2CXP, Bits: 2, ScaleDtype: packing.ScaleF32, Flags: packing.FlagBias},
}

// KleidiAI returns the runs of all of KleidiAI's kernels for dot product and i8mm that read a
// layout of gq. Data is packed by gq; the function checks that KleidiAI packs the same bytes.
func KleidiAI(t testing.TB) []Product {
	t.Helper()
	m := openManifest(t, "matmul")
	products := make([]Product, len(m.entries))
	for i := range m.entries {
		products[i] = m.product(&m.entries[i])
	}
	return products
}

func (m *manifest) product(e *entry) Product {
	h, ok := rhsHeaders[strings.TrimPrefix(e.RHSPackFunc, "kai_run_rhs_pack_")]
	if !ok {
		m.t.Fatalf("%s: %s is not known", e.ID, e.RHSPackFunc)
	}
	p := Product{
		Name: e.ID, Kernel: e.Func, M: e.M, X: m.floats(e.LHS),
		Min: -math.MaxFloat32, Max: math.MaxFloat32, Dst: m.floats(e.Dst),
	}
	if e.Clamped != 0 {
		p.Min, p.Max = -2, 2
	}
	h.Rows, h.Cols, h.Group = uint64(e.N), uint64(e.K), uint64(e.BL)
	h.Tile = packing.Tile{NR: uint8(e.NR), KR: uint8(e.KR), SR: uint8(e.SR)}
	p.Header = h.Canonical()

	w := m.weights(e, h.Layout)
	p.Data = w.pack(m.t, p.Header)
	if !slices.Equal(p.Data, m.bytes(e.RHSPacked)) {
		m.t.Fatalf("%s: packed to other bytes than KleidiAI's", e.ID)
	}
	p.Activations = m.activations(e, e.LHSPackFunc, m.bytes(e.LHSPacked))
	if p.Want = p.Dst; e.Func == OtherOrder {
		p.Want = p.perRow(w)
	}
	return p
}

// weights is a quantized matrix, row-major.
type weights struct {
	codes               []int8
	scales, zeros, bias []float32
}

// weights reads the source of a matrix: rows of codes, several short codes to a byte. The first
// code is in a byte's low bits, or in its high bits with QAI4C32P. Codes of QSI4C32PF16 are in
// blocks: an F16 scale, then bytes with a code of the block's first half and a code of the second.
func (m *manifest) weights(e *entry, layout packing.Layout) *weights {
	w := &weights{codes: make([]int8, e.N*e.K), scales: m.floats(e.Scale), zeros: m.floats(e.Zero), bias: m.floats(e.Bias)}
	if layout == packing.LayoutLowbit {
		w.scales = nil
		for b := m.bytes(e.Scale); len(b) > 0; b = b[2:] {
			w.scales = append(w.scales, floats.BF16ToF32(binary.LittleEndian.Uint16(b)))
		}
	}
	src := m.bytes(e.RHS)
	for i := range w.codes {
		row, col := i/e.K, i%e.K
		pair := row*((e.K+1)/2) + col/2
		switch layout {
		case packing.LayoutQSI8CXP:
			w.codes[i] = int8(src[i])
		case packing.LayoutQSU2CXP:
			w.codes[i] = int8(src[row*((e.K+3)/4)+col/4]>>(2*(col%4))&3) - 2
		case packing.LayoutQAI4C32P:
			w.codes[i] = int8(src[pair]>>(4*(col%2^1))&15) - 8
		case packing.LayoutQSI4C32PF16:
			half := e.BL / 2
			block := src[(row*e.K+col)/e.BL*(half+2):]
			if col%e.BL == 0 {
				w.scales = append(w.scales, floats.F16ToF32(binary.LittleEndian.Uint16(block)))
			}
			w.codes[i] = int8(block[2+col%half]>>(4*(col%e.BL/half))&15) - 8
		default:
			w.codes[i] = int8(src[pair]>>(4*(col%2))&15) - 8
		}
	}
	return w
}

// pack packs a matrix as gq does.
func (w *weights) pack(t testing.TB, h packing.Header) []byte {
	t.Helper()
	l, err := layouts.New(h)
	if err != nil {
		t.Fatal(err)
	}
	k, g, nr := int(h.Cols), l.Groups(), int(h.Tile.NR)
	data, p := make([]byte, l.Panels()*l.PanelBytes()), l.NewPanel()
	for i := range l.Panels() {
		p.Rows = l.PanelRows(i)
		for r := range p.Rows {
			row := i*nr + r
			copy(p.Codes[r*l.PackedCols():], w.codes[row*k:][:k])
			copy(p.Scales[r*g:], w.scales[row*g:][:g])
			if p.FloatZeros != nil {
				copy(p.FloatZeros[r*g:], w.zeros[row*g:][:g])
			}
			if p.Bias != nil && w.bias != nil {
				p.Bias[r] = w.bias[row]
			}
		}
		l.PackPanel(data[i*l.PanelBytes():][:l.PanelBytes()], p)
	}
	return data
}

// perRow is the product with a scale per row of weights, in the order of all of KleidiAI's kernels
// except OtherOrder.
func (p *Product) perRow(w *weights) []float32 {
	n, k := int(p.Header.Rows), int(p.Header.Cols)
	dst := make([]float32, p.M*n)
	for i := range p.M {
		q := p.Activations.Row(i)
		for j := range n {
			acc := int32(0)
			for c, code := range w.codes[j*k:][:k] {
				acc += (int32(q[c]) - p.Activations.Zero[i]) * int32(code)
			}
			out := float32(float32(acc)*float32(w.scales[j]*p.Activations.Rec[i])) + w.bias[j]
			dst[i*n+j] = max(p.Min, min(out, p.Max))
		}
	}
	return dst
}
