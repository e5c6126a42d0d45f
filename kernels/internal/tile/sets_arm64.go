//go:build !purego

package tile

import "github.com/lowbit-go/gq/internal/cpu"

func init() {
	Sets.Register(cpu.NEON, func(bits int) Set {
		if bits == 8 {
			return setNEON(cpu.NEON, bits, wideSteps)
		}
		return setNEON(cpu.NEON, bits, narrowSteps)
	})
	Sets.Register(cpu.DotProd, func(bits int) Set {
		s := setNEON(cpu.DotProd, bits, dotProdSteps)
		s.Unzip = unzipNEON
		return s
	})
	Sets.Register(cpu.I8MM, func(bits int) Set { return setNEON(cpu.I8MM, bits, i8mmSteps) })
}

// setNEON is the Set of one of arm64's instruction sets. All have panels of 8 rows of signed codes;
// only their products differ.
func setNEON(feature string, bits int, steps []Step) Set {
	return Set{
		Feature: feature, NR: 8, Unpack: unpackNEON[bits-1], Zip: zipNEON, Steps: steps,
		EpilogueFMA: epilogueFMANEON, EpilogueQAI4: epilogueQAI4NEON, EpilogueTorchAO: epilogueTorchAONEON,
		EpilogueRow: epilogueRowNEON, AddSums: addSumsNEON,
	}
}

// unpackNEON is Unpack by bits-1.
var unpackNEON = [8]func(dst, src *byte, units int, lanes *Lanes){
	unpack1, unpack2, unpack3, unpack4, unpack5, unpack6, unpack7, unpack8,
}

var (
	i8mmSteps = []Step{
		{
			MR: 8, Dots: dots8I8MM, Group: group8I8MMAny, Shifted: shifted8I8MM,
			Row: row8I8MM, Blocks: blocks8I8MMAny, BlocksQAI4: blocksQAI48I8MMAny, Twice: true,
		},
		{MR: 4, Dots: dots4I8MM, Group: group4I8MMAny, Shifted: shifted4I8MM},
		{MR: 2, Dots: dots2I8MM, Group: group2I8MM, Shifted: shifted2I8MM},
		{MR: 1, Dots: dots1I8MM, Group: group1I8MM, Shifted: shifted1I8MM},
	}
	dotProdSteps = []Step{
		{MR: 8, Dots: dots8DotProd, Group: group8DotProdAny, Shifted: shifted8DotProd, Row: row8DotProd},
		{MR: 4, Dots: dots4DotProd, Group: group4DotProdAny, Shifted: shifted4DotProd},
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

func group8I8MMAny(a *Args) {
	if short(a) {
		groupShort8I8MM(a)
	} else {
		group8I8MM(a)
	}
}

func blocks8I8MMAny(a *Args) {
	if short(a) {
		blocksShort8I8MM(a)
	} else {
		blocks8I8MM(a)
	}
}

func blocksQAI48I8MMAny(a *Args) {
	if short(a) {
		blocksShortQAI48I8MM(a)
	} else {
		blocksQAI48I8MM(a)
	}
}

func group4I8MMAny(a *Args) {
	if short(a) {
		groupShort4I8MM(a)
	} else {
		group4I8MM(a)
	}
}

func group8DotProdAny(a *Args) {
	if short(a) {
		groupShort8DotProd(a)
	} else {
		group8DotProd(a)
	}
}

func group4DotProdAny(a *Args) {
	if short(a) {
		groupShort4DotProd(a)
	} else {
		group4DotProd(a)
	}
}
