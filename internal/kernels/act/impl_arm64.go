//go:build !purego

package act

import "github.com/lowbit-go/gq/internal/cpu"

func init() { accelerated.Register(cpu.NEON, true) }
