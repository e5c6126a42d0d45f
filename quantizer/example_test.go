package quantizer_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/quantizer"
)

// A recipe says what becomes of tensors, a plan is laid out before any weight is read, and Write writes the file as a
// whole or not at all. gq.Quantize does the same, with calibration and targets.
func Example() {
	ck, err := safetensors.Open("../testdata/books1.3M-bf16", safetensors.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer ck.Close()
	config, err := quantizer.ReadConfig(ck)
	if err != nil {
		log.Fatal(err)
	}
	plan, err := quantizer.NewPlan(ck, config, quantizer.Options{
		Recipe: quantizer.Recipe{Bits: 4, Group: 64},
		Rules:  []quantizer.Rule{{Match: "re:.*down_proj", Bits: 6}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(plan.OutputBytes, "bytes")
	dir, err := os.MkdirTemp("", "gq-example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	report, err := plan.Write(context.Background(), filepath.Join(dir, "model.gqf"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d tensors quantized, %.3f bits per weight, SQNR %.2f dB\n", report.Quantized, report.BitsPerWeight, report.MeanSQNR)
	// Output:
	// 977664 bytes
	// 43 tensors quantized, 5.542 bits per weight, SQNR 23.02 dB
}

func ExampleParseRecipe() {
	r, err := quantizer.ParseRecipe("recipe.yaml", []byte(`
quality: good
bits: 3
group: 64
rules:
  - match: re:.*\.(v|down)_proj
    bits: 4
  - match: lm_head
    skip: true
`))
	if err != nil {
		log.Fatal(err)
	}
	r = r.WithQuality()
	fmt.Println(r.Bits, "bits,", r.Algorithm, "on text of", r.Calibrate)
	for _, rule := range r.Rules {
		fmt.Println(rule)
	}
	// Output:
	// 3 bits, gptq-ft on text of self
	// rule 're:.*\.(v|down)_proj=4' (recipe.yaml:6)
	// rule 'lm_head=skip' (recipe.yaml:8)
}
