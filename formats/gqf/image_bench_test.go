package gqf

import "testing"

func BenchmarkAddData(b *testing.B) {
	piece := make([]byte, 9<<10) // a panel of 2048 columns at 4 bits
	im := &Image{}
	h := header{dataOff: 0, dataLen: 1 << 30}
	h.sections[secChecksums].count = 1 << 10
	im.place(h)
	b.SetBytes(int64(len(piece)))
	for i := range b.N {
		im.AddData(int64(i%1000)<<18, piece)
	}
}
