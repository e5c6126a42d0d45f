package act

import "github.com/lowbit-go/gq/internal/cpu"

// accelerated selects the assembly of quantizeAway, quantizeEven and groupSums, see act_asm.go.
// Package vec computes the range of a row.
var accelerated = cpu.NewFamily("act", false)
