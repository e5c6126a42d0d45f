package vec

import "github.com/lowbit-go/gq/internal/cpu"

// level says which assembly runs. It is a number, because calls through function variables would
// make the arguments of these functions escape to the heap.
type level int

const (
	portable level = iota
	assembly       // AVX2 or NEON
	wide           // AVX2, and AVX-512 with VNNI for the functions that have it
)

// accelerated selects the assembly.
var accelerated = cpu.NewFamily("vec", portable)

// assembled reports whether assembly runs.
func assembled() bool { return accelerated.Chosen() != portable }
