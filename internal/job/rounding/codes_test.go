package rounding

import (
	"bufio"
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
)

// TestCodes stores the codes of a matrix and reads them again. Their rows must dequantize to the
// weights of a Rounder.
func TestCodes(t *testing.T) {
	const rows = 5
	blocks, _ := BlockScheme(gguf.Q3_K, gqf.AlgorithmRTN)
	for _, s := range []Scheme{
		blocks,
		{Bits: 4, Group: 32, Mapping: gqf.MappingFullRange, ScaleDtype: packing.ScaleBF16},
		{Bits: 3, Group: 16, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF16},
		{Bits: 1, Group: 0, Mapping: gqf.MappingHalfStep, ScaleDtype: packing.ScaleF32},
		{Bits: 8, Group: 128, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF32},
	} {
		cols := 70
		if s.Type != 0 {
			cols = 512
		}
		q, err := NewRounder(s, cols)
		if err != nil {
			t.Fatal(err)
		}
		c := NewCodes(s.Shape(rows, cols))
		if got := c.Groups(); got != s.Groups(cols) {
			t.Fatalf("%v: %d groups, want %d", s, got, s.Groups(cols))
		}
		x, want, got := make([]float32, cols), make([]float32, cols), make([]float32, cols)
		for r := range rows {
			for k := range x {
				x[k] = float32((r*31+k*17)%23) - 9
			}
			if err := q.Quantize(c.Row(r), x); err != nil {
				t.Fatal(err)
			}
			if err := q.Round(want, x); err != nil {
				t.Fatal(err)
			}
			if c.DequantizeRow(got, r); !cmp.Equal(got, want) {
				t.Errorf("%v, row %d: %s", s, r, cmp.Diff(want, got))
			}
		}
		file := bytes.NewBufferString("front")
		b := bufio.NewWriter(file)
		if c.Write(b); b.Flush() != nil || int64(file.Len()) != 5+c.Bytes() {
			t.Errorf("%v: %d bytes were written, want %d", s, file.Len()-5, c.Bytes())
		}
		stored := &StoredCodes{Shape: c.Shape, At: 5, File: bytes.NewReader(file.Bytes())}
		if again, err := LoadCodes(stored.Shape, stored.ReadRow); err != nil || !cmp.Equal(again, c) {
			t.Errorf("%v: %v, %s", s, err, cmp.Diff(c, again))
		}
		one := NewCodes(s.Shape(1, cols))
		if err := c.ReadRow(3, one.Row(0)); err != nil || !cmp.Equal(one.Row(0), c.Row(3)) {
			t.Errorf("%v: row 3: %v, %s", s, err, cmp.Diff(c.Row(3), one.Row(0)))
		}
		stored.File = bytes.NewReader(file.Bytes()[:file.Len()-1])
		if _, err := LoadCodes(stored.Shape, stored.ReadRow); err == nil {
			t.Errorf("%v: a file that ends early was read", s)
		}
	}
}
