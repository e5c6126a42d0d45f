package gqf

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// newer makes a file of a later version: edit changes the records of a sample; all checksums and
// the packed headers in the data are then made right.
func newer(t testing.TB, edit func(x *newerFile)) []byte {
	t.Helper()
	b := build(t, sample())
	edit(&newerFile{b})
	testshared.Seal(b)
	return b
}

type newerFile struct{ b []byte }

func (x *newerFile) record(sec, i int) []byte { return testshared.Record(x.b, sec, i) }

// newerPayloads lists ways in which a packed header may be newer than this version. Each edits the
// bytes of one header.
var newerPayloads = []struct {
	name string
	edit func(packed []byte)
}{
	{"layout", func(p []byte) { p[6] = 99 }},
	{"version", func(p []byte) { p[4] = 2 }},
	{"version with other fields", func(p []byte) { p[4] = 2; copy(p[8:40], "a newer meaning of these bytes !") }},
	{"flag", func(p []byte) { p[7] |= 0x80 }},
	{"grid", func(p []byte) { p[9] = 7 }},
	{"scale dtype", func(p []byte) { p[10] = 7 }},
	{"zero kind", func(p []byte) { p[11] = 4 }},
	{"tile", func(p []byte) { p[12] = 16 }},
}

// Payloads of the sample: the projection's two variants are payloads 2 and 3 to 5,
// the experts 7 to 9.
const (
	projection    = "model.layers.0.q_proj.weight"
	projPayload   = 2
	expertPayload = 7
)

// TestSkippedVariant demands that a variant in an unknown layout is ignored.
func TestSkippedVariant(t *testing.T) {
	for _, test := range newerPayloads {
		t.Run(test.name, func(t *testing.T) {
			b := newer(t, func(x *newerFile) { test.edit(x.record(secPayloads, projPayload)[payloadHeader:]) })
			f := open(t, b)
			tensor, ok := f.Lookup(projection)
			if !ok || tensor.Usable() != nil {
				t.Fatalf("found %v, usable: %v", ok, tensor.Usable())
			}
			p, ok := tensor.Payload(0, 0, KindWeights)
			if !ok || p.Variant != 0 || p.Stored != 1 || p.Index != projPayload+1 || p.Header.Layout != packing.LayoutCodes {
				t.Errorf("variant 0 is %+v, %v", p, ok)
			}
			if _, ok := tensor.Payload(1, 0, KindWeights); ok {
				t.Error("found a second variant")
			}
			if list := tensor.Payloads(); len(list) != 3 || list[0] != p || !slices.Equal(tensor.VariantsFor(0), []int{0}) {
				t.Errorf("payloads %+v", list)
			}
			rows, err := tensor.Rows(0, 0)
			if err != nil {
				t.Fatal(err)
			}
			old, _ := open(t, build(t, sample())).Lookup(projection)
			want, err := old.Rows(1, 0)
			if err != nil {
				t.Fatal(err)
			}
			got, same := make([]float32, p.Header.Cols), make([]float32, p.Header.Cols)
			rows.Dequantize(got, 3)
			want.Dequantize(same, 3)
			if !slices.Equal(got, same) {
				t.Error("other weights than those of the variant that is known")
			}
			skipped := f.Payload(projPayload)
			if skipped.Variant != -1 || skipped.Stored != 0 {
				t.Errorf("skipped: %+v", skipped)
			}
			if _, err := f.Data(skipped); !unsupported(err) {
				t.Errorf("Data of the skipped variant: %v", err)
			}
			checkNewer(t, f, 1)
			if r, err := Inspect(f); err != nil || r.Tensors[2].Layout != "codes" || !r.Tensors[2].Variants[0].Skipped || r.Tensors[2].Variants[1].Skipped {
				t.Errorf("%+v, %v", r.Tensors[2], err)
			}
			if _, err := InspectTensor(f, projection, 0); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestUnusableTensor demands that a tensor in unknown layouts only is an error where it is used,
// and only there.
func TestUnusableTensor(t *testing.T) {
	for _, test := range newerPayloads {
		t.Run(test.name, func(t *testing.T) {
			f := open(t, newer(t, func(x *newerFile) {
				for slice := range 3 {
					test.edit(x.record(secPayloads, expertPayload+slice)[payloadHeader:])
				}
			}))
			tensor, _ := f.Lookup("model.layers.0.experts.up")
			err := tensor.Usable()
			if !unsupported(err) || !strings.Contains(err.Error(), `"model.layers.0.experts.up"`) {
				t.Errorf("Usable: %v", err)
			}
			if _, ok := tensor.Payload(0, 0, KindWeights); ok || len(tensor.Payloads()) != 0 || len(tensor.VariantsFor(0)) != 0 {
				t.Error("found a payload")
			}
			if _, err := tensor.Rows(0, 1); !unsupported(err) {
				t.Errorf("Rows: %v", err)
			}
			if _, err := InspectTensor(f, tensor.Name, 0); !unsupported(err) {
				t.Errorf("InspectTensor: %v", err)
			}
			r, err := Inspect(f)
			if err != nil || !strings.HasPrefix(r.Tensors[4].Layout, "unknown") && r.Tensors[4].Layout != "lowbit" {
				t.Errorf("%+v, %v", r.Tensors[4], err)
			}
			checkNewer(t, f, 1)
			if _, err := InspectTensor(f, projection, 0); err != nil {
				t.Errorf("another tensor: %v", err)
			}
		})
	}
}

// checkNewer verifies a file with skipped variants, and demands that damage in them is still found.
func checkNewer(t *testing.T, f *File, skipped int) {
	t.Helper()
	r, err := f.Verify(t.Context(), VerifyOptions{Deep: true})
	if err != nil || !r.OK() || r.Skipped != skipped {
		t.Errorf("verified as %+v, %v, want %d skipped", r, err, skipped)
	}
	for i := range f.NumPayloads() {
		p := f.Payload(i)
		if p.Variant >= 0 {
			continue
		}
		f.b[p.Offset+packing.HeaderSize] ^= 1
		if r, err := f.Verify(t.Context(), VerifyOptions{}); err != nil || r.OK() {
			t.Errorf("damage in payload %d is not found: %v", i, err)
		}
		f.b[p.Offset+packing.HeaderSize] ^= 1
	}
}

func unsupported(err error) bool {
	_, ok := errors.AsType[*UnsupportedError](err)
	return ok
}

// TestNewerVariantRules tests the rules that hold for any variant.
func TestNewerVariantRules(t *testing.T) {
	for _, test := range []struct {
		name, want string
		edit       func(x *newerFile)
	}{
		{"size", "its packed header says", func(x *newerFile) {
			r := x.record(secPayloads, projPayload)
			r[payloadHeader+6] = 99
			le.PutUint64(r[8:], le.Uint64(r[8:])-64)
		}},
		{"huge", "at most 2^62", func(x *newerFile) {
			r := x.record(secPayloads, projPayload)
			r[payloadHeader+6] = 99
			le.PutUint64(r[payloadHeader+40:], 1<<63)
		}},
		{"slices differ", "differs from slice 0's", func(x *newerFile) { x.record(secPayloads, expertPayload)[payloadHeader+6] = 99 }},
		{"companion alone is newer", "newer than its weights", func(x *newerFile) { x.record(secPayloads, projPayload+2)[payloadHeader+15] = 200 }},
		{"reserved bytes", "reserved", func(x *newerFile) {
			x.record(secPayloads, projPayload)[payloadHeader+6] = 99
			x.record(secPayloads, projPayload)[payloadHeader+50] = 1
		}},
		{"CPU of slices", "CPU features differ from slice 0's", func(x *newerFile) { x.record(secPayloads, expertPayload+1)[payloadCPU] = 1 }},
		{"CPU of companions", "CPU features differ from its weights'", func(x *newerFile) { x.record(secPayloads, projPayload+2)[payloadCPU] = 1 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := OpenBytes(newer(t, test.edit), Options{})
			if fe, ok := errors.AsType[*FormatError](err); !ok || !strings.Contains(fe.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	// Companions of an unknown variant may be of any kind.
	f := open(t, newer(t, func(x *newerFile) {
		x.record(secPayloads, projPayload+1)[payloadHeader+6] = 99
		x.record(secPayloads, projPayload+3)[24] = 77
	}))
	tensor, _ := f.Lookup(projection)
	if list := tensor.Payloads(); len(list) != 1 || list[0].Stored != 0 {
		t.Errorf("%+v", list)
	}
	checkNewer(t, f, 1)
}

// TestNewerCodes demands that an unknown informative code is "other", and that an asset of an
// unknown kind has no effect.
func TestNewerCodes(t *testing.T) {
	f := open(t, newer(t, func(x *newerFile) {
		r := x.record(secTensors, 2)
		r[14], r[28], r[29] = 200, 201, 202
		le.PutUint32(x.record(secPayloads, projPayload)[payloadCPU:], 1<<31|1)
		a := x.record(secAssets, 0)
		a[36], a[37] = 77, 0
	}))
	tensor, _ := f.Lookup(projection)
	if tensor.Role.String() != "other" || tensor.Mapping.String() != "other" || tensor.Algorithm.String() != "other" || tensor.Algorithm.Calibrated() {
		t.Errorf("%s, %s, %s", tensor.Role, tensor.Mapping, tensor.Algorithm)
	}
	p, _ := tensor.Payload(0, 0, KindWeights)
	if p.CPU.String() != "dotprod,other" {
		t.Errorf("CPU %q", p.CPU)
	}
	if got := tensor.VariantsFor(CPUDotProd | CPUI8MM); !slices.Equal(got, []int{1, 0}) {
		t.Errorf("variants %v: an unknown feature is none that a CPU has", got)
	}
	if a := f.Assets()[0]; a.Kind.Known() || a.Kind.String() != "unknown asset kind 77" {
		t.Errorf("%+v", a)
	}
	if r, err := f.Verify(t.Context(), VerifyOptions{Deep: true}); err != nil || !r.OK() {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Inspect(f); err != nil {
		t.Error(err)
	}
	// An asset of an unknown kind may have an unknown codec, which is an error only on use.
	f = open(t, newer(t, func(x *newerFile) {
		a := x.record(secAssets, 0)
		a[36], a[37] = 77, 9
	}))
	if r, err := f.Verify(t.Context(), VerifyOptions{}); err != nil || !r.OK() {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := f.Asset(f.Assets()[0].Name); !unsupported(err) {
		t.Errorf("Asset: %v", err)
	}
}

// TestVariantsFor orders variants by the features of a CPU.
func TestVariantsFor(t *testing.T) {
	b := NewBuilder()
	ti := b.AddTensor(TensorSpec{Name: "w", Shape: []int64{32, 64}, Dtype: packing.F32})
	b.AddName(NameSpec{Name: "w", Tensor: ti, SourceFile: -1})
	for i, c := range []CPUFeatures{CPUDotProd, 0, CPUDotProd | CPUI8MM, cpuAVX2} {
		h := lowbit(32, 64, 32, 4)
		h.Tile = packing.LayoutLowbit.Tiles()[i]
		b.AddPayload(PayloadSpec{Tensor: ti, Variant: i, Header: h, CPU: c})
	}
	tensor := open(t, build(t, b)).Tensor(0)
	for _, test := range []struct {
		have CPUFeatures
		want []int
	}{
		{0, []int{1, 0, 2, 3}},
		{CPUDotProd, []int{0, 1, 2, 3}},
		{CPUDotProd | CPUI8MM, []int{2, 0, 1, 3}},
		{cpuAVX2 | cpuAVX512VNNI, []int{3, 1, 0, 2}},
		{NewCPUFeatures([]string{"neon", "dotprod", "i8mm", "sve2"}), []int{2, 0, 1, 3}},
	} {
		if got := tensor.VariantsFor(test.have); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.have, got, test.want)
		}
	}
}
