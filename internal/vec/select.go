package vec

import "github.com/lowbit-go/gq/internal/cpu"

// accelerated selects the assembly. It is a flag, because calls through function variables would
// make the arguments of these functions escape to the heap.
var accelerated = cpu.NewFamily("vec", false)
