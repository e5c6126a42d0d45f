package kernels

import "github.com/lowbit-go/gq/kernels/internal/gemv"

// The costs that kernels are chosen by: what a kernel spends on a weight, in thousandths of a cycle. Only their ratios
// matter, and only between kernels of one instruction set and its relatives. See docs/KERNELS.md for how they were
// found.

// gemvCost is that of a gemv kernel for one row.
func gemvCost(k *gemv.Kernel, _ *form) float64 {
	switch k.Feature {
	case "avx512vnni":
		return 20
	case "avx2":
		return 40
	case "dotprod":
		return 50
	}
	return 100
}

// unpackCost is that of unpacking a panel.
func unpackCost(feature string, _ int) float64 {
	switch feature {
	case "avx512vnni", "avx2":
		return 40
	case "neon", "dotprod", "i8mm":
		return 60
	}
	return 1500
}

// stepCost is that of a step of mr rows.
func stepCost(feature string, _, mr int) float64 {
	rows := float64(mr)
	switch feature {
	case "avx512vnni":
		return 10 + 8*rows
	case "avx2":
		return 15 + 20*rows
	case "i8mm":
		return 15 + 10*rows
	case "dotprod":
		return 20 + 20*rows
	case "neon":
		return 30 + 60*rows
	}
	return 300 + 1200*rows
}
