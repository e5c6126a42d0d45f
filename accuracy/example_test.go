package accuracy_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/accuracy"
)

// A gate holds a report to limits.
func ExampleGate() {
	const books = "../testdata/books1.3M-bf16"
	dir, err := os.MkdirTemp("", "gq-example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "model.gqf")
	if _, err := gq.Quantize(context.Background(), books, file, gq.QuantizeOptions{}); err != nil {
		log.Fatal(err)
	}
	r, err := gq.Measure(context.Background(), books, file, gq.MeasureOptions{Settings: accuracy.Settings{NoOutputs: true}})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range r.Tensors[:4] {
		if !t.Unquantized {
			fmt.Printf("%s: %d bits, SQNR %v\n", t.Name, t.Bits, t.SQNR)
		}
	}
	gate, err := accuracy.ParseGate("gate.yaml", []byte(`
version: 1
tensors:
  - match: "*.mlp.*"
    sqnr_db: {min: 22}
`))
	if err != nil {
		log.Fatal(err)
	}
	result, err := gate.Check(r, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Passed, len(result.Failures) > 0)
	// Output:
	// model.embed_tokens.weight: 8 bits, SQNR 45.25 dB
	// model.layers.0.mlp.down_proj.weight: 4 bits, SQNR 21.73 dB
	// model.layers.0.mlp.gate_proj.weight: 4 bits, SQNR 21.83 dB
	// false true
}
