package rowmath

import (
	"math"

	"github.com/lowbit-go/gq/internal/detmath"
)

func mulAddGeneric(dst []float32, dstStride int, a []float32, aStride int, b []float32, bStride, m, k, n int) {
	for i := range m {
		row, x := dst[i*dstStride:][:n], a[i*aStride:][:k]
		j := 0
		for ; j+8 <= n; j += 8 {
			out := (*[8]float32)(row[j:])
			s := *out
			at := j
			for _, v := range x {
				w := (*[8]float32)(b[at:])
				s[0] += float32(v * w[0])
				s[1] += float32(v * w[1])
				s[2] += float32(v * w[2])
				s[3] += float32(v * w[3])
				s[4] += float32(v * w[4])
				s[5] += float32(v * w[5])
				s[6] += float32(v * w[6])
				s[7] += float32(v * w[7])
				at += bStride
			}
			*out = s
		}
		for ; j < n; j++ {
			s, at := row[j], j
			for _, v := range x {
				s += float32(v * b[at])
				at += bStride
			}
			row[j] = s
		}
	}
}

func softmaxGeneric(x []float32) {
	var lanes [8]float64
	highest := highestGeneric(x, float32(math.Inf(-1)))
	expSumGeneric(x, highest, &lanes)
	scaleGeneric(x, float32(1/sum8(&lanes)))
}

func highestGeneric(x []float32, highest float32) float32 {
	for _, v := range x {
		if v > highest {
			highest = v
		}
	}
	return highest
}

// expSumGeneric is the part of Softmax that replaces x by e^(x-highest) and adds each to lanes,
// x[0] to the first lane.
func expSumGeneric(x []float32, highest float32, lanes *[8]float64) {
	for i, v := range x {
		e := detmath.ExpNarrow(max(least, float64(v-highest)))
		x[i] = float32(e)
		lanes[i&7] += e
	}
}

func scaleGeneric(x []float32, factor float32) {
	for i, v := range x {
		x[i] = float32(v * factor)
	}
}

func gateGeneric(gate, up []float32, linear, cubic float64) {
	up = up[:len(gate)]
	for i, v := range gate {
		x := float64(v)
		u := float64(linear * (x + float64(cubic*float64(x*float64(x*x)))))
		e := detmath.ExpNarrow(max(least, min(-least, u)))
		gate[i] = float32(float32(x/(1+e)) * up[i])
	}
}

func expGeneric(dst []float64, x []float32, highest float32) {
	x = x[:len(dst)]
	for i, v := range x {
		dst[i] = detmath.ExpNarrow(max(least, float64(v)-float64(highest)))
	}
}
