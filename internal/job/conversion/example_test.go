package conversion_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/quantizer"
)

// A recipe says what becomes of tensors, a plan is laid out before any weight is read, and Write
// writes the file as a whole or not at all. gq.Quantize does the same, with calibration and
// targets.
func Example() {
	ck, err := safetensors.Open("../../../testdata/books1.3M-bf16", safetensors.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer ck.Close()
	config, err := assets.ReadConfig(ck)
	if err != nil {
		log.Fatal(err)
	}
	plan, err := conversion.NewPlan(ck, config, conversion.Options{
		Recipe: quantizer.Recipe{Bits: 4, Group: new(64)},
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
