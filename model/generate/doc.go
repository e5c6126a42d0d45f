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
// model), and the sampler computes with internal/detmath and has its own random numbers.
//
// # Many requests
//
// An [Engine] serves many requests at a time and reads the weights once for all of them:
//
//	e, err := g.NewEngine(generate.EngineOptions{Context: 4096, Parallel: 8})
//	defer e.Close()
//	fmt.Println(e.Bytes()) // memory when all sequences are full
//	r, err := e.Run(ctx, options) // from any number of goroutines
//
// A request has the same tokens as in Generator.Run, whatever else is served. Requests join and
// leave between passes through the layers (schedule.go). A pass takes a token of each sequence that
// decodes, and at most 64 tokens of prompts, evenly shared. A pass of prompts alone may take 256
// tokens. Every other pass may be for short prompts only, so short prompts wait little. Keys and
// values have a fixed number of pages. A prompt that begins like an earlier prompt takes over its
// pages. A prompt that begins like a prompt in computation waits for that.
//
// The prompt for a chat model must have the form of the model's template: see package
// internal/lm/chat.
//
// Where to start reading: answer.go chooses the tokens of an answer and finds its end, with
// sampler.go and output.go. generate.go computes a single answer; engine.go, schedule.go and
// request.go compute many. output.go calls the callbacks, open.go reads the file, report.go and
// engine.go measure.
package generate
