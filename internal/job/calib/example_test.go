package calib_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/calib"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/quantizer"
)

// Calibration comes between the plan and the writing of the file: it chooses the codes of the
// matrices whose algorithm needs data.
func ExampleRun() {
	const dir = "../../../testdata/books1.3M-bf16"
	ctx := context.Background()
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer ck.Close()
	config, err := assets.ReadConfig(ck)
	if err != nil {
		log.Fatal(err)
	}
	plan, err := conversion.NewPlan(ck, config, conversion.Options{
		Recipe: quantizer.Recipe{Bits: 3},
		Rules:  []quantizer.Rule{{Match: "re:.*layers.0.*", Algorithm: gqf.AlgorithmGPTQFT}},
	})
	if err != nil {
		log.Fatal(err)
	}
	tok, err := tokenizer.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	data, err := os.ReadFile("../../../testdata/text/lighthouse.txt")
	if err != nil {
		log.Fatal(err)
	}
	t, err := text.Read(ctx, tok, data, 128, 64)
	if err != nil {
		log.Fatal(err)
	}
	result, err := calib.Run(ctx, plan, t, calib.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer result.Close()
	out, err := os.MkdirTemp("", "gq-example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(out)
	report, err := plan.WriteWith(ctx, filepath.Join(out, "model.gqf"), write.Options{Codes: result.Codes()})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Tokens(), "tokens; codes chosen by", report.Algorithm)
	// Output: 128 tokens; codes chosen by search, gptq-ft
}
