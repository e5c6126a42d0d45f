// Package gqf reads, checks and writes .gqf files. A .gqf file holds the packed low-bit weights of
// a model, which a runtime maps and multiplies with in place. docs/FORMAT.md specifies the format.
//
// # What a file holds
//
// A file has tensors. A [Tensor] has one or more names (an lm_head that is tied to the embedding is
// one tensor with two names), a shape, and payloads. A [Payload] is a packed header (package
// packing) followed by data that the header describes completely. Most tensors have one payload.
// Fused experts have one payload per expert, called a slice. Variants hold the same codes in
// several layouts. Companions hold data that a foreign layout stores apart from its codes. Beside
// tensors, a file has assets: the model's config.json and tokenizer, the recipe, and the
// provenance. Every byte of the file is covered by a CRC32C or must be zero.
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
// and the name for a tensor with one payload. Afterwards no index in the directory can be out of
// range. Open does not read the data: [File.Verify] compares them with their checksums.
//
// # Lifetimes
//
// [File.Data] returns a part of the mapped file. The slice is valid until [File.Close]; reading it
// afterwards crashes the program, and so does writing to it. If another program shortens the file,
// or its disk fails, reading the missing bytes crashes the program too, unless it happens under
// [File.Guard] in the same goroutine; Guard then returns an error. If another program changes the
// file's bytes, the data change. All other methods return copies, which stay valid.
//
// # Writing
//
// A [Builder] collects tensors, payloads, names and assets. Build fixes the offset of every byte
// before any data exist, so that workers can write the data in parallel: see [Image]. The same
// calls produce the same bytes.
package gqf
