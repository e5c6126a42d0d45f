// Package protobuf reads the fields of protocol buffers, with the offsets of what is wrong. Package
// protowire writes fields.
package protobuf

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field is a field of a message.
type Field struct {
	Number protowire.Number
	Type   protowire.Type
	At     int    // offset of the value in the file; behind an integer
	Value  []byte // nil for a variable-length integer
	Int    uint64 // the integer
}

// Fields calls visit for each field of a message that starts at byte at of the file.
func Fields(message []byte, at int, visit func(Field) error) error {
	for i := 0; i < len(message); {
		malformed := func(format string, args ...any) error {
			return fmt.Errorf("byte %d: "+format, append([]any{at + i}, args...)...)
		}
		tag, n := protowire.ConsumeVarint(message[i:])
		if n < 0 {
			return malformed("a tag is cut off")
		}
		number, kind := protowire.DecodeTag(tag)
		if !number.IsValid() {
			return malformed("a field of number %d", tag>>3)
		}
		i += n
		f, size := Field{Number: number, Type: kind}, uint64(0)
		switch kind {
		case protowire.VarintType:
			if f.Int, n = protowire.ConsumeVarint(message[i:]); n < 0 {
				return malformed("an integer is cut off")
			}
			i += n
		case protowire.Fixed64Type:
			size = 8
		case protowire.BytesType:
			if size, n = protowire.ConsumeVarint(message[i:]); n < 0 {
				return malformed("a length is cut off")
			}
			i += n
		case protowire.Fixed32Type:
			size = 4
		default:
			return malformed("a field of unknown type %d", kind)
		}
		if size > uint64(len(message)-i) {
			return malformed("a field of %d bytes, %d are left", size, len(message)-i)
		}
		f.At = at + i
		if kind != protowire.VarintType {
			f.Value = message[i:][:size]
		}
		if err := visit(f); err != nil {
			return err
		}
		i += int(size)
	}
	return nil
}
