package rounding

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/testshared"
	"github.com/lowbit-go/gq/packing"
)

// qparamsCase is one case of weight_qparams.json: TorchAO's own functions ran on
// weights and gave the rest (testdata/vectors/torchao, made from pytorch/ao 36027d82).
type qparamsCase struct {
	Algorithm   string `json:"algorithm"`
	Bits        int    `json:"bits"`
	Mapping     string `json:"mapping"`
	WeightDtype string `json:"weight_dtype"`
	ScaleDtype  string `json:"scale_dtype"`
	Kind        string `json:"kind"`
	N           int    `json:"n"`
	K           int    `json:"k"`
	GroupSize   int    `json:"group_size"`
	Weights     string `json:"weights_le_hex"`
	Scales      string `json:"scales_le_hex"`
	ZeroPoints  []int8 `json:"zero_points"`
	Codes       []int8 `json:"qvals"`
	Dequant     string `json:"dequant_le_hex"`
}

func (c *qparamsCase) name(i int) string {
	return fmt.Sprintf("%d_%s_%s_%db_g%d_%s_%s_%s", i, c.Algorithm, c.Mapping, c.Bits, c.GroupSize, c.WeightDtype, c.ScaleDtype, c.Kind)
}

func (c *qparamsCase) options() TorchAOOptions {
	o := TorchAOOptions{
		Bits: c.Bits, Group: c.GroupSize, Compat: true,
		WeightDtype: packing.F32, ScaleDtype: packing.ScaleF32,
	}
	switch c.Mapping {
	case "SYMMETRIC":
		o.Mapping = gqf.MappingSymmetric
	case "SYMMETRIC_NO_CLIPPING_ERR":
		o.Mapping = gqf.MappingSymmetricNoClip
	case "ASYMMETRIC":
		o.Mapping = gqf.MappingAsymmetric
	}
	if c.WeightDtype == "bf16" {
		o.WeightDtype = packing.BF16
	}
	if c.ScaleDtype == "bf16" {
		o.ScaleDtype = packing.ScaleBF16
	}
	return o
}

func readQparams(t testing.TB) []qparamsCase {
	t.Helper()
	var cases []qparamsCase
	if err := json.Unmarshal(testshared.VectorsZst(t, "../../testdata/vectors/torchao/weight_qparams.json.zst"), &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != 310 {
		t.Fatalf("%d cases, want 310", len(cases))
	}
	return cases
}

// floatsOf decodes little-endian values of dtype "f32" or "bf16".
func floatsOf(t testing.TB, dtype, s string) []float32 {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	var v []float32
	for len(b) > 0 {
		if dtype == "bf16" {
			v = append(v, floats.BF16ToF32(binary.LittleEndian.Uint16(b)))
			b = b[2:]
		} else {
			v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(b)))
			b = b[4:]
		}
	}
	return v
}

func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d %s, want %d", len(got), what, len(want))
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s %d is %x, want %x", what, i, got[i], want[i])
		}
	}
}

func sameCodes(t *testing.T, what string, got, want []int8) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d %s, want %d", len(got), what, len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%s %d is %d, want %d", what, i, got[i], want[i])
		}
	}
}

func TestTorchAOVectors(t *testing.T) {
	for i, c := range readQparams(t) {
		t.Run(c.name(i), func(t *testing.T) {
			quantize := TorchAOAffine
			if c.Algorithm == "hqq_scale_only" {
				quantize = TorchAOHQQScaleOnly
			}
			w := floatsOf(t, c.WeightDtype, c.Weights)
			got, err := quantize(w, c.N, c.K, c.options())
			if err != nil {
				t.Fatal(err)
			}
			sameBits(t, "scale", got.Scales, floatsOf(t, c.ScaleDtype, c.Scales))
			zeros := got.Zeros
			if zeros == nil {
				zeros = make([]int8, len(got.Scales))
			}
			sameCodes(t, "zero point", zeros, c.ZeroPoints)
			sameCodes(t, "code", got.Codes, c.Codes)
			if c.Dequant == "" { // the vectors have none for HQQ
				return
			}
			d := make([]float32, len(w))
			got.Dequantize(d)
			sameBits(t, "dequantized weight", d, floatsOf(t, c.WeightDtype, c.Dequant))
		})
	}
}
