package cpu

import (
	"fmt"
	"slices"
)

// An Implementation is code for an instruction set.
type Implementation[T any] struct {
	Feature string // the instruction set
	Code    T
}

// A Family holds the implementations of one function or set of functions. Init functions register
// them; afterwards only tests change it.
type Family[T any] struct {
	name   string
	list   []Implementation[T] // the portable one, then in the order of Names
	chosen Implementation[T]
}

// families lists every Family.
var families []interface{ choose(features []string) }

// NewFamily makes a family of portable code.
func NewFamily[T any](name string, portable T) *Family[T] {
	generic := Implementation[T]{Generic, portable}
	f := &Family[T]{name: name, list: []Implementation[T]{generic}, chosen: generic}
	families = append(families, f)
	return f
}

// Register adds the code for an instruction set, whether or not this CPU supports it. An
// instruction set without code of its own uses the code of the best set below it.
func (f *Family[T]) Register(feature string, code T) {
	at := slices.Index(Names, feature)
	if at < 0 || slices.ContainsFunc(f.list, func(i Implementation[T]) bool { return i.Feature == feature }) {
		panic(fmt.Sprintf("cpu: %s: an unknown instruction set, or a second implementation for it: %q", f.name, feature))
	}
	f.list = append(f.list, Implementation[T]{feature, code})
	slices.SortFunc(f.list, func(a, b Implementation[T]) int {
		return slices.Index(Names, a.Feature) - slices.Index(Names, b.Feature)
	})
	f.choose(allowed())
}

// Chosen is the code that the program uses: the code for the best instruction set that it may use.
func (f *Family[T]) Chosen() T { return f.chosen.Code }

// Name is the name that the family was made with.
func (f *Family[T]) Name() string { return f.name }

// For gives the code for the best of some instruction sets.
func (f *Family[T]) For(features []string) Implementation[T] {
	best := f.list[0]
	for _, i := range f.list {
		if slices.Contains(features, i.Feature) {
			best = i
		}
	}
	return best
}

// All lists the registered code, the portable code first, whether or not this CPU supports the
// instruction set.
func (f *Family[T]) All() []Implementation[T] { return slices.Clone(f.list) }

func (f *Family[T]) choose(features []string) { f.chosen = f.For(features) }
