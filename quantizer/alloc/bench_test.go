package alloc

import "testing"

func BenchmarkProbe(b *testing.B) {
	j := openJob(b, bundled, 2)
	for b.Loop() {
		probe(b, j)
	}
}
