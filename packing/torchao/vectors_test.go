package torchao

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// hexBytes are bytes written as hexadecimal digits.
type hexBytes []byte

func (b *hexBytes) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	var err error
	*b, err = hex.DecodeString(s)
	return err
}

// hexFloats are float32, little-endian, written as hexadecimal digits.
type hexFloats []float32

func (f *hexFloats) UnmarshalJSON(text []byte) error {
	var b hexBytes
	if err := b.UnmarshalJSON(text); err != nil {
		return err
	}
	for ; len(b) >= 4; b = b[4:] {
		*f = append(*f, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return nil
}

// vectorCases reads the cases of one of TorchAO's vector files.
func vectorCases[T any](t testing.TB, name string, count int) []T {
	t.Helper()
	var cases []T
	if err := json.Unmarshal(testshared.VectorsZst(t, "../../testdata/vectors/torchao/"+name+".json.zst"), &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != count {
		t.Fatalf("%d cases in %s, want %d", len(cases), name, count)
	}
	return cases
}

// sameBits reports whether two slices have the same bits; -0 and 0 differ.
func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

type linearCase struct {
	Bits     uint8 `json:"nbit"`
	N, K     uint64
	Group    uint64    `json:"group_size"`
	HasZeros bool      `json:"has_weight_zeros"`
	HasBias  bool      `json:"has_bias"`
	Codes    []int8    `json:"qvals"`
	Scales   hexFloats `json:"scales_f32le_hex"`
	Zeros    []int8
	Bias     hexFloats `json:"bias_f32le_hex"`
	Packed   hexBytes  `json:"packed_hex"`
	Rows     hexFloats `json:"shared_embedding_rows_f32le_hex"`
}

func (c *linearCase) header() packing.Header {
	h := packing.Header{
		Layout: packing.LayoutTorchAOLinear, Bits: c.Bits, ScaleDtype: packing.ScaleF32,
		Tile: packing.DefaultTile, Rows: c.N, Cols: c.K, Group: c.Group,
	}
	if c.HasZeros {
		h.ZeroKind = packing.ZeroInt8
	}
	if c.HasBias {
		h.Flags |= packing.FlagBias
	}
	return h
}

func (c *linearCase) matrix() *matrix {
	m := &matrix{Codes: c.Codes, Scales: c.Scales}
	if c.HasZeros {
		m.Zeros = c.Zeros
	}
	if c.HasBias {
		m.Bias = c.Bias
	}
	return m
}

// TestLinearVectors compares type 1 with TorchAO's buffers, and its rows with the rows that
// TorchAO's shared embedding reads from them.
func TestLinearVectors(t *testing.T) {
	for _, c := range vectorCases[linearCase](t, "linear_universal_type1", 107) {
		t.Run(fmt.Sprintf("%d bits %dx%d group %d zeros %v bias %v", c.Bits, c.N, c.K, c.Group, c.HasZeros, c.HasBias), func(t *testing.T) {
			headers := []packing.Header{c.header()}
			if c.Group == c.K { // the per-channel payload has the same bytes
				h := c.header()
				h.Group = 0
				headers = append(headers, h)
			}
			for _, h := range headers {
				checkMatrix(t, h, c.matrix(), c.Packed)
				checkRows(t, h, c.Packed, c.Rows)
			}
		})
	}
}

// checkMatrix packs m, compares the bytes, and unpacks m again.
func checkMatrix(t *testing.T, h packing.Header, m *matrix, packed []byte) {
	t.Helper()
	if got := pack(t, h, m); !slices.Equal(got, packed) {
		t.Fatal("packed: other bytes than TorchAO's")
	}
	p, err := New(h)
	if err == nil {
		err = check(p, packed)
	}
	if err != nil {
		t.Fatal(err)
	}
	back := unpack(p, packed)
	if !slices.Equal(back.Codes, m.Codes) || !sameBits(back.Scales, m.Scales) || !slices.Equal(back.Zeros, m.Zeros) || !sameBits(back.Bias, m.Bias) {
		t.Error("unpacked is not what was packed")
	}
}

// checkRows compares every dequantized row bit for bit with rows.
func checkRows(t *testing.T, h packing.Header, packed []byte, rows []float32) {
	t.Helper()
	p, err := New(h)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != int(h.Rows*h.Cols) {
		t.Fatalf("%d values in rows of %d x %d", len(rows), h.Rows, h.Cols)
	}
	got := make([]float32, h.Cols)
	for r := range int(h.Rows) {
		p.DequantizeRow(got, packed, r)
		if !sameBits(got, rows[r*int(h.Cols):][:h.Cols]) {
			t.Fatalf("row %d dequantized to other bits than TorchAO's", r)
		}
	}
}

type embeddingCase struct {
	Bits   uint8     `json:"nbit"`
	Rows   uint64    `json:"num_embeddings"`
	Cols   uint64    `json:"embedding_dim"`
	Group  uint64    `json:"group_size"`
	Codes  []int8    `json:"qvals"`
	Scales hexFloats `json:"scales_f32le_hex"`
	Zeros  []int8
	Packed hexBytes  `json:"packed_hex"`
	Deq    hexFloats `json:"dequant_f32le_hex"`
}

func (c *embeddingCase) header() packing.Header {
	return packing.Header{
		Layout: packing.LayoutTorchAOEmbedding, Bits: c.Bits, ScaleDtype: packing.ScaleF32,
		ZeroKind: packing.ZeroInt8, Rows: c.Rows, Cols: c.Cols, Group: c.Group,
	}
}

// companions packs the scales and zero points as companions.
func (c *embeddingCase) companions() (scales, zeros []byte) {
	for i, s := range c.Scales {
		scales = binary.LittleEndian.AppendUint32(scales, math.Float32bits(s))
		zeros = append(zeros, byte(c.Zeros[i]))
	}
	return scales, zeros
}

// TestEmbeddingVectors compares type 2 with TorchAO's buffers and with the rows that TorchAO reads
// from them.
func TestEmbeddingVectors(t *testing.T) {
	for _, c := range vectorCases[embeddingCase](t, "embedding_type2", 51) {
		t.Run(fmt.Sprintf("%d bits %d columns", c.Bits, c.Cols), func(t *testing.T) {
			checkMatrix(t, c.header(), &matrix{Codes: c.Codes}, c.Packed)
			e, err := newEmbedding(c.header())
			if err != nil {
				t.Fatal(err)
			}
			if e, err = e.WithCompanions(c.companions()); err != nil {
				t.Fatal(err)
			}
			row, k, g := make([]float32, c.Cols), int(c.Cols), e.Groups()
			codes, scales, zeros := make([]int8, k), make([]float32, g), make([]int8, g)
			for r := range int(c.Rows) {
				e.DequantizeRow(row, c.Packed, r)
				if !sameBits(row, c.Deq[r*k:][:k]) {
					t.Fatalf("row %d dequantized to other bits than TorchAO's", r)
				}
				e.Row(codes, scales, zeros, c.Packed, r)
				if !slices.Equal(codes, c.Codes[r*k:][:k]) || !sameBits(scales, c.Scales[r*g:][:g]) || !slices.Equal(zeros, c.Zeros[r*g:][:g]) {
					t.Fatalf("row %d is not what was packed", r)
				}
			}
		})
	}
}

type kleidiCase struct {
	Kernel     string
	NR, KR, SR uint8
	N, K       uint64
	Group      uint64    `json:"group_size"`
	HasBias    bool      `json:"has_bias"`
	Codes      []int8    `json:"qvals"`
	Scales     hexFloats `json:"scales_f32le_hex"`
	Bias       hexFloats `json:"bias_f32le_hex"`
	Packed     hexBytes  `json:"packed_hex"`
}

func (c *kleidiCase) header() packing.Header {
	h := packing.Header{
		Layout: packing.LayoutTorchAOKleidiAI, Bits: 4, ScaleDtype: packing.ScaleBF16,
		Tile: packing.Tile{NR: c.NR, KR: c.KR, SR: c.SR}, Rows: c.N, Cols: c.K, Group: c.Group,
	}
	if c.HasBias {
		h.Flags |= packing.FlagBias
	}
	return h
}

// TestKleidiAIVectors compares type 3 with TorchAO's buffers, made from scales that are not BF16.
func TestKleidiAIVectors(t *testing.T) {
	for _, c := range vectorCases[kleidiCase](t, "linear_kleidiai_type3", 16) {
		t.Run(fmt.Sprintf("%s %dx%d group %d", c.Kernel, c.N, c.K, c.Group), func(t *testing.T) {
			m := &matrix{Codes: c.Codes, Scales: slices.Clone(c.Scales)}
			if c.HasBias {
				m.Bias = c.Bias
			}
			for i, s := range m.Scales { // TorchAO drops the lower half of the scales' bits
				m.Scales[i] = math.Float32frombits(math.Float32bits(s) &^ 0xffff)
			}
			checkMatrix(t, c.header(), m, c.Packed)
			rows, groups := make([]float32, len(c.Codes)), int(c.K/c.Group)
			for i, q := range c.Codes {
				s := m.Scales[i/int(c.K)*groups+i%int(c.K)/int(c.Group)]
				rows[i] = float32(float32(q) * s)
			}
			checkRows(t, c.header(), c.Packed, rows)
		})
	}
}
