// The command ggml writes the AVX2, AVX-VNNI and AVX-512 kernels of package ggml: go generate here.
package main

//go:generate go run . -isa avx2 -out ../../ggml/avx2_amd64.s -go ../../ggml/avx2_amd64.go -pkg ggml
//go:generate go run . -isa avxvnni -out ../../ggml/avxvnni_amd64.s -go ../../ggml/avxvnni_amd64.go -pkg ggml
//go:generate go run . -isa avx512 -out ../../ggml/avx512_amd64.s -go ../../ggml/avx512_amd64.go -pkg ggml

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
	for _, s := range smallTypes {
		s.gemv(isa)
	}
	// With sub-scales and vectors of 32 bytes, VPDPBUSD and a multiplication take as long as
	// VPMADDUBSW and VPMADDWD.
	for _, s := range superTypes {
		if isa == emit.AVX2 || isa == emit.AVX512 && !s.avx2 {
			s.gemv(isa)
		}
		if isa == emit.AVX2 {
			s.unpack()
		}
	}
	if isa == emit.AVX2 {
		for _, s := range smallTypes {
			s.unpack()
		}
	}
	emit.Finish(isa, *stubs, "ggml")
}
