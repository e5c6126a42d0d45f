// Package calib chooses codes with calibration data. It runs the model on tokens, layer by layer,
// and minimizes the errors of the layers' outputs instead of the errors of the weights.
//
//	plan, err := conversion.NewPlan(ck, config, options) // with gqf.AlgorithmGPTQFT, say
//	text, err := text.Read(ctx, tokenizer, data, calib.DefaultTokens, window) // or text.Write
//	result, err := calib.Run(ctx, plan, text, calib.Options{})
//	defer result.Close()
//	report, err := plan.WriteWith(ctx, "model.gqf", write.Options{Codes: result.Codes()})
//
// # Algorithms
//
// gptq (arXiv 2210.17323). X are the inputs, n rows of K, of linear layers that share inputs, in
// the model with the earlier layers already quantized. The Hessian is H = X^T X + lambda I, where
// lambda is max(.01, .5 K/n) times the mean of the diagonal. Scales come from the weighted search,
// with the diagonal as weights. Columns are quantized in activation order (falling diagonal). The
// target of each column compensates the errors of the columns quantized before. Groups keep the
// natural order, so nothing at run time depends on the activation order.
//
// gptq-ft. The same with another target: the float model's output on its own inputs, W X_float.
// This correction is known as QEP (quantization error propagation, arXiv 2504.09629); GPTAQ (arXiv
// 2504.02692) and Qronos (arXiv 2505.11695) are kin. With D = X_float - X and P = D^T X (H + lambda
// I)^-1, the target is W + a W P. D W^T is summed instead of D where that is less work, see
// hessian.go. gq adds:
//
//   - The residual. If a layer's outputs are added to the hidden states, the target also corrects
//     R, the float model's hidden states minus the quantized model's: + r R^T X (H + lambda I)^-1.
//   - The factors. a and r are 1/2 for few tokens and 1 for many, see follow in target.go.
//   - Two sets of scales. GPTQ runs from each, and each row keeps the better result, see choose in
//     target.go.
//
// refine. After either: two sweeps of coordinate descent over the codes, least-squares scales,
// another sweep. For types of .gguf files with integer sub-scales and minima, gptq keeps the
// integers of the search, and refine moves them; least squares fit d and dmin of each block.
//
// imatrix. The weighted search: an error of column j is weighted with E[x_j^2]. Each row keeps this
// result or that of the search without these weights, see imatrix_choice.go.
//
// Groups of weights that are codes times a scale already keep both (grids.go), and other columns
// compensate. A matrix keeps the result of the search if its error is smaller, or if no calibration
// token reached the matrix: an expert that no token was routed to.
//
// A tied embedding that a rule gives gptq is solved first, see tie.go.
//
// # Files
//
// job.go goes through the layers, target.go computes the targets and improves scales and zero
// points for chosen codes. hessian.go collects H, factor.go factorizes it, solve.go chooses codes
// on the grids of grids.go. store.go has the finished layers, of an interrupted job too. Results
// have the same bits on every CPU and for any number of threads.
//
// # Work
//
// Nearly all time passes in products of matrices: chains of fused multiply-adds in float32
// (kernels.Transposed.Add). With T tokens and n x k weights, in multiply-adds:
//
//	forward passes      2 T n k for gptq-ft: the float model's and the quantized model's
//	Hessian             T k^2 / 2
//	shift of targets    2 T n k, or T k^2 + n k^2: the smaller
//	factor              k^3 / 6
//	targets             n k^2, or k^3 where the group has more than k rows
//	GPTQ, twice         n k^2
//	error of the search at most n k^2 / 2: a row ends where GPTQ is known to be better
package calib
