//go:build !purego

package tile

// Stubs of the assembly. Each product gives the bits of dotsGeneric (dots) or groupGeneric (group,
// shifted) for the number of rows of activations in its name, panels of 8 rows and signed codes.
// All counts in Args are positive.

// shortGroup is the largest number of steps for which the groupShort kernels are right: 16 steps of
// 16 products of at most 2^14 each are at most 2^22.
const shortGroup = 16

// short reports whether the groupShort kernels can compute a product. These kernels also omit zero
// points. No group is longer than the first.
func short(a *Args) bool { return a.NoZeros && *a.Steps <= shortGroup }

// dotsGeneric and groupGeneric by SMMLA, for CPUs with I8MM.

//go:noescape
func dots8I8MM(a *Args)

//go:noescape
func dots4I8MM(a *Args)

//go:noescape
func dots2I8MM(a *Args)

//go:noescape
func group8I8MM(a *Args)

//go:noescape
func groupShort8I8MM(a *Args)

//go:noescape
func group4I8MM(a *Args)

//go:noescape
func groupShort4I8MM(a *Args)

//go:noescape
func group2I8MM(a *Args)

//go:noescape
func shifted8I8MM(a *Args)

//go:noescape
func shifted4I8MM(a *Args)

//go:noescape
func shifted2I8MM(a *Args)

// dotsGeneric and groupGeneric by SDOT, for the panels of CPUs with I8MM.

//go:noescape
func dots1I8MM(a *Args)

//go:noescape
func group1I8MM(a *Args)

//go:noescape
func shifted1I8MM(a *Args)

// Step.Row, Blocks and BlocksQAI4 by SMMLA: what compose makes of dots8I8MM and the epilogues.

//go:noescape
func row8I8MM(a *Args)

//go:noescape
func blocks8I8MM(a *Args)

//go:noescape
func blocksShort8I8MM(a *Args)

//go:noescape
func blocksQAI48I8MM(a *Args)

//go:noescape
func blocksShortQAI48I8MM(a *Args)

// dotsGeneric and groupGeneric by SDOT, for CPUs with DotProd, with panels after unzipNEON.

//go:noescape
func dots8DotProd(a *Args)

// row8DotProd is Step.Row.
//
//go:noescape
func row8DotProd(a *Args)

//go:noescape
func dots4DotProd(a *Args)

//go:noescape
func dots1DotProd(a *Args)

//go:noescape
func group8DotProd(a *Args)

//go:noescape
func groupShort8DotProd(a *Args)

//go:noescape
func group4DotProd(a *Args)

//go:noescape
func groupShort4DotProd(a *Args)

//go:noescape
func group1DotProd(a *Args)

//go:noescape
func shifted8DotProd(a *Args)

//go:noescape
func shifted4DotProd(a *Args)

//go:noescape
func shifted1DotProd(a *Args)

// dotsGeneric and groupGeneric by SMULL, for any CPU: Narrow for codes of up to 7 bits, -64 to 63,
// Wide for all of int8.

//go:noescape
func dots2NarrowNEON(a *Args)

//go:noescape
func dots2WideNEON(a *Args)

//go:noescape
func dots1NarrowNEON(a *Args)

//go:noescape
func dots1WideNEON(a *Args)

//go:noescape
func group2NarrowNEON(a *Args)

//go:noescape
func group2WideNEON(a *Args)

//go:noescape
func group1NarrowNEON(a *Args)

//go:noescape
func group1WideNEON(a *Args)

//go:noescape
func shifted2NarrowNEON(a *Args)

//go:noescape
func shifted1NarrowNEON(a *Args)

// unpack1 to unpack8 are unpackGeneric for codes of 1 to 8 bits; units is positive.

//go:noescape
func unpack1(dst, src *byte, units int, lanes *Lanes)

//go:noescape
func unpack2(dst, src *byte, units int, lanes *Lanes)

//go:noescape
func unpack3(dst, src *byte, units int, lanes *Lanes)

//go:noescape
func unpack4(dst, src *byte, units int, lanes *Lanes)

//go:noescape
func unpack5(dst, src *byte, units int, lanes *Lanes)

//go:noescape
func unpack6(dst, src *byte, units int, lanes *Lanes)

//go:noescape
func unpack7(dst, src *byte, units int, lanes *Lanes)

//go:noescape
func unpack8(dst, src *byte, units int, lanes *Lanes)

// zipNEON is zip, unzipNEON its inverse. The epilogues are for 8 rows. Counts are positive.

//go:noescape
func unzipNEON(dst *byte, n int)

//go:noescape
func zipNEON(dst *byte, n int)

//go:noescape
func epilogueFMANEON(out *float32, t *int32, groups int, scales, as *float32, step int)

//go:noescape
func epilogueQAI4NEON(out *float32, t *int32, groups int, scales, zeros, as, asum *float32, step int)

//go:noescape
func epilogueTorchAONEON(out *float32, t *int32, groups int, scales *float32, as float32)
