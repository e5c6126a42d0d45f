package gq

import (
	"sync"
	"time"

	"github.com/lowbit-go/gq/internal/kernels/floatmm"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// A speed is the time that this CPU takes for work, over the time of the AMD EPYC (Zen 5, AVX-512)
// that the costs of stages are for.
type speed struct {
	products float64 // of float32 matrices
	others   float64
}

// cpuSpeed is the speed of this CPU. Tests replace the function.
var cpuSpeed = sync.OnceValue(measureSpeed)

// product turns the cost of products of matrices on the EPYC into a cost on this CPU.
func product(cost float64) float64 { return cost * cpuSpeed().products / cpuSpeed().others }

// The seconds of a burst on the EPYC, see packages floatmm and vec: 7.8 ps for a multiply-add, 2.9
// ns for a weight and 32 scales.
const (
	burstRows, burstCols, burstTokens = 256, 128, 16
	burstGroup, burstGroups           = 32, 64

	productsBurst = 7.8e-12 * burstRows * burstCols * burstTokens
	searchBurst   = 2.9e-9 * burstGroup * burstGroups
)

// measureSpeed measures two kernels for a few milliseconds: the product of matrices, and the search
// for scales. Their ratio differs from CPU to CPU, and from one instruction set to another.
func measureSpeed() speed {
	set := floatmm.Sets.Chosen()
	w := set.New(packing.F32, burstRows, burstCols, nil)
	x, y := make([]float32, set.XLen(burstTokens, burstCols)), make([]float32, burstTokens*burstRows)
	var scratch floatmm.Scratch
	products := shortest(func() { w.Mul(&scratch, y, x, burstTokens, 0, w.Panels()) })

	var s vec.Search
	for i := range s.Inv {
		s.Inv[i], s.Lo[i], s.Hi[i] = float32(i+60)/10, -8, 7
	}
	x, y = make([]float32, burstGroup), make([]float32, burstGroup)
	for i := range x {
		x[i], y[i] = float32(i-burstGroup/2)/1000, 1
	}
	search := shortest(func() {
		for range burstGroups {
			vec.SearchScales(&s, 20, x, y)
		}
	})
	return speed{products / productsBurst, search / searchBurst}
}

// shortest is the least seconds of many short calls of f. Most of the calls are not interrupted,
// even on a busy machine.
func shortest(f func()) float64 {
	least := time.Duration(1<<63 - 1)
	for start, n := time.Now(), 0; n < 5 || time.Since(start) < 2*time.Millisecond; n++ {
		before := time.Now()
		f()
		least = min(least, time.Since(before))
	}
	return max(least, 1).Seconds()
}
