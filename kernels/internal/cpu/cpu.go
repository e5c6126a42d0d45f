// Package cpu knows which instruction sets this CPU and this build have, by the names that GQ_CPU takes.
package cpu

import (
	"fmt"
	"slices"
	"strings"
)

// Names are the instruction sets that kernels are written for, on any machine.
var Names = []string{Generic, "neon", "dotprod", "i8mm", "avx2", "avx512vnni"}

// Generic is portable Go, which every machine runs.
const Generic = "generic"

// Supported lists the instruction sets that this CPU and this build have, from the least to the best:
// generic, neon, dotprod, i8mm; or generic, avx2 (with FMA and F16C), avx512vnni (with F, BW, DQ and VL). With the build
// tag purego there is generic alone. The slice is the caller's.
func Supported() []string { return slices.Clone(supported) }

// supported is worked out once: a CPU does not change.
var supported = append([]string{Generic}, features()...)

// Best is the last of Supported.
func Best() string { return supported[len(supported)-1] }

// Check reports a name that is none, or an instruction set that this CPU or this build lacks.
func Check(name string) error {
	switch {
	case !slices.Contains(Names, name):
		return fmt.Errorf("unknown instruction set %q: this CPU has %s", name, strings.Join(supported, ", "))
	case !slices.Contains(supported, name):
		return fmt.Errorf("this CPU or build has no %s: it has %s", name, strings.Join(supported, ", "))
	}
	return nil
}

// UpTo lists what a program restricted to name may run: the supported sets up to name, from the least to the best. An
// empty name restricts nothing; a name that Check refuses leaves generic.
func UpTo(name string) []string {
	if name == "" {
		return Supported()
	}
	i := slices.Index(supported, name)
	return slices.Clone(supported[:max(i+1, 1)])
}
