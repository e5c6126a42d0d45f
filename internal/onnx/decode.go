package onnx

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/internal/protobuf"
	"google.golang.org/protobuf/encoding/protowire"
)

// reader fills a value from the fields of its message.
type reader func(f protobuf.Field) error

// Decode reads the bytes of a model. The tensors' Raw are parts of data. An error has the offset of
// what is wrong.
func Decode(data []byte) (*Model, error) {
	m := &Model{}
	err := protobuf.Fields(data, 0, func(f protobuf.Field) error {
		switch f.Number {
		case 1:
			return integer(f, &m.IR)
		case 2:
			return text(f, &m.Producer)
		case 3:
			return text(f, &m.Version)
		case 7:
			return within(f, m.Graph.field)
		case 8:
			var o Opset
			err := within(f, func(f protobuf.Field) error {
				switch f.Number {
				case 1:
					return text(f, &o.Domain)
				case 2:
					return integer(f, &o.Version)
				}
				return nil
			})
			m.Opsets = append(m.Opsets, o)
			return err
		}
		return nil
	})
	return m, err
}

func wrong(f protobuf.Field, want string) error {
	return fmt.Errorf("byte %d: field %d is of type %d: %s was expected", f.At, f.Number, f.Type, want)
}

func integer[T ~int64 | ~uint8](f protobuf.Field, to *T) error {
	if f.Type != protowire.VarintType {
		return wrong(f, "an integer")
	}
	*to = T(f.Int)
	return nil
}

func text(f protobuf.Field, to *string) error {
	if f.Type != protowire.BytesType {
		return wrong(f, "a string")
	}
	*to = string(f.Value)
	return nil
}

// within reads the message that a field holds.
func within(f protobuf.Field, read reader) error {
	if f.Type != protowire.BytesType {
		return wrong(f, "a message")
	}
	return protobuf.Fields(f.Value, f.At, read)
}

// element appends a value to a list, and reads the message that a field holds into it.
func element[T any](f protobuf.Field, list *[]T, read func(v *T) reader) error {
	*list = append(*list, *new(T))
	return within(f, read(&(*list)[len(*list)-1]))
}

func name(f protobuf.Field, list *[]string) error {
	*list = append(*list, "")
	return text(f, &(*list)[len(*list)-1])
}

func (g *Graph) field(f protobuf.Field) error {
	switch f.Number {
	case 1:
		return element(f, &g.Nodes, func(n *Node) reader { return n.field })
	case 2:
		return text(f, &g.Name)
	case 5:
		return element(f, &g.Initializers, func(t *Tensor) reader { return t.field })
	case 11:
		return element(f, &g.Inputs, func(v *Value) reader { return v.field })
	case 12:
		return element(f, &g.Outputs, func(v *Value) reader { return v.field })
	}
	return nil
}

func (n *Node) field(f protobuf.Field) error {
	switch f.Number {
	case 1:
		return name(f, &n.Inputs)
	case 2:
		return name(f, &n.Outputs)
	case 3:
		return text(f, &n.Name)
	case 4:
		return text(f, &n.Op)
	case 5:
		return element(f, &n.Attributes, func(a *Attribute) reader { return a.field })
	case 7:
		return text(f, &n.Domain)
	}
	return nil
}

func (a *Attribute) field(f protobuf.Field) error {
	switch f.Number {
	case 1:
		return text(f, &a.Name)
	case 2:
		if f.Type != protowire.Fixed32Type {
			return wrong(f, "a float")
		}
		a.Float = math.Float32frombits(binary.LittleEndian.Uint32(f.Value))
	case 3:
		return integer(f, &a.Int)
	case 4:
		return text(f, &a.String)
	case 20:
		return integer(f, &a.Type)
	}
	return nil
}

func (t *Tensor) field(f protobuf.Field) error {
	switch f.Number {
	case 1:
		if f.Type == protowire.BytesType { // packed
			return t.packedDims(f)
		}
		t.Dims = append(t.Dims, 0)
		return integer(f, &t.Dims[len(t.Dims)-1])
	case 2:
		return integer(f, &t.Type)
	case 8:
		return text(f, &t.Name)
	case 9:
		if f.Type != protowire.BytesType {
			return wrong(f, "bytes")
		}
		t.Raw = f.Value
	case 12:
		return text(f, &t.Doc)
	case 13:
		return t.External.pair(f)
	}
	return nil
}

func (t *Tensor) packedDims(f protobuf.Field) error {
	for b := f.Value; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return fmt.Errorf("byte %d: an integer is cut off", f.At+len(f.Value)-len(b))
		}
		t.Dims, b = append(t.Dims, int64(v)), b[n:]
	}
	return nil
}

// pair reads an entry of external data.
func (e *External) pair(f protobuf.Field) error {
	var p Pair
	err := within(f, func(f protobuf.Field) error {
		switch f.Number {
		case 1:
			return text(f, &p.Key)
		case 2:
			return text(f, &p.Value)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case p.Key == "location":
		e.Location = p.Value
	case p.Key == "offset" || p.Key == "length":
		v, err := strconv.ParseInt(p.Value, 10, 64)
		if err != nil || v < 0 {
			return fmt.Errorf("byte %d: the %s of external data is %q: a number was expected", f.At, p.Key, p.Value)
		}
		if p.Key == "offset" {
			e.Offset = v
		} else {
			e.Length = v
		}
	case strings.HasPrefix(p.Key, prepackedKey):
		e.Prepacked = append(e.Prepacked, p)
	}
	return nil
}

func (v *Value) field(f protobuf.Field) error {
	switch f.Number {
	case 1:
		return text(f, &v.Name)
	case 2:
		return within(f, func(f protobuf.Field) error {
			if f.Number != 1 { // another kind than a tensor
				return nil
			}
			return within(f, v.tensorField)
		})
	}
	return nil
}

func (v *Value) tensorField(f protobuf.Field) error {
	switch f.Number {
	case 1:
		return integer(f, &v.Type)
	case 2:
		return within(f, func(f protobuf.Field) error {
			if f.Number != 1 {
				return nil
			}
			return element(f, &v.Dims, func(d *Dim) reader { return d.field })
		})
	}
	return nil
}

func (d *Dim) field(f protobuf.Field) error {
	switch f.Number {
	case 1:
		return integer(f, &d.Size)
	case 2:
		return text(f, &d.Name)
	}
	return nil
}
