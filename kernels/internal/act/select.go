package act

import "github.com/lowbit-go/gq/internal/cpu"

// accelerated is whether the assembly of quantizeAway, quantizeEven and groupSums runs, see act_asm.go. The range of a row
// is package vec's work.
var accelerated = cpu.NewFamily("act", false)
