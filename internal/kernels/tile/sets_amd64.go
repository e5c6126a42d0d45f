//go:build !purego

package tile

import (
	"slices"

	"github.com/lowbit-go/gq/internal/cpu"
)

func init() {
	register(cpu.AVX2, setAVX2)
	register(cpu.AVXVNNI, setAVXVNNI)
	register(cpu.AVX512, setAVX512)
}

// setAVX2 has unsigned codes, except for 8 bits: see the steps below.
func setAVX2(bits int) Set {
	s := Set{
		Feature: cpu.AVX2, Offset: 1 << (bits - 1), NR: 8, Unpack: unpackAVX2[bits-1], Zip: zipAVX2, Steps: narrowAVX2,
		EpilogueFMA: epilogueFMAAVX2, EpilogueQAI4: epilogueQAI4AVX2, EpilogueTorchAO: epilogueTorchAOAVX2,
		EpilogueRow: epilogueRowAVX2, AddSums: addSumsAVX2, EpilogueMin: epilogueMinAVX2, EpilogueSubs: epilogueSubsAVX2,
	}
	units := units32AVX2
	switch bits {
	case 1, 2, 3, 4:
		s.Steps = smallAVX2
	case 5:
		s.Steps = fiveAVX2
	case 6:
		units = units16AVX2
	case 7:
		s.Steps, units = singleAVX2, units8AVX2
	case 8:
		s.Steps, s.Symmetric, s.Offset, s.Widen = wideAVX2, signsAVX2, 0, widenAVX2
		return s
	}
	s.Symmetric = slices.Concat(units, s.Steps[len(s.Steps)-3:])
	return s
}

// setAVXVNNI has unsigned codes. Everything but the products is of AVX2.
func setAVXVNNI(bits int) Set {
	s := setAVX2(bits)
	s.Feature, s.Offset, s.Steps, s.Symmetric = cpu.AVXVNNI, 1<<(bits-1), stepsAVXVNNI, nil
	return s
}

func setAVX512(bits int) Set {
	return Set{
		Feature: cpu.AVX512, Offset: 1 << (bits - 1), NR: 32, Unpack: unpackAVX512[bits-1], Zip: zipAVX2, Steps: stepsAVX512,
		EpilogueFMA: epilogueFMAAVX512, EpilogueQAI4: epilogueQAI4AVX512, EpilogueTorchAO: epilogueTorchAOAVX512,
		EpilogueRow: epilogueRowAVX512, AddSums: addSumsAVX512, EpilogueMin: epilogueMinAVX512, EpilogueSubs: epilogueSubsAVX512,
	}
}

// By bits-1.
var (
	unpackAVX2 = [8]func(dst, src *byte, units int, lanes *Lanes){
		unpack1AVX2, unpack2AVX2, unpack3AVX2, unpack4AVX2, unpack5AVX2, unpack6AVX2, unpack7AVX2, unpack8AVX2,
	}
	unpackAVX512 = [8]func(dst, src *byte, units int, lanes *Lanes){
		unpack1AVX512, unpack2AVX512, unpack3AVX512, unpack4AVX512, unpack5AVX512, unpack6AVX512, unpack7AVX512, unpack8AVX512,
	}
)

var (
	// VPMADDUBSW adds two products in 16 bits. With codes of up to 4 bits, 16 bits hold sixteen
	// products; with 5 bits, eight; with 6 bits, four; with 7 bits, two; with 8 bits, one. Steps
	// for 8 bits multiply signed words instead.
	smallAVX2 = []Step{
		{MR: 16, Quads: true, Dots: dots16TallAVX2, Group: group16TallAVX2, Shifted: shifted16TallAVX2},
		{MR: 8, Quads: true, Dots: dots8TallAVX2, Group: group8TallAVX2, Shifted: shifted8TallAVX2},
		{MR: 4, Dots: dots4SmallAVX2, Group: group4SmallAVX2, Shifted: shifted4SmallAVX2},
		{MR: 2, Dots: dots2NarrowAVX2, Group: group2NarrowAVX2, Shifted: shifted2NarrowAVX2},
		{MR: 1, Dots: dots1NarrowAVX2, Group: group1NarrowAVX2, Shifted: shifted1NarrowAVX2},
	}
	fiveAVX2 = slices.Concat([]Step{
		{MR: 16, Quads: true, Dots: dots16FiveAVX2, Group: group16FiveAVX2, Shifted: shifted16FiveAVX2},
		{MR: 8, Quads: true, Dots: dots8FiveAVX2, Group: group8FiveAVX2, Shifted: shifted8FiveAVX2},
	}, narrowAVX2)
	narrowAVX2 = []Step{
		{MR: 4, Dots: dots4NarrowAVX2, Group: group4NarrowAVX2, Shifted: shifted4NarrowAVX2},
		{MR: 2, Dots: dots2NarrowAVX2, Group: group2NarrowAVX2, Shifted: shifted2NarrowAVX2},
		{MR: 1, Dots: dots1NarrowAVX2, Group: group1NarrowAVX2, Shifted: shifted1NarrowAVX2},
	}
	singleAVX2 = []Step{
		{MR: 4, Dots: dots4SingleAVX2, Group: group4SingleAVX2, Shifted: shifted4SingleAVX2},
		{MR: 2, Dots: dots2SingleAVX2, Group: group2SingleAVX2, Shifted: shifted2SingleAVX2},
		{MR: 1, Dots: dots1SingleAVX2, Group: group1SingleAVX2, Shifted: shifted1SingleAVX2},
	}
	wideAVX2 = []Step{
		{MR: 16, Words: true, Dots: dots16WordsAVX2, Group: group16WordsAVX2},
		{MR: 8, Words: true, Dots: dots8WordsAVX2, Group: group8WordsAVX2},
		{MR: 2, Dots: dots2WideAVX2, Group: group2WideAVX2},
		{MR: 1, Dots: dots1WideAVX2, Group: group1WideAVX2},
	}
	signsAVX2 = []Step{
		{MR: 16, Words: true, Blocks: blocks16WordsAVX2, Subs: subs16WordsAVX2},
		{MR: 8, Words: true, Blocks: blocks8WordsAVX2, Subs: subs8WordsAVX2},
		{MR: 4, Dots: dots4SignsAVX2, Blocks: blocks4SignsAVX2},
		{MR: 2, Dots: dots2SignsAVX2, Blocks: blocks2SignsAVX2},
		{MR: 1, Dots: dots1SignsAVX2, Blocks: blocks1SignsAVX2},
	}
	units32AVX2 = []Step{
		{MR: 16, Quads: true, Unit: 32, Blocks: blocks16Unit32AVX2, BlocksMin: blocksMin16Unit32AVX2, Subs: subs16Unit32AVX2},
		{MR: 8, Quads: true, Unit: 32, Blocks: blocks8Unit32AVX2, BlocksMin: blocksMin8Unit32AVX2, Subs: subs8Unit32AVX2},
	}
	units16AVX2 = []Step{
		{MR: 16, Quads: true, Unit: 16, Blocks: blocks16Unit16AVX2, BlocksMin: blocksMin16Unit16AVX2, Subs: subs16Unit16AVX2},
		{MR: 8, Quads: true, Unit: 16, Blocks: blocks8Unit16AVX2, BlocksMin: blocksMin8Unit16AVX2, Subs: subs8Unit16AVX2},
	}
	units8AVX2 = []Step{
		{MR: 16, Quads: true, Unit: 8, Subs: subs16Unit8AVX2},
		{MR: 8, Quads: true, Unit: 8, Subs: subs8Unit8AVX2},
	}
	stepsAVXVNNI = []Step{
		{MR: 6, Dots: dots6AVXVNNI, Group: group6AVXVNNI, Shifted: shifted6AVXVNNI},
		{MR: 4, Dots: dots4AVXVNNI, Group: group4AVXVNNI, Shifted: shifted4AVXVNNI},
		{MR: 2, Dots: dots2AVXVNNI, Group: group2AVXVNNI, Shifted: shifted2AVXVNNI},
		{MR: 1, Dots: dots1AVXVNNI, Group: group1AVXVNNI, Shifted: shifted1AVXVNNI},
	}
	stepsAVX512 = []Step{
		{
			MR: 6, Dots: dots6AVX512, Group: group6AVX512, Shifted: shifted6AVX512,
			Blocks: blocks6AVX512, BlocksMin: blocksMin6AVX512, Subs: subs6AVX512,
		},
		{
			MR: 4, Dots: dots4AVX512, Group: group4AVX512, Shifted: shifted4AVX512,
			Blocks: blocks4AVX512, BlocksMin: blocksMin4AVX512, Subs: subs4AVX512,
		},
		{
			MR: 2, Dots: dots2AVX512, Group: group2AVX512, Shifted: shifted2AVX512,
			Blocks: blocks2AVX512, BlocksMin: blocksMin2AVX512, Subs: subs2AVX512,
		},
		{
			MR: 1, Dots: dots1AVX512, Group: group1AVX512, Shifted: shifted1AVX512,
			Blocks: blocks1AVX512, BlocksMin: blocksMin1AVX512, Subs: subs1AVX512,
		},
	}
)
