// Package llamacpp knows how llama.cpp stores language models in GGUF files: names of
// architectures, tensors and metadata keys, orders of rows, and tokenizers.
//
// [Describe] takes a model's config.json and the names of its tensors in a Hugging Face checkpoint
// or a .gqf, and returns llama.cpp's metadata and tensors. Each tensor lists its rows in the
// source:
//
//	m, err := llamacpp.Describe(config, sources)
//	for _, t := range m.Tensors {
//		for _, p := range t.Parts {
//			for i := range p.Rows {
//				// row p.Row(i) of slice p.Slice of p.Source, plus p.Add
//			}
//		}
//	}
//
// Only architectures that package arch can run are described. A feature of a model that llama.cpp
// cannot express is an *arch.UnsupportedError; a feature that llama.cpp ignores but that does not
// change short texts, such as a sliding window, is a note in [Model].
//
// [ReadCheckpoint] is the inverse: the checkpoint of a GGUF file, with its config.json, tokenizer
// and tensors made of rows of the file's tensors.
//
// # Sources
//
// llama.cpp at commit 3f545bec: conversion/*.py is its own converter, src/models/*.cpp loads and
// runs the models.
package llamacpp
