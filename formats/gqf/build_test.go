package gqf

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
)

// memory is a file in memory that cannot grow.
type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > int64(len(m)) {
		return 0, io.ErrShortWrite
	}
	return copy(m[off:], p), nil
}

func lowbit(rows, cols, group uint64, bits uint8) packing.Header {
	return packing.Header{
		Layout: packing.LayoutLowbit, Bits: bits, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile,
		Rows: rows, Cols: cols, Group: group,
	}.Canonical()
}

func asymmetric(h packing.Header) packing.Header {
	h.ZeroKind = packing.ZeroInt8
	return h.Canonical()
}

// codes is a header of asymmetric codes with F32 scales.
func codes(rows, cols, group uint64, bits uint8) packing.Header {
	return packing.Header{Layout: packing.LayoutCodes, Bits: bits, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8, Rows: rows, Cols: cols, Group: group}
}

// sample describes a small model that uses the whole format: a tied embedding, fused experts,
// several variants, companions, short groups, the half-step grid, a scalar, an empty tensor,
// absorbed scales, and assets of all kinds.
func sample() *Builder {
	b := NewBuilder()
	add := func(t TensorSpec, payloads ...PayloadSpec) int {
		i := b.AddTensor(t)
		for _, p := range payloads {
			p.Tensor = i
			b.AddPayload(p)
		}
		b.AddName(NameSpec{Name: t.Name, Tensor: i, InCheckpoint: true, SourceFile: 0, SourceBytes: 100 + int64(i)})
		return i
	}
	plain := packing.PlainHeader
	add(TensorSpec{Name: "model.norm.weight", Shape: []int64{33}, Dtype: packing.BF16, Role: RoleNorm},
		PayloadSpec{Header: plain(packing.BF16, 1, 33)})
	table := add(TensorSpec{Name: "model.embed_tokens.weight", Shape: []int64{37, 64}, Dtype: packing.F32, Role: RoleEmbedding, Mapping: MappingFullRange, Algorithm: AlgorithmRTN},
		PayloadSpec{Header: lowbit(37, 64, 32, 8)})
	b.AddName(NameSpec{Name: "lm_head.weight", Tensor: table, SourceFile: -1})
	b.AddName(NameSpec{Name: "model.zz_alias.weight", Tensor: table, InCheckpoint: true, SourceFile: 1, SourceBytes: 7})
	proj := add(TensorSpec{Name: "model.layers.0.q_proj.weight", Shape: []int64{40, 172}, Dtype: packing.F8E4M3, Role: RoleProjection, Mapping: MappingAsymmetric, Algorithm: AlgorithmRTN, Bias: 4},
		PayloadSpec{Header: asymmetric(lowbit(40, 172, 48, 4)), CPU: CPUI8MM | CPUDotProd},
		PayloadSpec{Variant: 1, Header: codes(40, 172, 48, 4)},
		PayloadSpec{Variant: 1, Kind: KindScales, Header: plain(packing.F32, 40, 4)},
		PayloadSpec{Variant: 1, Kind: KindZeros, Header: plain(packing.I8, 40, 4)})
	add(TensorSpec{Name: "model.layers.0.q_proj.bias", Shape: []int64{40}, Dtype: packing.BF16, Role: RoleBias},
		PayloadSpec{Header: plain(packing.BF16, 1, 40)})
	b.AddName(NameSpec{Name: "model.layers.0.q_proj.weight_scale_inv", Tensor: proj, InCheckpoint: true, Absorbed: true, SourceFile: 0, SourceBytes: 8})
	// Transposed: the checkpoint has 3 experts of 48 inputs x 20 outputs.
	experts := TensorSpec{Name: "model.layers.0.experts.up", Shape: []int64{3, 48, 20}, Dtype: packing.BF16, Role: RoleExpert, Mapping: MappingSymmetric, Algorithm: AlgorithmRTN, Transposed: true, Experts: 3}
	var parts []PayloadSpec
	for e := 2; e >= 0; e-- { // any order
		parts = append(parts, PayloadSpec{Slice: e, Header: lowbit(20, 48, 16, 3)})
	}
	add(experts, parts...)
	half := lowbit(9, 40, 0, 2)
	half.Grid = packing.GridHalfStep
	add(TensorSpec{Name: "half", Shape: []int64{9, 40}, Dtype: packing.F32, Role: RoleProjection, Algorithm: AlgorithmRTN}, PayloadSpec{Header: half})
	add(TensorSpec{Name: "scalar", Dtype: packing.I64}, PayloadSpec{Header: plain(packing.I64, 1, 1)})
	add(TensorSpec{Name: "empty", Shape: []int64{2, 0, 3}, Dtype: packing.F32}, PayloadSpec{Header: plain(packing.F32, 0, 3)})
	add(TensorSpec{Name: "conv", Shape: []int64{2, 3, 2, 5}, Dtype: packing.F16, Role: RoleConv}, PayloadSpec{Header: plain(packing.F16, 12, 5)})

	b.AddAsset(AssetSpec{Kind: AssetConfig, Name: "config.json", Data: []byte(`{"model_type":"llama"}` + strings.Repeat(" ", 600))})
	b.AddAsset(AssetSpec{Kind: AssetFile, Name: "tokenizer.json", Data: []byte(strings.Repeat("merges and tokens ", 100))})
	b.AddAsset(AssetSpec{Kind: AssetFile, Name: "a.txt", Data: []byte("short")})
	b.AddAsset(AssetSpec{Kind: AssetRecipe, Name: RecipeName, Data: []byte(`{"bits":4}`)})
	b.AddAsset(AssetSpec{Kind: AssetProvenance, Name: ProvenanceName, Data: []byte(`{"sources":[]}`)})
	return b
}

// random fills a payload with values that the layout allows.
func random(p PayloadSpec, seed uint64) []byte {
	r, h := rand.New(rand.NewPCG(seed, 1)), p.Header
	size, err := h.DataSize()
	if err != nil {
		panic(err)
	}
	data := make([]byte, size)
	if h.Layout != packing.LayoutLowbit {
		for i := range data {
			data[i] = byte(r.Uint32())
			if h.Layout == packing.LayoutCodes {
				data[i] = byte(int8(data[i]) >> (8 - h.Bits))
			}
		}
		if h.Layout == packing.LayoutTorchAOEmbedding {
			pk, err := layouts.New(h)
			if err != nil {
				panic(err)
			}
			copy(data, pk.Prefix())
		}
		if p.Kind == KindScales { // 1 <= scale < 2
			size := h.Dtype.Bits() / 8
			for i := size - 2; i < len(data); i += size {
				one := map[packing.Dtype]uint16{packing.BF16: 0x3F80, packing.F32: 0x3F80, packing.F16: 0x3C00}[h.Dtype]
				le.PutUint16(data[i:], one|le.Uint16(data[i:])&0x7F)
			}
		}
		return data
	}
	low, err := packing.NewLowbit(h)
	if err != nil {
		panic(err)
	}
	panel := low.NewPanel()
	for i := range low.Panels() {
		panel.Rows = low.PanelRows(i)
		for row := range panel.Rows {
			for k := range int(h.Cols) {
				panel.Codes[row*low.PackedCols()+k] = int8(r.IntN(1<<h.Bits) - 1<<(h.Bits-1))
			}
		}
		for j := range panel.Scales {
			panel.Scales[j] = h.ScaleDtype.Round(r.Float32() - 0.5)
		}
		for j := range panel.Zeros {
			panel.Zeros[j] = int8(r.IntN(7) - 3)
		}
		low.PackPanel(data[i*low.PanelBytes():][:low.PanelBytes()], panel)
	}
	return data
}

// build writes b's file into memory, with random data.
func build(t testing.TB, b *Builder) []byte {
	t.Helper()
	im, err := built(b)
	if err != nil {
		t.Fatal(err)
	}
	file := make(memory, im.Size())
	for i, p := range b.payloads {
		data := random(p.spec(), uint64(i))
		off := im.PayloadOffset(i) + packing.HeaderSize
		copy(file[off:], data)
		im.AddData(off, data)
	}
	finish(t, b, im, file)
	return file
}

func finish(t testing.TB, b *Builder, im *Image, file memory) {
	t.Helper()
	if err := im.WritePayloadHeaders(file); err != nil {
		t.Fatal(err)
	}
	for i := range b.names {
		if b.names[i].InCheckpoint {
			im.SetSourceCRC(i, uint32(1000+i))
		}
	}
	if err := im.WriteFront(file); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, b []byte) *File {
	t.Helper()
	f, err := OpenBytes(b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestOrderOfPieces demands the same bytes for any cut of the data and any order of the pieces.
func TestOrderOfPieces(t *testing.T) {
	b := NewBuilder()
	const rows, cols = 700, 4096 // 2.7 checksum blocks
	ti := b.AddTensor(TensorSpec{Name: "w", Shape: []int64{rows, cols}, Dtype: packing.I8})
	b.AddName(NameSpec{Name: "w", Tensor: ti, SourceFile: -1})
	b.AddPayload(PayloadSpec{Tensor: ti, Header: packing.PlainHeader(packing.I8, rows, cols)})
	want := build(t, b)
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 2))
		im, err := built(b)
		if err != nil {
			t.Fatal(err)
		}
		file := make(memory, im.Size())
		data := random(b.payloads[0].spec(), 0)
		base := im.PayloadOffset(0) + packing.HeaderSize
		copy(file[base:], data)
		var cuts [][2]int
		for at := 0; at < len(data); {
			n := min(1+r.IntN(1<<(3+r.IntN(19))), len(data)-at)
			cuts = append(cuts, [2]int{at, at + n})
			at += n
		}
		r.Shuffle(len(cuts), func(i, j int) { cuts[i], cuts[j] = cuts[j], cuts[i] })
		done := make(chan bool)
		for part := range 4 {
			go func() {
				for i := part; i < len(cuts); i += 4 {
					im.AddData(base+int64(cuts[i][0]), data[cuts[i][0]:cuts[i][1]])
				}
				done <- true
			}()
		}
		for range 4 {
			<-done
		}
		finish(t, b, im, file)
		if !bytes.Equal(file, want) {
			t.Fatalf("seed %d: the file depends on the order of %d pieces", seed, len(cuts))
		}
	}
}

func TestMissingData(t *testing.T) {
	b := sample()
	im, err := built(b)
	if err != nil {
		t.Fatal(err)
	}
	file := make(memory, im.Size())
	if err := im.WriteFront(file); err == nil || !strings.Contains(err.Error(), "left out") {
		t.Errorf("WriteFront without data: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("AddData before the data region did not panic")
		}
	}()
	im.AddData(im.DataStart()-1, []byte{1})
}

// TestBuildErrors lists specifications that a Builder refuses.
func TestBuildErrors(t *testing.T) {
	plain := packing.PlainHeader(packing.F32, 2, 3)
	tests := []struct {
		name, want string
		change     func(b *Builder)
	}{
		{"no canonical name", "canonical name was not added", func(b *Builder) { b.AddTensor(TensorSpec{Name: "x", Dtype: packing.F32}) }},
		{"no payload", "0 payloads", func(b *Builder) {
			b.AddName(NameSpec{Name: "x", Tensor: b.AddTensor(TensorSpec{Name: "x", Dtype: packing.F32}), SourceFile: -1})
		}},
		{"nine dimensions", "9 dimensions, at most 8", func(b *Builder) { b.tensors[0].Shape = []int64{1, 1, 1, 1, 1, 1, 1, 2, 3} }},
		{"ninth variant", "variant 8 out of range", func(b *Builder) { b.AddPayload(PayloadSpec{Variant: 8, Header: plain}) }},
		{"bias of none", "its bias is tensor 6", func(b *Builder) { b.tensors[0].Bias = 7 }},
		{"its own bias", "which has a bias itself", func(b *Builder) { b.tensors[0].Bias = 1 }},
		{"two tensors, one name", "occurs twice", func(b *Builder) { b.AddName(NameSpec{Name: "w", Tensor: 0, SourceFile: -1}) }},
		{"payload of no tensor", "payload of tensor 7", func(b *Builder) { b.AddPayload(PayloadSpec{Tensor: 7, Header: plain}) }},
		{"name of no tensor", "is of tensor 7", func(b *Builder) { b.AddName(NameSpec{Name: "v", Tensor: 7, SourceFile: -1}) }},
		{"payload twice", "out of order or repeated", func(b *Builder) { b.AddPayload(PayloadSpec{Header: plain}) }},
		{"variant left out", "out of order", func(b *Builder) { b.AddPayload(PayloadSpec{Variant: 2, Header: plain}) }},
		{"shape differs", "shape [2 3] needs 2 x 3", func(b *Builder) {
			b.change(0, func(p *PayloadSpec) { p.Header = packing.PlainHeader(packing.F32, 3, 2) })
		}},
		{"slice of none", "slice 1 of 1", func(b *Builder) { b.change(0, func(p *PayloadSpec) { p.Slice = 1 }) }},
		{"slice missing", "2 slices in 1 payloads", func(b *Builder) { b.tensors[0].Experts = 2 }},
		{"invalid header", "tile", func(b *Builder) {
			b.change(0, func(p *PayloadSpec) { p.Header = packing.Header{Layout: packing.LayoutLowbit, Rows: 2, Cols: 3} })
		}},
		{"other elements", "its elements are I32, the tensor's are F32", func(b *Builder) {
			b.change(0, func(p *PayloadSpec) { p.Header = packing.PlainHeader(packing.I32, 2, 3) })
		}},
		{"CPU of a companion", "differ from its weights'", func(b *Builder) {
			b.tensors[0].Shape = []int64{32, 32}
			b.change(0, func(p *PayloadSpec) { p.Header = codes(32, 32, 32, 4) })
			b.AddPayload(PayloadSpec{Kind: KindScales, Header: packing.PlainHeader(packing.F32, 32, 1), CPU: CPUDotProd})
		}},
		{"companion alone", "kind 1 is out of order", func(b *Builder) { b.change(0, func(p *PayloadSpec) { p.Kind = KindScales }) }},
		{"dtype", "dtype 0", func(b *Builder) { b.tensors[0].Dtype = packing.DtypeNone }},
		{"negative dimension", "more than 2^62", func(b *Builder) { b.tensors[0].Shape = []int64{-2, 3} }},
		{"not UTF-8", "not valid UTF-8", func(b *Builder) { b.AddName(NameSpec{Name: "\xff", SourceFile: -1}) }},
		{"empty name", "want 1 to", func(b *Builder) { b.AddName(NameSpec{Name: "", SourceFile: -1}) }},
		{"long name", "want 1 to 65535", func(b *Builder) { b.AddName(NameSpec{Name: strings.Repeat("n", 1<<16), SourceFile: -1}) }},
		{"zero byte", "zero byte", func(b *Builder) { b.AddName(NameSpec{Name: "a\x00b", SourceFile: -1}) }},
		{"source of an invented name", "has a source", func(b *Builder) { b.AddName(NameSpec{Name: "v"}) }},
		{"absorbed invention", "absorbed and not in", func(b *Builder) { b.AddName(NameSpec{Name: "v", Absorbed: true, SourceFile: -1}) }},
		{"asset path", "not a plain file name", func(b *Builder) { b.AddAsset(AssetSpec{Kind: AssetFile, Name: "../x"}) }},
		{"asset drive", "not a plain file name", func(b *Builder) { b.AddAsset(AssetSpec{Kind: AssetFile, Name: "c:x"}) }},
		{"asset dots", "not a plain file name", func(b *Builder) { b.AddAsset(AssetSpec{Kind: AssetConfig, Name: ".."}) }},
		{"asset twice", "no duplicates", func(b *Builder) {
			b.AddAsset(AssetSpec{Kind: AssetFile, Name: "x"})
			b.AddAsset(AssetSpec{Kind: AssetFile, Name: "x"})
		}},
		{"two configs", "a second asset of kind config", func(b *Builder) {
			b.AddAsset(AssetSpec{Kind: AssetConfig, Name: "x"})
			b.AddAsset(AssetSpec{Kind: AssetConfig, Name: "y"})
		}},
		{"recipe's name", "the recipe is called", func(b *Builder) { b.AddAsset(AssetSpec{Kind: AssetRecipe, Name: "x"}) }},
		{"fold record's name", "the fold record is called", func(b *Builder) { b.AddAsset(AssetSpec{Kind: AssetFold, Name: "fold.json"}) }},
		{"asset kind", "kind 9", func(b *Builder) { b.AddAsset(AssetSpec{Kind: 9, Name: "x"}) }},
		{"too large", "larger than", func(b *Builder) {
			for i := range 5 {
				name := fmt.Sprint("big", i)
				ti := b.AddTensor(TensorSpec{Name: name, Shape: []int64{1 << 31, 1 << 31}, Dtype: packing.U8})
				b.AddName(NameSpec{Name: name, Tensor: ti, SourceFile: -1})
				b.AddPayload(PayloadSpec{Tensor: ti, Header: packing.PlainHeader(packing.U8, 1<<31, 1<<31)})
			}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := NewBuilder()
			b.AddTensor(TensorSpec{Name: "w", Shape: []int64{2, 3}, Dtype: packing.F32})
			b.AddName(NameSpec{Name: "w", SourceFile: -1})
			b.AddPayload(PayloadSpec{Header: plain})
			if _, err := built(b); err != nil {
				t.Fatal(err)
			}
			test.change(b)
			if _, err := built(b); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// built builds b and leaves b as it is.
func built(b *Builder) (*Image, error) {
	c := *b
	return c.Build()
}

// TestCopyNames builds a file again with the names copied from another file.
func TestCopyNames(t *testing.T) {
	file := build(t, sample())
	f := open(t, file)
	again := func(change func(b *Builder)) (*Builder, error) {
		b := sample()
		b.names = nil
		b.CopyNames(f)
		if change != nil {
			change(b)
		}
		_, err := built(b)
		return b, err
	}
	if b, err := again(nil); err != nil {
		t.Error(err)
	} else if g := open(t, build(t, b)); !bytes.Equal(g.sec[secStrings], f.sec[secStrings]) || !slices.Equal(g.Names(), f.Names()) {
		t.Errorf("names %v, want %v", g.Names(), f.Names())
	}
	b, err := again(func(b *Builder) { b.AddAsset(AssetSpec{Kind: AssetFile, Name: "b.txt", Data: []byte("x")}) })
	if err != nil {
		t.Error(err)
	} else if g := open(t, build(t, b)); !slices.Equal(g.Names(), f.Names()) || !g.HasAsset("b.txt") {
		t.Errorf("with another asset: names %v, want %v", g.Names(), f.Names())
	}
	for name, change := range map[string]func(b *Builder){
		"a name more":    func(b *Builder) { b.AddName(NameSpec{Name: "x", SourceFile: -1}) },
		"a tensor more":  func(b *Builder) { b.AddTensor(TensorSpec{Name: "x"}) },
		"another tensor": func(b *Builder) { b.tensors[1].Name = "x" },
	} {
		if _, err := again(change); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// change changes payload i.
func (b *Builder) change(i int, fn func(p *PayloadSpec)) {
	p := b.payloads[i].spec()
	fn(&p)
	b.payloads[i] = makePayloadSpec(p)
}
