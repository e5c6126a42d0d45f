package embedding

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// TestLookup holds the rows of every layout to what its header's fields mean.
func TestLookup(t *testing.T) {
	for _, h := range headers(21) {
		e := newExample(t, h)
		table := e.table(t)
		if table.Rows() != int(h.Rows) || table.Cols() != int(h.Cols) || table.Header() != h {
			t.Errorf("%s: %d x %d, header %+v", e.name, table.Rows(), table.Cols(), table.Header())
		}
		row := make([]float32, table.Cols())
		for id := range table.Rows() {
			if err := table.Lookup(row, id); err != nil {
				t.Fatalf("%s: %v", e.name, err)
			}
			if !sameBits(row, e.weights(id)) {
				t.Fatalf("%s: row %d is %v, want %v", e.name, id, row, e.weights(id))
			}
		}
		ids := []int32{20, 0, 7, 7, 8}
		batch := make([]float32, len(ids)*table.Cols())
		if err := LookupBatch(table, batch, ids); err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		for i, id := range ids {
			if !sameBits(batch[i*table.Cols():][:table.Cols()], e.weights(int(id))) {
				t.Errorf("%s: row %d at position %d of a batch is another", e.name, id, i)
			}
		}
	}
}

// TestLookupUnquantized looks up rows of unquantized embeddings.
func TestLookupUnquantized(t *testing.T) {
	data := []byte{0x00, 0x3c, 0x80, 0x3f, 0x01, 0x00, 0x00, 0xc4}
	for _, c := range []struct {
		dtype packing.Dtype
		cols  uint64
		want  []float32 // row 1
	}{
		{packing.F16, 2, []float32{0x1p-24, -4}},
		{packing.BF16, 2, []float32{0x1p-133, -512}},
		{packing.F32, 1, []float32{math.Float32frombits(0xc4000001)}},
	} {
		table, err := New(packing.PlainHeader(c.dtype, 2, c.cols), Parts{Data: data})
		if err != nil {
			t.Fatal(err)
		}
		row := make([]float32, c.cols)
		if err := table.Lookup(row, 1); err != nil || !sameBits(row, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.dtype, row, err, c.want)
		}
		if n := testing.AllocsPerRun(10, func() { _ = table.Lookup(row, 1) }); n != 0 {
			t.Errorf("%s: %v allocations", c.dtype, n)
		}
	}
}

// TestAllocations demands that lookups allocate nothing in any layout.
func TestAllocations(t *testing.T) {
	for _, h := range headers(9) {
		e := newExample(t, h)
		table := e.table(t)
		ids32, ids64 := []int32{8, 0, 5}, []int64{1, 8}
		dst := make([]float32, 3*table.Cols())
		for name, f := range map[string]func() error{
			"lookup":       func() error { return table.Lookup(dst[:table.Cols()], 8) },
			"int32 batch":  func() error { return LookupBatch(table, dst, ids32) },
			"int64 batch":  func() error { return LookupBatch(table, dst[:2*table.Cols()], ids64) },
			"batch of one": func() error { return LookupBatch(table, dst[:table.Cols()], ids64[1:]) },
		} {
			if n := testing.AllocsPerRun(5, func() {
				if err := f(); err != nil {
					t.Fatalf("%s: %s: %v", e.name, name, err)
				}
			}); n != 0 {
				t.Errorf("%s: %s: %v allocations", e.name, name, n)
			}
		}
	}
}

// TestOutOfRange wants a typed error that says where, and untouched output.
func TestOutOfRange(t *testing.T) {
	table := newExample(t, headers(9)[0]).table(t)
	dst := slices.Repeat([]float32{-7}, 4*table.Cols())
	batch := func(ids ...int64) error { return LookupBatch(table, dst, ids) }
	for _, c := range []struct {
		name string
		err  error
		want IDError
	}{
		{"lookup", table.Lookup(dst[:table.Cols()], 9), IDError{0, 9, 9}},
		{"negative lookup", table.Lookup(dst[:table.Cols()], -1), IDError{0, -1, 9}},
		{"batch", batch(0, 1, 9, 2), IDError{2, 9, 9}},
		{"negative", batch(0, 1, 2, -5), IDError{3, -5, 9}},
		{"large", batch(0, 1<<32, 2, -5), IDError{1, 1 << 32, 9}},
		{"large negative", batch(-1<<63, 1<<32, 2, -5), IDError{0, -1 << 63, 9}},
		{"int32", LookupBatch(table, dst, []int32{8, math.MinInt32, 0, 0}), IDError{1, math.MinInt32, 9}},
		{"before the length", LookupBatch(table, nil, []int32{9}), IDError{0, 9, 9}},
	} {
		var id *IDError
		if !errors.As(c.err, &id) || *id != c.want {
			t.Errorf("%s: %v, want %+v", c.name, c.err, c.want)
		}
	}
	if got, want := batch(0, 1, 9, 2).Error(), "id 9 at position 2: the embedding has rows 0 to 8"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, err := range []error{table.Lookup(dst[1:], 0), batch(1, 2, 3), batch(1, 2, 3, 4, 5)} {
		if err == nil || !strings.Contains(err.Error(), "values for") {
			t.Errorf("wrong length: %v", err)
		}
	}
	if slices.ContainsFunc(dst, func(x float32) bool { return x != -7 }) {
		t.Error("a failed lookup wrote to its output")
	}
	if err := LookupBatch(table, nil, []int64{}); err != nil {
		t.Errorf("empty batch: %v", err)
	}
}

func TestNewErrors(t *testing.T) {
	lowbit := newExample(t, headers(9)[0])
	var codes *example
	for _, h := range headers(9) {
		if h.Layout == packing.LayoutCodes && h.ZeroKind == packing.ZeroInt8 {
			codes = newExample(t, h)
		}
	}
	bad := lowbit.h
	bad.Bits = 9
	for _, c := range []struct {
		name        string
		h           packing.Header
		parts       Parts
		unsupported bool
		msg         string
	}{
		{"invalid header", bad, lowbit.parts, false, "9 bits a code"},
		{"short data", lowbit.h, Parts{Data: lowbit.parts.Data[1:]}, false, "the fields need"},
		{"long data", lowbit.h, Parts{Data: append(lowbit.parts.Data, 0)}, false, "the fields need"},
		{"no scales", codes.h, Parts{Data: codes.parts.Data}, false, "0 bytes of scales and 0 bytes of zero points"},
		{"no zero points", codes.h, Parts{Data: codes.parts.Data, Scales: codes.parts.Scales}, false, "and 0 bytes of zero points"},
		{"dtype", packing.PlainHeader(packing.I8, 1, 2), Parts{Data: []byte{1, 2}}, true, "dtype I8"},
	} {
		table, err := New(c.h, c.parts)
		var header *packing.HeaderError
		var unsupported *UnsupportedError
		if table != nil || err == nil || !strings.Contains(err.Error(), c.msg) || errors.As(err, &unsupported) != c.unsupported || errors.As(err, &header) == c.unsupported {
			t.Errorf("%s: %v, want %q", c.name, err, c.msg)
		}
	}
}

// TestTorchAO holds lookups in TorchAO's type 1 to what its own shared embedding
// reads from the same buffers.
func TestTorchAO(t *testing.T) {
	var cases []struct {
		Bits   uint8 `json:"nbit"`
		N, K   uint64
		Group  uint64 `json:"group_size"`
		Zeros  bool   `json:"has_weight_zeros"`
		Bias   bool   `json:"has_bias"`
		Packed string `json:"packed_hex"`
		Rows   string `json:"shared_embedding_rows_f32le_hex"`
	}
	vectors := testshared.VectorsZst(t, "../testdata/vectors/torchao/linear_universal_type1.json.zst")
	if err := json.Unmarshal(vectors, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != 107 {
		t.Errorf("%d cases, want 107", len(cases))
	}
	for _, c := range cases {
		h := packing.Header{Layout: packing.LayoutTorchAOLinear, Bits: c.Bits, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Rows: c.N, Cols: c.K, Group: c.Group}
		if c.Zeros {
			h.ZeroKind = packing.ZeroInt8
		}
		if c.Bias {
			h.Flags |= packing.FlagBias
		}
		packed, err := hex.DecodeString(c.Packed)
		if err != nil {
			t.Fatal(err)
		}
		want, err := hex.DecodeString(c.Rows)
		if err != nil {
			t.Fatal(err)
		}
		table, err := New(h, Parts{Data: packed})
		if err != nil {
			t.Fatal(err)
		}
		ids := make([]int64, c.N)
		for i := range ids {
			ids[i] = int64(i)
		}
		rows := make([]float32, c.N*c.K)
		if err := LookupBatch(table, rows, ids); err != nil {
			t.Fatal(err)
		}
		got, err := binary.Append(nil, binary.LittleEndian, rows)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%+v: other rows than TorchAO's", h)
		}
	}
}
