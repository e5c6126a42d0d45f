package generate_test

import (
	"context"
	"fmt"
	"log"

	"github.com/lowbit-go/gq/model/generate"
)

// A Generator opens a .gqf file or a checkpoint's directory once, and continues any number of
// prompts.
func Example() {
	g, err := generate.Open("../../testdata/books1.3M-bf16", generate.OpenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	r, err := g.Run(context.Background(), generate.Options{
		Prompt:    "It was a dark night, and the old man",
		MaxTokens: 16,
		Stop:      []string{"\n"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q, %s\n", r.Text, r.Stopped)
	// Output: " was a black, and the windows were full of", max-tokens
}
