// Package chat turns a conversation into a prompt with the chat template that a model comes with.
//
//	t, err := chat.Open(generator.Asset)
//	text, err := t.Render(ctx, []chat.Message{{Role: "user", Content: "Hello"}}, true)
//
// A chat template is a Jinja program in chat_template.jinja or tokenizer_config.json, written for
// Python's jinja2 as transformers configures it. Package minijinja runs it. A model without a
// template gets a plain one of lines that begin with the roles.
//
// The template is a part of a file from elsewhere, so it is not trusted: it reads no file, and it
// ends with an error when it takes too many steps or moves too much data. See [Template.Render].
//
// Where to start reading: chat.go is the package's API, source.go finds the template in a model's
// files, rewrite.go prepares its text for minijinja, library.go has the functions that a template
// calls, meter.go limits its steps and data, methods.go has Python's methods.
package chat
