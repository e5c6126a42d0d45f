// Package calib chooses codes with calibration data: tokens that the model is run on, layer by layer, so that errors are
// measured where they matter, in what linears give, and not in the weights.
//
//	plan, err := conversion.NewPlan(ck, config, options) // with gqf.AlgorithmGPTQFT, say
//	text, err := text.Read(ctx, tokenizer, data, calib.DefaultTokens, window) // or text.Write: the model writes it
//	result, err := calib.Run(ctx, plan, text, calib.Options{})
//	defer result.Close()
//	report, err := plan.WriteWith(ctx, "model.gqf", conversion.WriteOptions{Codes: result.Codes()})
//
// # Algorithms
//
// gptq. For linears that share their inputs X, those of the model whose linears before are quantized already, H = X^T X +
// lambda I, lambda = max(.01, .2 K/n) of the mean of the diagonal, n rows. Scales come from the weighted search with the
// diagonal as weights. Codes are chosen column by column in the order of falling diagonal, each for a target that makes up
// for the errors before it. Groups are those of the natural order, so nothing at run time knows of the order.
//
// gptq-ft. The same for another target: not what the weights make of X, but what those of the float model make of its
// own inputs. With D = what these have more than X, P = D^T X (H + lambda I)^-1, the target is W + a W P; where outputs are
// added to the hidden states, what the float model's states have more, R, is made up for too: + r R^T X (H + lambda I)^-1. a and r are 1/2 for few
// tokens and 1 for many, see follow in target.go.
//
// refine. After either: two sweeps of coordinate descent over the codes, least-squares scales, another sweep.
//
// imatrix. The weighted search, an error of column j counting E[x_j^2].
//
// A matrix keeps the search's result where that has the smaller error, and if its inputs were never seen: an expert that
// no token was routed to.
//
// # Where to start reading
//
// job.go has the job, run.go goes through the layers, target.go says what codes are to stand for. gram.go collects H,
// factor.go factorizes it, solve.go chooses codes. store.go has the directory from which an
// interrupted job resumes.
//
// Results have the same bits on every CPU and for any number of threads.
package calib
