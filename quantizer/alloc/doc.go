// Package alloc chooses the bits and the group of every tensor, so that a model of a given size has
// the smallest divergence, or a model of a given divergence the smallest size. The result is a
// recipe, with which any algorithm can quantize.
//
// # How
//
//	probe   round each tensor alone to 3 bits, group 64, and measure KL(float || rounded) on a few
//	        thousand tokens (eval.Reference)
//	predict kl(bits, group) = kl(3, 64) e(bits, group) / e(3, 64), where e is the squared error of
//	        the weights, each column weighted with the mean square of its input; with probes at
//	        several widths, from the nearest probe
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
package alloc
