// The command tile writes the AVX2, AVX-VNNI and AVX-512 kernels of package tile: go generate here.
package main

//go:generate go run . -isa avx2 -out ../../tile/avx2_amd64.s -go ../../tile/avx2_amd64.go -pkg tile
//go:generate go run . -isa avxvnni -out ../../tile/avxvnni_amd64.s -go ../../tile/avxvnni_amd64.go -pkg tile
//go:generate go run . -isa avx512 -out ../../tile/avx512_amd64.s -go ../../tile/avx512_amd64.go -pkg tile

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
	if isa == emit.AVXVNNI { // everything but products is of AVX2
		for _, r := range []result{dots, group, shifted} {
			for _, mr := range []int{6, 4, 2, 1} {
				productVNNI(r, mr)
			}
		}
		emit.Finish(isa, *stubs, "tile")
		return
	}
	for bits := 1; bits <= 8; bits++ {
		unpack(isa, bits)
	}
	for _, r := range []result{dots, group, shifted} {
		if isa == emit.AVX512 {
			for _, mr := range []int{6, 4, 2, 1} {
				product512(r, mr)
			}
			continue
		}
		for _, vectors := range []int{2, 1} {
			productTall2(r, false, vectors)
			productTall2(r, true, vectors)
		}
		productSmall2(r)
		for _, kind := range []kind{narrow, single} {
			for _, mr := range []int{4, 2, 1} {
				product2(r, kind, mr)
			}
		}
		if r == shifted { // codes of 8 bits are never shifted
			continue
		}
		productWords2(r, 2)
		productWords2(r, 1)
		for _, mr := range []int{2, 1} {
			product2(r, wide, mr)
		}
	}
	for _, r := range []result{dots, blocks} {
		for _, mr := range []int{4, 2, 1} {
			if isa == emit.AVX2 {
				product2(r, signs, mr)
			}
		}
	}
	for _, r := range []result{blocks, blocksMin, subs} {
		if isa == emit.AVX512 {
			for _, mr := range []int{6, 4, 2, 1} {
				product512(r, mr)
			}
			continue
		}
		for _, size := range []int{8, 4, 2} {
			if size > 2 || r == subs { // all types with codes of 7 bits have sub-scales
				productUnits2(r, size, 2)
				productUnits2(r, size, 1)
			}
		}
	}
	if isa == emit.AVX2 {
		for _, r := range []result{blocks, subs} {
			productWords2(r, 2)
			productWords2(r, 1)
		}
		widen()
	}
	epilogues(isa)
	epilogueRow(isa)
	epilogueSubs(isa)
	addSums(isa)
	if isa == emit.AVX2 {
		zip()
	}
	emit.Finish(isa, *stubs, "tile")
}
