// Package generate continues a text with a model: the demonstration that a .gqf file is
// what a runtime can load, and what it takes in time and memory.
//
//	g, err := generate.Open("model.gqf", generate.OpenOptions{})
//	defer g.Close()
//	r, err := g.Run(ctx, generate.Options{
//		Prompt:    "Once upon a time",
//		MaxTokens: 100,
//		Sampling:  generate.DefaultSampling,
//		Text:      func(text string) error { _, err := io.WriteString(w, text); return err },
//	})
//
// The text is a function of the file, the prompt and the options, the seed among them:
// it is the same on every CPU and for any number of threads. Logits have the same bits
// everywhere (package model), and the [Sampler] computes with internal/detmath and draws
// from a generator of its own.
//
// There are no chat templates: a prompt for a model that is tuned to chat has to be
// written as its template would write it, tokens such as <|im_start|> included.
//
// Where to start reading: generate.go is the loop, sampler.go the choice of a token,
// stop.go the search for stop strings, open.go what comes out of the file, report.go and
// memory.go what is measured.
package generate
