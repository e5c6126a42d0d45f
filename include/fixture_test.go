//go:build unix

package include_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
)

// A fixture is a Builder that records its inputs.
type fixture struct {
	*gqf.Builder
	headers []packing.Header // of the payloads
	names   []int            // that are in the checkpoint
}

func newFixture() *fixture { return &fixture{Builder: gqf.NewBuilder()} }

// tensor adds a tensor with its canonical name and payloads.
func (x *fixture) tensor(t gqf.TensorSpec, payloads ...gqf.PayloadSpec) int {
	i := x.AddTensor(t)
	for _, p := range payloads {
		p.Tensor = i
		x.AddPayload(p)
		x.headers = append(x.headers, p.Header)
	}
	x.name(gqf.NameSpec{Name: t.Name, Tensor: i, InCheckpoint: true, SourceFile: i % 2, SourceBytes: int64(100 + i)})
	return i
}

func (x *fixture) name(n gqf.NameSpec) {
	i := x.AddName(n)
	if n.InCheckpoint {
		x.names = append(x.names, i)
	}
}

// memory is a file in memory.
type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

// build makes the file. The payloads' data are random bytes, which opening and verifying ignore.
func (x *fixture) build(t testing.TB) []byte {
	t.Helper()
	im, err := x.Build()
	if err != nil {
		t.Fatal(err)
	}
	file := make(memory, im.Size())
	for i, h := range x.headers {
		size, err := h.DataSize()
		if err != nil {
			t.Fatal(err)
		}
		off := im.PayloadOffset(i) + packing.HeaderSize
		data, r := file[off:off+size], rand.New(rand.NewPCG(uint64(i), 5))
		for k := range data {
			data[k] = byte(r.Uint32())
		}
		im.AddData(off, data)
	}
	for _, i := range x.names {
		im.SetSourceCRC(i, uint32(1e9+i))
	}
	if err := im.WritePayloadHeaders(file); err != nil {
		t.Fatal(err)
	}
	if err := im.WriteFront(file); err != nil {
		t.Fatal(err)
	}
	return file
}

// layout makes a header of one of the layouts other than plain.
func layout(l packing.Layout, rows, cols, group uint64, bits uint8) packing.Header {
	h := packing.Header{Layout: l, Bits: bits, ScaleDtype: packing.ScaleF32, Rows: rows, Cols: cols, Group: group}
	if tiles := l.Tiles(); len(tiles) > 0 {
		h.Tile = tiles[len(tiles)-1]
	}
	switch l {
	case packing.LayoutLowbit, packing.LayoutCodes, packing.LayoutTorchAOKleidiAI:
		h.ScaleDtype = packing.ScaleBF16
	case packing.LayoutQSI4C32PF16:
		h.ScaleDtype = packing.ScaleF16
	case packing.LayoutQAI4C32P:
		h.ZeroKind = packing.ZeroF32
	case packing.LayoutTorchAOEmbedding:
		h.ZeroKind = packing.ZeroInt8
	}
	return h.Canonical()
}

func asymmetric(h packing.Header) packing.Header {
	h.ZeroKind = packing.ZeroInt8
	return h.Canonical()
}

func fractional(h packing.Header) packing.Header {
	h.ZeroKind = packing.ZeroFraction
	return h.Canonical()
}

// everything is a file that uses every feature of the format: every layout, several variants with
// and without companions, slices in both orders, shared and absorbed names, a scalar, an empty
// tensor, assets of every kind, stored and compressed.
func everything(t testing.TB) []byte {
	x, plain := newFixture(), packing.PlainHeader
	low := packing.LayoutLowbit
	x.tensor(gqf.TensorSpec{Name: "model.norm.weight", Shape: []int64{33}, Dtype: packing.BF16, Role: gqf.RoleNorm},
		gqf.PayloadSpec{Header: plain(packing.BF16, 1, 33)})
	table := x.tensor(gqf.TensorSpec{Name: "model.embed_tokens.weight", Shape: []int64{37, 64}, Dtype: packing.F32, Role: gqf.RoleEmbedding, Mapping: gqf.MappingAsymmetric, Algorithm: gqf.AlgorithmRTN},
		gqf.PayloadSpec{Header: asymmetric(layout(low, 37, 64, 32, 4))},
		gqf.PayloadSpec{Variant: 1, Header: layout(packing.LayoutTorchAOEmbedding, 37, 64, 32, 4)},
		gqf.PayloadSpec{Variant: 1, Kind: gqf.KindScales, Header: plain(packing.F32, 37, 2)},
		gqf.PayloadSpec{Variant: 1, Kind: gqf.KindZeros, Header: plain(packing.I8, 37, 2)},
		gqf.PayloadSpec{Variant: 2, Header: layout(packing.LayoutQAI4C32P, 37, 64, 32, 4)})
	x.name(gqf.NameSpec{Name: "lm_head.weight", Tensor: table, SourceFile: -1})
	x.name(gqf.NameSpec{Name: "model.zz \x1b[31m\u0085 alias.weight", Tensor: table, InCheckpoint: true, SourceFile: 1, SourceBytes: 7})
	proj := x.tensor(gqf.TensorSpec{Name: "q_proj.weight", Shape: []int64{40, 96}, Dtype: packing.F8E4M3, Role: gqf.RoleProjection, Mapping: gqf.MappingSymmetric, Algorithm: gqf.AlgorithmRTN, Bias: 1},
		gqf.PayloadSpec{Header: layout(low, 40, 96, 32, 4), CPU: gqf.CPUDotProd},
		gqf.PayloadSpec{Variant: 1, CPU: gqf.CPUDotProd | gqf.CPUI8MM, Header: layout(packing.LayoutQSI4C32PF16, 40, 96, 32, 4)},
		gqf.PayloadSpec{Variant: 2, Header: layout(packing.LayoutTorchAOLinear, 40, 96, 32, 4)},
		gqf.PayloadSpec{Variant: 3, Header: layout(packing.LayoutTorchAOKleidiAI, 40, 96, 32, 4)})
	x.name(gqf.NameSpec{Name: "q_proj.weight_scale_inv", Tensor: proj, InCheckpoint: true, Absorbed: true, SourceFile: 0, SourceBytes: 8})
	x.tensor(gqf.TensorSpec{Name: "k_proj.weight", Shape: []int64{9, 64}, Dtype: packing.F16, Role: gqf.RoleProjection, Mapping: gqf.MappingSymmetric, Algorithm: gqf.AlgorithmRTN},
		gqf.PayloadSpec{Header: layout(packing.LayoutQSI4CXP, 9, 64, 0, 4)},
		gqf.PayloadSpec{Variant: 1, Header: layout(low, 9, 64, 0, 4)})
	x.tensor(gqf.TensorSpec{Name: "v_proj.weight", Shape: []int64{9, 63}, Dtype: packing.BF16, Role: gqf.RoleProjection, Mapping: gqf.MappingFullRange, Algorithm: gqf.AlgorithmRTN},
		gqf.PayloadSpec{Header: layout(packing.LayoutQSI8CXP, 9, 63, 0, 8)})
	x.tensor(gqf.TensorSpec{Name: "o_proj.weight", Shape: []int64{9, 64}, Dtype: packing.BF16, Role: gqf.RoleProjection},
		gqf.PayloadSpec{Header: layout(packing.LayoutQSU2CXP, 9, 64, 0, 2)})
	// Transposed: the checkpoint has 3 experts of 48 inputs x 20 outputs.
	up := gqf.TensorSpec{Name: "experts.up", Shape: []int64{3, 48, 20}, Dtype: packing.BF16, Role: gqf.RoleExpert, Mapping: gqf.MappingSymmetricNoClip, Algorithm: gqf.AlgorithmRTN, Transposed: true, Experts: 3}
	var parts []gqf.PayloadSpec
	for e := range 3 {
		parts = append(parts, gqf.PayloadSpec{Slice: e, Header: layout(low, 20, 48, 16, 3)},
			gqf.PayloadSpec{Slice: e, Variant: 1, CPU: gqf.NewCPUFeatures([]string{"avx2"}), Header: layout(packing.LayoutCodes, 20, 48, 16, 3)},
			gqf.PayloadSpec{Slice: e, Variant: 1, CPU: gqf.NewCPUFeatures([]string{"avx2"}), Kind: gqf.KindScales, Header: plain(packing.BF16, 20, 3)})
	}
	x.tensor(up, parts...)
	half := layout(low, 9, 40, 0, 2)
	half.Grid, half.Flags = packing.GridHalfStep, packing.FlagBias|packing.FlagPositiveScales
	x.tensor(gqf.TensorSpec{Name: "half", Shape: []int64{9, 40}, Dtype: packing.F32, Role: gqf.RoleProjection, Algorithm: gqf.AlgorithmRTN},
		gqf.PayloadSpec{Header: half})
	x.tensor(gqf.TensorSpec{Name: "scalar", Dtype: packing.I64}, gqf.PayloadSpec{Header: plain(packing.I64, 1, 1)})
	x.tensor(gqf.TensorSpec{Name: "empty", Shape: []int64{2, 0, 3}, Dtype: packing.F32}, gqf.PayloadSpec{Header: plain(packing.F32, 0, 3)})
	x.tensor(gqf.TensorSpec{Name: "conv", Shape: []int64{2, 3, 2, 5}, Dtype: packing.F16, Role: gqf.RoleConv}, gqf.PayloadSpec{Header: plain(packing.F16, 12, 5)})
	halves := layout(packing.LayoutCodes, 9, 40, 16, 5)
	halves.ScaleDtype, halves.ZeroKind = packing.ScaleF16, packing.ZeroInt8
	x.tensor(gqf.TensorSpec{Name: "codes", Shape: []int64{9, 40}, Dtype: packing.F32, Role: gqf.RoleProjection, Mapping: gqf.MappingAsymmetric, Algorithm: gqf.AlgorithmRTN},
		gqf.PayloadSpec{Header: halves},
		gqf.PayloadSpec{Kind: gqf.KindScales, Header: plain(packing.F16, 9, 3)},
		gqf.PayloadSpec{Kind: gqf.KindZeros, Header: plain(packing.I8, 9, 3)})
	x.tensor(gqf.TensorSpec{Name: "bytes", Shape: []int64{9, 40}, Dtype: packing.I8}, gqf.PayloadSpec{Header: plain(packing.I8, 9, 40)})
	x.tensor(gqf.TensorSpec{Name: "last", Shape: []int64{1, 9, 40}, Dtype: packing.F32, Role: gqf.RoleProjection, Algorithm: gqf.AlgorithmRTN},
		gqf.PayloadSpec{Header: layout(low, 9, 40, 32, 4)},
		gqf.PayloadSpec{Variant: 1, Header: layout(packing.LayoutCodes, 9, 40, 32, 4)},
		gqf.PayloadSpec{Variant: 1, Kind: gqf.KindScales, Header: plain(packing.BF16, 9, 2)},
		gqf.PayloadSpec{Variant: 2, Header: asymmetric(layout(low, 9, 40, 32, 4))},
		gqf.PayloadSpec{Variant: 3, Header: fractional(layout(low, 9, 40, 32, 4))},
		gqf.PayloadSpec{Variant: 4, Header: fractional(layout(packing.LayoutCodes, 9, 40, 32, 4))},
		gqf.PayloadSpec{Variant: 4, Kind: gqf.KindScales, Header: plain(packing.BF16, 9, 2)},
		gqf.PayloadSpec{Variant: 4, Kind: gqf.KindZeros, Header: plain(packing.I8, 9, 2)})

	x.AddAsset(gqf.AssetSpec{Kind: gqf.AssetConfig, Name: "config.json", Data: []byte(`{"model_type":"llama"}`)})
	x.AddAsset(gqf.AssetSpec{Kind: gqf.AssetFile, Name: "tokenizer.json", Data: []byte(strings.Repeat("merges and tokens ", 100))})
	x.AddAsset(gqf.AssetSpec{Kind: gqf.AssetFile, Name: "a.txt", Data: []byte("short")})
	x.AddAsset(gqf.AssetSpec{Kind: gqf.AssetRecipe, Name: gqf.RecipeName, Data: []byte(`{"bits":4}`)})
	x.AddAsset(gqf.AssetSpec{Kind: gqf.AssetProvenance, Name: gqf.ProvenanceName, Data: []byte(`{"sources":[]}`)})
	x.AddAsset(gqf.AssetSpec{Kind: gqf.AssetFold, Name: gqf.FoldName, Data: []byte(strings.Repeat(`{"steps":[]}`, 100))})
	return x.build(t)
}
