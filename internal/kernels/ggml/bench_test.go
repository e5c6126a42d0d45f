package ggml

import (
	"fmt"
	"testing"
)

// BenchmarkUnpack unpacks rows of 4,096 weights to panels of 16 rows, by the portable functions.
func BenchmarkUnpack(b *testing.B) {
	for _, f := range Formats {
		b.Run(fmt.Sprint(f.Type), func(b *testing.B) {
			data := make([]byte, 4096/f.Block*f.Bytes)
			x := unpacked{make([]byte, 16*4096), make([]float32, 16*4096), make([]float32, 16*4096), make([]int32, 16*4096), make([]int32, 16*4096)}
			a := UnpackArgs{
				Data: &data[0], Blocks: 4096 / f.Block, Codes: &x.codes[0], Stride: 8 * 16, Step: 4 * 16,
				Scales: &x.scales[0], Mins: &x.mins[0], Subs: &x.subs[0], SubMins: &x.subMins[0],
			}
			for b.Loop() {
				f.unpack(&a)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/4096, "ns/weight")
		})
	}
}
