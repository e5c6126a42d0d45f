// Package alloc chooses the bits, the group and the mapping of every tensor, so that a model of a given
// size has the smallest divergence, or a model of a given divergence the smallest size. The result is
// a recipe, with which any algorithm can quantize.
//
// # How
//
//	gradients  run the model forward and backward on a text of a thousand tokens, with random gradients
//	           of the logits, which gives the importance of each row and column of each tensor
//	errors     find the squared rounding errors of each tensor's options on up to 128 rows, each error
//	           weighted with the importance of its row and column; of linear layers also in 3 bits,
//	           group 64, on all rows
//	probe      round all tensors of a kind (all q_proj) to 3 bits, and measure KL(float || rounded) on
//	           the text (eval.Reference); each tensor gets a part in proportion to the weighted error of
//	           all its rows
//	predict    kl(scheme) = kl(probe) e(scheme) / e(probe), where e is the weighted error of some rows
//	hull       of each tensor's options keep the lower convex hull of KL over bytes
//	choose     start with the cheapest option of each tensor and step along the hulls in order of KL
//	           saved per byte, as long as the bytes last; spend the rest on any step that still fits. Do
//	           this again with each option of the eight widest decisions fixed, because a large step,
//	           such as an embedding's, may not fit into the bytes left; keep the least KL
//
// The divergences of single tensors add up well at 4 bits, fairly at 3 and badly at 2, where their
// order is still right. A kind at 2 bits has up to 1.43 times the divergence of its tensors alone, at 3
// bits at most 1.09 times (stories260K, books1.3M). So probes at 2 bits mislead: they count a kind with
// one tensor, the embedding, for too little. The squared error alone, without gradients and probes,
// allocates worse than the same bits everywhere.
//
// With several widths, predictions come from the nearest probe, or between two probes from the
// geometric mean of both.
//
// # Importance
//
// A small change d of a token's logits has the divergence 0.5 d^T (diag(p) - p p^T) d, where p are the
// token's probabilities. If the gradients of the logits are random with the covariance diag(p) - p p^T,
// and g are the gradients of a linear layer's outputs and x its inputs, then rounding errors e of its
// weights have the divergence 0.5 mean((sum of g_i e_ik x_k)^2). Rounding errors are nearly independent,
// so only the squares g_i^2 e_ik^2 x_k^2 remain. Their sum over tokens is replaced by a product: the
// sum of g_i^2, times the mean of x_k^2 in which each token counts by its squared gradients. One pass
// backward gives both factors for all tensors.
//
// Within a kind, a prototype of this, whose random gradients were slightly different, predicted the
// measured divergences of single tensors at 3 bits with standard
// deviations of 1 to 10 % for down, gate, up, o and q_proj (stories260K, books1.3M, books3.7M). Errors of
// v_proj add up over the positions that attention averages, and an error of k_proj that is the
// same at all positions has no effect. Predictions were .6 to .7 times the measured divergence for v_proj
// and 1.0 to 1.7 times for k_proj, with deviations of 13 to 34 %. The probe of the kind corrects the mean.
//
// The rows of an embedding that tokens look up have squared gradients too. An embedding that is the
// lm_head as well has the sum of both importances. Its rows differ far more than the rows of other
// layers: most tokens do not occur in a text. So rows of large matrices are drawn in proportion to their
// importance. With equal rows of the embedding, and the importance of the lm_head's columns alone, the
// predictions for its options were .46 to 1.4 times the measured divergence (stories260K, 2 to 5 bits, two
// mappings, groups of 32 to 128), and the embedding got too few bits; now they are .80 to 1.11 times.
//
// docs/QUALITY.md has the divergences of files at several sizes, beside files that are chosen with a
// probe of each tensor.
//
// # What is one decision
//
// A decision is one tensor that the plan quantizes and the forward pass uses, an embedding with the
// lm_head tied to it, or one projection (gate, up, down) of all experts of a layer: calibration
// text does not reach each expert often enough to tell them apart. Tensors that rules give bits to
// stay as they are, and so do tensors that the forward pass does not use. If a rule states a group,
// only the bits are chosen.
//
// Bytes are the plan's: all layouts, packed headers and companions included. Groups are 32, 64 or
// 128: at equal bytes, group 16 was never worth its scales.
//
// Where the layouts hold fractional zero points and nobody states a mapping, the asymmetric mapping is
// an option beside the default, in groups of 32, 48, 64, 96 and 128. It needs no probes of its own:
// from probes without zero points, the KL of tensors with fractional ones is predicted as well as
// without. (Predicted over measured, 3 and 4 bits, groups of 48 and 64, every third tensor: 1.05 and
// 0.95 on stories260K and books1.3M, and 1.11 and 1.01 without zero points; both scatter by a factor
// of 1.3.) Without calibration the predictions decide. On 1280 tokens, measured ratios of the choice with
// fractional zero points to the choice without were .85 to 1.02 times, where 12,000 other tokens had .85 to
// .94 and the predictions .93 to .98 (search; 21 choices for the three models at 4 to 5.6 bits, texts of three
// seeds). A comparison on so few tokens that goes wrong costs 8 % of the divergence.
//
// Calibration gains more with some schemes than with others, which no prediction knows. So with calibration
// Best allocates with the default mapping alone too, measures both files as executed on text that
// calibration does not see, and keeps the better one. (On the calibration text itself, the default
// mapping alone looked 5 % better for stories260K at 3 bits with gptq-ft; on other text it is 1.4 %
// worse.)
//
// # Activations
//
// Probes run with float32 activations, and choices for a number of bytes ignore int8 activations. Their
// error, W (x_int8 - x), does not depend on the bits of W, so it adds the same divergence to all options
// of a tensor, and differences of options decide. Measured with search and the same bits everywhere, at
// 8, 6 and 4 bits: .00056, .00055 and .00072 on stories260K, .00074, .00071 and .00067 on books1.3M,
// where the weights' part grows from .0003 to .08 and from .0002 to .03. At 8 bits activations are most
// of what is lost, but the next bit saves as much as it does without them.
package alloc
