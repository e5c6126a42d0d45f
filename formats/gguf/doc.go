// Package gguf reads and writes GGUF, the file format of llama.cpp: metadata, tensors, and the
// weights in the blocks of its quantized types.
//
//	f, err := gguf.Open("model.gguf") // or the first shard, model-00001-of-00003.gguf
//	defer f.Close()
//	name, _ := f.Text(gguf.KeyArchitecture)
//	err = f.Guard(func() error {
//		for _, t := range f.Tensors {
//			if t.Type.Decodable() {
//				err := t.Type.Decode(weights[:t.Elements()], f.Data(t))
//				...
//
// [Open] maps files, [Parse] takes a file in memory. [TensorType] is ggml's table of types: Decode
// turns blocks into weights, Unpack into integer codes and scales ([Fields]), and Encode writes
// blocks. [NewLayout] plans a file or shards to be written: the bytes before the data, and where
// each tensor's data belong.
//
// The format (ggml/src/gguf.cpp and ggml/include/gguf.h of llama.cpp), little-endian:
//
//	"GGUF", u32 version, i64 tensors, i64 pairs
//	pairs:    string key, u32 type, value
//	tensors:  string name, u32 dimensions, i64 each, u32 type, u64 offset in the data
//	data, contiguous in order; data and tensors start at multiples of general.alignment (32)
//
// A string is a u64 length and bytes, an array a u32 type, a u64 length and values. The elements of
// the first dimension are adjacent. Versions 2 and 3 differ only in big-endian files: version 3 has
// such files, and this package does not support them.
//
// Parse checks a file against all these rules: afterwards no tensor reaches past the end of the
// file. Parse allocates keys, scalar values and tensors, about ten times their size in the file;
// arrays stay in the file's memory. A malformed file gives a [*FormatError], an unknown version or
// type an [*UnsupportedError], both with the byte offset, and from Open with the path.
package gguf
