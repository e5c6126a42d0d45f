//go:build !purego

package tile

import "github.com/lowbit-go/gq/internal/cpu"

func init() {
	register(cpu.NEON, func(bits int) Set {
		if bits == 8 {
			return setNEON(cpu.NEON, bits, wideSteps)
		}
		return setNEON(cpu.NEON, bits, narrowSteps)
	})
	register(cpu.DotProd, func(bits int) Set {
		s := setNEON(cpu.DotProd, bits, dotProdSteps)
		s.Unzip = unzipNEON
		return s
	})
	register(cpu.I8MM, func(bits int) Set { return setNEON(cpu.I8MM, bits, i8mmSteps) })
}

// setNEON is an arm64 Set: all have panels of 8 rows of signed codes; only their products differ.
func setNEON(feature string, bits int, steps []Step) Set {
	return Set{
		Feature: feature, NR: 8, Unpack: unpackNEON[bits-1], Zip: zipNEON, Steps: steps,
		EpilogueFMA: epilogueFMANEON, EpilogueQAI4: epilogueQAI4NEON, EpilogueTorchAO: epilogueTorchAONEON,
		EpilogueRow: epilogueRowNEON, AddSums: addSumsNEON, EpilogueMin: epilogueMinNEON, EpilogueSubs: epilogueSubsNEON,
	}
}

var unpackNEON = [8]func(dst, src *byte, units int, lanes *Lanes){
	unpack1, unpack2, unpack3, unpack4, unpack5, unpack6, unpack7, unpack8,
}

var (
	i8mmSteps = []Step{
		{
			MR: 8, Dots: dots8I8MM, Group: either(groupShort8I8MM, group8I8MM), Shifted: shifted8I8MM,
			Row: row8I8MM, Blocks: either(blocksShort8I8MM, blocks8I8MM),
			BlocksQAI4: either(blocksShortQAI48I8MM, blocksQAI48I8MM), Twice: true,
		},
		{MR: 4, Dots: dots4I8MM, Group: either(groupShort4I8MM, group4I8MM), Shifted: shifted4I8MM},
		{MR: 2, Dots: dots2I8MM, Group: group2I8MM, Shifted: shifted2I8MM},
		{MR: 1, Dots: dots1I8MM, Group: group1I8MM, Shifted: shifted1I8MM},
	}
	dotProdSteps = []Step{
		{
			MR: 8, Dots: dots8DotProd, Group: either(groupShort8DotProd, group8DotProd), Shifted: shifted8DotProd, Row: row8DotProd,
			Blocks: blocks8,
		},
		{MR: 4, Dots: dots4DotProd, Group: either(groupShort4DotProd, group4DotProd), Shifted: shifted4DotProd},
		{MR: 1, Dots: dots1DotProd, Group: group1DotProd, Shifted: shifted1DotProd},
	}
	narrowSteps = []Step{
		{MR: 2, Dots: dots2NarrowNEON, Group: group2NarrowNEON, Shifted: shifted2NarrowNEON},
		{MR: 1, Dots: dots1NarrowNEON, Group: group1NarrowNEON, Shifted: shifted1NarrowNEON},
	}
	wideSteps = []Step{
		{MR: 2, Dots: dots2WideNEON, Group: group2WideNEON},
		{MR: 1, Dots: dots1WideNEON, Group: group1WideNEON},
	}
)

// blocks8 is Step.Blocks for 8 rows, by dot products.
func blocks8(a *BlocksArgs) {
	if a.short() && a.pairs() {
		blocksPairs8DotProd(a)
		return
	}
	either(blocksShort8DotProd, blocks8DotProd)(a)
}

// either calls the first function for groups that are short, and the second for others.
func either[A interface{ short() bool }](atShort, otherwise func(A)) func(A) {
	return func(a A) {
		if a.short() {
			atShort(a)
		} else {
			otherwise(a)
		}
	}
}
