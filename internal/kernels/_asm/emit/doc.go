// Package emit is shared by the generators of packages gemv and tile: instruction sets, constants,
// the fields of argument structures, bit planes and the shuffles between sums and rows.
//
// A vector is cut into lanes of 128 bits: 2 in the YMM registers of AVX2 and AVX-VNNI, 4 in the ZMM
// registers of AVX-512. A lane of codes is 16 bytes: 8 columns of 2 neighbouring rows.
package emit
