package vec

import (
	"fmt"
	"slices"
	"strings"
)

// cpuNames are the names that Select takes. They are those of the kernels, so that one setting serves the whole
// program: this package runs its NEON code for dotprod and i8mm too, and its AVX2 code for avx512vnni.
var cpuNames = []string{"generic", "neon", "dotprod", "i8mm", "avx2", "avx512vnni"}

// accelerated says whether the assembly is used. Only Select writes it.
var accelerated = slices.Contains(supported(), implementation)

// Select picks the implementation by the name of an instruction set: generic, neon, dotprod, i8mm, avx2, avx512vnni,
// or "" for the best that this CPU has. Naming one that it lacks is an error and changes nothing. Call it before
// any other function of this package runs: it is not safe for concurrent use with them.
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
	accelerated = cpu != "generic"
	return nil
}

// Implementation names the code that runs: generic, avx2 or neon.
func Implementation() string {
	if accelerated {
		return implementation
	}
	return "generic"
}
