package hfquant

import (
	"bytes"
	"slices"
	"testing"
)

// TestStreams packs codes of every number of bits along rows and along columns and reads them back.
func TestStreams(t *testing.T) {
	for bits := 1; bits <= 8; bits++ {
		low, high := limits(bits)
		for _, n := range []int{1, 7, 31, 32, 33, 100} {
			codes := make([]int8, n)
			for i := range codes {
				codes[i] = int8(low + (i*7+i*i)%(high-low+1))
			}
			words := streamWords(int64(n), bits)
			b := bytes.Repeat([]byte{0xff}, int(4*words))
			packCodes(b, codes, bits)
			got := make([]int8, n)
			unpackCodes(got, b, bits)
			if !slices.Equal(got, codes) {
				t.Errorf("%d codes of %d bits along a row: %v, want %v", n, bits, got, codes)
			}
			const cols = 3
			c := columns{view: make([]byte, 4*cols*words), cols: cols, bits: bits}
			for i, code := range codes {
				c.set(int64(i), 1, code)
			}
			for i, code := range codes {
				if got := c.at(int64(i), 1); got != code {
					t.Errorf("code %d of %d bits in a column: %d, want %d", i, bits, got, code)
				}
			}
			for w := range words { // a column is the same stream
				if !bytes.Equal(c.view[4*(w*cols+1):][:4], b[4*w:][:4]) {
					t.Errorf("word %d of %d codes of %d bits differs in a column", w, n, bits)
				}
			}
		}
		if n := codesOfWords(bits); n*int64(bits)%32 != 0 || n > 32 {
			t.Errorf("%d codes of %d bits", n, bits)
		}
	}
}
