// Package gqf reads, checks and writes .gqf files: packed low-bit weights of a
// model in one file that a runtime maps and multiplies with as it stands.
// docs/FORMAT.md is the specification of the file; this package follows it.
//
// # What a file holds
//
// A file has tensors. A [Tensor] has one or more names (a lm_head that is tied to
// the embedding is one tensor with two names), a shape, and payloads. A [Payload]
// is a packed header (package packing) followed by data that the header describes
// completely. Most tensors have one payload. Fused experts have one for each
// expert, called a slice; further variants hold the same codes in other layouts;
// companions hold what a foreign layout keeps apart. Beside tensors, a file has
// assets: the model's config.json and tokenizer, the recipe used, and the
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
// Open checks the header and the whole directory, and copies the directory into
// memory: 176 bytes and its name for a tensor with one payload. Afterwards no
// index in it can be out of range. It does not read the data: [File.Verify] checks
// them against their checksums.
//
// # Lifetimes
//
// What [File.Data] returns is the mapped file itself. It is valid until
// [File.Close]; reading it afterwards crashes the program. It must not be written
// to. If another program shortens the file, or its disk fails, a read of what is
// gone crashes the program too, unless it happens under [File.Guard], in the same
// goroutine; then it is an error. If another program changes the file's bytes, the
// data change. Everything else that methods return is a copy and stays valid.
//
// # Writing
//
// A [Builder] collects tensors, payloads, names and assets. Build fixes the offset
// of every byte before any data exist, so that workers can write them in parallel:
// see [Image]. The same calls give the same bytes.
package gqf
