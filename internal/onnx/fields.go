package onnx

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/protobuf"
	"google.golang.org/protobuf/encoding/protowire"
)

// Decode reads the bytes of a model. The tensors' Raw are parts of data. An error has the offset of
// what is wrong.
func Decode(data []byte) (*Model, error) {
	m := &Model{}
	return m, read(data, 0, m, (*Model).fields)
}

// Encode returns the bytes of a model. Equal models give equal bytes.
func (m *Model) Encode() []byte {
	c := &coder{}
	m.fields(c)
	return c.out
}

// coder reads a field of a message, or writes all fields. Each message has a method fields that
// passes its fields to a coder.
type coder struct {
	field *protobuf.Field // nil: the coder writes
	err   error
	out   []byte
}

// read reads a message that begins at byte at of the file.
func read[T any](data []byte, at int, v *T, fields func(v *T, c *coder)) error {
	return protobuf.Fields(data, at, func(f protobuf.Field) error {
		c := &coder{field: &f}
		fields(v, c)
		return c.err
	})
}

// reads reports whether the coder reads field n.
func (c *coder) reads(n protowire.Number, t protowire.Type) bool {
	if c.field == nil || c.field.Number != n {
		return false
	}
	if c.field.Type != t {
		c.err = fmt.Errorf("byte %d: field %d has the wire type %d: %d was expected", c.field.At, n, c.field.Type, t)
	}
	return c.err == nil
}

// writes writes the tag of field n, if the coder writes.
func (c *coder) writes(n protowire.Number, t protowire.Type) bool {
	if c.field == nil {
		c.out = protowire.AppendTag(c.out, n, t)
	}
	return c.field == nil
}

func integer[T ~int64](c *coder, n protowire.Number, v *T) {
	if c.reads(n, protowire.VarintType) {
		*v = T(c.field.Int)
	} else if c.writes(n, protowire.VarintType) {
		c.out = protowire.AppendVarint(c.out, uint64(*v))
	}
}

func (c *coder) bytes(n protowire.Number, v *[]byte) {
	if c.reads(n, protowire.BytesType) {
		*v = c.field.Value
	} else if c.writes(n, protowire.BytesType) {
		c.out = protowire.AppendBytes(c.out, *v)
	}
}

// text codes a string. An empty string is not written.
func (c *coder) text(n protowire.Number, v *string) {
	if b := []byte(*v); len(b) > 0 || c.field != nil {
		c.bytes(n, &b)
		*v = string(b)
	}
}

func (c *coder) texts(n protowire.Number, list *[]string) {
	if c.reads(n, protowire.BytesType) {
		*list = append(*list, string(c.field.Value))
	}
	for i := 0; c.field == nil && i < len(*list); i++ {
		b := []byte((*list)[i])
		c.bytes(n, &b)
	}
}

// integers codes a list, which other programs may have packed into one field.
func (c *coder) integers(n protowire.Number, list *[]int64) {
	if f := c.field; f != nil && f.Number == n && f.Type == protowire.BytesType {
		for b := f.Value; len(b) > 0; {
			v, size := protowire.ConsumeVarint(b)
			if size < 0 {
				c.err = fmt.Errorf("byte %d: an integer is cut off", f.At+len(f.Value)-len(b))
				return
			}
			*list, b = append(*list, int64(v)), b[size:]
		}
	} else if c.reads(n, protowire.VarintType) {
		*list = append(*list, int64(f.Int))
	}
	for i := 0; c.field == nil && i < len(*list); i++ {
		integer(c, n, &(*list)[i])
	}
}

func message[T any](c *coder, n protowire.Number, v *T, fields func(v *T, c *coder)) {
	if c.reads(n, protowire.BytesType) {
		c.err = read(c.field.Value, c.field.At, v, fields)
	} else if c.writes(n, protowire.BytesType) {
		sub := &coder{}
		fields(v, sub)
		c.out = protowire.AppendBytes(c.out, sub.out)
	}
}

func messages[T any](c *coder, n protowire.Number, list *[]T, fields func(v *T, c *coder)) {
	if c.reads(n, protowire.BytesType) {
		*list = append(*list, *new(T))
		message(c, n, &(*list)[len(*list)-1], fields)
	}
	for i := 0; c.field == nil && i < len(*list); i++ {
		message(c, n, &(*list)[i], fields)
	}
}

func (m *Model) fields(c *coder) {
	integer(c, 1, &m.IR)
	c.text(2, &m.Producer)
	message(c, 7, &m.Graph, (*Graph).fields)
	messages(c, 8, &m.Opsets, (*Opset).fields)
}

func (o *Opset) fields(c *coder) {
	c.text(1, &o.Domain)
	integer(c, 2, &o.Version)
}

func (g *Graph) fields(c *coder) {
	messages(c, 1, &g.Nodes, (*Node).fields)
	c.text(2, &g.Name)
	messages(c, 5, &g.Initializers, (*Tensor).fields)
	messages(c, 11, &g.Inputs, (*Value).fields)
	messages(c, 12, &g.Outputs, (*Value).fields)
}

func (n *Node) fields(c *coder) {
	c.texts(1, &n.Inputs)
	c.texts(2, &n.Outputs)
	c.text(3, &n.Name)
	c.text(4, &n.Op)
	messages(c, 5, &n.Attributes, (*Attribute).fields)
	c.text(7, &n.Domain)
}

func (a *Attribute) fields(c *coder) {
	c.text(1, &a.Name)
	if c.reads(2, protowire.Fixed32Type) {
		a.Float = math.Float32frombits(binary.LittleEndian.Uint32(c.field.Value))
	} else if a.Type == FloatAttribute && c.writes(2, protowire.Fixed32Type) {
		c.out = protowire.AppendFixed32(c.out, math.Float32bits(a.Float))
	}
	if c.field != nil || a.Type == IntAttribute {
		integer(c, 3, &a.Int)
	}
	c.text(4, &a.String)
	integer(c, 20, &a.Type)
}

func (t *Tensor) fields(c *coder) {
	c.integers(1, &t.Dims)
	integer(c, 2, &t.Type)
	c.text(8, &t.Name)
	external := int64(len(t.External))
	if c.field != nil || external == 0 {
		c.bytes(9, &t.Raw)
	}
	if c.field != nil && c.field.Number == 9 {
		t.RawAt = int64(c.field.At)
	}
	c.text(12, &t.Doc)
	messages(c, 13, &t.External, (*Pair).fields)
	if external = min(1, external); c.field == nil && external > 0 { // data_location
		integer(c, 14, &external)
	}
}

func (p *Pair) fields(c *coder) {
	c.text(1, &p.Key)
	c.text(2, &p.Value)
}

// fields has a value's type in three messages, one within the other.
func (v *Value) fields(c *coder) {
	c.text(1, &v.Name)
	message(c, 2, v, func(v *Value, c *coder) {
		message(c, 1, v, func(v *Value, c *coder) {
			integer(c, 1, &v.Type)
			message(c, 2, v, func(v *Value, c *coder) { messages(c, 1, &v.Dims, (*Dim).fields) })
		})
	})
}

func (d *Dim) fields(c *coder) {
	if c.field != nil || d.Name == "" {
		integer(c, 1, &d.Size)
	}
	c.text(2, &d.Name)
}
