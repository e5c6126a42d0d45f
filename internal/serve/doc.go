// Package serve answers HTTP requests in OpenAI's way with models of package generate: chat
// completions and completions, whole or streamed, a list of models, metrics, and a page to chat on.
//
//	s, err := serve.New(serve.Options{Models: []*serve.Model{m}})
//	err = s.Serve(ctx, listener) // until ctx is cancelled; then running answers are finished
//
// An answer has the same tokens as generate.Generator.Run gives for its prompt, seed and options,
// whatever else is served at the same time.
//
// A request passes through these files:
//
//   - server.go routes requests and serves the page; guard.go checks the host, the origin and the
//     API key;
//   - body.go reads the body within limits; object.go reads JSON objects so that every field is
//     used, knowingly ignored, or refused by its name; fields.go has the fields that all endpoints
//     share;
//   - chat.go and completions.go turn the request into a job, and format the answer;
//   - gate.go admits the job or says that the server is full; job.go has the job's prompts,
//     answer.go runs the prompts in the engine;
//   - write.go writes the answer, whole or as events, through exchange.go with the log;
//     errors.go has the errors.
//
// listen.go accepts connections within limits and ends the server, metrics.go counts, model.go
// describes the models.
package serve
