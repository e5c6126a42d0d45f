// Package act quantizes rows of float32 activations to int8, as the layouts of weights ask for it:
//
//	Asymmetric  a scale and a zero point a row: KleidiAI's qai8dxp. lowbit, qsi4cxp, qsi8cxp, qsu2cxp, TorchAO's layouts
//	BlocksF16   an F16 scale a block: qsi8d32p. qsi4c32p-f16
//	BlocksF32   a float32 scale and a sum a block: qsi8d32pscalef32. qai4c32p
//
// The numbers are KleidiAI's (shared/reference/kleidiai.md section 3) but for one thing: codes past the last column are
// 0 here, where KleidiAI repeats the last activation. The weights there are 0, so no product differs; but sums of
// activations do, and with 0 they are those of the row.
//
// A row that holds NaN or an infinity, or whose scale or its inverse is not finite, has no codes: ok is false, and the
// driver gives NaN for all of its outputs.
//
// act.go holds the functions and the arithmetic that is done once a row or block. The loops over columns are in
// generic.go, which defines the results, and in assembly that gives the same bits; Select picks. There is no fused
// multiply-add anywhere here.
//
// Nanoseconds a column on one core of an EPYC (Zen 5), rows of 4096 in blocks of 32 in the first-level cache:
//
//	            portable   AVX2
//	Asymmetric  1.32       0.10
//	BlocksF16   1.60       0.29
//	BlocksF32   1.44       0.18
//	GroupSums   0.34       0.03
package act
