//go:build !purego

package tile

import "unsafe"

// Stubs of the assembly. Each product gives the bits of dotsGeneric (dots) or groupGeneric (group,
// shifted) for the number of rows of activations in its name, panels of 8 rows and signed codes.
// All counts in Args are positive. Stubs are called through fields of a Set only, so that a
// directive go:noescape would have no effect.

// shortGroup is the largest number of steps for which the groupShort kernels are right: 16 steps of
// 16 products of at most 2^14 each are at most 2^22.
const shortGroup = 16

// short reports whether the groupShort kernels can compute a product. These kernels also omit zero
// points. No group is longer than the first.
func (a *Args) short() bool { return a.NoZeros && *a.Steps <= shortGroup }

// pairs reports whether all groups are of two steps.
func (a *Args) pairs() bool { return *a.Steps == 2 && unsafe.Slice(a.Steps, a.Groups)[a.Groups-1] == 2 }

// dotsGeneric and groupGeneric by SMMLA, for CPUs with I8MM.

func dots8I8MM(a *Args)
func dots4I8MM(a *Args)
func dots2I8MM(a *Args)
func group8I8MM(a *GroupArgs)
func groupShort8I8MM(a *GroupArgs)
func group4I8MM(a *GroupArgs)
func groupShort4I8MM(a *GroupArgs)
func group2I8MM(a *GroupArgs)
func shifted8I8MM(a *ShiftedArgs)
func shifted4I8MM(a *ShiftedArgs)
func shifted2I8MM(a *ShiftedArgs)

// dotsGeneric and groupGeneric by SDOT, for the panels of CPUs with I8MM.

func dots1I8MM(a *Args)
func group1I8MM(a *GroupArgs)
func shifted1I8MM(a *ShiftedArgs)

// Step.Row, Blocks and BlocksQAI4 by SMMLA: what compose makes of dots8I8MM and the epilogues.

func row8I8MM(a *RowArgs)
func blocks8I8MM(a *BlocksArgs)
func blocksShort8I8MM(a *BlocksArgs)
func blocksQAI48I8MM(a *BlocksQAI4Args)
func blocksShortQAI48I8MM(a *BlocksQAI4Args)

// dotsGeneric and groupGeneric by SDOT, for CPUs with DotProd, with panels after unzipNEON.

func dots8DotProd(a *Args)

// row8DotProd is Step.Row.
func row8DotProd(a *RowArgs)
func dots4DotProd(a *Args)
func dots1DotProd(a *Args)
func group8DotProd(a *GroupArgs)
func blocks8DotProd(a *BlocksArgs)
func blocksShort8DotProd(a *BlocksArgs)

// blocksPairs8DotProd is blocksShort8DotProd for groups of two steps.
func blocksPairs8DotProd(a *BlocksArgs)
func groupShort8DotProd(a *GroupArgs)
func group4DotProd(a *GroupArgs)
func groupShort4DotProd(a *GroupArgs)
func group1DotProd(a *GroupArgs)
func shifted8DotProd(a *ShiftedArgs)
func shifted4DotProd(a *ShiftedArgs)
func shifted1DotProd(a *ShiftedArgs)

// dotsGeneric and groupGeneric by SMULL, for any CPU: Narrow for codes of up to 7 bits, -64 to 63,
// Wide for all of int8.

func dots2NarrowNEON(a *Args)
func dots2WideNEON(a *Args)
func dots1NarrowNEON(a *Args)
func dots1WideNEON(a *Args)
func group2NarrowNEON(a *GroupArgs)
func group2WideNEON(a *GroupArgs)
func group1NarrowNEON(a *GroupArgs)
func group1WideNEON(a *GroupArgs)
func shifted2NarrowNEON(a *ShiftedArgs)
func shifted1NarrowNEON(a *ShiftedArgs)

// unpack1 to unpack8 are unpackGeneric for codes of 1 to 8 bits; units is positive.

func unpack1(dst, src *byte, units int, lanes *Lanes)
func unpack2(dst, src *byte, units int, lanes *Lanes)
func unpack3(dst, src *byte, units int, lanes *Lanes)
func unpack4(dst, src *byte, units int, lanes *Lanes)
func unpack5(dst, src *byte, units int, lanes *Lanes)
func unpack6(dst, src *byte, units int, lanes *Lanes)
func unpack7(dst, src *byte, units int, lanes *Lanes)
func unpack8(dst, src *byte, units int, lanes *Lanes)

// zipNEON is zip, unzipNEON its inverse. The epilogues are for 8 rows. Counts are positive.

func unzipNEON(dst *byte, n int)
func zipNEON(dst *byte, n int)
func epilogueFMANEON(out *float32, t *int32, groups int, scales, as *float32, step int)
func epilogueQAI4NEON(out *float32, t *int32, groups int, scales, zeros, as, asum *float32, step int)
func epilogueTorchAONEON(out *float32, t *int32, groups int, scales *float32, as float32)
func epilogueMinNEON(out *float32, t *int32, groups int, scales, mins, as, asum *float32, step int)
func epilogueSubsNEON(out *float32, t *int32, a *SubsArgs, blocks int, as *float32, sums *int32, step, sumStep int)
