package packing
import ("testing";"fmt")
func BenchmarkZZ(b *testing.B) {
	row := make([]float32, 2048)
	for _, tile := range LowbitTiles { for bits:=uint8(1); bits<=8; bits++ { for z:=range ZeroKind(2) {
		b.Run(fmt.Sprintf("%s/bits=%d/z=%d", tile, bits, z), func(b *testing.B) {
			benchmarkLowbit(b, Header{Bits: bits, Group: 32, Tile: tile, ZeroKind: z}, func(l *Lowbit, data []byte, _ *Panel) {
				for r := range l.nr {
					l.DequantizeRow(row, data, r)
				}
			})
		})
	}}}
}
