package gq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/job/synth"
	"github.com/lowbit-go/gq/internal/kernels/bench"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/model/generate"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// checkpoint is a small Llama, trained on public-domain novels.
const checkpoint = "testdata/books1.3M-bf16"

// temporary makes a directory for the files of an example.
func temporary() (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "gq-example")
	if err != nil {
		log.Fatal(err)
	}
	return dir, func() { os.RemoveAll(dir) }
}

// quantized makes a file for examples that need one.
func quantized(dir string) string {
	file := filepath.Join(dir, "model.gqf")
	if _, err := gq.Quantize(context.Background(), checkpoint, file, gq.QuantizeOptions{}); err != nil {
		log.Fatal(err)
	}
	return file
}

func ExampleQuantize() {
	dir, remove := temporary()
	defer remove()
	r, err := gq.Quantize(context.Background(), checkpoint, filepath.Join(dir, "model.gqf"), gq.QuantizeOptions{
		Recipe: quantizer.Recipe{Bits: 4, Group: new(32)},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d tensors quantized, %d bytes became %d\n", r.Quantized, r.SourceBytes, r.OutputBytes)
	fmt.Printf("mean SQNR %.2f dB\n", r.MeanSQNR)
	// Output:
	// 43 tensors quantized, 2624768 bytes became 944896
	// mean SQNR 22.30 dB
}

// Calibration chooses codes that preserve the outputs of layers, not the weights alone. A preset
// sets algorithm and text; fields that are set override it.
func ExampleQuantize_calibrated() {
	dir, remove := temporary()
	defer remove()
	r, err := gq.Quantize(context.Background(), checkpoint, filepath.Join(dir, "model.gqf"), gq.QuantizeOptions{
		Recipe:     quantizer.Recipe{Quality: quantizer.QualityGood, Bits: 3, CalibrateTokens: 512},
		SaveRecipe: filepath.Join(dir, "recipe.yaml"),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("chosen by", r.Algorithm)
	fmt.Printf("KL %.3f nats per token on text held out from calibration\n", r.HeldOut.KL)
	// Output:
	// chosen by search, gptq-ft
	// KL 0.130 nats per token on text held out from calibration
}

// With a gate, a file that is not good enough does not appear.
func ExampleQuantize_gate() {
	dir, remove := temporary()
	defer remove()
	gate := filepath.Join(dir, "gate.yaml")
	if err := os.WriteFile(gate, []byte("version: 1\nmodel:\n  mean_kl: {max: 0.01}\n"), 0o666); err != nil {
		log.Fatal(err)
	}
	r, err := gq.Quantize(context.Background(), checkpoint, filepath.Join(dir, "model.gqf"), gq.QuantizeOptions{
		Recipe:  quantizer.Recipe{Bits: 2},
		Measure: &gq.MeasureOptions{Gate: gate, Texts: []gq.TextFile{{Path: "testdata/text/lighthouse.txt"}}},
	})
	var unmet *gq.GateNotMetError
	if errors.As(err, &unmet) {
		fmt.Println("not met:", unmet.Failures[0].Metric)
		fmt.Println("written:", r.Written)
	}
	// Output:
	// not met: mean_kl
	// written: false
}

// With a budget, bits and groups are chosen tensor by tensor, except where rules state them.
func ExampleQuantize_budget() {
	dir, remove := temporary()
	defer remove()
	r, err := gq.Quantize(context.Background(), checkpoint, filepath.Join(dir, "model.gqf"), gq.QuantizeOptions{
		Recipe: quantizer.Recipe{Calibrate: "testdata/text/lighthouse.txt"},
		Rules:  []quantizer.Rule{{Match: "re:.*layers.[1-5].*", Bits: 4, Group: new(64)}},
		Budget: &gq.Budget{FileBytes: 800_000},
	})
	if err != nil {
		log.Fatal(err)
	}
	first := r.Allocation.Rows[0]
	fmt.Println(r.OutputBytes <= 800_000, first.Tensor, first.Bits, "bits")
	// Output: true model.embed_tokens.weight 4 bits
}

func ExamplePlan() {
	p, err := gq.Plan(context.Background(), checkpoint, "model.gqf", gq.QuantizeOptions{
		Recipe: quantizer.Recipe{Bits: 3, Group: new(64), Rules: []quantizer.Rule{{Match: "re:.*down_proj", Bits: 6}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.OutputBytes, "bytes")
	for _, t := range p.Tensors[:4] {
		fmt.Println(t.Name, t.Action, t.Bits, t.Layouts)
	}
	// Output:
	// 867072 bytes
	// lm_head.weight share 0 []
	// model.embed_tokens.weight quantize 8 [lowbit 8x16x2]
	// model.layers.0.input_layernorm.weight unquantized 0 []
	// model.layers.0.mlp.down_proj.weight quantize 6 [lowbit 8x16x2]
}

func ExampleMeasure() {
	dir, remove := temporary()
	defer remove()
	r, err := gq.Measure(context.Background(), checkpoint, quantized(dir), gq.MeasureOptions{
		Texts: []gq.TextFile{{Path: "testdata/text/lighthouse.txt"}},
		Gate:  accuracy.DefaultGateName,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("perplexity %.2f became %.2f\n", r.Model.Float.Perplexity, r.Model.Quantized.Perplexity)
	fmt.Printf("mean KL %.4f nats per token\n", r.Model.KL.Mean)
	fmt.Println("gate:", gq.Verdict(r))
	// Output:
	// perplexity 21.90 became 22.13
	// mean KL 0.0269 nats per token
	// gate: <nil>
}

// A checkpoint for other libraries, with config.json, tokenizer and model card.
func ExampleQuantize_checkpoint() {
	dir, remove := temporary()
	defer remove()
	out := filepath.Join(dir, "model-gptq")
	targets, err := quantizer.ParseTargets("gptq")
	if err != nil {
		log.Fatal(err)
	}
	r, err := gq.Quantize(context.Background(), checkpoint, out, gq.QuantizeOptions{Recipe: quantizer.Recipe{Targets: targets}})
	if err != nil {
		log.Fatal(err)
	}
	entries, err := os.ReadDir(out)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Quantized, "tensors quantized,", len(entries), "files")
	// Output: 42 tensors quantized, 9 files
}

func ExampleRun() {
	dir, remove := temporary()
	defer remove()
	o := gq.RunOptions{Options: generate.Options{Prompt: "It was a dark night, and the old man", MaxTokens: 24}}
	o.Text = func(s string) error { // piece by piece
		fmt.Print(s)
		return nil
	}
	r, err := gq.Run(context.Background(), quantized(dir), o)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println()
	fmt.Println(len(r.IDs), "tokens")
	// Output:
	// was a little black, and the sky, and the windows of the window
	// 24 tokens
}

// A server on a free port answers a request and ends.
func ExampleServe() {
	dir, remove := temporary()
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	o := gq.ServeOptions{Models: []gq.ServeModel{{Path: quantized(dir), ID: "books"}}}
	o.Ready = func(r gq.ServeReport) error { // the server listens
		go func() {
			defer stop()
			body := `{"model": "books", "prompt": "It was a dark night, and the old man", "max_tokens": 24, "seed": 0}`
			answer, err := http.Post(r.URL+"/v1/completions", "application/json", strings.NewReader(body))
			if err != nil {
				log.Fatal(err)
			}
			defer answer.Body.Close()
			var completion struct{ Choices []struct{ Text string } }
			if err := json.NewDecoder(answer.Body).Decode(&completion); err != nil {
				log.Fatal(err)
			}
			fmt.Printf("%q\n", completion.Choices[0].Text)
		}()
		return nil
	}
	if err := gq.Serve(ctx, o); err != nil {
		log.Fatal(err)
	}
	// Output:
	// " rose together. At present he was standing at the window. Tw"
}

// lines prints the stages of a job.
type lines struct{}

func (lines) Stage(s gq.Stage) (add func(n int64), end func()) {
	fmt.Printf("%s: %d %s\n", s.Name, s.Total, s.Unit)
	return func(int64) {}, func() {}
}

func (lines) Log(line string) { fmt.Println(line) }

func ExampleProgress() {
	dir, remove := temporary()
	defer remove()
	_, err := gq.Quantize(context.Background(), checkpoint, filepath.Join(dir, "model.gqf"), gq.QuantizeOptions{Progress: lines{}})
	if err != nil {
		log.Fatal(err)
	}
	// Output: quantizing: 2624768 bytes
}

func ExampleSynth() {
	dir, remove := temporary()
	defer remove()
	r, err := gq.Synth(context.Background(), filepath.Join(dir, "synthetic"), synth.Presets["tiny"], nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d parameters in %d bytes\n", r.Parameters, r.Bytes)
	// Output: 123712 parameters in 247424 bytes
}

func ExampleVersion() {
	v := gq.Version()
	fmt.Println(v.Version != "", v.Go == runtime.Version(), v.Platform == runtime.GOOS+"/"+runtime.GOARCH)
	// Output: true true true
}

// Which kernel multiplies 4-bit weights in groups of 32 with one row of activations?
func ExampleKernels() {
	r, err := gq.Kernels(gq.KernelsOptions{
		Weights: kernels.Query{Layouts: []kernels.LayoutTile{{Layout: packing.LayoutLowbit}}, Bits: []int{4}},
		M:       []int{1},
		CPU:     "generic",
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Choices[0].Kernels[0].Kernel)
	// Output: gemm_lowbit4_generic
}

func ExampleBenchKernels() {
	_, err := gq.BenchKernels(context.Background(), gq.BenchKernelsOptions{
		Weights: kernels.Query{Bits: []int{4}, Groups: []uint64{32}},
		Rows:    64, Cols: 256,
		Options: bench.Options{
			M: []int{1}, Threads: []int{1}, CPU: []string{"generic"}, CacheBytes: 10000, Rounds: 1, Time: time.Millisecond,
			Each: func(f *bench.Figure) { fmt.Println(f.Kernel, f.GBps > 0) },
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// f32_1x8_generic true
	// bf16_1x8_generic true
	// gemm_lowbit4_generic true
}
