// Package generate continues a text with a model. It demonstrates that a runtime can load a .gqf
// file, and measures time and memory.
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
// The text is a function of the file, the prompt and the options, including the seed. It is the
// same on every CPU and for any number of threads: logits have the same bits everywhere (package
// model), and the [Sampler] computes with internal/detmath and has its own random numbers.
//
// There are no chat templates: the prompt for a chat model must be written as its template would
// write it, with tokens such as <|im_start|>.
//
// Where to start reading: generate.go is the loop, sampler.go chooses tokens, stop.go finds stop
// strings, open.go reads the file, report.go and memory.go measure.
package generate
