// Package act quantizes rows of float32 activations to int8, as the weights' layout demands:
//
//	Asymmetric  a scale and a zero point a row: KleidiAI's qai8dxp.
//	            lowbit, qsi4cxp, qsi8cxp, qsu2cxp, TorchAO's layouts
//	BlocksF16   an F16 scale a block: qsi8d32p. qsi4c32p-f16
//	BlocksF32   a float32 scale and a sum a block: qsi8d32pscalef32. qai4c32p
//
// The numbers equal KleidiAI's (shared/reference/kleidiai.md section 3), except for codes past the
// last column: these are 0 here, while KleidiAI repeats the last activation. Padding weights are 0,
// so products do not differ, and with codes of 0 the sums of activations are the row's own.
//
// A row has no codes if a value, its scale or the inverse scale is not finite: ok is false, and the
// driver gives NaN for all outputs of the row.
//
// act.go holds the functions, the arithmetic per row or block, and the loops over columns that
// define the results. Assembly gives the same bits. There are no fused multiply-adds.
//
// Nanoseconds a column on a core of an EPYC (Zen 5), rows of 4096 in blocks of 32 in the
// first-level cache:
//
//	            portable   AVX2
//	Asymmetric  1.32       0.10
//	BlocksF16   1.60       0.29
//	BlocksF32   1.44       0.18
//	GroupSums   0.34       0.03
package act
