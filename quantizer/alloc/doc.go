// Package alloc chooses the bits, the group and the mapping of every tensor, so that a model of a given
// size has the smallest divergence, or a model of a given divergence the smallest size. The result is
// a recipe, with which any algorithm can quantize.
//
// # How
//
//	probe   round each tensor alone to 3 bits, group 64, and measure KL(float || rounded) on a few
//	        thousand tokens (eval.Reference)
//	predict kl(scheme) = kl(probe) e(scheme) / e(probe), where e is the squared error of the
//	        weights, each column weighted with the mean square of its input; with probes at several
//	        widths, from the nearest probe
//	hull    of each tensor's options keep the lower convex hull of KL over bytes
//	choose  start with the cheapest option of each tensor and step along the hulls in order of KL
//	        saved per byte, as long as the bytes last; spend the rest on any step that still fits
//
// The divergences of single tensors add up well at 4 bits, fairly at 3 and badly at 2, where their
// order is still right. The weighted error alone, without probes, allocates worse than the same
// bits everywhere.
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
// of 1.3.) Calibration gains more with some schemes than with others, which no prediction knows. So
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
