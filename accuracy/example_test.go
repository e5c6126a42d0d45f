package accuracy_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

const books = "../testdata/books1.3M-bf16"

// makeFile quantizes the checkpoint for the examples.
func makeFile() (file string, remove func()) {
	dir, err := os.MkdirTemp("", "gq-example")
	if err != nil {
		log.Fatal(err)
	}
	ck, err := safetensors.Open(books, safetensors.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer ck.Close()
	config, err := conversion.ReadConfig(ck)
	if err != nil {
		log.Fatal(err)
	}
	plan, err := conversion.NewPlan(ck, config, conversion.Options{})
	if err != nil {
		log.Fatal(err)
	}
	file = filepath.Join(dir, "model.gqf")
	if _, err := plan.Write(context.Background(), file); err != nil {
		log.Fatal(err)
	}
	return file, func() { os.RemoveAll(dir) }
}

func ExampleTensors() {
	file, remove := makeFile()
	defer remove()
	ck, err := safetensors.Open(books, safetensors.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer ck.Close()
	f, err := gqf.Open(file, gqf.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	stats, err := accuracy.Tensors(context.Background(), ck, f, accuracy.TensorOptions{
		Match: func(name string) bool { return accuracy.MatchName("model.layers.0.mlp.*", name) },
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range stats {
		fmt.Printf("%s: %d bits, SQNR %.2f dB\n", t.Name, t.Bits, float64(t.SQNR))
	}
	// Output:
	// model.layers.0.mlp.down_proj.weight: 4 bits, SQNR 21.73 dB
	// model.layers.0.mlp.gate_proj.weight: 4 bits, SQNR 21.83 dB
	// model.layers.0.mlp.up_proj.weight: 4 bits, SQNR 21.86 dB
}

// A gate holds a report to limits.
func ExampleGate() {
	file, remove := makeFile()
	defer remove()
	gate, err := accuracy.ParseGate("gate.yaml", []byte(`
version: 1
tensors:
  - match: "*.mlp.*"
    sqnr_db: {min: 22}
`))
	if err != nil {
		log.Fatal(err)
	}
	job := accuracy.Job{Source: books, File: file, NoOutputs: true, Gate: gate}
	r, err := job.Run(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Gate.Passed, len(r.Gate.Failures) > 0)
	// Output: false true
}
