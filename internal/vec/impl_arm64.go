//go:build !purego

package vec

import "github.com/lowbit-go/gq/internal/cpu"

func init() { accelerated.Register(cpu.NEON, neon) }
