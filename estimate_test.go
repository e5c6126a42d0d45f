package gq

import (
	"math"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/quantizer"
)

// TestEstimateMeasured compares the time with the measurement of docs/QUALITY.md for a layer
// of Llama-3.2-1B, 8192 tokens.
func TestEstimateMeasured(t *testing.T) {
	const tokens = 8192
	shapes := [][2]float64{{2048, 2048}, {512, 2048}, {512, 2048}, {2048, 2048}, {8192, 2048}, {8192, 2048}, {2048, 8192}}
	for _, tt := range []struct {
		algorithm string
		streams   int64
		seconds   float64
	}{
		{"gptq-ft", 2, 74},
	} {
		cost := 0.0
		for _, s := range shapes {
			cost += solveCost(s[0], s[1], tokens, float64(tt.streams))
		}
		if got := cost * unitSeconds; math.Abs(got/tt.seconds-1) > .25 {
			t.Errorf("%s: %.0f s of CPU time a layer, %.0f were measured", tt.algorithm, got, tt.seconds)
		}
	}
}

// TestEstimate checks that more work has a longer estimate, and that calibration needs more memory.
func TestEstimate(t *testing.T) {
	of := func(r quantizer.Recipe, threads int) *Estimate {
		t.Helper()
		p, err := Plan(t.Context(), books, t.TempDir()+"/m.gqf", QuantizeOptions{Recipe: r, Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		if p.Estimate == nil || p.Estimate.Seconds <= 0 || p.Estimate.MemoryBytes <= 0 || p.Estimate.Threads != threads {
			t.Fatalf("%+v", p.Estimate)
		}
		return p.Estimate
	}
	rtn, search := of(quantizer.Recipe{Algorithm: gqf.AlgorithmRTN}, 2), of(quantizer.Recipe{}, 2)
	good, one := of(quantizer.Recipe{Quality: quantizer.QualityGood}, 2), of(quantizer.Recipe{Quality: quantizer.QualityGood}, 1)
	best := of(quantizer.Recipe{Quality: quantizer.QualityBest}, 2)
	if !(rtn.Seconds < search.Seconds && search.Seconds < good.Seconds && good.Seconds < best.Seconds) {
		t.Errorf("rtn %g s, search %g s, good %g s, best %g s", rtn.Seconds, search.Seconds, good.Seconds, best.Seconds)
	}
	if one.Seconds != 2*good.Seconds {
		t.Errorf("%g s with one thread, %g s with two", one.Seconds, good.Seconds)
	}
	if search.MemoryBytes >= 256<<20 || good.MemoryBytes <= search.MemoryBytes || best.MemoryBytes <= good.MemoryBytes {
		t.Errorf("search %d bytes, good %d, best %d", search.MemoryBytes, good.MemoryBytes, best.MemoryBytes)
	}
}

func TestEstimateString(t *testing.T) {
	for _, tt := range []struct {
		e    Estimate
		want string
	}{
		{Estimate{MemoryBytes: 12_600_000, Seconds: .2, Threads: 1}, "about a second on 1 thread, 13 MB of private memory"},
		{Estimate{MemoryBytes: 3_200_000_000, Seconds: 1000, Threads: 2}, "about 17 min on 2 threads, 3200 MB of private memory"},
		{Estimate{Seconds: 45, Threads: 8}, "about 45 s on 8 threads, 1 MB of private memory"},
		{Estimate{MemoryBytes: 3e9, DiskBytes: 2_600_000_000, Seconds: 9000, Threads: 8}, "about 2.5 h on 8 threads, 3000 MB of private memory, up to 2600 MB on disk until the job ends"},
		{Estimate{Seconds: 9000, Threads: 8}, "about 2.5 h on 8 threads, 1 MB of private memory"},
	} {
		if got := tt.e.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
