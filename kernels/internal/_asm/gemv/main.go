// The command gemv writes the AVX2 and AVX-512 kernels of package gemv: go generate here.
package main

//go:generate go run . -isa avx2 -out ../../gemv/avx2_amd64.s -go ../../gemv/avx2_amd64.go -pkg gemv
//go:generate go run . -isa avx512 -out ../../gemv/avx512_amd64.s -go ../../gemv/avx512_amd64.go -pkg gemv

import (
	"flag"

	"github.com/lowbit-go/gq/kernels/internal/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
)

func main() {
	isa := flag.String("isa", "", "instruction set: avx2 or avx512")
	stubs := flag.String("go", "", "Go `file` for the declarations")
	flag.Parse()
	ConstraintExpr("!purego")
	lowbit, qsi4cxp, qsi8cxp := lowbit2, qsi4cxp2, qsi8cxp2
	if *isa == "avx512" {
		lowbit, qsi4cxp, qsi8cxp = lowbit512, qsi4cxp512, qsi8cxp512
	}
	for bits := 1; bits <= 8; bits++ {
		for _, split := range []bool{false, true} {
			lowbit(bits, symmetric, split)
			lowbit(bits, zeros, split)
			if bits < 8 {
				lowbit(bits, fractions, split)
			}
			if bits <= 2 {
				lowbit(bits, halfStep, split)
			}
		}
	}
	if *isa == "avx512" {
		read(emit.AVX512)
	} else {
		read(emit.AVX2)
	}
	qsi4cxp()
	qsi8cxp(4)
	qsi8cxp(8)
	if *isa == "avx512" {
		tiles(emit.AVX512)
	} else {
		tiles(emit.AVX2)
	}
	emit.Finish(*stubs, "gemv")
}
