// Package gguf reads GGUF, the file format of llama.cpp: its metadata and where its tensors are.
//
//	f, err := gguf.Parse(data)
//	name, _ := f.Metadata["general.architecture"].(string)
//	for _, t := range f.Tensors {
//		b := f.Data(t)
//	}
//
// The format (ggml/src/gguf.cpp and ggml/include/gguf.h of llama.cpp), little-endian:
//
//	"GGUF", u32 version, i64 tensors, i64 pairs
//	pairs:    string key, u32 type, value
//	tensors:  string name, u32 dimensions, i64 each, u32 type, u64 offset in the data
//	data, at a multiple of general.alignment (32), as each tensor in it; tensors follow each other in order
//
// A string is a u64 length and bytes, an array a u32 type, a u64 length and values. The first dimension is the one whose
// elements lie side by side. Versions 2 and 3 are the same but for big-endian files, which only version 3 has and which
// are not supported.
//
// Parse holds a file against all of that: afterwards no tensor reaches past the end of the file. It takes memory for keys,
// scalar values and tensors, at most some ten times the bytes that they take in the file; arrays stay where they are.
// Malformed files give a [*FormatError], files of a kind that this package does not know an [*UnsupportedError], both with
// the byte offset. Whoever knows the file's name puts it before.
package gguf
