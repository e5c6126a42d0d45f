// Package embedding looks up rows of a quantized embedding in packed bytes.
//
// If a model's lm_head is tied to its embedding, a .gqf file holds one tensor under both names.
// Kernels multiply with its panels. A [Table] reads single rows of the same panels without
// unpacking their neighbours:
//
//	f, err := gqf.Open("model.gqf", gqf.Options{})
//	table, err := embedding.Open(f, "lm_head.weight") // or "model.embed_tokens.weight"
//	x := make([]float32, len(ids)*table.Cols())
//	err = f.Guard(func() error { return embedding.LookupBatch(table, x, ids) })
//
// A Table reads every layout of quantized tensors, and unquantized embeddings in F32, F16 or BF16.
// A row has the same bits as in the dequantized matrix; for TorchAO's type 1 these are the bits of
// TorchAO's shared embedding. A bias in the payload belongs to the lm_head and is not added.
//
// Lookups allocate nothing and read only the bytes that hold the row's codes, scales and zero
// points. In an interleaved layout a row is spread over nearly all cache lines of its panel.
package embedding
