package gqf

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	compressed := strings.HasSuffix(name, ".zst")
	if *update {
		if compressed {
			enc, err := zstd.NewWriter(nil)
			if err != nil {
				t.Fatal(err)
			}
			got = enc.EncodeAll(got, nil)
		}
		if err := os.MkdirAll("testdata", 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	var want []byte
	if compressed {
		want = testshared.VectorsZst(t, path)
	} else {
		var err error
		if want, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if compressed && string(want) != string(got) {
		t.Errorf("%s differs from what is built now (%d and %d bytes); run go test -update if that is meant", path, len(want), len(got))
	} else if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s: %s", path, diff)
	}
}

// TestGoldenFile demands the same bytes on every platform, and that files of version 1.0 stay
// readable.
func TestGoldenFile(t *testing.T) {
	golden(t, "v1.0.gqf.zst", build(t, sample()))
	f := open(t, testshared.VectorsZst(t, "testdata/v1.0.gqf.zst"))
	if r, err := f.Verify(t.Context(), VerifyOptions{Deep: true}); err != nil || !r.OK() {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestInspect(t *testing.T) {
	f := open(t, build(t, sample()))
	r, err := Inspect(f)
	if err != nil {
		t.Fatal(err)
	}
	toJSON := func(v any) []byte {
		b, err := json.MarshalIndent(v, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		return append(b, '\n')
	}
	golden(t, "inspect.json", toJSON(r))
	low, err := InspectTensor(f, "model.layers.0.q_proj.weight", 0)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "inspect_lowbit.json", toJSON(low))
	plain, err := InspectTensor(f, "model.norm.weight", 0)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "inspect_plain.json", toJSON(plain))

	if r.Totals.Quantized != 4 || r.Totals.Unquantized != 5 || r.Totals.Shared != 1 || r.Totals.SharedSaved != 2*r.Tensors[1].Bytes {
		t.Errorf("%+v", r.Totals)
	}
	var sum int64
	for i, c := range low.Codes {
		if c.Code != i-8 {
			t.Errorf("code %d at %d", c.Code, i)
		}
		sum += c.Count
	}
	if sum != 40*172 || low.Scales.Count != 40*4 {
		t.Errorf("%d codes, %d scales", sum, low.Scales.Count)
	}
	if _, err := InspectTensor(f, "model.layers.0.experts.up", 2); err != nil {
		t.Error(err)
	}
	for name, slice := range map[string]int{"nothing": 0, "model.layers.0.experts.up": 3, "half": -1} {
		if _, err := InspectTensor(f, name, slice); err == nil {
			t.Errorf("inspected slice %d of %s", slice, name)
		}
	}
}

// TestInspectNotJSON demands that invalid JSON in metadata does not affect the rest.
func TestInspectNotJSON(t *testing.T) {
	b := NewBuilder()
	b.AddAsset(AssetSpec{Kind: AssetConfig, Name: "config.json", Data: []byte("{nan}")})
	r, err := Inspect(open(t, build(t, b)))
	if err != nil || string(r.Config) != `"{nan}"` {
		t.Errorf("%s, %v", r.Config, err)
	}
}

func TestValue(t *testing.T) {
	for v, want := range map[Value]string{
		0.1:                         "0.1",
		Value(float32(0.1)):         "0.1",
		1e300:                       "1e+300",
		Value(math.Inf(-1)):         `"-Inf"`,
		-3:                          "-3",
		9007199254740991:            "9.007199254740991e+15",
		Value(math.Copysign(0, -1)): "-0",
	} {
		if got, err := json.Marshal(v); err != nil || string(got) != want {
			t.Errorf("%v: %s, %v, want %s", float64(v), got, err, want)
		}
	}
	if got, err := json.Marshal(Value(math.NaN())); err != nil || string(got) != `"NaN"` {
		t.Errorf("NaN: %s, %v", got, err)
	}
}

func TestPlainValues(t *testing.T) {
	b := []byte{0x00, 0x3C, 0x80, 0x3F, 0xFF, 0xFF, 0xFF, 0xFF}
	tests := map[packing.Dtype]Value{
		packing.F16: 1, packing.BF16: 0.0078125, packing.U8: 0, packing.I16: 0x3C00, packing.U16: 0x3C00, packing.I32: 0x3F803C00, packing.U32: 0x3F803C00,
		packing.F32: Value(math.Float32frombits(0x3F803C00)), packing.I64: -0xC07FC400, packing.U64: 18446744070479952896, packing.F8E4M3: 0, packing.I8: 0, packing.Bool: 0,
	}
	for d, want := range tests {
		h := packing.PlainHeader(d, 1, 1)
		if got := plainValues(&h, b); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v, want %v", d, got, want)
		}
	}
	c64, _ := packing.ParseDtype("C64")
	h := packing.PlainHeader(c64, 1, 1)
	if got := plainValues(&h, b); got != nil {
		t.Errorf("C64: %v", got)
	}
}
