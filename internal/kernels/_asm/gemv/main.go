// The command gemv writes the AVX2, AVX-VNNI and AVX-512 kernels of package gemv: go generate here.
package main

//go:generate go run . -isa avx2 -out ../../gemv/avx2_amd64.s -go ../../gemv/avx2_amd64.go -pkg gemv
//go:generate go run . -isa avxvnni -out ../../gemv/avxvnni_amd64.s -go ../../gemv/avxvnni_amd64.go -pkg gemv
//go:generate go run . -isa avx512 -out ../../gemv/avx512_amd64.s -go ../../gemv/avx512_amd64.go -pkg gemv

import (
	"flag"

	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
)

func main() {
	name := flag.String("isa", "", "instruction set: avx2, avxvnni or avx512")
	stubs := flag.String("go", "", "Go `file` for the declarations")
	flag.Parse()
	ConstraintExpr("!purego")
	isa := emit.ISAs[*name]
	lowbit, qsi4cxp, qsi8cxp := lowbit2, qsi4cxp2, qsi8cxp2
	least := 1 // bits
	switch isa {
	case emit.AVXVNNI:
		// Up to 3 bits AVX2 is as fast: see small.
		qsi8cxp, least = qsi8cxpVNNI, 4
	case emit.AVX512:
		lowbit, qsi4cxp, qsi8cxp = lowbit512, qsi4cxp512, qsi8cxp512
	}
	for bits := least; bits <= 8; bits++ {
		for _, split := range []bool{false, true} {
			lowbit(isa, bits, symmetric, split)
			lowbit(isa, bits, zeros, split)
			if bits < 8 {
				lowbit(isa, bits, fractions, split)
			}
			if bits <= 2 {
				lowbit(isa, bits, halfStep, split)
			}
		}
	}
	if isa != emit.AVXVNNI {
		read(isa)
	}
	qsi4cxp(isa)
	qsi8cxp(4)
	qsi8cxp(8)
	tiles(isa)
	emit.Finish(isa, *stubs, "gemv")
}
