// Package chat turns a conversation into a prompt with the chat template that a model comes with.
//
//	t, err := chat.Open(generator.Asset)
//	text, err := t.Render(ctx, []chat.Message{{Role: "user", Content: "Hello"}}, true)
//
// A chat template is a Jinja program in chat_template.jinja or tokenizer_config.json, written for
// Python's jinja2 in transformers' configuration. Package minijinja runs the program. A model
// without a template gets a plain template of lines that begin with the roles.
//
// Templates are not trusted. A template reads no file, and ends with an error if it takes too many
// steps or moves too much data. See [Template.Render].
//
// Where to start reading: chat.go is the package's API and finds the template in a model's files,
// rewrite.go prepares its text for minijinja, library.go has the functions that a template calls,
// meter.go limits its steps and data, methods.go has Python's methods.
package chat
