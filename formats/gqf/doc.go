// Package gqf reads, checks and writes .gqf files. A .gqf file holds the packed low-bit weights of
// a model; a runtime maps the file and multiplies with the weights in place. docs/FORMAT.md
// specifies the format.
//
// # What a file holds
//
// A file has tensors. A [Tensor] has names (a tensor that is lm_head and embedding has two), a
// shape, and payloads. A [Payload] is a packed header (package packing) followed by data that the
// header describes completely. Most tensors have a single payload. Fused experts have a payload per
// expert, called a slice. Variants hold the same codes in several layouts. Companions hold data
// that a foreign layout stores apart from its codes. In addition, a file has assets: the model's
// config.json and tokenizer, the recipe, and the provenance. Every byte of the file is covered by a
// CRC32C or must be zero.
//
// # Reading
//
//	f, err := gqf.Open("model.gqf", gqf.Options{})
//	if err != nil { ... }
//	defer f.Close()
//	t, ok := f.Lookup("model.layers.0.mlp.down_proj.weight")
//	p, ok := t.Payload(0, 0, gqf.KindWeights)
//	data, err := f.Data(p) // in place, described by p.Header
//	err = f.Guard(func() error { multiply(p.Header, data); return nil })
//
// Open checks the header and the whole directory, and copies the directory into memory: 176 bytes
// and the name for a tensor with a single payload. Afterwards no index in the directory can be out
// of range. Open does not read the data: [File.Verify] compares data with their checksums.
//
// # Lifetimes
//
// [File.Data] returns a part of the mapped file. The slice is valid until [File.Close]; reading
// afterwards crashes the program, and so does writing at any time. If another program shortens the
// file, or its disk fails, reading the missing bytes crashes the program too, unless the same
// goroutine reads under [File.Guard]; Guard then returns an error. If another program changes the
// file's bytes, the data change. All other methods return copies, valid for ever.
//
// # Writing
//
// A [Builder] collects tensors, payloads, names and assets. Build fixes the offset of every byte
// before any data exist, so that workers can write the data in parallel: see [Image]. The same
// calls produce the same bytes.
package gqf
