//go:build !purego

package rowmath

import "github.com/lowbit-go/gq/internal/cpu"

func init() { Sets.Register(cpu.NEON, &Set{mulAdd, softmax, gate, exp}) }
