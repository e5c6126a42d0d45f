// Package alloc chooses the bits, the group and the mapping of every tensor, so that a model of a
// given size has the smallest divergence, or a model of a given divergence the smallest size. The
// result is a recipe for any algorithm.
//
// # How
//
//	gradients  run the model forward and backward on a thousand tokens, spread over a text, with
//	           random gradients of the logits: the importance of each row and column of each tensor
//	errors     find the squared rounding errors of each tensor's options, and of 3 bits in groups of
//	           64, on up to 64 rows, each error weighted with the importance of its row and column
//	probe      round all tensors of a kind (all q_proj) to 3 bits, and measure KL(float || rounded)
//	           on the text (eval.Reference); each tensor gets a part in proportion to its weighted
//	           error at 3 bits
//	predict    kl(scheme) = kl(probe) e(scheme) / e(probe), e the weighted error of some rows
//	hull       keep the lower convex hull of KL over bytes of each tensor's options
//	choose     start with the cheapest option of each tensor and step along the hulls in order of
//	           KL saved per byte while the bytes last; spend the rest on any step that still fits.
//	           Repeat with each option of the eight widest decisions fixed, because a large step,
//	           such as an embedding's, may not fit into the bytes left; keep the least KL
//
// The divergences of single tensors add up well at 4 bits, fairly at 3 and badly at 2. A kind at 2
// bits has up to 1.43 times the divergence of its tensors alone, at 3 bits at most 1.09 times
// (stories260K, books1.3M), so probes at 2 bits mislead. The squared error alone, without gradients
// and probes, allocates worse than the same bits everywhere. Probes of each tensor at 2, 3, 4 and 5
// bits took 1.3 to 2.7 times the CPU time of a job, and the files had .98 and 1.04 times the
// divergence at the bytes of 2 bits, 1.03 and 1.04 times at those of 3 (stories260K, books1.3M).
//
// # Importance
//
// A small change d of a token's logits has the divergence 0.5 d^T (diag(p) - p p^T) d, with p the
// token's probabilities. If the gradients of the logits are random with the covariance diag(p) - p
// p^T, g are the gradients of a linear layer's outputs and x its inputs, then rounding errors e of
// the weights have the divergence 0.5 mean((sum of g_i e_ik x_k)^2). Rounding errors are nearly
// independent, so only the squares g_i^2 e_ik^2 x_k^2 remain. Their sum over tokens is replaced by
// a product: the sum of g_i^2, times the mean of x_k^2 with each token weighted by its squared
// gradients. A single pass backward gives both factors for all tensors.
//
// Within a kind, predictions for single tensors at 3 bits deviate from measurements by 1 to 10 %
// for down, gate, up, o and q_proj (stories260K, books1.3M, books3.7M). Errors of v_proj add up
// over the positions that attention averages, and an error of k_proj that is the same at all
// positions has no effect: predictions are .6 to .7 and 1.0 to 1.7 times the measurement. The
// kind's probe corrects the mean.
//
// The rows of an embedding that tokens look up have squared gradients too. A tied embedding has the
// sum of both importances. Its rows differ far more than the rows of other layers, because most
// tokens do not occur in a text, so rows of large matrices are drawn in proportion to their
// importance. The predictions for its options are .80 to 1.11 times the measured divergence
// (stories260K).
//
// # Calibrated codes
//
// Rows are rounded one by one in probes and predictions. If calibration will choose the codes, the
// searches weight the error of each column with its importance, as algorithm imatrix does. Searches
// without weights take outliers of the activations for losses that calibration removes: on
// SmolLM2-135M they choose groups of 128 where weighted searches choose groups of 48 to 96.
//
// GGUF files quantize the embedding too, so for them predictions for calibrated linear layers are
// halved, also for a tied embedding, to which the allocation's rule gives gptq. Calibration gains
// more with some schemes than with others, and no prediction knows that. So with calibration Best
// also makes a rival allocation, and measures both files on text that calibration does not see. The
// rival has the same fractional zero points in all linear layers. If such a rival is predicted to
// be much worse, it has no fractional zero points.
//
// # Decisions
//
// A decision is a tensor that the plan quantizes and the forward pass uses, an embedding with the
// lm_head tied to it, or a projection (gate, up, down) of all experts of a layer: calibration text
// does not reach each expert often enough to tell experts apart. Tensors that rules give bits to,
// and tensors that the forward pass does not use, stay as planned. If a rule states a group, only
// the bits are chosen. Bytes are the plan's: all layouts, packed headers and companions included.
// Group 16 is never worth its scales at equal bytes.
//
// Where the layouts hold fractional zero points and nobody states a mapping, the asymmetric mapping
// is an option too. Probes without zero points predict its KL as well: predicted over measured is
// .95 to 1.05 with fractional zero points and 1.01 to 1.11 without. At 2 bits the half-step grid is
// another option, in layouts lowbit and codes. At the bytes of 2 bits, search then has .95 to .99
// times the divergence, quality best .96 (stories260K) and 1.01 times (books1.3M).
//
// # Activations
//
// Probes run with float32 activations, and choices for a number of bytes ignore int8 activations.
// The activations' error, W (x_int8 - x), does not depend on the bits of W and adds the same
// divergence to all options of a tensor: .0006 to .0007 at 4 to 8 bits, where the weights' part is
// .0002 to .08.
//
// llama.cpp's activations for types with blocks of 256 share scales in blocks of 256, for other
// types in blocks of 32. On books3.7M they add .00020 and .00007. The predictions for the former
// types have the difference. Files with the bytes of a Q5_K_M and a Q4_K_M then have .64 and .78
// times the divergence by llama-perplexity.
package alloc
