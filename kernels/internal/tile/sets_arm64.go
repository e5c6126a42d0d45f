//go:build !purego

package tile

// sets is Sets for arm64. All take panels of 8 rows of signed codes.
func sets(feature string, bits int) (Set, bool) {
	s := Set{
		Feature:     feature,
		NR:          8,
		Unpack:      unpackNEON[bits-1],
		Zip:         zipNEON,
		FoldFMA:     foldFMANEON,
		FoldQAI4:    foldQAI4NEON,
		FoldTorchAO: foldTorchAONEON,
		FoldRow:     foldRowNEON,
		AddSums:     addSumsNEON,
	}
	switch feature {
	case "i8mm":
		s.Steps = i8mmSteps
	case "dotprod":
		s.Steps = dotProdSteps
	case "neon":
		s.Steps = narrowSteps
		if bits == 8 {
			s.Steps = wideSteps
		}
	default:
		return Set{}, false
	}
	return s, true
}

// unpackNEON is Unpack by bits-1.
var unpackNEON = [8]func(dst, src *byte, units int, lanes *Lanes){
	unpack1, unpack2, unpack3, unpack4, unpack5, unpack6, unpack7, unpack8,
}

var (
	// SDOT does one row alone as fast as SMMLA, which would multiply it with another's zeros.
	i8mmSteps = []Step{
		{MR: 8, Dots: dots8I8MM, Group: group8I8MMAny},
		{MR: 4, Dots: dots4I8MM, Group: group4I8MMAny},
		{MR: 2, Dots: dots2I8MM, Group: group2I8MM},
		{MR: 1, Dots: dots1DotProd, Group: group1DotProd},
	}
	dotProdSteps = []Step{
		{MR: 8, Dots: dots8DotProd, Group: group8DotProdAny},
		{MR: 4, Dots: dots4DotProd, Group: group4DotProdAny},
		{MR: 1, Dots: dots1DotProd, Group: group1DotProd},
	}
	narrowSteps = []Step{
		{MR: 2, Dots: dots2NarrowNEON, Group: group2NarrowNEON},
		{MR: 1, Dots: dots1NarrowNEON, Group: group1NarrowNEON},
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
