package accuracy_test

import (
	"fmt"
	"log"

	"github.com/lowbit-go/gq/accuracy"
)

// A gate holds a report, such as "gq accuracy --json" writes, to limits.
func ExampleGate() {
	r, err := accuracy.ReadReport("testdata/report.json")
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range r.Tensors {
		fmt.Printf("%s: %d bits, SQNR %v\n", t.Name, t.Bits, t.SQNR)
	}
	gate, err := accuracy.ParseGate("gate.yaml", []byte(`
version: 1
tensors:
  - match: "*.mlp.*"
    sqnr_db: {min: 21.8}
`))
	if err != nil {
		log.Fatal(err)
	}
	result, err := gate.Check(r, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Passed, result.Failures[0].Tensor)
	// Output:
	// model.layers.0.mlp.down_proj.weight: 4 bits, SQNR 21.73 dB
	// model.layers.0.mlp.gate_proj.weight: 4 bits, SQNR 21.83 dB
	// model.layers.0.mlp.up_proj.weight: 4 bits, SQNR 21.86 dB
	// false model.layers.0.mlp.down_proj.weight
}
