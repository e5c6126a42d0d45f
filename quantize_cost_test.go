package gq

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/quantizer"
)

// TestEstimateMeasured compares the estimates of stages with user and system time of single threads
// on an AMD EPYC with AVX-512.
func TestEstimateMeasured(t *testing.T) {
	type stages map[string]float64
	llama, one, cost := [][2]float64{{2048, 2048}, {512, 2048}, {512, 2048}, {2048, 2048}, {8192, 2048}, {8192, 2048}, {2048, 8192}}, 0.0, 0.0
	for _, s := range llama {
		one += solveCost(s[0], s[1], 1024, 1)
		cost += solveCost(s[0], s[1], 1024, 2)
	}
	check := func(model, name string, cost, seconds float64) {
		t.Helper()
		if got := cost * unitSeconds; math.Abs(got/seconds-1) > .25 {
			t.Errorf("%s, %s: %.2f s of CPU time, %.2f were measured", model, name, got, seconds)
		}
	}
	check("a layer of Llama-3.2-1B", "gptq, 1024 tokens", one, 11.6)
	check("a layer of Llama-3.2-1B", "gptq-ft, 1024 tokens", cost, 16.1)
	for _, tt := range []struct {
		model   string
		recipe  quantizer.Recipe
		seconds stages
	}{
		{"books3.7M-bf16", quantizer.Recipe{Quality: quantizer.QualityGood}, stages{stageText: 1.76, stageCalibrate: 2.4, stageHeldOut: .18}},
		{"books3.7M-bf16", quantizer.Recipe{Algorithm: gqf.AlgorithmAWQ, Calibrate: "self"}, stages{stageText: 1.78, stageFold: 2.93, stageCalibrate: .94}},
		{"books1.3M-bf16", quantizer.Recipe{Quality: quantizer.QualityGood}, stages{stageText: 1.06, stageCalibrate: 1.16, stageHeldOut: .1}},
		{"books1.3M-bf16", quantizer.Recipe{Algorithm: gqf.AlgorithmAWQ, Calibrate: "self"}, stages{stageText: 1.06, stageFold: 1.3, stageCalibrate: .5}},
	} {
		_, err := inJob(t.Context(), filepath.Join(testshared.Dir(t), "models", tt.model), t.TempDir()+"/m.gqf", task{o: QuantizeOptions{Recipe: tt.recipe}, dry: true},
			func(_ *run, j *job) (any, error) {
				for _, s := range (view{j, j.source}).stages(view.whole) {
					if seconds, ok := tt.seconds[s.name]; ok {
						check(tt.model, tt.recipe.Algorithm.String()+" "+s.name, s.cost, seconds)
					}
				}
				return nil, nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestEstimateJobs compares estimates with user and system time of whole jobs, and with their
// largest RssAnon, on an AMD EPYC with AVX-512 that other programs kept busy: its CPU time is up to
// 1.3 times that of an idle machine. The time is a single thread's; the jobs with two had half the
// stated seconds each.
func TestEstimateJobs(t *testing.T) {
	shared := filepath.Join(testshared.Dir(t), "models")
	books3, stories := filepath.Join(shared, "books3.7M-bf16"), filepath.Join(shared, "stories260K-f32")
	bits := &Budget{BitsPerWeight: 4.5}
	imatrix, awq := quantizer.Recipe{Algorithm: gqf.AlgorithmImatrix, Calibrate: "self"}, quantizer.Recipe{Algorithm: gqf.AlgorithmAWQ, Calibrate: "self"}
	for _, tt := range []struct {
		name, model        string
		o                  QuantizeOptions
		seconds, megabytes float64
	}{
		{"bits", books, QuantizeOptions{Budget: bits}, 2.64, 65},
		{"bits", books3, QuantizeOptions{Budget: bits}, 3.34, 127},
		{"bits", stories, QuantizeOptions{Budget: bits}, 1.54, 36},
		{"max-kl", books, QuantizeOptions{Budget: &Budget{MaxKL: .02}}, 3.3, 66},
		{"fold auto", stories, QuantizeOptions{Recipe: quantizer.Recipe{Fold: quantizer.Fold{Auto: true}}}, .79, 34},
		{"rotate", books3, QuantizeOptions{Recipe: quantizer.Recipe{Fold: quantizer.Fold{Rotate: true}}}, .26, 14},
		{"imatrix", stories, QuantizeOptions{Recipe: imatrix}, 1.02, 19},
		{"awq", stories, QuantizeOptions{Recipe: awq}, 1.65, 20},
		{"awq", books, QuantizeOptions{Recipe: awq}, 3.05, 28},
		{"awq", books3, QuantizeOptions{Recipe: awq}, 5.88, 48},
		{"good", stories, QuantizeOptions{Recipe: quantizer.Recipe{Quality: quantizer.QualityGood}}, 1.36, 27},
		{"max", stories, QuantizeOptions{Recipe: quantizer.Recipe{Quality: quantizer.QualityMax}}, 48.9, 187},
		{"floats", books, QuantizeOptions{Recipe: quantizer.Recipe{Tune: quantizer.TuneFloats}}, 25.6, 120},
	} {
		tt.o.Threads = 1
		p, err := Plan(t.Context(), tt.model, t.TempDir()+"/m.gqf", tt.o)
		if err != nil {
			t.Fatal(err)
		}
		e := p.Estimate
		time, memory := e.Seconds/tt.seconds, float64(e.MemoryBytes)/1e6/tt.megabytes
		if math.Abs(time-1) > .25 || math.Abs(memory-1) > .25 {
			t.Errorf("%s, %s: %.2f s, %.2f of what was measured; %d bytes, %.2f", filepath.Base(tt.model), tt.name, e.Seconds, time, e.MemoryBytes, memory)
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

// TestEstimateTokenizer: RssAnon of a job by rtn with Llama 3's tokenizer.json of 9.1 MB, two
// threads, was 80 to 83 MB.
func TestEstimateTokenizer(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(books)); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	data = append(data, bytes.Repeat([]byte{' '}, 9_084_490-len(data))...)
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), data, 0o666); err != nil {
		t.Fatal(err)
	}
	p, err := Plan(t.Context(), dir, filepath.Join(t.TempDir(), "m.gqf"), QuantizeOptions{Recipe: quantizer.Recipe{Algorithm: gqf.AlgorithmRTN}, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Estimate.MemoryBytes; got < 65e6 || got > 100e6 {
		t.Errorf("%d bytes", got)
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
