package gqf

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// TestCopier copies payloads, from a file and from memory, to other places of a new file, and finds damage in each
// block that was read.
func TestCopier(t *testing.T) {
	good := blocksFile(t)
	b := NewBuilder()
	for i, rows := range []int64{77_777, 1000, 2_500_000, 333} {
		name := string(rune('a' + i))
		ti := b.AddTensor(TensorSpec{Name: name, Shape: []int64{rows}, Dtype: packing.U8})
		b.AddName(NameSpec{Name: name, Tensor: ti, SourceFile: -1})
		b.AddPayload(PayloadSpec{Tensor: ti, Header: packing.PlainHeader(packing.U8, 1, uint64(rows))})
	}
	// job copies n payloads.
	job := func(f *File, n int) ([]byte, error) {
		im, err := built(b)
		if err != nil {
			t.Fatal(err)
		}
		file, c := make(memory, im.Size()), f.NewCopier()
		first := random(b.payloads[0].spec(), 9)
		copy(file[im.PayloadOffset(0)+packing.HeaderSize:], first)
		im.AddData(im.PayloadOffset(0)+packing.HeaderSize, first)
		for i := range n {
			p, to := f.Payload(i), im.PayloadOffset(1+i)+packing.HeaderSize
			for off := int64(0); off < p.Length-packing.HeaderSize; off += 300_000 {
				end := min(off+300_000, p.Length-packing.HeaderSize)
				if err := c.Read(file[to+off:to+end], p, off, im, to+off); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := c.Check(); err != nil || n < f.NumPayloads() {
			return nil, err
		}
		finish(t, b, im, file)
		return file, nil
	}
	path := filepath.Join(t.TempDir(), "old.gqf")
	if err := os.WriteFile(path, good, 0o666); err != nil {
		t.Fatal(err)
	}
	mapped, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer mapped.Close()
	for _, from := range []*File{open(t, good), mapped} {
		file, err := job(from, 3)
		if err != nil {
			t.Fatal(err)
		}
		to := open(t, file)
		to.CheckSums()
		for i := range to.NumPayloads() {
			got, err := to.Data(to.Payload(i))
			if err != nil {
				t.Error(err)
			}
			if i == 0 {
				continue
			}
			if want, err := from.Data(from.Payload(i - 1)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("payload %d differs: %v", i, err)
			}
		}
	}
	for block := range 3 {
		bad := append([]byte(nil), good...)
		start := int64(mapped.h.dataOff) + int64(block)<<blockLog2
		bad[start+200] ^= 4
		for n := 1; n <= 3; n++ {
			_, err := job(open(t, bad), n)
			fe, damaged := errors.AsType[*FormatError](err)
			// The first payload lies in block 0, the second one in all blocks.
			if want := n > 1 || block == 0; damaged != want || damaged && fe.Offset != start {
				t.Errorf("block %d damaged, %d payloads copied: %v", block, n, err)
			}
		}
	}
}
