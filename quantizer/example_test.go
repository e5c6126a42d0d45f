package quantizer_test

import (
	"fmt"
	"log"

	"github.com/lowbit-go/gq/quantizer"
)

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
