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
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors/synth"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/kernels/bench"
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
		Recipe: quantizer.Recipe{Bits: 4, Group: 32},
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
	// KL 0.134 nats per token on text held out from calibration
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
		Rules:  []quantizer.Rule{{Match: "re:.*layers.[1-5].*", Bits: 4, Group: 64}},
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
		Recipe: quantizer.Recipe{Bits: 3, Group: 64, Rules: []quantizer.Rule{{Match: "re:.*down_proj", Bits: 6}}},
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
	// model.layers.0.input_layernorm.weight keep 0 []
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

func ExampleVerify() {
	dir, remove := temporary()
	defer remove()
	file := quantized(dir)
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{1}, 500_000); err != nil {
		log.Fatal(err)
	}
	f.Close()
	r, err := gq.Verify(context.Background(), file, gq.VerifyOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.OK(), len(r.Damage) > 0)
	// Output: false true
}

func ExampleInspect() {
	dir, remove := temporary()
	defer remove()
	r, err := gq.Inspect(context.Background(), quantized(dir), gq.InspectOptions{})
	if err != nil {
		log.Fatal(err)
	}
	t := r.File.Tensors[0]
	fmt.Printf("%s, %d parameters\n", r.Summary.Architecture, r.Summary.Parameters)
	fmt.Println(len(r.File.Tensors), "tensors:", t.Name, t.Shape, t.Bits, "bits in", t.Layout)
	// Output:
	// LlamaForCausalLM, 1312384 parameters
	// 56 tensors: model.embed_tokens.weight [1024 128] 8 bits in lowbit
}

func ExampleInspectTensors() {
	dir, remove := temporary()
	defer remove()
	r, err := gq.InspectTensors(context.Background(), quantized(dir), "*.layers.0.mlp.up_proj", 0, gq.InspectOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.One.Values[:4])
	// Output: [0.056884766 -0.11376953 -0 0.11376953]
}

// Other consumers read other layouts. The codes do not change.
func ExampleInspectLattices() {
	dir, remove := temporary()
	defer remove()
	trained := filepath.Join(dir, "trained") // as a model would be that was trained with 4 bits
	if _, err := gq.Dequantize(context.Background(), quantized(dir), trained, gq.DequantizeOptions{}); err != nil {
		log.Fatal(err)
	}
	r, err := gq.InspectLattices(context.Background(), trained, gq.LatticeOptions{Match: "*.layers.0.mlp.up_proj"})
	if err != nil {
		log.Fatal(err)
	}
	l := r.Tensors[0].Lattice
	fmt.Printf("%s; %d of %d groups\n", l, l.Exact, l.Groups)
	// Output: 4 bits, group 32; 1536 of 1536 groups
}

func ExampleRepack() {
	dir, remove := temporary()
	defer remove()
	layouts, err := quantizer.ParseLayouts("kleidiai:4x16x2")
	if err != nil {
		log.Fatal(err)
	}
	r, err := gq.Repack(context.Background(), quantized(dir), filepath.Join(dir, "kleidiai.gqf"), gq.RepackOptions{Layouts: layouts})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Quantized, "tensors,", r.OutputBytes, "bytes")
	// Output: 43 tensors, 944896 bytes
}

// ExampleRepack_checkpoint takes over the codes of a checkpoint that another library would quantize:
// here gq itself writes one in GPTQ's format.
func ExampleRepack_checkpoint() {
	dir, remove := temporary()
	defer remove()
	gptq, file := filepath.Join(dir, "gptq"), filepath.Join(dir, "model.gqf")
	ctx := context.Background()
	if _, err := gq.Quantize(ctx, checkpoint, gptq, gq.QuantizeOptions{Format: gq.FormatGPTQ}); err != nil {
		log.Fatal(err)
	}
	in, err := gq.Inspect(context.Background(), gptq, gq.InspectOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(in.Quantized)
	r, err := gq.Repack(ctx, gptq, file, gq.RepackOptions{})
	if err != nil {
		log.Fatal(err)
	}
	d, err := gq.Diff(ctx, gptq, file, gq.DiffOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Quantized, "quantized tensors, equal:", d.Equal)
	// Output:
	// gptq; tensors: 42 of 4 bits, group 32, F16 scales
	// 42 quantized tensors, equal: true
}

func ExamplePlanRepack() {
	dir, remove := temporary()
	defer remove()
	targets, err := quantizer.ParseTargets("pytorch-aarch64")
	if err != nil {
		log.Fatal(err)
	}
	p, err := gq.PlanRepack(context.Background(), quantized(dir), gq.RepackOptions{Targets: targets})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.OutputBytes, "bytes")
	// Output: 944896 bytes
}

func ExampleVerifyGGUF() {
	dir, remove := temporary()
	defer remove()
	file := filepath.Join(dir, "model.gguf")
	if _, err := gq.Quantize(context.Background(), checkpoint, file, gq.QuantizeOptions{}); err != nil {
		log.Fatal(err)
	}
	r, err := gq.VerifyGGUF(context.Background(), file, gq.VerifyOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Tensors, "tensors,", len(r.NotFinite), "not finite")
	// Output: 56 tensors, 0 not finite
}

// An export of a file of target gguf has the same codes.
func ExampleExport() {
	dir, remove := temporary()
	defer remove()
	file, out := filepath.Join(dir, "model.gqf"), filepath.Join(dir, "model.gguf")
	o := gq.QuantizeOptions{Recipe: quantizer.Recipe{Targets: []quantizer.Target{quantizer.TargetGGUF}}}
	if _, err := gq.Quantize(context.Background(), checkpoint, file, o); err != nil {
		log.Fatal(err)
	}
	r, err := gq.Export(context.Background(), file, out, gq.ExportOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Quantized, "tensors quantized,", r.OutputBytes, "bytes")
	// Output: 43 tensors quantized, 835680 bytes
}

// A checkpoint for other libraries, with config.json, tokenizer and model card.
func ExampleQuantize_checkpoint() {
	dir, remove := temporary()
	defer remove()
	out := filepath.Join(dir, "model-gptq")
	r, err := gq.Quantize(context.Background(), checkpoint, out, gq.QuantizeOptions{Format: gq.FormatGPTQ})
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

// An embedding that MLX quantizes and vLLM does not is written as float32 for vLLM.
func ExampleExport_checkpoint() {
	dir, remove := temporary()
	defer remove()
	file := quantized(dir)
	for _, format := range []gq.Format{gq.FormatMLX, gq.FormatIntQuantized} {
		r, err := gq.Export(context.Background(), file, filepath.Join(dir, string(format)), gq.ExportOptions{Format: format, Dequantize: true})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Quantized, "tensors quantized,", r.Unquantized, "unquantized")
	}
	// Output:
	// 43 tensors quantized, 13 unquantized
	// 42 tensors quantized, 14 unquantized
}

func ExampleDequantize() {
	dir, remove := temporary()
	defer remove()
	r, err := gq.Dequantize(context.Background(), quantized(dir), filepath.Join(dir, "checkpoint"), gq.DequantizeOptions{Dtype: packing.F32})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Dequantized, "tensors dequantized,", r.Kept, "as they were,", r.Bytes, "bytes")
	// Output: 43 tensors dequantized, 13 as they were, 5246208 bytes
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

// Programs that use a file map it and read its packed weights in place.
func Example_payload() {
	dir, remove := temporary()
	defer remove()
	f, err := gqf.Open(quantized(dir), gqf.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close() // the payload is valid until here
	t, ok := f.Lookup("model.layers.0.self_attn.q_proj.weight")
	if !ok {
		log.Fatal("no such tensor")
	}
	p, _ := t.Payload(0, 0, gqf.KindWeights)
	data, err := f.Data(p)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.Header.Layout, p.Header.Bits, "bits,", len(data), "bytes")
	// Output: lowbit 4 bits, 10240 bytes
}

func ExampleDiff() {
	dir, remove := temporary()
	defer remove()
	other := filepath.Join(dir, "other.gqf")
	o := gq.QuantizeOptions{Rules: []quantizer.Rule{{Match: "model.layers.0.mlp.down_proj.weight", Bits: 6}}}
	if _, err := gq.Quantize(context.Background(), checkpoint, other, o); err != nil {
		log.Fatal(err)
	}
	r, err := gq.Diff(context.Background(), quantized(dir), other, gq.DiffOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d tensors compared\n", r.Compared)
	for _, t := range r.Tensors {
		fmt.Printf("%s:\n%s\n%s\n", t.Name, t.A.Scheme, t.B.Scheme)
	}
	// Output:
	// 56 tensors compared
	// model.layers.0.mlp.down_proj.weight:
	// 4-bit g32 full-range bf16 search, lowbit 8x16x2
	// 6-bit g32 full-range bf16 search, lowbit 8x16x2
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

func ExampleBenchQuantize() {
	dir, remove := temporary()
	defer remove()
	r, err := gq.BenchQuantize(context.Background(), checkpoint, gq.BenchQuantizeOptions{Dir: dir, Rounds: 3})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d rounds of %d bytes\n", len(r.Quantize), r.OutputBytes)
	// Output: 2 rounds of 944896 bytes
}
