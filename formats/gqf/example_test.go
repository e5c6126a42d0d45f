package gqf_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// memory is a file in memory.
type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

// writeTiny writes the file that docs/FORMAT.md shows byte for byte: one 2 x 2 tensor with two
// names, and a config.
func writeTiny() ([]byte, error) {
	b := gqf.NewBuilder()
	ti := b.AddTensor(gqf.TensorSpec{Name: "w", Shape: []int64{2, 2}, Dtype: packing.F32, Role: gqf.RoleEmbedding})
	pi := b.AddPayload(gqf.PayloadSpec{Tensor: ti, Header: packing.PlainHeader(packing.F32, 2, 2)})
	ni := b.AddName(gqf.NameSpec{Name: "w", Tensor: ti, InCheckpoint: true, SourceFile: 0, SourceBytes: 16})
	b.AddName(gqf.NameSpec{Name: "head", Tensor: ti, SourceFile: -1})
	b.AddAsset(gqf.AssetSpec{Kind: gqf.AssetConfig, Name: "config.json", Data: []byte("{}")})
	im, err := b.Build()
	if err != nil {
		return nil, err
	}
	file := make(memory, im.Size())
	var data []byte
	for _, w := range []float32{1, -2, 0.5, 3} {
		x := math.Float32bits(w)
		data = append(data, byte(x), byte(x>>8), byte(x>>16), byte(x>>24))
	}
	off := im.PayloadOffset(pi) + packing.HeaderSize
	copy(file[off:], data) // in a real program: WriteAt, by many goroutines
	im.AddData(off, data)
	im.SetSourceCRC(ni, crc32c.Checksum(data))
	if err := im.WritePayloadHeaders(file); err != nil {
		return nil, err
	}
	return file, im.WriteFront(file)
}

func Example() {
	b, err := writeTiny()
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := gqf.OpenBytes(b, gqf.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	t, _ := f.Lookup("head")
	p, _ := t.Payload(0, 0, gqf.KindWeights)
	data, err := f.Data(p)
	fmt.Println(t.Name, t.Shape, t.Role, p.Header.Layout, p.Header.Dtype, len(data), err)
	// Output: w [2 2] embedding plain F32 16 <nil>
}

// dump shows b in lines of 16 bytes with their offset; lines of zeros are left out.
func dump(b []byte) string {
	var s strings.Builder
	for at := 0; at < len(b); at += 16 {
		line := b[at : at+16]
		if !bytes.Equal(line, make([]byte, 16)) {
			fmt.Fprintf(&s, "%05x  % x  % x\n", at, line[:8], line[8:])
		}
	}
	return s.String()
}

// TestFormatExample demands that the specification shows the bytes that this package writes.
func TestFormatExample(t *testing.T) {
	b, err := writeTiny()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := os.ReadFile(filepath.Join(testshared.Root(t), "docs", "FORMAT.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(spec), "\r\n", "\n")
	for _, line := range strings.Split(strings.TrimSuffix(dump(b), "\n"), "\n") {
		if !strings.Contains(text, line) {
			t.Errorf("docs/FORMAT.md lacks the line %q of\n%s", line, dump(b))
			break
		}
	}
}
