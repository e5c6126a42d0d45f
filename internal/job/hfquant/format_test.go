package hfquant

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

func TestParseFormat(t *testing.T) {
	for _, f := range Formats() {
		if got, err := ParseFormat(string(f)); got != f || err != nil {
			t.Errorf("%s: %q, %v", f, got, err)
		}
	}
	if len(Formats()) != len(writers) {
		t.Errorf("%v, but %d formats can be written", Formats(), len(writers))
	}
	for name, want := range map[string]string{
		"compressed-tensors": "compressed-tensors is two formats: use int-quantized (codes as int8, for vLLM on CPUs) or pack-quantized (packed codes, 16-bit activations)",
		"awq":                `awq is only read: use gptq`,
		"pack-quantised":     `unknown format "pack-quantised": use one of int-quantized, pack-quantized, gptq, mlx, torchao; did you mean "pack-quantized"?`,
		"":                   `unknown format ""`,
	} {
		for _, err := range []error{
			second(ParseFormat(name)), second(Format(name).NewLayout("m.weight", []int64{1, 1}, Scheme{})), third(Format(name).Config(nil, nil)),
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", name, err, want)
			}
		}
	}
}

func second[T any](_ T, err error) error        { return err }
func third[T, U any](_ T, _ U, err error) error { return err }

// TestNewLayoutRefuses asks formats for what they do not hold.
func TestNewLayoutRefuses(t *testing.T) {
	good := Scheme{Bits: 4, Group: 32, Scales: packing.BF16}
	with := func(change func(s *Scheme)) Scheme {
		s := good
		change(&s)
		return s
	}
	for _, tt := range []struct {
		format Format
		name   string
		shape  []int64
		scheme Scheme
		want   string
	}{
		{IntQuantized, "m.weight", []int64{8, 64}, good, ""},
		{IntQuantized, "m.weight", []int64{8, 64}, with(func(s *Scheme) { s.Zeros = IntZeros }), `tensor "m.weight": format int-quantized does not hold 4 bits, group 32, BF16 scales, zero points: weights are symmetric`},
		{PackQuantized, "m.weight", []int64{8, 64}, with(func(s *Scheme) { s.Zeros = IntZeros }), ""},
		{PackQuantized, "m.weight", []int64{8, 64}, with(func(s *Scheme) { s.Zeros = Offsets }), "zero points are integers"},
		{PackQuantized, "m.weight", []int64{8, 80}, good, "groups of 32 columns do not divide rows of 80"},
		{PackQuantized, "m.weight", []int64{8, 16}, good, "groups of 32 columns do not divide rows of 16"},
		{TorchAO, "m.weight", []int64{8, 80}, good, "groups of 32 columns do not divide rows of 80"},
		{TorchAO, "m.weight", []int64{8, 64}, with(func(s *Scheme) { s.Zeros = Offsets }), "zero points are integers"},
		{TorchAO, "m.weight", []int64{8, 64}, with(func(s *Scheme) { s.Bits = 9 }), "codes have 1 to 8 bits"},
		{TorchAO, "m.weight", []int64{8, 64}, with(func(s *Scheme) { s.Group = -1 }), "a group has at least one column"},
		{TorchAO, "m.weight", []int64{8, 64}, with(func(s *Scheme) { s.Scales = packing.F64 }), "scales are BF16, F16 or F32"},
		{TorchAO, "m.weight", []int64{8}, good, "its shape is [8], expected [rows, columns]"},
		{TorchAO, "m.weight", []int64{0, 64}, good, "its shape is [0 64]"},
		{TorchAO, "m.weight", []int64{1 << 40, 1 << 40}, good, "its shape is [1099511627776 1099511627776]"},
		{TorchAO, "experts", []int64{8, 64}, good, "whose names end in .weight"},
	} {
		_, err := tt.format.NewLayout(tt.name, tt.shape, tt.scheme)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %v %v: %v, want %s", tt.format, tt.shape, tt.scheme, err, tt.want)
		}
	}
}

// TestPutRefuses gives layouts rows that they do not hold exactly.
func TestPutRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		scales packing.Dtype
		zeros  Zeros
		change func(r *Row)
		want   string
	}{
		{"a BF16 scale of 9 bits", packing.BF16, NoZeros, func(r *Row) { r.Scales[1] = 1 + 1./256 }, `tensor "m.weight": row 1: scale 1.0039062 of group 1 is not a finite BF16 number`},
		{"an F16 scale below its range", packing.F16, NoZeros, func(r *Row) { r.Scales[0] = 0x1p-25 }, `scale 2.9802322e-08 of group 0 is not a finite F16 number`},
		{"an F16 scale above its range", packing.F16, NoZeros, func(r *Row) { r.Scales[0] = 65536 }, `is not a finite F16 number`},
		{"an infinite scale", packing.F32, NoZeros, func(r *Row) { r.Scales[0] = float32(math.Inf(1)) }, `scale +Inf of group 0 is not a finite F32 number`},
		{"a code of 5 bits", packing.F32, NoZeros, func(r *Row) { r.Codes[3] = 8 }, `code 8 of column 3 is outside of -8 .. 7 of 4 bits`},
		{"a zero point of 5 bits", packing.F32, IntZeros, func(r *Row) { r.Zeros[1] = -9 }, `zero point -9 of group 1 is outside of -8 .. 7 of 4 bits`},
		{"zero points that the scheme does not have", packing.F32, NoZeros, func(r *Row) { r.Zeros = make([]int8, 2) }, `64 codes, 2 scales, 2 zero points and 0 offsets, expected 64, 2, 0 and 0`},
		{"a code missing", packing.F32, NoZeros, func(r *Row) { r.Codes = r.Codes[1:] }, `63 codes`},
	} {
		for _, f := range []Format{PackQuantized, TorchAO} {
			s := Scheme{Bits: 4, Group: 32, Scales: tt.scales, Zeros: tt.zeros}
			l, err := f.NewLayout("m.weight", []int64{2, 64}, s)
			if err != nil {
				t.Fatal(err)
			}
			rows := sample(s, 2, 64)
			tt.change(&rows[1])
			err = l.Put(rows, 0, func(int, int64, []byte) error {
				t.Errorf("%s: bytes are written", tt.name)
				return nil
			})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s, %s: %v, want %s", f, tt.name, err, tt.want)
			}
		}
	}
	l, err := PackQuantized.NewLayout("m.weight", []int64{20, 32}, Scheme{Bits: 4, Scales: packing.F32, Zeros: IntZeros})
	if err != nil {
		t.Fatal(err)
	}
	rows := sample(l.scheme, 20, 32)
	for _, r := range [][2]int64{{0, 4}, {4, 12}, {16, 19}, {-8, 8}, {16, 24}} {
		if err := l.Put(make([]Row, r[1]-r[0]), r[0], nil); err == nil || !strings.Contains(err.Error(), "do not fit steps of 8 rows") {
			t.Errorf("rows %v: %v", r, err)
		}
	}
	if err := l.Put(rows[16:], 16, func(int, int64, []byte) error { return nil }); err != nil {
		t.Error(err)
	}
}

// TestUnevenLayers finds parts of layers that vLLM merges and cannot load.
func TestUnevenLayers(t *testing.T) {
	w4, w8 := &Scheme{Bits: 4, Group: 32, Scales: packing.BF16}, &Scheme{Bits: 8, Scales: packing.BF16}
	f16 := &Scheme{Bits: 4, Group: 32, Scales: packing.F16}
	weights := func(list ...ModelWeight) []ModelWeight {
		for i := range list {
			list[i].Name += "_proj.weight"
			list[i].Linear = true
		}
		return list
	}
	for _, tt := range []struct {
		name    string
		weights []ModelWeight
		want    []string
	}{
		{"same", weights(ModelWeight{Name: "0.q", Scheme: w4}, ModelWeight{Name: "0.k", Scheme: f16}, ModelWeight{Name: "0.v", Scheme: w4}, ModelWeight{Name: "0.o", Scheme: w8}), nil},
		{"bits", weights(ModelWeight{Name: "0.q", Scheme: w4}, ModelWeight{Name: "0.k", Scheme: w4}, ModelWeight{Name: "0.v", Scheme: w8}), []string{"0.q_proj.weight"}},
		{"unquantized", weights(ModelWeight{Name: "1.gate", Scheme: w4}, ModelWeight{Name: "1.up"}, ModelWeight{Name: "2.gate"}, ModelWeight{Name: "2.up"}), []string{"1.gate_proj.weight"}},
		{"other layers", weights(ModelWeight{Name: "1.gate", Scheme: w4}, ModelWeight{Name: "2.up", Scheme: w8}), nil},
		{"no merged layer", []ModelWeight{{Name: "norm.weight"}, {Name: "weight", Linear: true}, {Name: "0.q_proj.bias"}}, nil},
	} {
		if got := UnevenLayers(tt.weights); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestOddKernels finds weights of GPTQ that vLLM's kernel for the others does not take.
func TestOddKernels(t *testing.T) {
	four, three, eight := Scheme{Bits: 4, Group: 32}, Scheme{Bits: 3, Group: 32}, Scheme{Bits: 8}
	narrow, zeros := Scheme{Bits: 4, Group: 16}, Scheme{Bits: 4, Group: 32, Zeros: IntZeros}
	for _, tt := range []struct {
		schemes []*Scheme
		want    []string
	}{
		{[]*Scheme{&four, &four, &eight, nil}, nil},
		{[]*Scheme{&four, &four, &three, nil}, []string{"c.weight"}},
		{[]*Scheme{&narrow, &eight, &eight}, []string{"a.weight"}},
		{[]*Scheme{&three, &three, &four}, nil}, // another kernel, for all
		{[]*Scheme{&narrow, &narrow, &four}, nil},
		{[]*Scheme{&zeros, &zeros, &three}, nil},
		{[]*Scheme{nil}, nil},
	} {
		var weights []ModelWeight
		for i, s := range tt.schemes {
			weights = append(weights, ModelWeight{Name: string(rune('a'+i)) + ".weight", Shape: []int64{32, 32}, Scheme: s, Linear: true})
		}
		if got := OddKernels(weights); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.schemes, got, tt.want)
		}
	}
}
