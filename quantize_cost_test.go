package gq

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/test/testgiant"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/quantizer"
)

// Estimates in tests are for the EPYC that the costs are for.
func init() { cpuSpeed = func() speed { return speed{1, 1} } }

// TestEstimateMeasured compares the estimates of stages with user and system time of single threads
// on an AMD EPYC with AVX-512: up to a fifth below the estimate on an idle machine, up to a fifth
// above on a busy one.
func TestEstimateMeasured(t *testing.T) {
	type stages map[string]float64
	recipe := func(a gqf.Algorithm, calibrate string, tokens int, refine bool) quantizer.Recipe {
		return quantizer.Recipe{Algorithm: a, Calibrate: calibrate, CalibrateTokens: tokens, Refine: &refine}
	}
	const gptq, ft, awq, imatrix, self = gqf.AlgorithmGPTQ, gqf.AlgorithmGPTQFT, gqf.AlgorithmAWQ, gqf.AlgorithmImatrix, quantizer.Self
	shared := filepath.Join(testshared.Dir(t), "models")
	books1, books3, llama := filepath.Join(shared, "books1.3M-bf16"), filepath.Join(shared, "books3.7M-bf16"), llamaLayer(t)
	for _, tt := range []struct {
		model   string
		recipe  quantizer.Recipe
		seconds stages
	}{
		{books1, recipe(gptq, story, 1024, false), stages{stageCalibrate: .151}},
		{books1, recipe(gptq, story, 4096, false), stages{stageCalibrate: .304}},
		{books1, recipe(ft, story, 4096, false), stages{stageCalibrate: .536}},
		{books1, recipe(ft, story, 4096, true), stages{stageCalibrate: .747}},
		{books1, recipe(awq, story, 1024, false), stages{stageFold: .884, stageCalibrate: .111}},
		{books1, recipe(awq, story, 4096, false), stages{stageFold: .913, stageCalibrate: .214}},
		{books1, recipe(ft, self, 8192, false), stages{stageText: .649, stageCalibrate: .935, stageHeldOut: .09}},
		{books1, recipe(imatrix, story, 4096, false), stages{stageCalibrate: .223}},
		{books3, recipe(gptq, story, 1024, false), stages{stageCalibrate: .328}},
		{books3, recipe(gptq, story, 4096, false), stages{stageCalibrate: .58}},
		{books3, recipe(ft, story, 1024, false), stages{stageCalibrate: .472}},
		{books3, recipe(ft, story, 4096, false), stages{stageCalibrate: 1.045}},
		{books3, recipe(ft, story, 4096, true), stages{stageCalibrate: 1.663}},
		{books3, recipe(awq, story, 1024, false), stages{stageFold: 1.92, stageCalibrate: .203}},
		{books3, recipe(awq, story, 4096, false), stages{stageFold: 2.049, stageCalibrate: .412}},
		{books3, recipe(awq, self, 8192, false), stages{stageText: 1.237, stageFold: 2.286, stageCalibrate: .682, stageHeldOut: .146}},
		{llama, recipe(gptq, story, 1024, false), stages{stageCalibrate: 10.98, stageQuantize: .279}},
		{llama, recipe(gptq, story, 4096, false), stages{stageCalibrate: 14.01, stageQuantize: .279}},
		{llama, recipe(ft, story, 1024, false), stages{stageCalibrate: 16.09}},
		{llama, recipe(ft, story, 4096, false), stages{stageCalibrate: 23.17}},
		{llama, recipe(imatrix, self, 4096, false), stages{stageText: 7.33, stageCalibrate: 4.74}},
	} {
		name := filepath.Base(tt.model) + " " + tt.recipe.Algorithm.String()
		_, err := inJob(t.Context(), tt.model, t.TempDir()+"/m.gqf", task{o: QuantizeOptions{Recipe: tt.recipe, Threads: 1}, dry: true},
			func(_ *run, j *job) (any, error) {
				found := 0
				for _, s := range (view{j, j.source}).stages(view.whole) {
					if seconds, ok := tt.seconds[s.name]; ok {
						found++
						if got := s.cost * unitSeconds; math.Abs(got/seconds-1) > .25 {
							t.Errorf("%s, %d tokens, %s: %.3f s of CPU time, %.3f were measured", name, tt.recipe.CalibrateTokens, s.name, got, seconds)
						}
					}
				}
				if found != len(tt.seconds) {
					t.Errorf("%s: %d of %d stages", name, found, len(tt.seconds))
				}
				return nil, nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// llamaLayer makes a checkpoint with a layer of the shapes of Llama-3.2-1B, and zeros for weights.
func llamaLayer(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(books)); err != nil {
		t.Fatal(err)
	}
	m := testgiant.Dense(1, 2048, 8192, 1024, 32, 8)
	header := make([]byte, 64<<10)
	_, err := m.Files[0].ReadAt(header, 0)
	file := filepath.Join(dir, m.Files[0].Name)
	for _, f := range []struct {
		name string
		data []byte
	}{{filepath.Join(dir, "config.json"), m.Config}, {filepath.Join(dir, "model.safetensors.index.json"), m.Index}, {file, header}} {
		if err == nil {
			err = os.WriteFile(f.name, f.data, 0o666)
		}
	}
	if err == nil {
		err = os.Truncate(file, m.Files[0].Size) // sparse
	}
	if err == nil {
		err = os.Remove(filepath.Join(dir, "model.safetensors"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
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
		{"bits", books, QuantizeOptions{Budget: bits}, 1.78, 65},
		{"bits", books3, QuantizeOptions{Budget: bits}, 2.2, 127},
		{"bits", stories, QuantizeOptions{Budget: bits}, 1.11, 36},
		{"max-kl", books, QuantizeOptions{Budget: &Budget{MaxKL: .02}}, 3.14, 116},
		{"best bits", stories, QuantizeOptions{Recipe: quantizer.Recipe{Quality: quantizer.QualityBest}, Budget: bits}, 8.3, 138},
		{"fold auto", stories, QuantizeOptions{Recipe: quantizer.Recipe{Fold: quantizer.Fold{Auto: true}}}, .79, 34},
		{"rotate", books3, QuantizeOptions{Recipe: quantizer.Recipe{Fold: quantizer.Fold{Rotate: true}}}, .26, 14},
		{"imatrix", stories, QuantizeOptions{Recipe: imatrix}, 1.02, 19},
		{"awq", stories, QuantizeOptions{Recipe: awq}, 1.36, 20},
		{"awq", books, QuantizeOptions{Recipe: awq}, 3.05, 28},
		{"awq", books3, QuantizeOptions{Recipe: awq}, 5.88, 48},
		{"good", stories, QuantizeOptions{Recipe: quantizer.Recipe{Quality: quantizer.QualityGood}}, 1.36, 27},
		{"max", stories, QuantizeOptions{Recipe: quantizer.Recipe{Quality: quantizer.QualityMax, TuneTokens: 8192}}, 15, 67},
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

// TestEstimateTuneSize checks that files below 3 bits per weight are trained on more text, whether
// bits per weight or bytes state their size.
func TestEstimateTuneSize(t *testing.T) {
	seconds := func(b Budget) float64 {
		t.Helper()
		o := QuantizeOptions{Recipe: quantizer.Recipe{Quality: quantizer.QualityMax}, Budget: &b, Threads: 1}
		p, err := Plan(t.Context(), books, t.TempDir()+"/m.gqf", o)
		if err != nil {
			t.Fatal(err)
		}
		return p.Estimate.Seconds
	}
	low, bytes, high := seconds(Budget{BitsPerWeight: 2.6}), seconds(Budget{FileBytes: 450_000}), seconds(Budget{BitsPerWeight: 4})
	if math.Abs(bytes/low-1) > .01 || high > .8*low {
		t.Errorf("2.6 bits per weight %.1f s, 450,000 bytes %.1f s, 4 bits per weight %.1f s", low, bytes, high)
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
