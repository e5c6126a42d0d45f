package gqf

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// template is what WriteTemplate writes of an image without data.
func template(t testing.TB, im *Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := im.WriteTemplate(&b); err != nil {
		t.Fatal(err)
	}
	if int64(b.Len()) != im.DataStart() {
		t.Errorf("the template has %d bytes, the data start at %d", b.Len(), im.DataStart())
	}
	return b.Bytes()
}

// TestTemplate writes a file with the image of a template, whose data two other images have summed,
// into memory that is not zero.
func TestTemplate(t *testing.T) {
	b := sample()
	want := build(t, b)
	im, err := built(b)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := ParseTemplate("x", template(t, im), Options{})
	if err != nil {
		t.Fatal(err)
	}
	file := make(memory, parsed.Size())
	if parsed.Payloads() != len(b.payloads) || parsed.Tensors() != len(b.tensors) || parsed.Names() != len(b.names) || parsed.DataStart()+parsed.DataSize() != int64(len(want)) {
		t.Errorf("%d payloads, %d tensors, %d names", parsed.Payloads(), parsed.Tensors(), parsed.Names())
	}
	images := [2]*Image{}
	added := [2]int64{}
	for i := range images {
		if images[i], err = built(b); err != nil {
			t.Fatal(err)
		}
	}
	for i := range parsed.Payloads() {
		off, size := parsed.PayloadExtent(i)
		copy(file[off:], want[off:off+size])
		half := size / 2
		images[0].AddData(off, want[off:off+half])
		images[1].AddData(off+half, want[off+half:off+size])
		added[0], added[1] = added[0]+half, added[1]+size-half
	}
	for i, im := range images {
		var sums []BlockSum
		for k := range (im.DataSize() + BlockSize - 1) / BlockSize {
			sums = append(sums, im.BlockSum(k))
		}
		parsed.AddSums(added[i], sums)
	}
	if err := parsed.WritePayloadHeaders(file); err != nil {
		t.Fatal(err)
	}
	for i := range b.names {
		at := im.NameIndex(i)
		n, want := parsed.NameAt(at), b.names[i]
		if n != (Name{Name: want.Name, Tensor: want.Tensor, InCheckpoint: want.InCheckpoint, Absorbed: want.Absorbed, SourceFile: want.SourceFile, SourceBytes: want.SourceBytes}) {
			t.Errorf("name %q is %+v", want.Name, n)
		}
		if n.InCheckpoint {
			parsed.SetSourceCRC(at, uint32(1000+i))
		}
	}
	if err := parsed.WriteFront(file); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(file, want) {
		t.Error("the image of the template writes another file")
	}
	for i := range b.tensors {
		if parsed.TensorName(i) != b.tensors[i].Name || im.TensorName(i) != b.tensors[i].Name {
			t.Errorf("tensor %d is %q and %q, want %q", i, parsed.TensorName(i), im.TensorName(i), b.tensors[i].Name)
		}
	}
	// The front of the complete file is a template again without its sums.
	again, err := ParseTemplate("x", bytes.Clone(want[:im.DataStart()]), Options{})
	if err != nil {
		t.Fatal(err)
	}
	again.ClearSums()
	fresh, err := built(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(template(t, again), template(t, fresh)) {
		t.Error("a file without its sums has another template")
	}
}

// TestEditAsset changes an asset that is stored as it is.
func TestEditAsset(t *testing.T) {
	b := sample()
	im, err := built(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := im.EditAsset(ProvenanceName, func(b []byte) error { copy(b, `{"sources":{}}`); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := im.EditAsset("tokenizer.json", func([]byte) error { return nil }); err == nil {
		t.Error("a compressed asset is edited")
	}
	if _, ok := errors.AsType[*noAssetError](im.EditAsset("none", nil)); !ok {
		t.Error("an asset that is not there is edited")
	}
	file := make(memory, im.Size())
	for i, p := range b.payloads {
		off, data := im.PayloadOffset(i)+packing.HeaderSize, random(p.spec(), uint64(i))
		copy(file[off:], data)
		im.AddData(off, data)
	}
	finish(t, b, im, file)
	if got, err := open(t, file).Asset(ProvenanceName); err != nil || string(got) != `{"sources":{}}` {
		t.Errorf("%q, %v", got, err)
	}
}

// FuzzTemplate: no template makes the parser panic, and one that is accepted is written with the
// same bytes.
func FuzzTemplate(f *testing.F) {
	for _, b := range []*Builder{NewBuilder(), sample()} {
		im, err := built(b)
		if err != nil {
			f.Fatal(err)
		}
		t := template(f, im)
		f.Add(slices.Clip(t[:im.h.sections[secChecksums].off+im.h.sections[secChecksums].length]), true)
		f.Add(t, false)
	}
	f.Fuzz(func(t *testing.T, front []byte, sealed bool) {
		b := make([]byte, alignUp(uint64(len(front)), dataAlign))
		copy(b, front)
		if sealed {
			reseal(b)
		}
		im, err := ParseTemplate("x", bytes.Clone(b), Options{})
		if err != nil {
			return
		}
		for i := range im.Payloads() {
			if off, size := im.PayloadExtent(i); off < im.DataStart() || size < 0 || off+size > im.Size() {
				t.Fatalf("payload %d has %d bytes at %d", i, size, off)
			}
		}
		for i := range im.Names() {
			if n := im.NameAt(i); n.Tensor >= im.Tensors() {
				t.Fatalf("name %d is of tensor %d", i, n.Tensor)
			}
		}
		if got := template(t, im); !bytes.Equal(got, b[:len(got)]) {
			t.Error("the template is written with other bytes")
		}
	})
}
