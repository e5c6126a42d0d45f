// Package fold changes a checkpoint's weights without changing what the model computes, so that they lose less when they
// are quantized. Whatever runs the model runs the folded one: nothing is added to it.
//
//	record, err := fold.Make(ctx, "checkpoint", "folded", fold.Job{Rotate: true, Seed: 1}) // checks the logits of the result
//	err = fold.Apply(ctx, "checkpoint", "again", record, fold.Options{})              // the same bytes
//
// # Rotations
//
// R1 turns the hidden states, which every layer reads through a norm and adds to, by an orthogonal matrix: the gains of
// the norms go into what reads them, W becomes W diag(g) R1 there and R1^T W where hidden states are added to; the table's
// rows are turned too. R2, one a layer, turns each head of the values: R2^T W for them, W R2 for what reads them. Both are
// Hadamard matrices with columns of random signs (orthogonal.go). The head becomes table diag(g) R1, so a head that was the
// table is a matrix of its own then, unless the last norm's gains are all the same.
//
// A norm with gains of its own between a linear and the hidden states, as Gemma 2 and 3 have it, does not let R1 through.
//
// # Factors
//
// A norm's gain j can be divided by t_j if column j of all that reads the norm is multiplied by it; likewise the rows of
// up_proj and the columns of down_proj, and the rows of v_proj and the columns of o_proj, where heads of queries that share
// a head of values share factors. [model.Model.Scalings] lists the places. Factors come from the weights alone
// (equalize.go) or from activations (AWQ, awq.go).
//
// # Where to start reading
//
// make.go has the job and checks its result, record.go what is kept of it, apply.go rewrites tensors as rotate.go and
// scale.go say. Computation is in float64, rounded once to float32, in an order that depends neither on threads nor on the
// CPU.
package fold
