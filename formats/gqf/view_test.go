package gqf

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/packing"
)

// TestView reads rows of a view that lie in two parts and in another order.
func TestView(t *testing.T) {
	const rows, cols = 6, 512
	h := gguf.Q4_K.Header(rows, cols)
	size := int(gguf.Q4_K.Size(cols))
	data := make([]byte, rows*size)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range data {
		data[i] = byte(r.Uint32() & 0x3f) // finite scales
	}
	order := []int32{4, 1, 0, 5, 3, 2}
	b := NewBuilder()
	w := b.AddTensor(TensorSpec{Name: "w", Shape: []int64{rows, cols}, Dtype: packing.F32, Role: RoleProjection, Mapping: MappingOther, Algorithm: AlgorithmOther})
	n := b.AddTensor(TensorSpec{Name: "n", Shape: []int64{2}, Dtype: packing.F32, Role: RoleNorm})
	views := make([]View, 2)
	views[b.AddPayload(PayloadSpec{Tensor: w, Header: h})] = View{Parts: [][]byte{data[:2*size], data[2*size:]}, Order: order}
	norm := []byte{0, 0, 128, 63, 0, 0, 0, 64}
	views[b.AddPayload(PayloadSpec{Tensor: n, Header: packing.PlainHeader(packing.F32, 1, 2)})] = View{Parts: [][]byte{norm}}
	for i, name := range []string{"w", "n"} {
		b.AddName(NameSpec{Name: name, Tensor: i, SourceFile: -1})
	}
	config := []byte(`{"model_type": "llama"}`)
	b.AddAsset(AssetSpec{Kind: AssetConfig, Name: "config.json", Data: config})
	im, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	guarded := errors.New("guarded")
	f := im.View("model.gguf", views, func(fn func() error) error { return errors.Join(fn(), guarded) })
	if err := f.Guard(func() error { return nil }); !errors.Is(err, guarded) {
		t.Errorf("Guard: %v", err)
	}
	f.guard = func(fn func() error) error { return fn() }
	f.CheckSums()
	if got, err := f.Asset("config.json"); err != nil || !bytes.Equal(got, config) {
		t.Errorf("asset %q, %v", got, err)
	}
	tensor, _ := f.Lookup("w")
	p, ok := tensor.Payload(0, 0, KindWeights)
	if !ok || p.Header != h {
		t.Fatalf("payload %+v, %v, want header %+v", p, ok, h)
	}
	whole, err := f.Data(p)
	if err != nil || len(whole) != len(data) {
		t.Fatalf("%d bytes, %v", len(whole), err)
	}
	list, err := tensor.Rows(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, want := make([]float32, cols), make([]float32, cols)
	codes := make([]int8, cols)
	for row, at := range order {
		stored := data[int(at)*size:][:size]
		if !bytes.Equal(whole[row*size:][:size], stored) {
			t.Errorf("row %d of the data is not row %d of the file", row, at)
		}
		if err := gguf.Q4_K.Decode(want, stored); err != nil {
			t.Fatal(err)
		}
		list.Dequantize(got, row)
		list.Codes(codes, nil, nil, row)
		var fields gguf.Fields
		if err := gguf.Q4_K.Unpack(&fields, stored); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) || !slices.Equal(codes, fields.Codes) {
			t.Errorf("row %d: other weights or codes than row %d of the file", row, at)
		}
	}
	if runs := f.View(p).Rows(h, 1, 3); len(runs) != 2 || !bytes.Equal(runs[0], data[size:2*size]) || !bytes.Equal(runs[1], data[2*size:4*size]) {
		t.Errorf("rows 1 to 3 lie in %d runs", len(runs))
	}
	other, _ := f.Lookup("n")
	p, _ = other.Payload(0, 0, KindWeights)
	if plain, err := f.Data(p); err != nil || !bytes.Equal(plain, norm) {
		t.Errorf("plain data % x, %v", plain, err)
	}
}

// TestBlocksInFile: a .gqf file that claims layout blocks has a tensor that cannot be used.
func TestBlocksInFile(t *testing.T) {
	b := NewBuilder()
	w := b.AddTensor(TensorSpec{Name: "w", Shape: []int64{1, 32}, Dtype: packing.F32, Role: RoleProjection, Mapping: MappingOther, Algorithm: AlgorithmOther})
	b.AddPayload(PayloadSpec{Tensor: w, Header: gguf.Q4_0.Header(1, 32)})
	b.AddName(NameSpec{Name: "w", Tensor: w, SourceFile: -1})
	im, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	file := make(memory, im.Size())
	if err := errors.Join(im.WritePayloadHeaders(file), im.WriteFront(file)); err != nil {
		t.Fatal(err)
	}
	f, err := OpenBytes(file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	tensor, _ := f.Lookup("w")
	var unsupported *UnsupportedError
	if err := tensor.Usable(); !errors.As(err, &unsupported) {
		t.Errorf("usable: %v", err)
	}
	if list := tensor.Payloads(); len(list) != 0 {
		t.Errorf("payloads %+v", list)
	}
}
