package act

import (
	"fmt"
	"slices"
	"strings"
)

// cpuNames are the names that Select takes: those of all kernels, so that one setting serves the whole program.
var cpuNames = []string{"generic", "neon", "dotprod", "i8mm", "avx2", "avx512vnni"}

// accelerated says whether the assembly is used. Only Select writes it.
//
// The assembly comes in through quantizeAway, quantizeEven and groupSums, which act.go calls, and through
// implementation and supported: builds without assembly have them in act_noasm.go, the others in act_asm.go, where they
// ask accelerated.
var accelerated = slices.Contains(supported(), implementation)

// Select picks the implementation by the name of an instruction set: generic, neon, dotprod, i8mm, avx2, avx512vnni,
// or "" for the best that this CPU has. Naming one that it lacks is an error and changes nothing. Call it before
// any other function of this package runs: it is not safe for concurrent use with them.
//
// The range of a row is package vec's work, which has a Select of its own.
func Select(cpu string) error {
	has := supported()
	switch {
	case cpu == "":
		accelerated = slices.Contains(has, implementation)
		return nil
	case !slices.Contains(cpuNames, cpu):
		return fmt.Errorf("unknown instruction set %q: this CPU has %s", cpu, strings.Join(has, ", "))
	case !slices.Contains(has, cpu):
		return fmt.Errorf("this CPU or build has no %s: it has %s", cpu, strings.Join(has, ", "))
	}
	accelerated = cpu != "generic" && implementation != ""
	return nil
}

// Implementation names the code that runs: generic, avx2 or neon.
func Implementation() string {
	if accelerated {
		return implementation
	}
	return "generic"
}
