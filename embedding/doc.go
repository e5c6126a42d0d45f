// Package embedding looks rows up in quantized tables of tokens, out of the
// packed bytes that also serve the head of the model.
//
// Where a model's lm_head is tied to its embedding, a .gqf holds one tensor
// under both names. Kernels multiply with its panels as they stand; a [Table]
// reads single rows of the same panels, without unpacking the neighbours that
// are interleaved with them:
//
//	f, err := gqf.Open("model.gqf", gqf.Options{})
//	table, err := embedding.Open(f, "lm_head.weight") // or "model.embed_tokens.weight"
//	x := make([]float32, len(ids)*table.Cols())
//	err = f.Guard(func() error { return embedding.LookupBatch(table, x, ids) })
//
// Every layout that a quantized tensor of a .gqf can have serves lookups, and so
// does a table that was kept as F32, F16 or BF16. A row has the bits that
// dequantizing the whole matrix gives; for TorchAO's type 1 these are the bits of
// its shared embedding. A bias in the payload is the head's, and not added.
//
// Lookups allocate nothing and read only the bytes that hold the row's codes,
// scales and zero points. In an interleaved layout each of a panel's rows is
// spread over nearly all cache lines of its panel.
package embedding
