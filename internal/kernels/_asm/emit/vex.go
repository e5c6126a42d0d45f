package emit

import (
	"fmt"
	"log"
	"regexp"
	"strconv"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Dot adds the products of 4 adjacent bytes to each dword of sum: signed acts times unsigned codes.
func (isa ISA) Dot(acts, codes, sum reg.VecVirtual) {
	switch isa {
	case AVX512:
		build.VPDPBUSD(acts, codes, sum)
	case AVXVNNI:
		build.Instruction(&ir.Instruction{
			Opcode:   vexOpcode,
			Operands: []operand.Op{acts, codes, sum},
			Inputs:   []operand.Op{acts, codes, sum},
			Outputs:  []operand.Op{sum},
			ISA:      []string{"AVXVNNI"},
		})
	default:
		log.Fatal("AVX2 has no instruction for products of bytes in dwords")
	}
}

// vexOpcode stands for VPDPBUSD of AVX-VNNI. Neither avo nor Go's assembler knows its encoding,
// VEX: their VPDPBUSD is the instruction of AVX-512. encodeVEX replaces it when registers are
// allocated.
const vexOpcode = "VPDPBUSD_VEX"

var vexLine = regexp.MustCompile(vexOpcode + `\s+Y(\d+), Y(\d+), Y(\d+)\n`)

// encodeVEX replaces vexOpcode in assembly by bytes, with the instruction in a comment.
func encodeVEX(source []byte) []byte {
	return vexLine.ReplaceAllFunc(source, func(line []byte) []byte {
		var r [3]byte
		for i, digits := range vexLine.FindSubmatch(line)[1:] {
			n, err := strconv.Atoi(string(digits))
			if err != nil {
				log.Fatal(err)
			}
			r[i] = byte(n)
		}
		code := vpdpbusd(r[0], r[1], r[2])
		return fmt.Appendf(nil, "LONG $0x%02x%02x%02x%02x; BYTE $0x%02x // VPDPBUSD Y%d, Y%d, Y%d\n",
			code[3], code[2], code[1], code[0], code[4], r[0], r[1], r[2])
	})
}

// vpdpbusd is VEX.256.66.0F38.W0 50 /r for the numbers of YMM registers in Go's order: acts, codes,
// sum.
func vpdpbusd(acts, codes, sum byte) [5]byte {
	const threeBytes, map0F38, length256, prefix66 = 0xc4, 2, 1 << 2, 1
	r, b := ^sum>>3&1, ^acts>>3&1 // the high bits of registers are inverted
	return [5]byte{
		threeBytes,
		r<<7 | 1<<6 | b<<5 | map0F38,
		^codes&15<<3 | length256 | prefix66,
		0x50,
		3<<6 | sum&7<<3 | acts&7,
	}
}

// needs512 matches a register, or the requirement of a function, that CPUs without AVX-512 lack.
var needs512 = regexp.MustCompile(`\b[XYZ](1[6-9]|[23]\d)\b|// Requires:.*AVX512\w*`)

// check ends the program if the code needs more than the instruction set.
func (isa ISA) check(source []byte) {
	if m := needs512.Find(source); m != nil && isa != AVX512 {
		log.Fatalf("a function for %s needs %s", isa.Suffix(), m)
	}
}
