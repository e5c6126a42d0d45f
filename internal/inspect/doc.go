// Package inspect describes the headers of checkpoints and of .gguf files, for people and, as JSON,
// for programs. gqf.Inspect describes .gqf files.
package inspect
