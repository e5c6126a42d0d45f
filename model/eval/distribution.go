package eval

import (
	"math"
	"slices"
)

// Distribution describes a set of numbers. Percentiles are by nearest rank: p is the smallest
// number that is not less than p percent of the numbers.
type Distribution struct {
	Mean      float64 `json:"mean"`
	StdErr    StdErr  `json:"std_err"` // standard error of the mean
	RMS       float64 `json:"rms"`
	RMSStdErr StdErr  `json:"rms_std_err"`
	Min       float64 `json:"min"`
	P1        float64 `json:"p1"`
	P5        float64 `json:"p5"`
	P10       float64 `json:"p10"`
	Median    float64 `json:"median"`
	P90       float64 `json:"p90"`
	P95       float64 `json:"p95"`
	P99       float64 `json:"p99"`
	P999      float64 `json:"p99_9"`
	Max       float64 `json:"max"`
}

// describe describes v. It sums in order of v, so that the result does not depend on the threads.
// windows are the numbers of values per window.
func describe(v []float64, windows []int) Distribution {
	if len(v) == 0 {
		return Distribution{}
	}
	mean, stdErr := meanOf(v, windows)
	squares := make([]float64, len(v))
	for i, x := range v {
		squares[i] = float64(x * x)
	}
	square, squareErr := meanOf(squares, windows)
	sorted := slices.Clone(v)
	slices.Sort(sorted)
	rank := func(permille int) float64 {
		return sorted[(permille*len(sorted)+999)/1000-1]
	}
	d := Distribution{
		Mean: mean, StdErr: stdErr, RMS: math.Sqrt(square),
		Min: sorted[0], P1: rank(10), P5: rank(50), P10: rank(100), Median: rank(500), P90: rank(900), P95: rank(950), P99: rank(990), P999: rank(999),
		Max: sorted[len(sorted)-1],
	}
	if d.RMS > 0 {
		d.RMSStdErr = squareErr.times(1 / (2 * d.RMS)) // by the derivative of the square root
	}
	return d
}

// klEdges are the edges of the histogram of KL divergences in nats: powers of ten and their halves
// from 1e-8 to 10.
var klEdges = func() (edges []float64) {
	for _, decade := range []float64{1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1} {
		edges = append(edges, decade, 2*decade, 5*decade)
	}
	return append(edges, 10)
}()

// Histogram counts numbers between edges. Counts[i] counts numbers from Edges[i-1] up to Edges[i].
// Counts[0] counts numbers below the first edge, the last count numbers from the last edge on.
type Histogram struct {
	Edges  []float64 `json:"edges"`
	Counts []int64   `json:"counts"`
}

func histogram(v, edges []float64) Histogram {
	h := Histogram{Edges: edges, Counts: make([]int64, len(edges)+1)}
	for _, x := range v {
		i, found := slices.BinarySearch(edges, x)
		if found {
			i++
		}
		h.Counts[i]++
	}
	return h
}
