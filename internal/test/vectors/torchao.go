package vectors

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
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

// torchAOCase is a case of types 1 and 3; MR and similar fields are of type 3 only.
type torchAOCase struct {
	Kernel            string
	Bits              uint8 `json:"nbit"`
	M, N, K           int
	Group             int  `json:"group_size"`
	HasZeros          bool `json:"has_weight_zeros"`
	HasBias           bool `json:"has_bias"`
	MR, NR, KR, SR    int
	Packed            hexBytes `json:"packed_hex"`
	X                 hexBytes `json:"activations_f32le_hex"`
	PackedActivations hexBytes `json:"packed_activations_hex"`
	Output            hexBytes `json:"output_f32le_hex"`
}

// TorchAO returns the runs of TorchAO's kernels of types 1 (its own) and 3 (KleidiAI's). gq
// quantizes activations differently from TorchAO: almost always for type 1, and at ties for type 3.
func TorchAO(t testing.TB) []Product {
	t.Helper()
	var products []Product
	for _, c := range torchAOCases(t, "linear_universal_type1") {
		h := c.header(packing.LayoutTorchAOLinear, packing.ScaleF32)
		h.Bits = c.Bits
		if c.HasZeros {
			h.ZeroKind = packing.ZeroInt8
		}
		p := c.product(h, "kernel_1x8x16_f32_neondot", c.universalActivations())
		p.Name = fmt.Sprintf("type1_b%d_m%d_n%d_k%d_g%d_zeros%t_bias%t", c.Bits, c.M, c.N, c.K, c.Group, c.HasZeros, c.HasBias)
		products = append(products, p)
	}
	for _, c := range torchAOCases(t, "linear_kleidiai_type3") {
		h := c.header(packing.LayoutTorchAOKleidiAI, packing.ScaleBF16)
		h.Bits = 4
		p := c.product(h, c.Kernel, asymmetric(c.PackedActivations, c.M, c.K, c.MR, c.KR/c.SR))
		p.Name = fmt.Sprintf("type3_%s_m%d_n%d_k%d_g%d_bias%t", c.Kernel, c.M, c.N, c.K, c.Group, c.HasBias)
		products = append(products, p)
	}
	return products
}

func torchAOCases(t testing.TB, name string) []torchAOCase {
	t.Helper()
	var cases []torchAOCase
	path := filepath.Join(testshared.Root(t), "testdata", "vectors", "torchao", name+".json.zst")
	if err := json.Unmarshal(testshared.VectorsZst(t, path), &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

func (c *torchAOCase) header(layout packing.Layout, scales packing.ScaleDtype) packing.Header {
	h := packing.Header{
		Layout: layout, ScaleDtype: scales, Tile: packing.Tile{NR: uint8(c.NR), KR: uint8(c.KR), SR: uint8(c.SR)},
		Rows: uint64(c.N), Cols: uint64(c.K), Group: uint64(c.Group),
	}
	if c.HasBias {
		h.Flags = packing.FlagBias
	}
	return h
}

func (c *torchAOCase) product(h packing.Header, kernel string, a Activations) Product {
	dst := float32s(c.Output)
	return Product{
		Kernel: kernel, Header: h, Data: c.Packed, M: c.M, X: float32s(c.X), Activations: a,
		Min: -math.MaxFloat32, Max: math.MaxFloat32, Dst: dst, Want: dst,
	}
}

// universalActivations reads rows of a scale, a zero point, and the codes. If the weights have zero
// points, each group's codes are followed by their sum as int32.
func (c *torchAOCase) universalActivations() Activations {
	a := newActivations(c.M, c.K)
	src := c.PackedActivations
	group, behind := c.K, 0
	if c.HasZeros {
		group, behind = c.Group, 4
	}
	for i := range c.M {
		a.Rec = append(a.Rec, math.Float32frombits(binary.LittleEndian.Uint32(src)))
		a.Zero = append(a.Zero, int32(int8(src[4])))
		src = src[5:]
		for g := 0; g < c.K; g += group {
			copy(a.Row(i)[g:], int8s(src[:group]))
			src = src[group+behind:]
		}
	}
	return a
}
