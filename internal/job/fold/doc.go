// Package fold changes a checkpoint's weights without changing what the model computes, so that
// quantization costs less. Any program that runs the model runs the folded model: no operation is
// added.
//
//	record, err := fold.Make(ctx, "checkpoint", "folded", fold.Job{Rotate: true, Seed: 1})
//	err = fold.Apply(ctx, "checkpoint", "again", record, fold.Options{}) // the same bytes
//
// # Rotations
//
// R1 is an orthogonal matrix that rotates the hidden states. Layers read the hidden states through
// a norm with gains g, and add their outputs. A weight W that reads hidden states becomes W diag(g)
// R1, a weight that adds to the hidden states becomes R1^T W, and the rows of the embedding are
// rotated too. R2, different in each layer, rotates each head of the values: v_proj becomes R2^T W
// and o_proj becomes W R2. Both are Hadamard matrices with random signs (package orthogonal).
// lm_head becomes W diag(g) R1, so the embedding stays tied only if all gains of the last norm are
// equal. R1 is impossible if a norm with its own gains stands between a linear layer and the hidden
// states, as in Gemma 2 and 3.
//
// # Factors
//
// A norm's gain j can be divided by t_j if column j of all consumers of the norm is multiplied by
// t_j. The same holds for the rows of up_proj and the columns of down_proj, and for the rows of
// v_proj and the columns of o_proj, where query heads that share a value head share factors.
// [forward.Model.Scalings] lists the places. Factors come from the weights alone (equalize.go) or
// from activations (AWQ, awq.go).
//
// # Files
//
// make.go has the job and checks its result. record.go has the record, apply.go rewrites tensors by
// the edits of rotate.go and equalize.go. Computation is in float64, rounded once to float32, in an
// order that depends neither on threads nor on the CPU.
package fold
