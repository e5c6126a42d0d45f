package vec

import "github.com/lowbit-go/gq/internal/cpu"

// accelerated is whether the assembly runs. Packages with functions of one set of arguments have
// families of functions; here calls through variables would make the arguments of those below
// escape to the heap.
var accelerated = cpu.NewFamily("vec", false)
