package gq_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

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

// ExampleRepack_checkpoint takes over the codes of a checkpoint that another library would
// quantize: here gq itself writes one in GPTQ's format.
func ExampleRepack_checkpoint() {
	dir, remove := temporary()
	defer remove()
	gptq, file := filepath.Join(dir, "gptq"), filepath.Join(dir, "model.gqf")
	ctx := context.Background()
	targets, err := quantizer.ParseTargets("gptq")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := gq.Quantize(ctx, checkpoint, gptq, gq.QuantizeOptions{Recipe: quantizer.Recipe{Targets: targets}}); err != nil {
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
	// Output: 43 tensors quantized, 836544 bytes
}

// An embedding that MLX quantizes and vLLM does not is written as float32 for vLLM.
func ExampleExport_checkpoint() {
	dir, remove := temporary()
	defer remove()
	file := quantized(dir)
	targets, err := quantizer.ParseTargets("mlx,int-quantized")
	if err != nil {
		log.Fatal(err)
	}
	for _, target := range targets {
		r, err := gq.Export(context.Background(), file, filepath.Join(dir, target.Name), gq.ExportOptions{Target: target, Dequantize: true})
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
	fmt.Println(r.Dequantized, "tensors dequantized,", r.Unquantized, "as they were,", r.Bytes, "bytes")
	// Output: 43 tensors dequantized, 13 as they were, 5246208 bytes
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
