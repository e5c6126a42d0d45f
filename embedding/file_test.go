package embedding

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// memory is a file in memory.
type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

// fileTensor is a tensor of a file; names[0] is canonical. variants hold, for each
// variant and kind, a payload.
type fileTensor struct {
	names    []string
	spec     gqf.TensorSpec
	variants [][]filePayload
}

type filePayload struct {
	kind gqf.Kind
	h    packing.Header
	data []byte
}

// tensor is a tensor of an example's shape with the example as its only variant.
func (e *example) tensor(names ...string) fileTensor {
	return fileTensor{
		names:    names,
		spec:     gqf.TensorSpec{Shape: []int64{int64(e.h.Rows), int64(e.h.Cols)}, Dtype: packing.BF16, Role: gqf.RoleEmbedding, Mapping: gqf.MappingSymmetric, Algorithm: gqf.AlgorithmRTN},
		variants: [][]filePayload{e.variant()},
	}
}

func (e *example) variant() []filePayload {
	v := []filePayload{{gqf.KindWeights, e.h, e.parts.Data}}
	dtype := map[packing.ScaleDtype]packing.Dtype{packing.ScaleBF16: packing.BF16, packing.ScaleF16: packing.F16, packing.ScaleF32: packing.F32}[e.h.ScaleDtype]
	if e.parts.Scales != nil {
		v = append(v, filePayload{gqf.KindScales, packing.PlainHeader(dtype, e.h.Rows, e.h.Groups()), e.parts.Scales})
	}
	if e.parts.Zeros != nil {
		v = append(v, filePayload{gqf.KindZeros, packing.PlainHeader(packing.I8, e.h.Rows, e.h.Groups()), e.parts.Zeros})
	}
	return v
}

// build writes a file in memory.
func build(t testing.TB, tensors ...fileTensor) memory {
	t.Helper()
	b, data := gqf.NewBuilder(), [][]byte{}
	for _, ft := range tensors {
		ft.spec.Name = ft.names[0]
		ti := b.AddTensor(ft.spec)
		for i, n := range ft.names {
			b.AddName(gqf.NameSpec{Name: n, Tensor: ti, InCheckpoint: i == 0, SourceFile: min(i, 1) * -1})
		}
		for v, payloads := range ft.variants {
			for slice := range max(ft.spec.Experts, 1) {
				for _, p := range payloads {
					b.AddPayload(gqf.PayloadSpec{Tensor: ti, Slice: slice, Kind: p.kind, Variant: v, Header: p.h})
					data = append(data, p.data)
				}
			}
		}
	}
	im, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	file := make(memory, im.Size())
	for i, d := range data {
		off := im.PayloadOffset(i) + packing.HeaderSize
		copy(file[off:], d)
		im.AddData(off, d)
	}
	if err := im.WritePayloadHeaders(file); err != nil {
		t.Fatal(err)
	}
	if err := im.WriteFront(file); err != nil {
		t.Fatal(err)
	}
	return file
}

func open(t testing.TB, b []byte) *gqf.File {
	t.Helper()
	f, err := gqf.OpenBytes(b, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestOpen looks rows up in files, in every layout and under every name.
func TestOpen(t *testing.T) {
	var tensors []fileTensor
	var examples []*example
	for i, h := range headers(9) {
		e := newExample(t, h)
		examples = append(examples, e)
		tensors = append(tensors, e.tensor(fmt.Sprintf("table %d", i), fmt.Sprintf("head %d", i)))
	}
	f := open(t, build(t, tensors...))
	for i, e := range examples {
		for _, name := range tensors[i].names {
			table, err := Open(f, name)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			rows := make([]float32, 2*table.Cols())
			if err := f.Guard(func() error { return LookupBatch(table, rows, []int64{8, 1}) }); err != nil {
				t.Fatal(err)
			}
			if want := slices.Concat(e.weights(8), e.weights(1)); !sameBits(rows, want) {
				t.Errorf("%s, %s: %v, want %v", name, e.name, rows, want)
			}
		}
	}
}

// TestOpenOlder holds lookups to the dequantized matrix of the golden file of
// version 1.0, which lm_head.weight shares.
func TestOpenOlder(t *testing.T) {
	f := open(t, testshared.VectorsZst(t, "../formats/gqf/testdata/v1.0.gqf.zst"))
	head, _ := f.Lookup("lm_head.weight")
	matrix, err := head.Rows(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range head.Names() {
		table, err := Open(f, name)
		if err != nil {
			t.Fatal(err)
		}
		got, want := make([]float32, table.Cols()), make([]float32, table.Cols())
		for id := range table.Rows() {
			matrix.Dequantize(want, id)
			if err := table.Lookup(got, id); err != nil || !sameBits(got, want) {
				t.Fatalf("%s row %d: %v, %v, want %v", name, id, got, err, want)
			}
		}
	}
}

func TestOpenVariants(t *testing.T) {
	e := newExample(t, packing.Header{Layout: packing.LayoutLowbit, Bits: 4, ScaleDtype: packing.ScaleF16, Tile: packing.DefaultTile, Rows: 9, Cols: 64, Group: 32})
	other := newExample(t, packing.Header{Layout: packing.LayoutTorchAOEmbedding, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8, Rows: 9, Cols: 64, Group: 32})
	opaque := filePayload{gqf.KindWeights, packing.PlainHeader(packing.I8, 9, 64), make([]byte, 9*64)}
	second, none, kept := e.tensor("second"), e.tensor("none"), e.tensor("kept")
	second.spec.Dtype, none.spec.Dtype = packing.I8, packing.I8
	second.variants = [][]filePayload{{opaque}, e.variant(), other.variant()}
	none.variants = [][]filePayload{{opaque}}
	kept.variants = [][]filePayload{{{gqf.KindWeights, packing.PlainHeader(packing.BF16, 9, 64), make([]byte, 2*9*64)}}}
	kept.spec.Mapping, kept.spec.Algorithm = gqf.MappingNone, gqf.AlgorithmNone
	flat, experts, transposed := kept, kept, e.tensor("transposed")
	flat.names, flat.spec.Shape = []string{"flat"}, []int64{9, 8, 8}
	flat.variants = [][]filePayload{{{gqf.KindWeights, packing.PlainHeader(packing.BF16, 72, 8), make([]byte, 2*9*64)}}}
	experts.names, experts.spec.Shape, experts.spec.Experts = []string{"experts"}, []int64{2, 9, 64}, 2
	experts.variants = second.variants[1:2]
	transposed.spec.Shape, transposed.spec.Transposed = []int64{64, 9}, true
	file := build(t, second, none, kept, flat, experts, transposed)
	f := open(t, file)

	table, err := Open(f, "second")
	if err != nil || table.Header() != e.h {
		t.Fatalf("the second variant serves lookups: %v", err)
	}
	row := make([]float32, 64)
	if err := table.Lookup(row, 3); err != nil || !sameBits(row, e.weights(3)) {
		t.Errorf("%v, %v, want %v", row, err, e.weights(3))
	}
	if table, err := Open(f, "kept"); err != nil || table.Rows() != 9 {
		t.Errorf("kept: %v", err)
	}
	for name, msg := range map[string]string{
		"none": "dtype I8", "flat": "[9 8 8]", "experts": "2 slices", "transposed": "transposed true",
	} {
		var unsupported *UnsupportedError
		if table, err := Open(f, name); table != nil || !errors.As(err, &unsupported) || unsupported.Tensor != name || !strings.Contains(err.Error(), msg) {
			t.Errorf("%s: %v, want %q", name, err, msg)
		}
	}
	if _, err := Open(f, "nosuch"); err == nil || !strings.Contains(err.Error(), `"nosuch"`) {
		t.Errorf("nosuch: %v", err)
	}

	p, _ := f.Lookup("second")
	file[p.Payloads()[1].Offset] ^= 1
	var format *gqf.FormatError
	if _, err := Open(f, "second"); !errors.As(err, &format) {
		t.Errorf("damaged packed header: %v", err)
	}
}
