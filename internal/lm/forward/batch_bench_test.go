package forward_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/synth"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/quantizer"
)

var batchThreads = flag.Int("batch-threads", 0, "threads of BenchmarkBatch; 0: all CPUs")

// benchLayers are the numbers of layers with which passes are timed. The time of wholeLayers is
// extrapolated; all have the lm_head.
var benchLayers = [2]int{1, 3}

const wholeLayers = 16

// BenchmarkBatch is BenchmarkBatch/CPU, in a synthetic model of the shapes of Llama-3.2-1B with 4
// bits. It reports tokens per second of 1, 4 and 8 sequences of 200 tokens that decode together,
// and their ratios. It also reports how much longer the first token of a prompt of 16, 32 and 64
// tokens takes if 4 sequences decode: the prompt waits for half a pass on average, and then gets a
// pass for itself. The rounds of all measurements alternate, and the shortest of each counts, so
// that other programs disturb the ratios little.
func BenchmarkBatch(b *testing.B) {
	spec := synth.Presets["llama-3.2-1b"]
	spec.Layers = benchLayers[1]
	dir := filepath.Join(b.TempDir(), "model")
	if err := synth.Write(b.Context(), dir, spec, nil); err != nil {
		b.Fatal(err)
	}
	f, err := gqf.Open(quantizedFile(b, dir, quantizer.Recipe{Algorithm: gqf.AlgorithmRTN}), gqf.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for _, cpu := range []string{"", "avx2"} {
		name := cpu
		if cpu == "" {
			name = "best"
		}
		b.Run(name, func(b *testing.B) { benchBatch(b, f, cpu) })
	}
}

func benchBatch(b *testing.B, f *gqf.File, cpu string) {
	sequences, prompts := []int{1, 4, 8}, []int{16, 32, 64}
	var passes [2][]func() time.Duration
	for i, layers := range benchLayers {
		m := openGQF(b, f, forward.Options{Threads: *batchThreads, CPU: cpu, ForCPU: true, Layers: layers})
		for _, n := range sequences {
			passes[i] = append(passes[i], decoding(b, m, n, 200))
		}
		for _, n := range prompts {
			passes[i] = append(passes[i], prompting(b, m, n))
		}
	}
	least := make([][2]time.Duration, len(passes[0]))
	for b.Loop() {
		for i := range passes {
			for j, pass := range passes[i] {
				if took := pass(); least[j][i] == 0 || took < least[j][i] {
					least[j][i] = took
				}
			}
		}
	}
	whole := func(j int) float64 {
		few, more := least[j][0].Seconds(), least[j][1].Seconds()
		return more + float64(wholeLayers-benchLayers[1])*(more-few)/float64(benchLayers[1]-benchLayers[0])
	}
	for j, n := range sequences {
		b.ReportMetric(float64(n)/whole(j), fmt.Sprintf("tokens/s-%d", n))
		b.ReportMetric(float64(n)*whole(0)/whole(j), fmt.Sprintf("ratio-%d", n))
	}
	for j, n := range prompts {
		alone := whole(len(sequences) + j)
		b.ReportMetric((alone+whole(1)/2)/alone, fmt.Sprintf("first-token-ratio-%d", n))
	}
	b.ReportMetric(0, "ns/op")
}

// decoding returns a function that times a pass with a token of each of n sequences. The sequences
// begin with prompts of their own.
func decoding(b *testing.B, m *forward.Model, n, prompt int) func() time.Duration {
	batch := m.NewBatch(n, prompt+100000)
	tokens := make([]int32, prompt)
	chunks := make([]forward.Chunk, n)
	for i := range n {
		for j := range tokens {
			tokens[j] = int32(i*prompt + j)
		}
		if err := batch.Forward([]forward.Chunk{{Sequence: i, Tokens: tokens}}, nil); err != nil {
			b.Fatal(err)
		}
		chunks[i] = forward.Chunk{Sequence: i, Tokens: tokens[:1], Logits: 1}
	}
	logits := make([]float32, n*m.VocabSize())
	return func() time.Duration { return timed(b, batch, chunks, logits) }
}

// prompting returns a function that times a pass with a prompt of n tokens.
func prompting(b *testing.B, m *forward.Model, n int) func() time.Duration {
	batch := m.NewBatch(1, n)
	chunks := []forward.Chunk{{Tokens: make([]int32, n), Logits: 1}}
	logits := make([]float32, m.VocabSize())
	return func() time.Duration {
		batch.Begin(0, n, nil, "")
		return timed(b, batch, chunks, logits)
	}
}

func timed(b *testing.B, batch *forward.Batch, chunks []forward.Chunk, logits []float32) time.Duration {
	start := time.Now()
	if err := batch.Forward(chunks, logits); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}
