package gqf

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

func TestRoundTrip(t *testing.T) {
	b := sample()
	file := build(t, b)
	f := open(t, file)
	if f.Size() != int64(len(file)) {
		t.Errorf("size %d of %d", f.Size(), len(file))
	}
	if f.Len() != len(b.tensors) || f.NumPayloads() != len(b.payloads) {
		t.Fatalf("%d tensors, %d payloads", f.Len(), f.NumPayloads())
	}
	for i, want := range b.tensors {
		got := f.Tensor(i)
		want.Experts = max(want.Experts, 1)
		if diff := cmp.Diff(want, TensorSpec{got.Name, got.Shape, got.Dtype, got.Role, got.Mapping, got.Algorithm, got.Bias + 1, got.Transposed, got.Experts}, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("tensor %d: %s", i, diff)
		}
		if again, ok := f.Lookup(want.Name); !ok || again.Index != i {
			t.Errorf("Lookup(%q) = %d, %v", want.Name, again.Index, ok)
		}
	}
	im, err := built(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.payloads {
		want := b.payloads[i].spec()
		p, ok := f.Tensor(want.Tensor).Payload(want.Variant, want.Slice, want.Kind)
		if !ok || p.Header != want.Header || p.CPU != want.CPU || p.Offset != im.PayloadOffset(i) || p.Offset%64 != 0 || f.Payload(p.Index) != p {
			t.Errorf("payload %+v: got %+v, %v", want, p, ok)
			continue
		}
		data, err := f.Data(p)
		if err != nil || cap(data) != len(data) || !bytes.Equal(data, random(want, uint64(i))) {
			t.Errorf("payload %+v: wrong data, %v", want, err)
		}
	}
	if _, ok := f.Tensor(0).Payload(0, 1, KindWeights); ok {
		t.Error("found slice 1 of 1")
	}
	if got := f.Tensor(1).Names(); !slices.Equal(got, []string{"model.embed_tokens.weight", "lm_head.weight", "model.zz_alias.weight"}) {
		t.Errorf("names %q", got)
	}
	if got := f.Tensor(2).Names(); len(got) != 1 {
		t.Errorf("names %q", got)
	}
	if tensor, ok := f.Lookup("model.zz_alias.weight"); !ok || tensor.Index != 1 {
		t.Errorf("alias is tensor %d, %v", tensor.Index, ok)
	}
	for _, absent := range []string{"", "a", "zzz", "model", "model.layers.0.q_proj.weight_scale_inv"} {
		if _, ok := f.Lookup(absent); ok {
			t.Errorf("found %q", absent)
		}
	}
	var names []Name
	for i, n := range b.names {
		want := Name{Name: n.Name, Tensor: n.Tensor, Absorbed: n.Absorbed, InCheckpoint: n.InCheckpoint, SourceFile: n.SourceFile, SourceBytes: n.SourceBytes}
		if n.InCheckpoint {
			want.SourceCRC = uint32(1000 + i)
		}
		names = append(names, want)
	}
	slices.SortFunc(names, func(a, b Name) int { return strings.Compare(a.Name, b.Name) })
	if diff := cmp.Diff(names, f.Names()); diff != "" {
		t.Error(diff)
	}
	if list := f.Assets(); len(list) != 5 || list[0].Name != "a.txt" || list[4].Codec != "zstd" || list[1].Codec != "stored" {
		t.Errorf("assets %+v", list)
	}
	for name, want := range map[string]string{
		"tokenizer.json": strings.Repeat("merges and tokens ", 100), "a.txt": "short", RecipeName: `{"bits":4}`, ProvenanceName: `{"sources":[]}`,
	} {
		if got, err := f.Asset(name); err != nil || string(got) != want {
			t.Errorf("asset %s: %q, %v", name, got, err)
		}
	}
	if _, err := f.Asset("b"); err == nil {
		t.Error("found asset b")
	}
}

func TestEmptyFile(t *testing.T) {
	f := open(t, build(t, NewBuilder()))
	if f.Len() != 0 || f.Size() != dataAlign || len(f.Names()) != 0 || len(f.Assets()) != 0 {
		t.Errorf("%d tensors, %d bytes", f.Len(), f.Size())
	}
}

// reseal makes the checksums of the front right, as far as sections lie in the file.
func reseal(b []byte) {
	if len(b) < headerSize {
		return
	}
	h := decodeHeader(b)
	for i, s := range h.sections {
		if s.off <= uint64(len(b)) && s.length <= uint64(len(b))-s.off {
			le.PutUint32(b[32+24*i+20:], crc32c.Checksum(b[s.off:s.off+s.length]))
		}
	}
	le.PutUint32(b[headerCRCOff:], crc32c.Checksum(b[:headerCRCOff]))
}

// TestMalformed changes one place, makes the checksums right again, and demands the matching error.
func TestMalformed(t *testing.T) {
	good := build(t, sample())
	h := decodeHeader(good)
	at := func(sec, record, field int) int {
		return int(h.sections[sec].off) + record*int(recordSizes[sec]) + field
	}
	tests := []struct {
		name  string
		at    int
		value []byte
		off   int // offset of the error; -1: at
		want  string
	}{
		{"magic", 0, []byte{0x09}, -1, "transferred as text"},
		{"major 0", 8, []byte{0}, -1, "major version 0"},
		{"size", 16, le.AppendUint64(nil, uint64(len(good)+64)), len(good), "truncated"},
		{"header size", 24, []byte{1}, -1, "header size"},
		{"block size", 28, []byte{50}, -1, "2^50"},
		{"section place", 32, []byte{64}, -1, "tensors at byte"},
		{"section length", 32 + 8, le.AppendUint64(nil, 1<<63), 32, "the file has"},
		{"section count", 32 + 16, []byte{99}, 32, "records are"},
		{"strings count", 32 + 24*secStrings + 16, []byte{1}, 32 + 24*secStrings, "count 1, want 0"},
		{"data place", 224, le.AppendUint64(nil, 1<<17), -1, "data region at"},
		{"data length", 232, le.AppendUint64(nil, 1<<63), -1, "data region of"},
		{"reserved", 245, []byte{1}, 240, "reserved"},
		{"gap", int(h.dataOff) - 1, []byte{1}, -1, "want 0"},
		{"canonical name", at(secTensors, 0, 0), []byte{200}, -1, "canonical name 200"},
		{"other's name", at(secTensors, 0, 0), []byte{0}, -1, "not a name of this tensor"},
		{"number of names", at(secTensors, 1, 4), []byte{2}, -1, "2 names, the index has 3"},
		{"dims", at(secTensors, 1, 8), []byte{2}, -1, "dimensions at 2, want 1"},
		{"ndim", at(secTensors, 0, 12), []byte{250}, -1, "250 dimensions, want 8"},
		{"dims left", at(secTensors, 8, 12), []byte{8}, -1, "4 are left"},
		{"dtype", at(secTensors, 0, 13), []byte{250}, -1, "dtype 250"},
		{"flags", at(secTensors, 0, 15), []byte{2}, -1, "reserved flags"},
		{"transposed vector", at(secTensors, 0, 15), []byte{1}, -1, "cannot be transposed"},
		{"first payload", at(secTensors, 1, 16), []byte{0}, -1, "payloads at 0, want 1"},
		{"payloads", at(secTensors, 0, 20), []byte{0, 1}, -1, "256 payloads"},
		{"slices", at(secTensors, 0, 24), []byte{0}, -1, "0 slices"},
		{"tensor reserved", at(secTensors, 0, 47), []byte{1}, at(secTensors, 0, tensorReserved), "reserved"},
		{"tensor reserved before the bias", at(secTensors, 0, 31), []byte{1}, at(secTensors, 0, tensorReserved), "reserved"},
		{"bias of none", at(secTensors, 0, tensorBias), []byte{99}, -1, "its bias is tensor 98"},
		{"its own bias", at(secTensors, 0, tensorBias), []byte{1}, -1, "tensor 0, which has a bias itself"},
		{"bias of a bias", at(secTensors, 0, tensorBias), []byte{3}, -1, "tensor 2, which has a bias itself"},
		{"payload order", at(secPayloads, 1, 16), []byte{0}, -1, "is of tensor 0"},
		{"payload place", at(secPayloads, 1, 0), []byte{32}, -1, "multiple of 64"},
		{"payload overlap", at(secPayloads, 1, 0), le.AppendUint64(nil, h.dataOff), -1, "where the previous one ends"},
		{"payload end", at(secPayloads, len(sample().payloads)-1, 0), le.AppendUint64(nil, uint64(len(good))), -1, "the file has"},
		{"payload length", at(secPayloads, 1, 8), []byte{1}, -1, "its packed header says"},
		{"payload kind", at(secPayloads, 1, 24), []byte{9}, at(secPayloads, 1, 20), "kind 9 is out of order"},
		{"payload slice", at(secPayloads, 1, 20), []byte{9}, -1, "slice 9 of 1"},
		{"payload reserved", at(secPayloads, 1, 26), []byte{9}, -1, "reserved"},
		{"packed header", at(secPayloads, 1, payloadHeader+8), []byte{9}, at(secPayloads, 1, payloadHeader+60), "checksum"},
		{"dimension", at(secDims, 0, 0), []byte{34}, at(secPayloads, 0, payloadHeader), "shape [34] needs 1 x 34"},
		{"huge dimension", at(secDims, 0, 0), le.AppendUint64(nil, 1<<63), at(secTensors, 0, 8), "2^62"},
		{"name order", at(secStrings, 0, 0), []byte("z"), at(secNames, 1, 0), "want ascending order"},
		{"name encoding", at(secStrings, 0, 0), []byte{0xC0}, at(secNames, 0, 0), "UTF-8"},
		{"name offset", at(secNames, 1, 0), []byte{99}, -1, "want 4"},
		{"name length", at(secNames, 0, 4), le.AppendUint32(nil, 1<<31), -1, "want 1 to"},
		{"name past the end", at(secNames, 0, 4), le.AppendUint32(nil, 1<<15), -1, "the section has"},
		{"name's tensor", at(secNames, 0, 8), []byte{99}, -1, "is of tensor 99"},
		{"name flags", at(secNames, 0, 20), []byte{99}, -1, "reserved bits"},
		{"name source", at(secNames, 0, 20), []byte{0}, at(secNames, 0, 12), "has a source"},
		{"asset place", at(secAssets, 0, 8), []byte{1}, -1, "want"},
		{"asset length", at(secAssets, 0, 16), le.AppendUint64(nil, 1<<63), -1, "the section ends"},
		{"asset raw length", at(secAssets, 0, 24), []byte{99}, -1, "stored as it is"},
		{"asset kind", at(secAssets, 0, 36), []byte{0}, -1, "kind 0"},
		{"asset codec", at(secAssets, 0, 37), []byte{99}, -1, "codec 99"},
		{"compressed config", at(secAssets, 1, 37), []byte{1}, -1, "only for files"},
		{"asset reserved", at(secAssets, 0, 38), []byte{99}, -1, "reserved"},
		{"asset gap", at(secAssetData, 0, 0) + 10, []byte{99}, at(secAssetData, 0, 0) + 5, "between assets"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := bytes.Clone(good)
			copy(b[test.at:], test.value)
			reseal(b)
			if test.off < 0 {
				test.off = test.at
			}
			f, err := OpenBytes(b, Options{})
			fe, ok := errors.AsType[*FormatError](err)
			if !ok {
				t.Fatalf("opened as %v, error %v", f, err)
			}
			if !strings.Contains(fe.Error(), test.want) || int(fe.Offset) != test.off {
				t.Errorf("error %q at %d, want %q at %d", fe, fe.Offset, test.want, test.off)
			}
		})
	}
}

func TestUnsupported(t *testing.T) {
	good := build(t, sample())
	for _, at := range []int{8, 12} { // major, minor
		b := bytes.Clone(good)
		b[at] += 2
		reseal(b)
		_, err := OpenBytes(b, Options{})
		if ue, ok := errors.AsType[*UnsupportedError](err); !ok || !strings.Contains(ue.Error(), "use a newer one") {
			t.Errorf("newer version: %v", err)
		}
	}
	for _, o := range []Options{{MaxTensors: 2}, {MaxPayloads: 2}, {MaxDirectoryBytes: 1000}} {
		if _, err := OpenBytes(good, o); err == nil || !strings.Contains(err.Error(), "beyond the limit") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestPackedHeader demands that Data compares the two copies of a packed header.
func TestPackedHeader(t *testing.T) {
	file := build(t, sample())
	f := open(t, file)
	p := f.Payload(3)
	file[p.Offset+40] ^= 1
	_, err := f.Data(p)
	if fe, ok := errors.AsType[*FormatError](err); !ok || fe.Offset != p.Offset {
		t.Error(err)
	}
}

func writeFile(t testing.TB, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gqf")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTruncatedWhileMapped shortens a file that is open.
func TestTruncatedWhileMapped(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("windows does not shorten mapped files")
	}
	path := writeFile(t, build(t, sample()))
	f, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, _ := f.Tensor(1).Payload(0, 0, KindWeights)
	data, err := f.Data(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, dataAlign); err != nil {
		t.Fatal(err)
	}
	var sum byte
	err = f.Guard(func() error {
		for _, c := range data {
			sum += c
		}
		return nil
	})
	if fe, ok := errors.AsType[*FormatError](err); !ok || fe.Offset < dataAlign || fe.File != path {
		t.Errorf("Guard: %v", err)
	}
	if _, err := f.Verify(t.Context(), VerifyOptions{}); err == nil || !strings.Contains(err.Error(), "truncated") {
		t.Errorf("Verify: %v", err)
	}
	if _, err := f.Data(p); err == nil {
		t.Error("Data of a truncated file")
	}
	if _, err := InspectTensor(f, "half", 0); err == nil {
		t.Error("InspectTensor of a truncated file")
	}
	// The directory is in memory.
	if _, ok := f.Lookup("half"); !ok {
		t.Error("Lookup in a truncated file")
	}
	if _, err := Open(path, Options{}); err == nil {
		t.Error("a truncated file was opened")
	}
}

// TestManyPayloads opens a file of 100,000 payloads, with little memory.
func TestManyPayloads(t *testing.T) {
	testshared.SlowEmulated(t, "allocations and limits are the same natively")
	b := NewBuilder()
	h := lowbit(8, 32, 32, 4)
	const layers, experts = 500, 200
	for l := range layers {
		name := fmt.Sprintf("model.layers.%d.mlp.experts.gate_up_proj.weight", l)
		ti := b.AddTensor(TensorSpec{Name: name, Shape: []int64{experts, 8, 32}, Dtype: packing.BF16, Role: RoleExpert, Experts: experts})
		b.AddName(NameSpec{Name: name, Tensor: ti, InCheckpoint: true, SourceFile: 0, SourceBytes: 51200})
		for e := range experts {
			b.AddPayload(PayloadSpec{Tensor: ti, Slice: e, Header: h})
		}
	}
	f := openBounded(t, writeFile(t, build(t, b)), 16<<20)
	if n := f.NumPayloads(); n != layers*experts {
		t.Errorf("%d payloads, want %d", n, layers*experts)
	}
	r, err := f.Verify(t.Context(), VerifyOptions{Deep: true})
	if err != nil || !r.OK() {
		t.Errorf("%v %v", r, err)
	}
}

// openBounded opens a file and fails if that allocates more than most bytes.
func openBounded(t *testing.T, path string, most uint64) *File {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f, err := Open(path, Options{})
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if n := after.TotalAlloc - before.TotalAlloc; n > most {
		t.Errorf("opening allocated %d bytes, want at most %d", n, most)
	} else {
		t.Logf("opening allocated %d bytes", n)
	}
	return f
}

// TestManyTensors opens a file of 200,000 small tensors.
func TestManyTensors(t *testing.T) {
	testshared.SlowEmulated(t, "allocations and limits are the same natively")
	b := NewBuilder()
	for i := range 200_000 {
		name := fmt.Sprintf("model.layers.%d.some.module.name.weight", i)
		ti := b.AddTensor(TensorSpec{Name: name, Shape: []int64{8}, Dtype: packing.F32})
		b.AddName(NameSpec{Name: name, Tensor: ti, SourceFile: -1})
		b.AddPayload(PayloadSpec{Tensor: ti, Header: packing.PlainHeader(packing.F32, 1, 8)})
	}
	im, err := built(b)
	if err != nil {
		t.Fatal(err)
	}
	file := make(memory, im.Size())
	for i := range b.payloads {
		im.AddData(im.PayloadOffset(i)+packing.HeaderSize, make([]byte, 32))
	}
	finish(t, b, im, file)
	f := openBounded(t, writeFile(t, file), 100<<20)
	if tensor, ok := f.Lookup("model.layers.77777.some.module.name.weight"); !ok || tensor.Index != 77777 {
		t.Errorf("found %d, %v", tensor.Index, ok)
	}
}
