package emit

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
)

// consts maps the names of the file's constants to their places; a name states the values.
var consts = map[string]operand.Mem{}

// Const is read-only memory with the values: 4 bytes, or a multiple of 8.
func Const[T uint8 | uint16 | uint32](values ...T) operand.Mem {
	var name strings.Builder
	size := binary.Size(values[0])
	fmt.Fprintf(&name, "u%d", 8*size)
	for i := 0; i < len(values); {
		n := 1
		for i+n < len(values) && values[i+n] == values[i] {
			n++
		}
		fmt.Fprintf(&name, "_%x", values[i])
		if n > 1 {
			fmt.Fprintf(&name, "x%d", n)
		}
		i += n
	}
	m, ok := consts[name.String()]
	if !ok {
		m = GLOBL(name.String(), attr.NOPTR|attr.RODATA)
		for at := 0; at < size*len(values); at += 8 {
			var word uint64
			for i := at / size; i < min(at/size+8/size, len(values)); i++ {
				word |= uint64(values[i]) << (8 * (size*i - at))
			}
			if size*len(values) < 8 {
				DATA(at, operand.U32(word))
			} else {
				DATA(at, operand.U64(word))
			}
		}
		consts[name.String()] = m
	}
	return m
}

// lanes32 has each value in all 4 dwords of its lane.
func lanes32(values ...uint32) operand.Mem {
	var v []uint32
	for _, x := range values {
		v = append(v, x, x, x, x)
	}
	return Const(v...)
}

// All is a vector with the value in all bytes.
func (isa ISA) All(b uint8) operand.Mem { return isa.All32(uint32(b) * 0x01010101) }

// All32 is a vector with the value in all dwords.
func (isa ISA) All32(x uint32) operand.Mem {
	v := make([]uint32, 4*isa.Lanes())
	for i := range v {
		v[i] = x
	}
	return Const(v...)
}
