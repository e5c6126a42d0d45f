// Package fold changes a checkpoint's weights without changing what the model computes, so that
// quantization costs less. Any program that runs the model runs the folded one: no operation is
// added.
//
//	record, err := fold.Make(ctx, "checkpoint", "folded", fold.Job{Rotate: true, Seed: 1}) // checks the logits of the result
//	err = fold.Apply(ctx, "checkpoint", "again", record, fold.Options{})              // the same bytes
//
// # Rotations
//
// R1 is an orthogonal matrix that rotates the hidden states. Layers read the hidden states through
// a norm with gains g, and add their outputs to them. A weight W that reads hidden states becomes W
// diag(g) R1, a weight that adds to them becomes R1^T W, and the rows of the embedding are rotated
// too. R2, one per layer, rotates each head of the values: v_proj becomes R2^T W and o_proj becomes
// W R2. Both are Hadamard matrices with random signs (orthogonal.go). lm_head becomes W diag(g) R1,
// so it can stay tied to the embedding only if all gains of the last norm are equal.
//
// R1 is impossible if a norm with gains of its own stands between a linear layer and the hidden
// states, as in Gemma 2 and 3.
//
// # Factors
//
// A norm's gain j can be divided by t_j if column j of all consumers of the norm is multiplied by
// t_j. The same holds for the rows of up_proj and the columns of down_proj, and for the rows of
// v_proj and the columns of o_proj, where query heads that share a value head share factors.
// [model.Model.Scalings] lists the places. Factors come from the weights alone (equalize.go) or
// from activations (AWQ, awq.go).
//
// # Outliers
//
// Outliers makes copies of a checkpoint whose activations have outliers, from factors that are powers
// of two and a rotation that gathers principal directions in single channels (outliers.go,
// principal.go). channels.go measures outliers.
//
// # Where to start reading
//
// make.go has the job and checks its result. record.go has the record, apply.go rewrites tensors by
// the edits of rotate.go and scale.go. Computation is in float64, rounded once to float32, in an
// order that depends neither on threads nor on the CPU.
package fold
