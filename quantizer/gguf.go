package quantizer

import (
	"slices"

	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
)

// TargetGGUF loads .gguf files: llama.cpp and programs built on it. It chooses group, mapping and
// scale dtype from the bits of a tensor.
var TargetGGUF = Target{Name: "gguf"}

// ForGGUF reports whether the schemes of the recipe are the types of GGUF files.
func (r Recipe) ForGGUF() bool {
	return slices.ContainsFunc(r.Targets, func(t Target) bool { return t.Name == TargetGGUF.Name })
}

// stated says which fields of a scheme a person stated for the very bits that the scheme has.
type stated struct{ group, mapping, scales bool }

// ggufScheme gives a scheme group, mapping and scale dtype of the type of its bits, where they were
// not stated.
func ggufScheme(s rounding.Scheme, given stated) rounding.Scheme {
	t, ok := rounding.BlockType(s.Bits, s.Mapping)
	if !ok {
		t, ok = rounding.GGUFGrid(s.Bits, s.Mapping)
	}
	if !ok && !given.mapping {
		s.Mapping = rounding.GGUFMapping(s.Bits)
		if t, ok = rounding.BlockType(s.Bits, s.Mapping); !ok {
			t, ok = rounding.GGUFGrid(s.Bits, s.Mapping)
		}
	}
	want, _ := rounding.GGUFScheme(t, s)
	if !ok { // GGUFType reports it
		want = rounding.Scheme{Group: 32, ScaleDtype: packing.ScaleF16}
	}
	if !given.group {
		s.Group = want.Group
	}
	if !given.scales {
		s.ScaleDtype = want.ScaleDtype
	}
	s.Type = want.Type
	return s
}
