// Package alloc chooses bits and group of every tensor, so that a model of a given size loses as little as possible, or
// that one of a given loss is as small as possible. What it chooses is a recipe: any algorithm can then quantize with it.
//
// # How
//
//	probe   each tensor alone is rounded to 3 bits, group 64, in the float model, and KL(float || that model) is measured
//	        on a few thousand tokens (eval.Reference)
//	predict kl(bits, group) = kl(3, 64) e(bits, group) / e(3, 64), where e is the squared error of the weights, each
//	        column weighted with the mean square of its input; with probes at several widths, by the nearest
//	hull    of each tensor's options only those on the lower convex hull of KL over bytes are of use
//	choose  from the cheapest option of each tensor, steps along the hulls are taken in order of KL saved per byte,
//	        as long as the bytes last; what is left over goes to whatever step still fits
//
// The divergences of single tensors add up well at 4 bits, fairly at 3 and badly at 2, where their order is still right.
// The weighted error alone, without probes, allocates worse than the same bits everywhere.
//
// # What is one decision
//
// A tensor that the plan quantizes and the model's forward pass uses; a table and the head tied to it; and one projection
// (gate, up, down) of all experts of a layer, as calibration text does not reach each of them often enough to tell them
// apart. Tensors that rules give bits to stay as they are, and so do tensors that the forward pass does not use. A rule
// that states a group leaves only bits to be chosen.
//
// Bytes are those of the plan: all layouts, packed headers and companions included. Groups are 32, 64 or 128: at equal
// bytes, group 16 was never worth its scales.
package alloc
