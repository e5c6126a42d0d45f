// Package act quantizes rows of float32 activations to int8, in the way that belongs to the
// weights' layout:
//
//	Asymmetric  a scale and a zero point a row: KleidiAI's qai8dxp. lowbit, qsi4cxp, qsi8cxp, qsu2cxp, TorchAO's layouts
//	BlocksF16   an F16 scale a block: qsi8d32p. qsi4c32p-f16
//	BlocksF32   a float32 scale and a sum a block: qsi8d32pscalef32. qai4c32p
//
// The numbers equal KleidiAI's (shared/reference/kleidiai.md section 3) with one exception: codes
// past the last column are 0 here, where KleidiAI repeats the last activation. Padding weights are
// 0, so products do not differ, and with codes of 0 the sums of activations are the row's own.
//
// A row with a NaN or an infinity, or whose scale or inverse scale is not finite, has no codes: ok
// is false, and the driver gives NaN for all of its outputs.
//
// act.go holds the functions and the arithmetic per row or block. The loops over columns are in
// generic.go, which defines the results, and in assembly, which gives the same bits; select.go
// chooses between the two. There are no fused multiply-adds.
//
// Nanoseconds a column on one core of an EPYC (Zen 5), rows of 4096 in blocks of 32 in the
// first-level cache:
//
//	            portable   AVX2
//	Asymmetric  1.32       0.10
//	BlocksF16   1.60       0.29
//	BlocksF32   1.44       0.18
//	GroupSums   0.34       0.03
package act
