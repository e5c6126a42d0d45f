package generate_test

import (
	"context"
	"fmt"
	"log"
	"sync"

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

// An Engine serves many requests with one reading of the weights. The answers are the same as
// alone.
func ExampleEngine() {
	g, err := generate.Open("../../testdata/books1.3M-bf16", generate.OpenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	e, err := g.NewEngine(generate.EngineOptions{Parallel: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	var answers [3]*generate.Result
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			o := generate.Options{Prompt: "It was a dark night, and the old man", MaxTokens: 8, Sampling: generate.DefaultSampling}
			o.Sampling.Seed = uint64(i)
			var err error
			if answers[i], err = e.Run(context.Background(), o); err != nil {
				log.Fatal(err)
			}
		})
	}
	wg.Wait()
	for _, r := range answers {
		fmt.Printf("%q\n", r.Text)
	}
	// Output:
	// " rushed round the fire;"
	// " in a strange girl"
	// " in a hot travell"
}
